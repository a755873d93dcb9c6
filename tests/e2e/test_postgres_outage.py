"""The database goes away and comes back: nobody is granted anything meanwhile, nobody is left in
the belief that a lease still stands, and daemons go on by themselves."""

import os
import subprocess
import threading
import time
import unittest

import cluster
from cluster import Cluster, PATIENT_NODE_TTL_S
from daemon import BOUND_S, error_info, grpc, pb, wait_until
from outage import ENGINE_TIMEOUT_S, Holder, Outages, SETTINGS, TTL_MS
from proxy import TcpProxy

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
OPTIONS = f"&timeout_ms={1000 * ENGINE_TIMEOUT_S}"


class Outage(Outages, unittest.TestCase):

    def setUp(self):
        self.server = cluster.start_server(self)
        self.proxy = TcpProxy(self.server.port)
        self.addCleanup(self.proxy.close)

    def daemons(self, **settings):
        url = self.server.url("outage", port=self.proxy.port) + OPTIONS
        return Cluster({"a": url, "b": url}, {**SETTINGS, **settings})

    def test_the_database_is_stopped(self):
        self.check_long_outage(lambda: self.server.stop("immediate"), self.server.start)

    def test_the_database_is_cut_off(self):
        self.check_long_outage(self.proxy.cut, self.proxy.heal)

    def test_the_database_is_paused(self):
        self.check_long_outage(self.server.pause, self.server.resume)

    def test_a_short_outage_is_not_even_noticed_by_holders(self):
        with self.daemons(node_ttl=f"{PATIENT_NODE_TTL_S}s") as daemons:
            client = daemons["a"].client()
            holder = Holder(client, "held")
            for name, blink in (("restart", lambda: self.server.restart("immediate")),
                                ("closed", self.proxy.close_all), ("cut", self.blink)):
                with self.subTest(name):
                    holder.beat()
                    blink()
                    self.acquired(client, name, limit=1)
                    self.acquired(daemons["b"].client(), name + "/b", limit=1)
                    holder.beat()
                    self.wait_for_heartbeat(holder)

    def blink(self):
        self.proxy.cut()
        healed = threading.Timer(1.0, self.proxy.heal)
        healed.start()
        self.addCleanup(healed.join)

    def test_a_daemon_stops_while_the_database_is_cut_off(self):
        with self.daemons() as daemons:
            daemons["a"].client().acquire("warm", limit=1)
            self.proxy.cut()
            self.assertEqual(daemons["a"].terminate(), 0, daemons["a"].log()[-2000:])
            # Found out in the meantime or not, it makes no difference.
            wait_until(lambda: "out of touch" in daemons["b"].log(), "the other one notices")
            self.assertEqual(daemons["b"].terminate(), 0, daemons["b"].log()[-2000:])

    def test_commits_under_way_when_it_is_cut_have_one_effect(self):
        self.check_commits_under_way(lambda: self.server.restart("immediate"))


