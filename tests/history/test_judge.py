"""The judge accepts a good history, and rejects each corruption of it.

The good history is made up: a sequential semaphore serves clients at known points in time, and each
operation is recorded with a call before its point and an answer after it.
"""

import dataclasses
import itertools
import random
import unittest

import judge
from history import Op

NAME = "s"
LIMIT = 4
VOUCHED_NS = 1_000_000


class Semaphore:
    """A sequential semaphore with a queue, and the clients' records of it."""

    def __init__(self, seed, operations):
        self.random = random.Random(seed)
        self.now = 0
        self.token = 0
        self.limit, self.paused = LIMIT, False
        self.held, self.queue, self.ops = [], [], []
        self.requests = 0
        while len(self.ops) < operations:
            self.now += 100
            self.random.choice(self.steps())()
        self.last_steps()
        while self.held:
            self.now += 100
            self.release()
        drain = self.begin("acquire", permits=LIMIT, wait_ms=10, drains=True)
        self.grant(drain)

    def steps(self):
        return [self.acquire, self.acquire, self.release, self.verify]

    def last_steps(self):
        pass

    def has_room(self, permits):
        held = sum(len(each.slots) for each in self.held)
        return not self.paused and held + permits <= self.limit

    def begin(self, kind, **fields):
        """Called up to five steps ago: operations overlap."""
        self.requests += 1
        return Op(kind, f"client {self.requests}", NAME, self.now - self.random.randrange(500),
                  request=f"r{self.requests}", **fields)

    def end(self, operation, outcome, **fields):
        self.ops.append(dataclasses.replace(
            operation, outcome=outcome, end_ns=self.now + self.random.randrange(1, 90), **fields))
        return self.ops[-1]

    def acquire(self):
        wait_ms = self.random.choice([0, 10])
        operation = self.begin("acquire", permits=self.random.randint(1, 2), wait_ms=wait_ms,
                               priority=0)
        operation.holder = operation.client
        if operation.permits > self.limit:
            self.end(operation, "error", reason="EXCEEDS_LIMIT")
        elif not self.queue and self.has_room(operation.permits):
            self.grant(operation)
        elif wait_ms == 0 and self.paused:
            self.end(operation, "error", reason="PAUSED")
        elif wait_ms == 0:
            self.end(operation, "error", reason="FULL")
        else:
            operation.queued_ns = self.now + 50
            self.queue.append(operation)

    def grant(self, operation):
        self.token += 1
        taken = {slot for each in self.held for slot in each.slots}
        free = (slot for slot in range(1, self.limit + 1) if slot not in taken)
        slots = tuple(itertools.islice(free, operation.permits))
        self.held.append(self.end(operation, "granted", lease=f"l{self.token}", slots=slots,
                                  token=self.token))

    def release(self):
        ready = [each for each in self.held if each.end_ns < self.now - 500]
        if not ready:
            return
        lease = self.random.choice(ready)
        self.held.remove(lease)
        self.end(self.begin("release", lease=lease.lease, vouched_ns=self.now + VOUCHED_NS),
                 "released")
        self.serve()

    def serve(self):
        while self.queue and self.has_room(self.queue[0].permits):
            self.now += 1
            self.grant(self.queue.pop(0))

    def verify(self):
        ready = [each for each in self.held if each.end_ns < self.now - 500]
        if ready:
            lease = self.random.choice(ready)
            self.end(self.begin("verify", lease=lease.lease, vouched_ns=self.now + VOUCHED_NS),
                     "held", slots=lease.slots, token=lease.token)


def findings(ops):
    return judge.judge({NAME: LIMIT}, ops)


class Corruptions(unittest.TestCase):
    """What the tests of the judge have in common: a history, and ways to spoil it."""
    ops = []

    def of(self, kind, outcome, condition=lambda op: True):
        """The places of such operations."""
        found = [i for i, op in enumerate(self.ops)
                 if (op.kind, op.outcome) == (kind, outcome) and condition(op)]
        self.assertTrue(found, f"the good history has no {kind} with {outcome}: it proves nothing")
        return found

    def change(self, place, **fields):
        self.ops[place] = dataclasses.replace(self.ops[place], **fields)

    def rejects(self, what):
        told = findings(self.ops)
        self.assertTrue(told, "the corruption was not noticed")
        self.assertIn(what, "\n".join(told))


