"""Two daemons on a Postgres with a synchronous standby, and a crowd. The server is killed, its standby is promoted and
gets a standby in its turn: nothing that was answered is lost, and no more are let in than the limit.

SEMAPHORED_TEST_KILLS: how often, each time when the standby is in step.
"""

import contextlib
import os
import threading
import time
import unittest

import cluster
from cluster import Cluster
from daemon import BOUND_S, grpc, wait_until
from storm import Storm

KILLS = int(os.environ.get("SEMAPHORED_TEST_KILLS", "1"))
SCHEMA = "failover"
HELD_MS = 3600 * 1000  # Of what is to stand to the end.
WRITERS = 4


class Writer:
    """Acquires, and releases every other lease, one after the other; remembers what was answered."""

    def __init__(self, client):
        self._client = client
        self.held = []
        self.released = []
        self.unknown = []  # Leases whose release had no answer.
        self.refused = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self):
        self._stopping.set()
        self._thread.join(BOUND_S)

    def _run(self):
        while not self._stopping.wait(0.02):
            with self._asking():
                lease = self._client.acquire("answered", limit=100000, ttl_ms=HELD_MS)
                self.held.append(lease)
                if len(self.held) > len(self.released):
                    self._release()

    def _release(self):
        lease = self.held.pop()
        self.unknown.append(lease)
        self._client.release(lease.lease_id)
        self.released.append(self.unknown.pop())

    @contextlib.contextmanager
    def _asking(self):
        try:
            yield
        except grpc.RpcError as error:
            self.refused.add(error.code().name)


class SynchronousStandby(Storm, unittest.TestCase):

    CLIENTS = 60

    def setUp(self):
        self.server = cluster.start_server(self)
        super().setUp()
        self.standby = self.add_standby()
        self.killed = None

    def add_standby(self, port=None):
        standby = self.server.make_standby(f"{self.server.folder}/standby", port)
        self.addCleanup(standby.remove)
        return standby.start()

    def url(self):
        head, _, tail = self.server.url(SCHEMA).partition(f":{self.server.port}/")
        return f"{head}:{self.server.port},127.0.0.1:{self.standby.port}/{tail}"

    def wait_until_in_step(self):
        """The daemons, too, know of the standby."""
        self.server.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.server.execute("SELECT pg_reload_conf()")
        wait_until(lambda: self.server.execute("SELECT sync_state FROM pg_stat_replication") == [("sync",)],
                   "the standby is synchronous")
        wait_until(lambda: self.server.execute(f"SELECT synchronous FROM {SCHEMA}.store") == [(True,)],
                   "the daemons know of it")

    def fail_over(self):
        """Seconds from the kill until the standby takes writes."""
        if self.standby is None:
            self.standby = self.add_standby(self.killed.port)
        self.wait_until_in_step()
        begun = time.monotonic()
        self.server.kill()
        self.standby.promote()
        lasted = time.monotonic() - begun
        self.killed, self.server, self.standby = self.server, self.standby, None
        self.let_work()
        return lasted

    def test_promoted_under_load(self):
        with Cluster({name: self.url() for name in "ab"}) as daemons, self.crowd(daemons) as crowd:
            writers = [Writer(daemon.client()) for daemon in daemons.daemons.values() for _ in range(WRITERS // 2)]
            self.let_work()
            lasted = [self.fail_over() for _ in range(KILLS)]
            self.let_work_in_peace()
            for writer in writers:
                writer.finish()
            print(f"\n{KILLS} fail-overs, until the standby took writes: "
                  f"{', '.join(f'{each:.2f} s' for each in lasted)}", flush=True)
            self.judge(daemons, *crowd.finish(), failures=False)
            self.judge_end(daemons, crowd.refused)
            self.judge_answered(daemons, writers)
            # Nothing was taken for lost.
            self.assertEqual(self.server.execute(f"SELECT epoch, withheld FROM {SCHEMA}.store"), [(0, False)])

    def judge_answered(self, daemons, writers):
        held = [lease for writer in writers for lease in writer.held]
        released = [lease for writer in writers for lease in writer.released]
        unknown = [lease for writer in writers for lease in writer.unknown]
        print(f"\nanswered: {len(held)} held, {len(released)} released, {len(unknown)} without an answer to the "
              "release", flush=True)
        self.assertGreater(min(len(held), len(released)), 20 * KILLS, "too few answers: this proved nothing")
        self.assertLessEqual({code for writer in writers for code in writer.refused}, {"UNAVAILABLE"})
        tokens = [lease.token for lease in held + released + unknown]
        self.assertEqual(len(set(tokens)), len(tokens))
        client = daemons["b"].client()
        self.assertEqual([lease for lease in held if not client.verify(lease.lease_id).held], [])
        self.assertEqual([lease for lease in released if client.verify(lease.lease_id).held], [])


if __name__ == "__main__":
    unittest.main()
