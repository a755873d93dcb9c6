"""What a second start of a daemon by mistake, and a start after its end, come to on an engine that
daemons share."""

import shutil
import tempfile
import time

from cluster import NODE_TTL_S

REFUSED = 3
CANNOT_LISTEN = 4
# A start that waits for nothing, on a machine that is busy.
AT_ONCE_S = NODE_TTL_S * 0.7


def timed_start(daemon):
    begun = time.monotonic()
    daemon.start()
    return time.monotonic() - begun


class SecondStartCase:
    """Mixed into a TestCase that has newcomer(here): a daemon with the node id "a", not started
    yet, on a machine whose lock files are in the folder `here`."""

    WORDS = ("the daemon at {address}", "pid {pid}", "since 20", "is alive")

    def folder_of_locks(self):
        folder = tempfile.mkdtemp(prefix="semaphored-e2e-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def assert_refused(self, second, first):
        self.assertEqual(second.wait_exit(NODE_TTL_S + 15), REFUSED, second.log())
        for words in ("node 'a'", "--node-id", *self.WORDS):
            self.assertIn(words.format(address=first.address, pid=first.process.pid), second.log())

    def test_a_second_start_and_one_after_the_end(self):
        here = self.folder_of_locks()
        first = self.newcomer(here).start()
        lease = first.client().acquire("held", limit=1, ttl_ms=60_000)
        for places in (here, self.folder_of_locks()):
            second = self.newcomer(places)
            second.spawn()
            self.assert_refused(second, first)
            self.assertTrue(first.client().verify(lease.lease_id).held)
        first.kill9()
        second = self.newcomer(here)
        self.assertLess(timed_start(second), AT_ONCE_S, second.log()[-2000:])
        self.assertEqual(second.terminate(), 0)
        elsewhere = self.newcomer(self.folder_of_locks())
        self.assertLess(timed_start(elsewhere), AT_ONCE_S, elsewhere.log()[-2000:])
