"""Runs a command where the resolver of names gets no answer: hanging_resolver.py COMMAND...

Needs root, for a name space of mounts in which /etc/resolv.conf names a server that is silent."""

import os
import socket
import subprocess
import sys
import tempfile

SILENT = "127.0.0.77"  # An address of this machine on which no server answers.


def main():
    if "HANGING_RESOLVER" not in os.environ:
        os.environ["HANGING_RESOLVER"] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, "-B", *sys.argv])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent, \
            tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
        silent.bind((SILENT, 53))
        conf.write(f"nameserver {SILENT}\n")
        conf.flush()
        subprocess.run(["mount", "--bind", conf.name, "/etc/resolv.conf"], check=True)
        sys.exit(subprocess.run(sys.argv[1:], check=False).returncode)


if __name__ == "__main__":
    main()
