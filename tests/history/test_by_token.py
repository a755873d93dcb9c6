"""Where only tokens protect the resource, the judge accepts a good history, and rejects each corruption."""

import dataclasses
import random
import unittest

import by_token
from history import Op

NAME = "s"
LIMIT = 3


def good_history(seed, count):
    """Leases of one slot each. Tokens rise for each slot only, with gaps, and some leases are lost."""
    chance = random.Random(seed)
    tokens = {slot: 100 * slot for slot in range(1, LIMIT + 1)}
    ops = []
    for number in range(count):
        slot = chance.randint(1, LIMIT)
        tokens[slot] += chance.randint(1, 3)
        at_ns = 1_000 * number
        # Where a lease was lost it may go on at its holder, while the next one begins: not judged.
        common = {"client": f"c{number}", "semaphore": NAME, "lease": f"l{number}"}
        answer = {"slots": (slot,), "token": tokens[slot]}
        ops.append(Op("acquire", begin_ns=at_ns - 500, end_ns=at_ns + 50, request=f"r{number}",
                      permits=1, outcome="granted", **common, **answer))
        ops.append(Op("verify", begin_ns=at_ns + 100, end_ns=at_ns + 200, outcome="held", **common,
                      **answer))
        if chance.random() < 0.2:
            ops.append(Op("end", begin_ns=at_ns + 300, end_ns=at_ns + 300, outcome="left",
                          reason="lost", cause="ENGINE_LOST", **common))
        else:
            ops.append(Op("release", begin_ns=at_ns + 300, end_ns=at_ns + 1_400,
                          outcome="released", **common))
    return ops


def findings(ops):
    return by_token.judge(NAME, LIMIT, ops)


class ByToken(unittest.TestCase):

    def setUp(self):
        self.ops = good_history(1, 50)

    def change(self, place, **fields):
        self.ops[place] = dataclasses.replace(self.ops[place], **fields)

    def of(self, kind):
        return [place for place, op in enumerate(self.ops) if op.kind == kind]

    def of_one_slot(self):
        """Two grants of a slot, one after the other had been answered."""
        first = self.of("acquire")[3]
        later = [place for place in self.of("acquire")
                 if self.ops[place].slots == self.ops[first].slots
                 and self.ops[place].begin_ns > self.ops[first].end_ns]
        return first, later[0]

    def rejects(self, what):
        self.assertIn(what, "\n".join(findings(self.ops)))

    def test_good_histories_are_explained(self):
        for seed in range(100):
            self.assertEqual(findings(good_history(seed, 60)), [], f"seed {seed}")

    def test_the_same_grant_once_more_is_explained(self):
        grant = self.ops[self.of("acquire")[3]]
        self.ops.append(dataclasses.replace(grant, begin_ns=grant.end_ns + 1,
                                            end_ns=grant.end_ns + 2))
        self.assertEqual(findings(self.ops), [])

    def test_two_holders_of_one_token(self):
        first, second = self.of_one_slot()
        lease = self.ops[second].lease
        for place, op in enumerate(self.ops):
            if op.lease == lease and op.token:
                self.change(place, token=self.ops[first].token)
        self.rejects("is also of")

    def test_a_token_that_falls(self):
        first, second = self.of_one_slot()
        token = self.ops[first].token
        self.change(first, token=self.ops[second].token)
        self.change(second, token=token)
        self.rejects("was requested after a higher token")

    def test_verify_with_another_token(self):
        self.change(self.of("verify")[5], token=1)
        self.rejects("verify returned")

    def test_a_repeat_with_another_slot(self):
        grant = self.ops[self.of("acquire")[3]]
        self.ops.append(dataclasses.replace(grant, slots=(grant.slots[0] % LIMIT + 1,)))
        self.rejects("acquire returned")

    def test_a_slot_above_the_limit(self):
        self.change(self.of("acquire")[5], slots=(LIMIT + 1,))
        self.rejects(f"of {LIMIT}")

    def test_held_after_its_release(self):
        release = self.ops[self.of("release")[5]]
        verify = next(op for op in self.ops if op.kind == "verify" and op.lease == release.lease)
        self.ops.append(dataclasses.replace(verify, begin_ns=release.end_ns + 1,
                                            end_ns=release.end_ns + 2))
        self.rejects("after its end")

    def test_held_after_it_was_reported_as_lost(self):
        lost = self.ops[self.of("end")[1]]
        verify = next(op for op in self.ops if op.kind == "verify" and op.lease == lost.lease)
        self.ops.append(dataclasses.replace(verify, begin_ns=lost.end_ns + 1,
                                            end_ns=lost.end_ns + 2))
        self.rejects("after its end")

    def test_a_release_that_frees_twice(self):
        self.ops.append(dataclasses.replace(self.ops[self.of("release")[5]], request="another"))
        self.rejects("was released 2 times")

    def test_permits_that_never_come_back(self):
        self.ops.append(Op("acquire", "x", NAME, 1, 90_000_000, request="x", permits=1, wait_ms=10,
                           outcome="error", reason="WAIT_EXPIRED", drains=True))
        self.rejects("have not come back")

    def test_a_wait_that_ends_early(self):
        self.ops.append(Op("acquire", "x", NAME, 1, 9_000_000, request="x", permits=1, wait_ms=10,
                           outcome="error", reason="WAIT_EXPIRED"))
        self.rejects("a wait of 10 ms")


if __name__ == "__main__":
    unittest.main()
