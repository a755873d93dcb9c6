"""Connect's own client for Node calls every unary method at the real daemon; and the API's description is the .proto's."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import jsonschema

import node_packages
from http_client import SERVICE, Events, HttpDaemon

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
    """proto/openapi.json."""

    def openapi(self, folder):
        return subprocess.run([sys.executable, "-B", os.path.join(folder, "openapi.py"), "check"],
                              capture_output=True, text=True, timeout=60, check=False)

    def test_is_what_the_proto_says(self):
        done = self.openapi(PROTO)
        self.assertEqual(0, done.returncode, done.stderr)

    def test_a_daemon_keeps_to_it(self):
        """Every path is asked at a real daemon: each request and each answer is what the description allows."""
        with open(os.path.join(PROTO, "openapi.json"), encoding="utf-8") as file:
            described = json.load(file)
        self.assertRegex(described["openapi"], r"^3\.1\.")
        schemas = {"components": described["components"]}
        for schema in described["components"]["schemas"].values():
            jsonschema.Draft202012Validator.check_schema(schema)
        asked = set()

        def check(schema, value):
            jsonschema.Draft202012Validator({**schema, **schemas}).validate(value)

        def contents(path):
            asked.add(path)
            post = described["paths"][path]["post"]
            return (post["requestBody"]["content"]["application/json"]["schema"],
                    post["responses"]["200"]["content"], post["responses"]["default"]["content"]["application/json"]["schema"])

        with HttpDaemon() as daemon:
            def call(method, request):
                wanted, answers, _ = contents(SERVICE + method)
                check(wanted, request)
                answer = daemon.done(method, request)
                check(answers["application/json"]["schema"], answer)
                return answer

            def first_event(path, request, name):
                wanted, answers, _ = contents(path)
                check(wanted, request)
                with Events(daemon, "POST", path, request) as events:
                    check(answers["text/event-stream"]["schema"], events.until(name))

            lease = call("Acquire", {"semaphore": "o", "limit": 2, "ttlMs": 60_000, "holder": "one",
                                     "requestId": {"oneShot": "5cb5cb3e-2f6f-4b52-9d4a-58bbd5a1f5a1"}})["lease"]
            call("Renew", {"leaseId": lease["leaseId"]})
            call("Verify", {"semaphore": "o", "slot": 1, "token": lease["token"]})
            call("Enqueue", {"semaphore": "o", "payload": "aGVsbG8=", "contentType": "text/plain"})
            for act in ("describe", "list", "listTickets", "history", "pause", "resume"):
                call("Administer", {act: {}, **({} if act == "list" else {"semaphore": "o"})})
            call("DescribeDaemon", {"probeEngine": True})
            first_event("/v1/watch", {"semaphore": "o"}, "snapshot")
            first_event("/v1/hold", {"acquire": {"semaphore": "h", "limit": 1}}, "granted")
            call("Release", {"leaseId": lease["leaseId"]})
            wanted, _, error = contents(SERVICE + "Acquire")
            check(error, daemon.call("Acquire", {"semaphore": "none"})[1])
            for wrong in ({"limt": 1}, {"limit": -1}, {"limit": "many"}, {"semaphore": 1}):
                self.assertEqual(400, daemon.call("Acquire", wrong)[0])
                with self.assertRaises(jsonschema.ValidationError):
                    check(wanted, wrong)
        self.assertEqual(set(described["paths"]), asked)

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
