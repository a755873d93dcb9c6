"""`consul lock -n 3` and our clients share a semaphore, with kills on both sides: never more are
inside than the limit. And what people and other recipes do to its record in Consul is noticed."""

import base64
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "engines"))

import checker  # noqa: E402  the folder has to be on the path first
from churn import Side, count_by_kind, stays  # noqa: E402
from consul import ConsulServer  # noqa: E402
from daemon import BIN_DIR, BOUND_S, Daemon, grpc, wait_until  # noqa: E402
from ports import free_port  # noqa: E402

CHURN_S = float(os.environ.get("SEMAPHORED_TEST_CHURN_S", "60"))
LIMIT = 3
WORKERS = 3  # On each side, and at each daemon.
PREFIX = "team"
SEMCTL = os.path.join(BIN_DIR, "semctl")
# A session of HashiCorp's clients ends between one and two of its times-to-live after a kill.
FOREIGN_TTL_S = 15
# What stands in an entry of ours, as Consul tells it.
OUR_PLACE = base64.b64encode(b'{"by":"semaphored"}').decode()


class Interop(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="semaphored-e2e-")
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.server = ConsulServer(folder)
        cls.addClassCleanup(cls.server.remove)
        cls.server.start()

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-e2e-")
        self.addCleanup(folder.cleanup)
        self.record = os.path.join(folder.name, "record")
        self.name = self.id().rsplit(".", 1)[1]
        self.daemons = []

    def daemon(self, node_id="a", port=None):
        daemon = Daemon({"node_ttl": "5s", "node_id": node_id}, port=free_port(),
                        store=self.server.url(PREFIX, port))
        self.addCleanup(daemon.close)
        self.daemons.append(daemon.start())
        return daemon

    def key(self, part=".lock"):
        return f"kv/{PREFIX}/{self.name}/{part}"

    def lock_record(self):
        status, text = self.server.request("GET", self.key() + "?raw")
        return text if status == 200 else None

    def foreign(self):
        return ["consul", "lock", f"-http-addr={self.server.address}", f"-n={LIMIT}",
                "-shell=false", f"{PREFIX}/{self.name}"]

    def ours(self, daemon):
        return [SEMCTL, "--server", daemon.address, "run", self.name, "--limit", str(LIMIT),
                "--ttl", "3s", "--"]

    def test_churn_and_kills_on_both_sides(self):
        daemons = [self.daemon("a"), self.daemon("b")]
        sides = {"foreign": Side("foreign", self.foreign(), self.record, WORKERS)}
        for daemon, kind in zip(daemons, "ab"):
            sides[kind] = Side(kind, self.ours(daemon), self.record, WORKERS)
        for side in sides.values():
            self.addCleanup(side.close)
        begun = time.monotonic()
        rounds = 0
        while time.monotonic() < begun + CHURN_S:
            rounds += 1
            time.sleep(1)  # the pace of the churn
            if rounds % 3 == 0:
                sides[random.choice("ab")].kill_one()
            if rounds % 10 == 5:
                sides["foreign"].kill_one()
            if rounds % 8 == 4:
                daemon = random.choice(daemons)
                daemon.kill9()
                daemon.start()
        for side in sides.values():
            side.close()
        killed_ns = {}
        for side in sides.values():
            killed_ns.update(side.killed_ns)
        grants = stays(self.record, killed_ns)
        count = count_by_kind(grants, sides)
        peak = checker.summary(grants)["peak"]
        print(f"\n{peak} inside at most, {count}", flush=True)
        self.assertEqual(checker.over_limit(grants, [checker.Limit(LIMIT)]), [])
        self.assertEqual(peak, LIMIT, "never full: this proved nothing")
        for kind, stayed in count.items():
            self.assertGreater(stayed, CHURN_S / 5, f"{kind} made no progress")
        wait_until(self.is_clean, "nobody is left, in the record or beside it", 4 * FOREIGN_TTL_S)

    def is_clean(self):
        """The sessions of killed foreign clients end by themselves; then somebody has to look."""
        info = self.daemons[0].client().describe(self.name)
        entries = self.server.request("GET", f"kv/{PREFIX}/{self.name}/?recurse")[1] or []
        theirs = [entry["Key"] for entry in entries if entry["Value"] != OUR_PLACE
                  and entry["Key"] != f"{PREFIX}/{self.name}/.lock"]
        record = self.lock_record()
        return (info.held == info.waiting == 0 and not theirs
                and (record is None or record == {"Limit": LIMIT, "Holders": {}}))

    def test_a_waiter_of_ours_is_served_when_a_foreign_holder_leaves_or_dies(self):
        daemon = self.daemon()
        client = daemon.client()
        for end in (signal.SIGTERM, signal.SIGKILL):
            holders = [subprocess.Popen(self.foreign() + ["sleep", "100"], start_new_session=True)
                       for _ in range(LIMIT)]
            wait_until(lambda: len((self.lock_record() or {"Holders": ()})["Holders"]) == LIMIT,
                       "foreign clients have it all")
            waiting = client.acquire_later(self.name, limit=LIMIT)
            client.wait_for_queue(self.name, 1)
            begun = time.monotonic()
            os.killpg(holders[0].pid, end)
            lease = waiting.result(timeout=60).lease
            print(f"\nserved {time.monotonic() - begun:.2f} s after {end.name}", flush=True)
            client.release(lease.lease_id)
            for holder in holders[1:]:
                os.killpg(holder.pid, signal.SIGTERM)
            for holder in holders:
                holder.wait(BOUND_S)

    def refusal(self, client):
        with self.assertRaises(grpc.RpcError) as raised:
            client.stub.Acquire(client.acquire_request(self.name, limit=LIMIT))
        return raised.exception.details()

    def test_records_that_cannot_be_shared(self):
        client = self.daemon().client()
        self.server.request("PUT", self.key(), b'{"limit": 3, "holders": []}')
        self.assertIn("holders as a list", self.refusal(client))
        self.server.request("PUT", self.key() + "?flags=3304740253564472344", b"")
        self.assertIn("another primitive", self.refusal(client))

    def test_a_record_that_is_overwritten_while_we_hold(self):
        daemon = self.daemon()
        client = daemon.client()
        lease = client.acquire(self.name, limit=LIMIT, ttl_ms=60_000)
        self.server.request("PUT", self.key(), b'{"limit": 3, "holders": []}')
        self.assertIn("holders as a list", self.refusal(client))
        wait_until(lambda: "holders as a list" in daemon.log(), "the log has an alarm")
        pruned = subprocess.run([SEMCTL, "--server", daemon.address, "prune", self.name],
                                capture_output=True, text=True, timeout=BOUND_S, check=False)
        self.assertEqual(pruned.returncode, 0, pruned.stderr)
        self.assertEqual(len(self.lock_record()["Holders"]), 1)
        client.release(client.acquire(self.name, limit=LIMIT).lease_id)
        client.release(lease.lease_id)
        self.assertEqual(self.lock_record(), {"Limit": LIMIT, "Holders": {}})

    def test_a_record_that_is_removed_while_we_hold(self):
        daemon = self.daemon()
        client = daemon.client()
        for _ in range(LIMIT):
            client.acquire(self.name, limit=LIMIT, ttl_ms=60_000)
        self.server.request("DELETE", self.key())
        wait_until(lambda: len((self.lock_record() or {"Holders": ()})["Holders"]) == LIMIT,
                   "our holders stand there again")
        daemon.wait_log("was removed")

    def test_leases_outlive_the_agent_and_the_daemons(self):
        daemon = self.daemon()
        client = daemon.client()
        lease = client.acquire(self.name, limit=LIMIT, ttl_ms=60_000)
        holders = self.lock_record()["Holders"]
        daemon.kill9()
        self.server.restart()
        self.assertEqual(self.lock_record()["Holders"], holders)
        daemon.start()
        verified = daemon.client().verify(lease.lease_id)
        self.assertTrue(verified.held)
        self.assertEqual(verified.lease.token, lease.token)


if __name__ == "__main__":
    unittest.main()
