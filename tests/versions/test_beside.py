"""Daemons of version N and N + 1 (next.py) on one engine: what docs/compatibility.md promises of them.

Environment: as for the process tests, with the daemon of version N; SEMAPHORED_NEXT_DIR, the folder with that of
version N + 1.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "engines"), os.path.join(TESTS, "e2e")]

import grpc  # noqa: E402  the folders have to be on the path first

import daemon  # noqa: E402
from consul import ConsulServer  # noqa: E402
from daemon import Daemon, pb, wait_until  # noqa: E402
from dynamodb import ENVIRONMENT, TABLE, DynamoServer  # noqa: E402
from postgres import PostgresServer  # noqa: E402
from rabbitmq import RabbitServer  # noqa: E402

NEXT_DIR = os.environ["SEMAPHORED_NEXT_DIR"]
UNUSABLE_STORE = 5
TTL_MS = 60_000
NEWER = "made by a newer semaphored"


class NextDaemon(Daemon):
    def spawn(self):
        with mock.patch.object(daemon, "BIN_DIR", NEXT_DIR):
            super().spawn()


class OnEngine:
    """What each engine's cases have in common. `self.store` is set by setUp."""

    survives = True  # A lease outlives its daemon.

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="semaphored-versions-"))
        self.begin()

    def run_daemon(self, kind, node_id):
        made = kind({"node_id": node_id}, store=self.store)
        made.environment.update(ENVIRONMENT)
        return made

    def old(self, node_id="n"):
        return self.run_daemon(Daemon, node_id)

    def next(self, node_id="next"):
        return self.run_daemon(NextDaemon, node_id)

    def check_refused(self):
        old = self.old()
        self.addCleanup(old.close)
        old.spawn()
        self.assertEqual(old.wait_exit(), UNUSABLE_STORE, old.log())
        self.assertIn(NEWER, old.log())

    def make(self, client, name="s"):
        client.administer(name, create=pb.CreateSemaphore(limit=3))


class RaisedVersion(OnEngine):
    """N + 1 reads what N has stored. N then refuses the store, and changes nothing in it."""

    def test_what_the_next_version_has_raised_is_refused(self):
        with self.old() as old:
            self.make(old.client())
            old.client().acquire("s", ttl_ms=TTL_MS)
            self.assertEqual(old.terminate(), 0)
        with self.next() as after:
            info = after.client().describe("s")
            self.assertEqual(info.limit, 3)
            self.assertEqual(info.held, 1 if self.survives else 0)
            after.client().acquire("s", ttl_ms=TTL_MS)
            self.assertEqual(after.terminate(), 0)
        before = self.stored()
        self.check_refused()
        self.assertEqual(self.stored(), before)
        with self.next() as after:
            self.assertEqual(after.client().describe("s").limit, 3)


class SqliteTest(RaisedVersion, unittest.TestCase):
    def begin(self):
        self.path = os.path.join(self.folder, "state.db")
        self.store = f"sqlite://{self.path}"

    def stored(self):
        with open(self.path, "rb") as file:
            return file.read()

    def test_the_former_file_is_kept_for_the_former_version(self):
        with self.old() as old:
            self.make(old.client())
            self.assertEqual(old.terminate(), 0)
        with self.next() as after:
            self.assertEqual(after.terminate(), 0)
        self.store = f"sqlite://{self.path}.version-1"
        with self.old() as old:
            self.assertEqual(old.client().describe("s").limit, 3)


class ConsulTest(RaisedVersion, unittest.TestCase):
    def begin(self):
        self.server = self.stack.enter_context(ConsulServer(os.path.join(self.folder, "consul")))
        self.store = self.server.url(prefix="versions")

    def stored(self):
        return self.server.request("GET", "kv/versions/?recurse")


class DynamoTest(RaisedVersion, unittest.TestCase):
    def begin(self):
        self.server = self.stack.enter_context(DynamoServer(os.path.join(self.folder, "dynamodb")))
        self.store = self.server.url()
        subprocess.run([os.path.join(daemon.BIN_DIR, "semaphored"), "schema", "--create", "--store", self.store],
                       check=True, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.DEVNULL)

    def stored(self):
        items = self.server.request("Scan", {"TableName": TABLE, "ConsistentRead": True})[1]["Items"]
        return sorted(items, key=lambda item: (item["PK"]["S"], item["SK"]["S"]))


class RabbitTest(RaisedVersion, unittest.TestCase):
    survives = False

    def begin(self):
        self.server = self.stack.enter_context(RabbitServer(os.path.join(self.folder, "rabbitmq")))
        self.store = self.server.url()

    def stored(self):
        """Queues without messages are those of connections, which come and go."""
        queues = self.server.ctl("list_queues", "--no-table-headers", "name", "messages")
        return sorted(line for line in queues.splitlines() if not line.endswith("\t0"))

    def test_a_daemon_that_still_runs_refuses_what_the_next_version_has_written(self):
        with self.old() as old, self.next() as after:
            client = old.client()
            for name in ("s", "t"):
                self.make(client, name)
            after.client().administer("s", resize=pb.ResizeSemaphore(limit=5))

            def refuses():
                try:
                    client.describe("s")
                    return False
                except grpc.RpcError as error:
                    return NEWER in error.details()
            wait_until(refuses, "the daemon of version N refuses the document")
            self.assertEqual(client.describe("t").limit, 3)
            self.assertEqual(after.client().describe("s").limit, 5)


class PostgresTest(OnEngine, unittest.TestCase):
    """N + 1 migrates under a daemon of N that works, and both count the same permits."""

    def begin(self):
        self.server = self.stack.enter_context(PostgresServer(os.path.join(self.folder, "postgres")))
        self.store = self.server.url(schema="versions")

    def test_both_work_side_by_side(self):
        with self.old() as old:
            self.make(old.client())
            old.client().acquire("s", ttl_ms=TTL_MS)
            with self.next() as after:
                after.client().acquire("s", ttl_ms=TTL_MS)
                self.assertEqual(after.client().describe("s").held, 2)
                old.client().acquire("s", ttl_ms=TTL_MS)
                with self.assertRaises(grpc.RpcError):
                    after.client().acquire("s")
                self.assertEqual(old.terminate(), 0)
                old.start()
                wait_until(lambda: old.client().describe("s").held == 3, "all leases stand at both")
        self.assertEqual(self.server.execute("SELECT version, oldest_daemon FROM versions.store"), [(2, 1)])


if __name__ == "__main__":
    unittest.main()
