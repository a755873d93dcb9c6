"""The judge accepts good histories with acts of administrators, and rejects each corruption of one.

Some are made up by a sequential semaphore whose administrators overlap; others are written out, one
operation after the other.
"""

import dataclasses
import unittest

import judge
from history import Op
from test_judge import LIMIT, NAME, VOUCHED_NS, Corruptions, Semaphore, findings

GRACE_NS = 1_000_000  # One millisecond, the least that can be asked for.


class Administered(Semaphore):
    """Its limit changes, it is paused, its leases are recalled and revoked."""

    def __init__(self, seed, operations):
        self.due = {}  # By the lease that is asked back: when it ends, and the cause.
        super().__init__(seed, operations)

    def steps(self):
        return [*super().steps() * 3, self.resize, self.resize, self.pause, self.revoke, self.ask,
                self.time_passes]

    def last_steps(self):
        self.time_passes()
        for act, amount in (("resume", 0), ("set", LIMIT), ("describe", 0)):
            self.now += 600
            self.paused, self.limit = False, LIMIT if act != "resume" else self.limit
            self.done(self.begin("administer", act=act, amount=amount))

    def done(self, operation, affected=0):
        self.end(operation, "done", affected=affected, limit=self.limit, paused=self.paused,
                 held=sum(len(each.slots) for each in self.held))
        self.serve()

    def resize(self):
        act = self.random.choice(["add", "remove", "set"])
        amount = self.random.randint(1, 3)
        limit = {"add": self.limit + amount, "remove": self.limit - amount, "set": amount}[act]
        policy = self.random.choice(["wait", "recall"])
        grace_ms = self.random.choice([0, 1]) if policy == "recall" else 0
        operation = self.begin("administer", act=act, amount=amount, policy=policy,
                               grace_ms=grace_ms)
        if limit < 0:
            self.end(operation, "error", reason="INVALID_FIELD")
            return
        self.limit = limit
        for waiter in [each for each in self.queue if each.permits > limit]:
            self.queue.remove(waiter)
            self.end(waiter, "error", reason="EXCEEDS_LIMIT")
        self.done(operation, self.recall(grace_ms) if policy == "recall" else 0)

    def recall(self, grace_ms):
        staying = sorted((each for each in self.held if each.lease not in self.due),
                         key=lambda each: each.slots[-1])
        affected = 0
        while sum(len(each.slots) for each in staying) > self.limit:
            self.ask_back(staying.pop(), grace_ms, "RECALLED")
            affected += 1
        return affected

    def ask_back(self, lease, grace_ms, cause):
        if grace_ms == 0:
            self.lose(lease, cause)
            return
        self.due[lease.lease] = (self.now + GRACE_NS, cause)
        self.ops.append(Op("recalled", lease.client, NAME, self.now + 5, self.now + 5,
                           lease=lease.lease, outcome="left"))

    def lose(self, lease, cause):
        self.held.remove(lease)
        self.due.pop(lease.lease, None)
        self.ops.append(Op("end", lease.client, NAME, self.now + 5, self.now + 5, lease=lease.lease,
                           outcome="left", reason="lost", cause=cause,
                           vouched_ns=self.now + VOUCHED_NS))

    def pause(self):
        self.paused = not self.paused
        self.done(self.begin("administer", act="pause" if self.paused else "resume"))

    def revoke(self):
        ready = [each for each in self.held if each.end_ns < self.now - 500]
        if not ready:
            return
        lease = self.random.choice(ready)
        target = self.random.choice([f"lease {lease.lease}", f"holder {lease.holder}"])
        operation = self.begin("administer", act="revoke", target=target,
                               grace_ms=self.random.choice([0, 1]))
        if lease.lease not in self.due or operation.grace_ms == 0:
            self.ask_back(lease, operation.grace_ms, "REVOKED")
        self.done(operation, 1)

    def ask(self):
        self.done(self.begin("administer", act="describe"))

    def time_passes(self):
        self.now += GRACE_NS
        for lease in [each for each in self.held if each.lease in self.due]:
            self.lose(lease, self.due[lease.lease][1])
        self.serve()