class FailOver(unittest.TestCase):
    """To a standby that was not synchronous: commits may be lost."""

    TTL_MAX_S = 3

    def setUp(self):
        self.first = cluster.start_server(self)
        self.second = self.first.make_standby(self.first.folder + "/standby")
        self.addCleanup(self.second.remove)
        self.second.start()

    def url(self):
        head, _, tail = self.first.url("failover").partition(f":{self.first.port}/")
        return f"{head}:{self.first.port},127.0.0.1:{self.second.port}/{tail}"

    def wait_for_standby(self):
        sent = self.first.execute("SELECT pg_current_wal_lsn()")[0][0]
        wait_until(lambda: self.second.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn",
                                               (sent,))[0][0], "the standby follows")

    def test_tokens_go_on_above_all_that_may_be_lost(self):
        settings = {**SETTINGS, "ttl_max": f"{self.TTL_MAX_S}s", "ttl_default": "2s"}
        with Cluster({name: self.url() for name in "ab"}, settings) as daemons:
            client, other = daemons["a"].client(), daemons["b"].client()
            # What is withheld for at least; at first it is more than this test wants to wait.
            self.first.execute("UPDATE failover.store SET withheld_ms = 1000")
            kept = client.acquire("kept", limit=2, ttl_ms=1000 * self.TTL_MAX_S)
            self.wait_for_standby()
            self.second.stop()
            # The standby will never hear of this one, nor of the semaphore.
            lost = Holder(other, "lost", pb.HoldRequest(beat_interval_ms=200, acquire=(
                other.acquire_request("lost", limit=1, ttl_ms=1000 * self.TTL_MAX_S))))
            self.first.stop("immediate")
            ended = time.monotonic()
            self.second.start()
            self.second.promote()
            tokens = []
            for asked in (client, other):
                request = asked.acquire_request("lost", limit=2, wait_ms=60000, ttl_ms=1000)
                lease = wait_until(lambda asked=asked, request=request: self.granted(
                    asked, request), "permits are granted after the fail-over", 40)
                self.assertGreaterEqual(time.monotonic() - ended, self.TTL_MAX_S,
                                        "granted while a lost lease may still be held")
                tokens.append(lease.token)
                granted = time.monotonic()
                if asked is client:  # The first one.
                    lost.end()
                self.assertLess(max(lost.until, lost.ended), granted,
                                "its holder believes that it stands, and it goes to another")
            self.assertGreater(min(tokens), 1 << 48)
            self.assertLess(max(lost.lease.token, kept.token), 1 << 48)
            self.assertEqual(len(set(tokens)), 2)
            for daemon in daemons.daemons.values():
                self.assertIsNone(daemon.process.poll(), "a daemon ended")

    @staticmethod
    def granted(client, request):
        try:
            return client.stub.Acquire(request, timeout=30).lease
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                return None
            raise


class Restored(unittest.TestCase):
    TTL_MS = 2000
    WITHHELD_MS = 3000

    def test_a_snapshot_of_the_disk_and_the_statement_of_the_docs(self):
        with open(os.path.join(REPOSITORY, "docs", "postgres.md"), encoding="utf-8") as file:
            statement = file.read().split("**Restore from a back-up.**")[1].split("```sql\n")[1].split("```")[0]
        server = cluster.start_server(self)
        snapshot = os.path.join(server.folder, "snapshot")
        with Cluster({"a": server.url("semaphored")}, SETTINGS) as daemons:
            daemon = daemons["a"]
            known = daemon.client().acquire("s", limit=2, ttl_ms=self.TTL_MS)
            daemon.client().release(known.lease_id)
            server.execute(f"UPDATE semaphored.store SET withheld_ms = {self.WITHHELD_MS}")
            daemon.terminate()
            server.stop()
            subprocess.run(["cp", "-a", server.data, snapshot], check=True)
            server.start()
            daemon.start()
            lost = daemon.client().acquire("s", limit=2, ttl_ms=self.TTL_MS)
            daemon.terminate()
            server.stop()
            subprocess.run(["rm", "-r", server.data], check=True)
            subprocess.run(["mv", snapshot, server.data], check=True)
            server.start()
            server.execute(statement)
            begun = time.monotonic()
            daemon.start()
            self.assertIn("nothing is granted for", daemon.log())
            self.assertFalse(daemon.client().verify(lost.lease_id).held)
            lease = daemon.client().acquire("s", limit=2, ttl_ms=self.TTL_MS, wait_ms=20_000)
            self.assertGreaterEqual(time.monotonic() - begun, self.WITHHELD_MS / 1000)
            # The store's epoch is in the high bits.
            self.assertGreater(lease.token, 1 << 48)
            self.assertGreater(lease.token, lost.token)
            self.assertIn("granting again", daemon.log())


if __name__ == "__main__":
    unittest.main()
