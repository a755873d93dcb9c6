"""The client for Node: its own tests, its types, and the package as a user installs it."""

import os
import shutil
import subprocess
import tempfile
import unittest

import node_packages
from daemon import BIN_DIR, Daemon

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SOURCE = os.path.join(ROOT, "client", "node")
BOUND_S = 150.0

USE = """
const { Client } = require('semaphored');
const client = new Client({ endpoints: [process.argv[2]], ttlMs: 2_000 });
client.withPermit('team/db', { limit: 5 }, async (permit) => {
  console.log(permit.slots.join(), String(permit.token), permit.held);
}).then(() => client.close());
"""
USE_AS_MODULE = """
import { Client, PermitLostError } from 'semaphored';
console.log(typeof Client, PermitLostError.name);
"""


def run(command, folder, **environment):
    """Its output; fails with all that it said."""
    done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, timeout=BOUND_S,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command[:3]} ended with {done.returncode}:\n{done.stdout[-8000:]}")
    return done.stdout


class NodeClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.packages = node_packages.folder()
        cls.modules = os.path.join(cls.packages, "node_modules")

    def run_node_tests(self, *names):
        files = [os.path.join(SOURCE, "test", f"{name}.test.js") for name in names]
        said = run(["node", "--test", "--test-reporter=tap", *files], SOURCE,
                   NODE_PATH=self.modules, SEMAPHORED_BIN_DIR=os.path.abspath(BIN_DIR))
        self.assertIn("# fail 0", said)
        self.assertIn("# skipped 0", said)
        self.assertNotIn("# pass 0", said)

    def test_rules_and_parts(self):
        self.run_node_tests("machine", "parts")

    def test_tls_and_tokens(self):
        self.run_node_tests("security")

    def test_with_a_daemon(self):
        self.run_node_tests("daemon")

    def test_with_a_thread_of_its_own(self):
        self.run_node_tests("thread")

    def test_types(self):
        compiler = os.path.join(self.modules, "typescript", "bin", "tsc")
        run(["node", compiler, "--project", os.path.join(SOURCE, "test", "tsconfig.json")], SOURCE)

    def test_package_installed_in_an_empty_folder(self):
        with tempfile.TemporaryDirectory(prefix="semaphored-npm-") as folder:
            # Packing writes into its source: a copy of it.
            copy = os.path.join(folder, "source")
            shutil.copytree(os.path.join(ROOT, "proto"), os.path.join(copy, "proto"))
            shutil.copytree(SOURCE, os.path.join(copy, "client", "node"),
                            ignore=shutil.ignore_patterns("node_modules", "proto"))
            run(["npm", "pack", "--pack-destination", folder, "--loglevel=error"],
                os.path.join(copy, "client", "node"))
            package, = [name for name in os.listdir(folder) if name.endswith(".tgz")]
            user = os.path.join(folder, "user")
            os.makedirs(user)
            for name, text in (("package.json", "{}"), ("use.js", USE), ("use.mjs", USE_AS_MODULE)):
                with open(os.path.join(user, name), "w", encoding="utf-8") as file:
                    file.write(text)
            run(node_packages.npm("install", os.path.join(folder, package)), user, NODE_PATH="")
            shutil.rmtree(copy)
            with Daemon() as daemon:
                said = run(["node", "use.js", daemon.address], user, NODE_PATH="")
                self.assertEqual(said, "1 1 true\n")
            self.assertEqual(run(["node", "use.mjs"], user, NODE_PATH=""),
                             "function PermitLostError\n")

    def test_lock_file_names_no_registry(self):
        with open(os.path.join(SOURCE, "package-lock.json"), encoding="utf-8") as file:
            text = file.read()
        self.assertNotIn('"resolved"', text)
        self.assertIn('"integrity"', text)


if __name__ == "__main__":
    unittest.main()
