"""DynamoDB Local with many leases: see take_over_case.py."""

import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from take_over_case import LEASES, TakeOverCase, cluster, take_over  # noqa: E402  the folder has to be on the path first
from counting_proxy import CountingProxy  # noqa: E402
from daemon import BIN_DIR, wait_until  # noqa: E402
from dynamodb import ENVIRONMENT, DynamoServer  # noqa: E402
from test_dynamodb_requests import Request  # noqa: E402

# For each semaphore in which a daemon goes on with a lease.
READS_MAX = 1.5
# The proxy and the clients are one Python process.
COUNTED_LEASES = min(LEASES, 10_000)


def is_reading(*parts):
    """Of what a CountingProxy has read of a request: it is one that grows with the leases, but no commit."""
    request = Request(*parts)
    return not (request.operation == "TransactWriteItems" or request.beats() or request.asks_for_word())


class Scale(TakeOverCase, unittest.TestCase):
    BOUND_S = 60
    SETTINGS = {"lanes": "4"}
    ENVIRONMENT = ENVIRONMENT
    SESSION_LEASES = LEASES // 10

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls, DynamoServer)

    def setUp(self):
        subprocess.run([os.path.join(BIN_DIR, "semaphored"), "schema", "--create", "--store", self.store()],
                       env={**os.environ, **ENVIRONMENT}, check=True, capture_output=True)

    def store(self, port=None):
        """`port` of a proxy."""
        return self.server.url(self.id().rsplit(".", 1)[1][-40:], port=port)

    def start_counted(self, daemon):
        """Starts it behind a proxy; returns what grows with its requests: for each, whether it is a reading."""
        proxy = CountingProxy(self.server.port, is_reading)
        self.addCleanup(proxy.close)
        self.addCleanup(daemon.close)  # Before its proxy.
        daemon.store = self.store(proxy.port)
        daemon.start()
        return proxy.asked

    def assert_reads(self, what, asked):
        reads = sum(list(asked))
        print(f"\n{what} with {COUNTED_LEASES} leases: {reads} readings", flush=True)
        self.assertLessEqual(reads, READS_MAX * COUNTED_LEASES)

    def test_what_a_take_over_and_a_restart_read(self):
        first, heir = self.daemon("first"), self.daemon("heir")
        sessions = self.hold(first, leases=COUNTED_LEASES)
        heir.kill9()
        asked = self.start_counted(heir)
        first.kill9()
        wait_until(lambda: take_over.DONE.search(heir.log()), "the take-over", 4 * self.BOUND_S)
        self.resume(heir, sessions, COUNTED_LEASES)
        self.assert_reads("take-over", asked)
        heir.kill9()
        asked = self.start_counted(heir)
        self.resume(heir, sessions, COUNTED_LEASES)
        self.assert_reads("restart", asked)


if __name__ == "__main__":
    unittest.main()
