#!/usr/bin/python3
"""The traces on the Node client's session machine.

Usage: node.py [--client FOLDER] [NAME]

  NAME             of one trace; without it all of them
  --client FOLDER  a copy of client/node to test instead

Prints what node:test reports. Exit code: that of node.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import node_packages  # noqa: E402  after the path


def main() -> int:
    """Runs node, and returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", type=pathlib.Path, default=ROOT / "client" / "node")
    parser.add_argument("name", nargs="?")
    arguments = parser.parse_args()
    command = ["node", "--test-reporter=tap"]
    if arguments.name:
        command.append(f"--test-name-pattern=^{re.escape(arguments.name)}$")
    modules = os.path.join(node_packages.folder(), "node_modules")
    done = subprocess.run([*command, arguments.client / "test" / "conformance.test.js"], check=False,
                          env={**os.environ, "NODE_PATH": modules})
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