class Overlapping(Corruptions):

    def setUp(self):
        self.ops = Administered(1, 400).ops

    def resizes(self, *acts):
        """Places of acts whose answers show their effect."""
        return self.of("administer", "done", lambda op: op.act in acts)

    def test_good_histories_are_explained(self):
        for seed in range(200):
            ops = Administered(seed, 200).ops
            self.assertEqual(findings(ops), [], f"seed {seed}")

    def test_a_relative_resize_that_is_done_twice(self):
        for place in self.resizes("add", "remove"):
            ops = list(self.ops)
            first = ops[place]
            by = first.amount if first.act == "add" else -first.amount
            order = sorted(range(len(ops)), key=lambda each: ops[each].end_ns)
            for each in order[order.index(place):]:
                if ops[each].act == "set":
                    break
                if ops[each].kind == "administer" and ops[each].outcome == "done":
                    ops[each] = dataclasses.replace(ops[each], limit=ops[each].limit + by)
            self.assertIn("no order", "\n".join(findings(ops)), f"at {place}")

    def test_a_resize_without_effect(self):
        for place in self.resizes("add"):
            ops = list(self.ops)
            ops[place] = dataclasses.replace(ops[place], limit=ops[place].limit - ops[place].amount)
            self.assertIn("no order", "\n".join(findings(ops)), f"at {place}")

    def test_another_limit_at_the_end(self):
        self.change(self.resizes("describe")[-1], limit=LIMIT + 1)
        self.rejects("no order")

    def test_a_pause_without_effect(self):
        self.change(self.resizes("pause")[3], paused=False)
        self.rejects("no order")

    def test_an_answer_that_is_lost_is_explained(self):
        for place in self.resizes("add", "remove", "pause", "resume")[:20]:
            ops = list(self.ops)
            ops[place] = dataclasses.replace(ops[place], outcome="", end_ns=0)
            self.assertEqual(findings(ops), [], f"at {place}")

    def test_too_many_unknown_acts_are_undecided(self):
        begin_ns = self.ops[0].begin_ns
        self.ops += [Op("administer", "x", NAME, begin_ns, request=f"x{number}", act="add",
                        amount=1 << number) for number in range(16)]
        self.rejects("undecided")