class Judge(Corruptions):

    def setUp(self):
        self.ops = Semaphore(1, 400).ops

    def release_of(self, lease):
        return next(i for i in self.of("release", "released") if self.ops[i].lease == lease)

    def successor(self):
        """The places of a release and of the grant that had to wait for it."""
        for i in self.of("acquire", "granted", lambda op: op.queued_ns):
            before = [j for j in self.of("acquire", "granted")
                      if set(self.ops[j].slots) & set(self.ops[i].slots)
                      and self.ops[j].token < self.ops[i].token]
            last = max(before, key=lambda j: self.ops[j].token)
            release = self.release_of(self.ops[last].lease)
            if self.ops[release].begin_ns > self.ops[i].begin_ns + 10:
                return release, i
        raise AssertionError("nobody waited for a release")

    def test_good_histories_are_explained(self):
        for seed in range(200):
            ops = Semaphore(seed, 150).ops
            self.assertEqual(findings(ops), [], f"seed {seed}")

    def test_a_lost_answer_is_explained(self):
        for kind, outcome in (("release", "released"), ("verify", "held")):
            self.change(self.of(kind, outcome)[3], outcome="", end_ns=0)
        self.assertEqual(findings(self.ops), [])

    def test_a_late_release_whose_answer_is_lost_is_explained(self):
        """The lease had expired, and its permits were granted again before the release was sent."""
        release, grant = self.successor()
        at_ns = self.ops[grant].end_ns + 1
        self.change(release, outcome="", end_ns=0, begin_ns=at_ns,
                    vouched_ns=self.ops[release].begin_ns)
        self.assertEqual(findings(self.ops), [])
        self.change(release, vouched_ns=at_ns)
        self.rejects("ended after")

    def test_a_repeated_request_is_explained(self):
        place = self.of("acquire", "granted")[5]
        self.ops.append(dataclasses.replace(self.ops[place], begin_ns=self.ops[place].end_ns + 1,
                                            end_ns=self.ops[place].end_ns + 2))
        self.assertEqual(findings(self.ops), [])

    def test_summary_counts(self):
        counted = judge.summary(self.ops)
        self.assertEqual(counted["operations"], len(self.ops))
        self.assertGreater(counted["overlaps"], len(self.ops) / 2)
        self.assertGreater(counted["waited"], 20)

    # ---- corruptions ----

    def test_a_grant_before_the_release(self):
        release, grant = self.successor()
        self.change(grant, end_ns=self.ops[release].begin_ns - 1)
        self.rejects("ended after")

    def test_swapped_waiters(self):
        waited = self.of("acquire", "granted", lambda op: op.queued_ns)
        first, second = next(
            (a, b) for a, b in zip(waited, waited[1:])
            if self.ops[a].queued_ns < self.ops[b].begin_ns
            and self.ops[a].permits == self.ops[b].permits)
        of_first = {name: getattr(self.ops[first], name) for name in ("slots", "token", "lease")}
        of_second = {name: getattr(self.ops[second], name) for name in ("slots", "token", "lease")}
        self.change(first, **of_second)
        self.change(second, **of_first)
        self.rejects("passed over")

    def test_a_reused_token(self):
        first, second = self.of("acquire", "granted")[4:6]
        self.change(second, token=self.ops[first].token)
        self.rejects("is also of")

    def test_a_token_that_falls(self):
        early, late = self.of("acquire", "granted")[4], self.of("acquire", "granted")[40]
        token = self.ops[early].token
        self.change(early, token=self.ops[late].token)
        self.change(late, token=token)
        self.rejects("after a higher token was granted")

    def test_a_lost_release(self):
        place = self.of("release", "released")[5]
        self.change(place, outcome="ended", reason="UNKNOWN")
        self.rejects("had ended")

    def test_a_release_that_frees_twice(self):
        place = self.of("release", "released")[5]
        self.ops.append(dataclasses.replace(self.ops[place], request="another"))
        self.rejects("was released 2 times")

    def test_a_lease_that_ends_while_it_is_vouched_for(self):
        release = self.ops[self.of("release", "released")[5]]
        self.ops.append(dataclasses.replace(
            release, kind="end", request="", outcome="left", reason="lost",
            begin_ns=release.begin_ns - 2, end_ns=release.begin_ns - 1))
        self.rejects("had ended")

    def test_a_lease_that_outlives_its_holder_and_is_granted_again(self):
        """An expiry that comes before the time for which the daemon vouched."""
        release, _ = self.successor()
        self.change(release, kind="end", request="", outcome="left", reason="left")
        self.rejects("ended after")

    def test_a_slot_above_the_limit(self):
        place = self.of("acquire", "granted", lambda op: op.permits == 1)[5]
        self.change(place, slots=(LIMIT + 1,))
        self.rejects(f"of {LIMIT}")

    def test_a_slot_too_few(self):
        place = self.of("acquire", "granted", lambda op: op.permits == 2)[5]
        self.change(place, slots=self.ops[place].slots[:1])
        self.rejects("for 2")

    def test_two_leases_for_one_request(self):
        first, second = self.of("acquire", "granted")[4:6]
        self.change(second, request=self.ops[first].request)
        self.rejects("was granted")

    def test_one_lease_for_two_requests(self):
        first, second = self.of("acquire", "granted")[4:6]
        self.change(second, lease=self.ops[first].lease)
        self.rejects("was granted to")

    def test_a_refusal_while_permits_are_free(self):
        drain = self.of("acquire", "granted", lambda op: op.drains)[0]
        begin = self.ops[drain].end_ns + 1_000
        self.ops.append(Op("release", "x", NAME, begin, begin + 10, request="x1", outcome="released",
                           lease=self.ops[drain].lease))
        self.ops.append(Op("acquire", "x", NAME, begin + 20, begin + 30, request="x2", permits=1,
                           outcome="error", reason="FULL"))
        self.rejects("was refused")

    def test_a_wait_that_ends_early(self):
        place = self.of("acquire", "error")[0]
        self.change(place, reason="WAIT_EXPIRED", wait_ms=10)
        self.rejects("a wait of 10 ms")

    def test_held_after_its_release(self):
        verify = self.ops[self.of("verify", "held")[0]]
        end_ns = self.ops[self.release_of(verify.lease)].end_ns
        self.ops.append(dataclasses.replace(verify, request="late", begin_ns=end_ns + 1,
                                            end_ns=end_ns + 2))
        self.rejects("after its end")

    def test_not_held_while_it_is(self):
        self.change(self.of("verify", "held")[2], outcome="ended")
        self.rejects("had ended")

    def test_another_lease_s_slots(self):
        self.change(self.of("verify", "held")[2], slots=(99,))
        self.rejects("verify returned")

    def test_permits_that_never_come_back(self):
        self.change(self.of("acquire", "granted", lambda op: op.drains)[0], outcome="error",
                    reason="WAIT_EXPIRED", end_ns=self.ops[-1].begin_ns + 20_000_000)
        self.rejects("have not come back")


if __name__ == "__main__":
    unittest.main()
