"""Connect's own client for Node calls every unary method at the real daemon; and the API's description is the .proto's."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import node_packages
from http_client import HttpDaemon

HERE = os.path.dirname(os.path.abspath(__file__))
PROTO = os.path.abspath(os.path.join(HERE, "..", "..", "proto"))


class Connect(unittest.TestCase):
    def test_every_unary_call(self):
        modules = os.path.join(node_packages.folder(node_packages.CONNECT), "node_modules")
        with HttpDaemon() as daemon, tempfile.TemporaryDirectory() as folder:
            descriptors = os.path.join(folder, "set")
            subprocess.run(["protoc", f"-I{PROTO}", "--include_imports",
                            f"--descriptor_set_out={descriptors}",
                            os.path.join(PROTO, "semaphore/v1/semaphore.proto"),
                            os.path.join(PROTO, "google/rpc/error_details.proto")], check=True)
            done = subprocess.run(
                ["node", os.path.join(HERE, "connect", "calls.js"),
                 f"http://{daemon.http_address}", descriptors],
                env={**os.environ, "NODE_PATH": modules}, capture_output=True, text=True,
                timeout=120, check=False)
            self.assertEqual(0, done.returncode, done.stderr[-4000:])
            self.assertIn("Acquire", json.loads(done.stdout)["called"])


class Description(unittest.TestCase):
    def openapi(self, folder):
        return subprocess.run([sys.executable, "-B", os.path.join(folder, "openapi.py"), "check"],
                              capture_output=True, text=True, timeout=60, check=False)

    def test_is_what_the_proto_says(self):
        done = self.openapi(PROTO)
        self.assertEqual(0, done.returncode, done.stderr)

    def test_a_changed_proto_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "proto")
            subprocess.run(["cp", "-r", PROTO, copy], check=True)
            path = os.path.join(copy, "semaphore/v1/semaphore.proto")
            with open(path, encoding="utf-8") as file:
                text = file.read()
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace("bool release_on_disconnect = 2;",
                                        "bool release_on_disconnect = 2;\n  bool planted = 99;"))
            self.assertNotEqual(0, self.openapi(copy).returncode)


if __name__ == "__main__":
    unittest.main()