class WrittenOut(Corruptions):
    """Operations one after the other, each with a call and an answer."""

    def setUp(self):
        self.ops, self.now, self.token = [], 1_000, 0

    def add(self, kind, outcome, **fields):
        self.now += 100
        fields.setdefault("request", f"r{len(self.ops)}")
        self.ops.append(Op(kind, f"client {len(self.ops)}", NAME, self.now, self.now + 10,
                           outcome=outcome, **fields))
        return self.ops[-1]

    def granted(self, *slots):
        self.token += 1
        operation = self.add("acquire", "granted", permits=len(slots), slots=slots,
                             token=self.token, lease=f"l{self.token}", wait_ms=10)
        operation.holder = operation.client
        return operation

    def of_lease(self, kind, outcome, lease, **fields):
        return self.add(kind, outcome, lease=lease.lease, vouched_ns=self.now + 10 * GRACE_NS,
                        **fields)

    def lost(self, lease, cause):
        return self.of_lease("end", "left", lease, reason="lost", cause=cause, request="")

    def act(self, act, limit=LIMIT, outcome="done", **fields):
        return self.add("administer", outcome, act=act, limit=limit, **fields)

    def explained(self):
        self.assertEqual(findings(self.ops), [])

    def revoked(self, **fields):
        """A lease, and a revoke of it."""
        lease = self.granted(1)
        return lease, self.act("revoke", target=f"lease {lease.lease}", affected=1, **fields)

    # ---- grants ----

    def test_a_grant_above_a_lowered_limit(self):
        self.granted(4)
        self.act("remove", amount=2, limit=2, policy="wait", held=1)
        self.granted(1)
        self.explained()
        self.granted(2)
        self.rejects("above the limit, 2")

    def test_a_slot_above_a_lowered_limit(self):
        self.act("set", amount=1, limit=1, policy="wait")
        self.granted(2)
        self.rejects("above the limit, 1")

    def test_a_grant_while_paused(self):
        self.act("pause", paused=True)
        grant = self.granted(1)
        self.act("resume")
        self.rejects("paused")
        grant.end_ns = self.now + 20  # The answer came after the resume: it explains the grant.
        self.explained()

    def test_a_permit_is_granted_again_before_the_grace_is_over(self):
        self.ops.clear()
        lease = self.granted(1)
        self.act("set", amount=0, limit=0, policy="recall", grace_ms=1, affected=1, held=1)
        self.act("set", amount=1, limit=1, policy="wait", held=1)
        self.now += GRACE_NS
        self.lost(lease, "RECALLED")
        grant = self.granted(1)
        self.explained()
        grant.begin_ns -= GRACE_NS // 2
        grant.end_ns -= GRACE_NS // 2
        self.rejects("ended after")

    # ---- leases that are ended by an act ----

    def test_held_after_its_revoke(self):
        lease, _ = self.revoked()
        self.explained()
        self.of_lease("verify", "held", lease, slots=lease.slots, token=lease.token)
        self.rejects("after its end")

    def test_released_after_its_revoke(self):
        lease, _ = self.revoked()
        release = self.of_lease("release", "ended", lease, reason="REVOKED")
        self.explained()
        release.outcome, release.reason = "released", ""
        self.rejects("and revoked")

    def test_revoked_by_no_act(self):
        lease = self.granted(1)
        self.lost(lease, "REVOKED")
        self.rejects("had ended")

    def test_a_revoke_of_another_lease(self):
        self.revoked()
        self.lost(self.granted(2), "REVOKED")
        self.rejects("had ended")

    def test_recalled_before_the_grace_is_over(self):
        lease, _ = self.revoked(grace_ms=1)
        self.now += GRACE_NS
        lost = self.lost(lease, "REVOKED")
        self.explained()
        lost.begin_ns = lost.end_ns = lost.end_ns - GRACE_NS
        self.rejects("had ended")

    def test_expired_is_no_word_for_a_revoke(self):
        lease, _ = self.revoked()
        self.lost(lease, "EXPIRED")
        self.rejects("had ended")

    def test_more_recalled_than_the_act_said(self):
        leases = [self.granted(slot) for slot in (1, 2)]
        act = self.act("set", amount=0, limit=0, policy="recall", affected=2)
        for lease in leases:
            self.lost(lease, "RECALLED")
        self.explained()
        act.affected = 1
        self.rejects("2 leases ended as RECALLED")

    def test_a_revoke_that_does_not_find_a_lease(self):
        lease, act = self.revoked()
        act.affected = 0
        self.of_lease("release", "released", lease)
        self.rejects("was not found by its revoke")

    def test_asked_back_by_no_act(self):
        lease = self.granted(1)
        self.of_lease("recalled", "left", lease, request="")
        self.rejects("asked back")

    # ---- request ids ----

    def test_a_reused_id_that_is_accepted(self):
        self.act("add", amount=1, limit=5, request="same")
        again = self.act("add", amount=2, outcome="error", reason="REQUEST_ID_REUSED",
                         request="same")
        self.explained()
        again.outcome, again.reason, again.limit = "done", "", 7
        self.rejects("accepted for 2 acts")

    def test_a_reused_id_that_is_refused_for_another_reason(self):
        self.act("add", amount=1, limit=5, request="same")
        self.act("remove", amount=9, outcome="error", reason="INVALID_FIELD", request="same")
        self.rejects("was then refused")

    def test_a_fresh_id_that_is_refused_as_reused(self):
        self.act("add", amount=1, outcome="error", reason="REQUEST_ID_REUSED")
        self.rejects("no other use")

    def test_a_repeat_with_other_numbers(self):
        self.act("add", amount=1, limit=5, request="same", affected=3)
        again = self.act("add", amount=1, limit=5, request="same", affected=3)
        self.explained()
        again.affected = 2
        self.rejects("was answered 3")

    def test_an_act_that_was_known_to_be_done(self):
        """Its answer is lost, and its id is refused to another act."""
        lost = self.act("add", amount=1, request="same")
        lost.outcome, lost.end_ns, lost.limit = "", 0, 0
        self.act("resume", outcome="error", reason="REQUEST_ID_REUSED", request="same")
        asked = self.act("describe", limit=5)
        self.explained()
        asked.limit = LIMIT
        self.rejects("no order")

    def test_an_act_that_was_known_not_to_be_done(self):
        """Its answer is lost, and its id is accepted for another act."""
        lost = self.act("add", amount=1, request="same")
        lost.outcome, lost.end_ns, lost.limit = "", 0, 0
        self.act("resume", request="same")
        asked = self.act("describe", limit=LIMIT)
        self.explained()
        asked.limit = 5
        self.rejects("no order")

    # ---- refusals and answers ----

    def test_paused_when_it_is_not(self):
        self.add("acquire", "error", reason="PAUSED", permits=1)
        self.rejects("when it was not")

    def test_below_the_limit_when_it_is_not(self):
        self.add("acquire", "error", reason="EXCEEDS_LIMIT", permits=1)
        self.rejects("the limit is below that")

    def test_a_refused_limit_that_would_have_fitted(self):
        lease = self.granted(1, 2)
        self.act("set", amount=1, policy="refuse", outcome="error", reason="WOULD_OVERSHOOT")
        self.of_lease("release", "released", lease)
        self.explained()
        self.act("set", amount=1, policy="refuse", outcome="error", reason="WOULD_OVERSHOOT")
        self.rejects("a limit was refused")

    def test_a_limit_that_should_have_been_refused(self):
        lease = self.granted(1, 2)
        self.act("set", amount=1, limit=1, policy="refuse", held=2)
        self.of_lease("release", "released", lease)
        self.rejects("the limit became 1")

    def test_fewer_are_said_to_be_held(self):
        lease = self.granted(1, 2)
        asked = self.act("describe", held=2)
        self.of_lease("release", "released", lease)
        self.explained()
        asked.held = 1
        self.rejects("were said to be held")

    def test_full_under_a_raised_limit(self):
        lease = self.granted(1, 2, 3, 4)
        self.add("acquire", "error", reason="FULL", permits=1)
        self.explained()
        self.act("add", amount=1, limit=5, held=4)
        self.add("acquire", "error", reason="FULL", permits=1)
        self.of_lease("release", "released", lease)
        self.rejects("was refused 1 permits")

    def test_the_promises_of_an_engine_are_kept_apart(self):
        self.granted(1)
        self.assertEqual(judge.judge({NAME: LIMIT}, self.ops,
                                     judge.Promises(token_order=False)), [])


if __name__ == "__main__":
    unittest.main()
