"""Clients of another recipe ("Consul Semaphore in Python") and ours on the same keys. They cannot
share a semaphore: each writes over what the others count by. So what they have made is refused,
what they write over is an alarm, and no more than our limit is ever given by us."""

import json
import os
import sys
import time
import unittest

import checker
from churn import Side, count_by_kind, kill_group, lines, stays
from consul_case import SEMCTL, ConsulCase
from daemon import BOUND_S, error_info, grpc, pb, slots_of, wait_until
from gist_client import Semaphore

CHURN_S = float(os.environ.get("SEMAPHORED_TEST_CHURN_S", "60"))
LIMIT = 3
WORKERS = 3  # At each daemon, and of the recipe's.
GIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gist_client.py")
WHY = "holders as a list"
REFUSED = 119  # semctl's code.
SEMAPHORE_FLAGS = 0xe0f69a2baa414de0  # On the record of HashiCorp's clients.
SWEEP_S = 5  # The daemon's own interval, when nothing is configured.


class Recipe(ConsulCase):
    PREFIX = "service"  # So it is in the recipe.
    SERVER = {"enable_script_checks": True}

    def setUp(self):
        super().setUp()
        self.service = self.name
        self.name = f"{self.service}/lock"

    def lock_record(self):
        return self.stored(f"{self.name}/.lock")

    def refusal(self, client, **fields):
        """What an acquire that is not to succeed is told."""
        with self.assertRaises(grpc.RpcError) as raised:
            client.stub.Acquire(client.acquire_request(self.name, limit=LIMIT, **fields),
                                timeout=BOUND_S)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)
        return raised.exception.details()

    def gist(self):
        semaphore = Semaphore(self.server.address, self.service, LIMIT)
        self.assertTrue(semaphore.acquire())
        return semaphore

    def test_what_it_has_made_is_refused(self):
        daemon = self.daemon()
        semaphore = self.gist()
        made = self.lock_record()
        self.assertEqual(made, {"limit": LIMIT, "holders": [semaphore.session_id]})
        refused = [("create", self.name, "--limit", str(LIMIT)), ("describe", self.name),
                   ("run", self.name, "--limit", str(LIMIT), "--", "true"),
                   ("run", self.name, "--", "true"), ("destroy", self.name),
                   ("pause", self.name), ("resize", self.name, "--limit", "5")]
        for command in refused:
            with self.subTest(command[0]):
                code, said = self.semctl(daemon, *command)
                self.assertEqual(code, REFUSED, said)
                self.assertIn(WHY, said)
                self.assertIn(self.name, said)
                self.assertIn("semctl prune", said)
        self.assertIn(WHY, self.refusal(daemon.client()))
        # It is no semaphore of ours.
        code, said = self.semctl(daemon, "list")
        self.assertEqual(code, 0, said)
        self.assertNotIn(self.name, said)
        # And as long as one of theirs contends nobody can tell who holds.
        code, said = self.semctl(daemon, "prune", self.name)
        self.assertEqual(code, REFUSED, said)
        self.assertIn("foreign clients are there (1)", said)
        self.assertEqual(self.lock_record(), made)
        semaphore.release()
        # When they have gone the way is free.
        self.assertIn(WHY, self.refusal(daemon.client()))
        code, said = self.semctl(daemon, "prune", self.name)
        self.assertEqual(code, 0, said)
        self.assertIsNone(self.lock_record())
        daemon.client().acquire(self.name, limit=LIMIT)
        self.assertEqual(self.lock_record()["Limit"], LIMIT)

    def test_what_it_has_made_is_adopted(self):
        daemon = self.daemon()
        semaphore = self.gist()
        made = self.lock_record()
        code, said = self.semctl(daemon, "adopt", self.name, "--yes")
        self.assertEqual(code, REFUSED, said)
        self.assertIn("clients of the recipe are there (1)", said)
        semaphore.release()
        code, said = self.semctl(daemon, "adopt", self.name, "--dry-run")
        self.assertEqual(code, 0, said)
        self.assertIn(f"limit {LIMIT}", said)
        self.assertIn('"holders"', said)
        self.assertEqual(self.lock_record(), made)
        code, said = self.semctl(daemon, "adopt", self.name, "--yes")
        self.assertEqual(code, 0, said)
        self.assertIn(f"{self.name}: adopted", said)
        self.assertEqual(self.lock_record(), {"Limit": LIMIT, "Holders": {}})
        client = daemon.client()
        for _ in range(LIMIT):
            client.acquire(self.name, ttl_ms=60_000)
        with self.assertRaises(grpc.RpcError) as raised:
            client.acquire(self.name)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertEqual(len(self.lock_record()["Holders"]), LIMIT)

    def test_a_contender_without_a_session_holds_nothing(self):
        """As in the recipe: its entry is removed, and it does not count among the holders."""
        dead = "11111111-2222-3333-4444-555555555555"
        record = json.dumps({"Limit": LIMIT, "Holders": {dead: True}}).encode()
        self.server.request("PUT", f"kv/{self.PREFIX}/{self.name}/.lock?flags={SEMAPHORE_FLAGS}", record)
        self.server.request("PUT", f"kv/{self.PREFIX}/{self.name}/{dead}", b"{}")
        client = self.daemon().client()
        for _ in range(LIMIT):
            client.acquire(self.name, limit=LIMIT, ttl_ms=60_000)
        self.assertNotIn(dead, self.lock_record()["Holders"])
        self.assertEqual(len(self.lock_record()["Holders"]), LIMIT)
        self.assertIsNone(self.stored(f"{self.name}/{dead}"))

    def test_another_limit_is_an_error_or_adopted(self):
        """The recipe leaves the choice between an error and a limit of one's own; ours never changes the limit."""
        client = self.daemon().client()
        client.acquire(self.name, limit=LIMIT, ttl_ms=60_000)
        with self.assertRaises(grpc.RpcError) as raised:
            client.acquire(self.name, limit=LIMIT + 1)
        self.assertEqual(error_info(raised.exception).reason, "LIMIT_MISMATCH")
        for limit in (LIMIT, LIMIT + 1):
            self.assertIn(str(limit), raised.exception.details())
        client.acquire(self.name, limit=LIMIT + 1, limit_mismatch=pb.LIMIT_MISMATCH_ADOPT)
        self.assertEqual(self.lock_record()["Limit"], LIMIT)

    def test_the_alarm_comes_also_when_nobody_asks(self):
        daemon = self.daemon()
        client = daemon.client()
        lease = client.acquire(self.name, limit=LIMIT, ttl_ms=60_000)
        semaphore = self.gist()
        begun = time.monotonic()
        wait_until(lambda: [line for line in daemon.log().splitlines()
                            if " error " in line and WHY in line and self.name in line],
                   "the log has an alarm", SWEEP_S + BOUND_S)
        print(f"\nthe alarm came after {time.monotonic() - begun:.1f} s", flush=True)
        # What is shown of it says so, too.
        code, said = self.semctl(daemon, "describe", self.name)
        self.assertEqual(code, 0, said)
        self.assertIn(WHY, said)
        self.assertIn(f"limit {LIMIT}, {LIMIT} held", said)
        semaphore.release()
        # The lease is as good as before, and can be given back.
        self.assertTrue(client.verify(lease.lease_id).held)
        client.release(lease.lease_id)
        self.assertEqual(self.semctl(daemon, "prune", self.name)[0], 0)
        self.assertEqual(self.lock_record(), {"Limit": LIMIT, "Holders": {}})

    def test_whoever_waits_is_not_granted_more(self):
        daemon = self.daemon()
        client = daemon.client()
        leases = [client.acquire(self.name, limit=LIMIT, ttl_ms=60_000) for _ in range(LIMIT)]
        waiting = client.acquire_later(self.name, ttl_ms=60_000)
        client.wait_for_queue(self.name, 1)
        semaphore = self.gist()
        self.assertIn(WHY, self.refusal(client, wait_forever=True))
        with self.assertRaises(grpc.RpcError) as raised:
            client.administer(self.name, resize=pb.ResizeSemaphore(limit=LIMIT + 2))
        self.assertIn(WHY, raised.exception.details())
        self.assertFalse(waiting.done())
        # From hand to hand it goes on: no more of ours are inside for it.
        client.release(leases[0].lease_id)
        passed = waiting.result(timeout=BOUND_S).lease
        for lease in (passed, *leases[1:]):
            client.release(lease.lease_id)
        self.assertIn(WHY, self.refusal(client))
        semaphore.release()

    # ---- both at work ----

    def test_churn(self):
        """Again and again clients of the recipe come while ours are at work, write over the
        record, go away or are killed, and somebody prunes."""
        daemons = [self.daemon("a"), self.daemon("b")]
        killed_ns = {}
        sides = {kind: Side(kind, [SEMCTL, "--server", daemon.address, "run", self.name, "--limit",
                                   str(LIMIT), "--ttl", "3s", "--"], self.record, WORKERS)
                 for daemon, kind in zip(daemons, "ab")}
        for side in sides.values():
            self.addCleanup(side.close)
        until, rounds, away = time.monotonic() + CHURN_S, 0, []
        while time.monotonic() < until or rounds < 3:
            self.wait_for_entries(len(lines(self.record)), ("a", "b"), 5)
            alarms = [daemon.log().count(WHY) for daemon in daemons]
            gists = [self.spawn(sys.executable, "-B", GIST, self.server.address, self.service,
                                str(LIMIT), self.record) for _ in range(WORKERS)]
            steady = self.gist()  # One of theirs is always there.
            away.append(self.overwritten(daemons, sides, rounds))
            for daemon, before in zip(daemons, alarms):
                self.assertGreater(daemon.log().count(WHY), before, "no alarm")
            code, said = self.semctl(daemons[0], "prune", self.name)
            self.assertEqual(code, REFUSED, said)
            steady.release()
            for gist in gists:
                if rounds % 2 == 0:
                    gist.terminate()
                else:
                    kill_group(gist, killed_ns)
            for gist in gists:
                gist.wait(BOUND_S)  # `ps`, which the recipe's check asks, counts those who died.
            away[-1].append(self.prune(daemons[1]))
            rounds += 1
        self.wait_for_entries(len(lines(self.record)), ("a", "b"), 5)
        for side in sides.values():
            side.close()
            killed_ns.update(side.killed_ns)
        self.judge(stays(self.record, killed_ns), away)
        wait_until(lambda: daemons[0].client().describe(self.name).held == 0, "all have left")
        self.assertEqual(self.lock_record(), {"Limit": LIMIT, "Holders": {}})

    def wait_for_entries(self, since, kinds, count):
        def have_come():
            entered = [line["kind"] for line in lines(self.record)[since:]
                       if line["event"] == "in"]
            return all(entered.count(kind) >= count for kind in kinds)
        wait_until(have_come, f"{count} entries of each of {kinds}", 2 * BOUND_S)

    def overwritten(self, daemons, sides, rounds):
        """From when the record is theirs: nothing is granted but from hand to hand, until nobody of
        ours is inside. Returns [when that was]."""
        wait_until(lambda: "holders" in (self.lock_record() or {}), "the record is theirs")
        for daemon in daemons:
            self.assertIn(WHY, self.refusal(daemon.client()))
        sides["ab"[rounds % 2]].kill_one()
        if rounds % 2 == 1:
            daemons[0].kill9()
            daemons[0].start()
            self.assertIn(WHY, self.refusal(daemons[0].client()))
        client = daemons[1].client()
        held = [LIMIT]

        def nobody_is_inside():
            now = sum(len(slots_of(lease.lease.slots))
                      for lease in client.describe_rows(self.name).leases if not lease.foreign)
            self.assertLessEqual(now, held[-1], "more was granted")
            held.append(now)
            return now == 0
        wait_until(nobody_is_inside, "those who were inside have left")
        at_ns = time.monotonic_ns()
        self.wait_for_entries(len(lines(self.record)), ("gist",), 3)
        self.assertTrue(nobody_is_inside())
        return [at_ns]

    def prune(self, daemon):
        """Tries until theirs have gone: those that were killed go when their check fails.
        Returns when the attempt began that did it."""
        begun_ns = []

        def pruned():
            begun_ns.append(time.monotonic_ns())
            code, said = self.semctl(daemon, "prune", self.name)
            self.assertTrue(code == 0 or "foreign clients are there" in said, said)
            return code == 0
        wait_until(pruned, "it is pruned")
        return begun_ns[-1]

    def judge(self, grants, away):
        """`away`: from when to when nothing of ours was to come in."""
        ours = [grant for grant in grants if not grant.client.startswith("gist ")]
        both, own = (checker.summary(each)["peak"] for each in (grants, ours))
        print(f"\n{len(away)} rounds, {count_by_kind(grants, ('a', 'b', 'gist'))}; inside at most "
              f"{own} of ours, {both} with theirs", flush=True)
        self.assertEqual(checker.over_limit(ours, [checker.Limit(LIMIT)]), [])
        self.assertEqual(own, LIMIT, "never full: this proved nothing")
        for from_ns, to_ns in away:
            self.assertEqual([grant for grant in ours if from_ns < grant.granted_ns < to_ns], [])


if __name__ == "__main__":
    unittest.main()
