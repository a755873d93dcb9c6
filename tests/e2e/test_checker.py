"""The checker finds what it is there to find: made-up records, each with one thing wrong."""

import dataclasses
import tempfile
import unittest

import checker
from checker import Grant, Limit, Touch
from fenced import Resource, Stale


def grant(client, token, granted_ns, ended_ns, slot=1, **fields):
    fields.setdefault("asked_ns", granted_ns - 5)
    return Grant(client=client, slots=fields.pop("slots", (slot,)), token=token,
                 granted_ns=granted_ns, ended_ns=ended_ns, **fields)


def write(token, value, accepted=True, slot=1, unchecked=0):
    return Touch(slot=slot, token=token, write=True, accepted=accepted, value=value,
                 unchecked=unchecked)


class OverLimit(unittest.TestCase):

    def test_in_turn(self):
        grants = [grant("a", 1, 10, 20), grant("b", 2, 20, 30), grant("c", 3, 25, 40, slot=2)]
        self.assertEqual(checker.over_limit(grants, [Limit(2)]), [])
        self.assertEqual(checker.summary(grants)["peak"], 2)

    def test_two_of_one(self):
        grants = [grant("a", 1, 10, 20), grant("b", 2, 19, 30, slot=2)]
        self.assertEqual(len(checker.over_limit(grants, [Limit(1)])), 1)

    def test_permits_are_counted_not_leases(self):
        grants = [grant("a", 1, 10, 20, slots=(1, 2)), grant("b", 2, 15, 30, slot=3)]
        self.assertEqual(len(checker.over_limit(grants, [Limit(2)])), 1)
        self.assertEqual(checker.over_limit(grants, [Limit(3)]), [])

    def test_told_after_its_deadline_is_not_held(self):
        grants = [grant("a", 1, 10, 9), grant("b", 2, 10, 30)]
        self.assertEqual(checker.over_limit(grants, [Limit(1)]), [])

    def test_a_lowered_limit_binds_who_asks_afterwards(self):
        limits = [Limit(2), Limit(1, asked_ns=30, answered_ns=40)]
        old = grant("a", 1, 10, 90)
        # Told after the change was asked for: it may have been made before.
        self.assertEqual(checker.over_limit([old, grant("b", 2, 45, 50, 2, asked_ns=35)], limits),
                         [])
        self.assertEqual(
            len(checker.over_limit([old, grant("b", 2, 45, 50, 2, asked_ns=41)], limits)), 1)
        # Still waiting after the answer: granted after it.
        self.assertEqual(
            len(checker.over_limit([old, grant("b", 2, 50, 60, 2, asked_ns=20, queued_ns=41)],
                                   limits)), 1)

    def test_a_raised_limit_counts_from_when_it_was_asked_for(self):
        limits = [Limit(1), Limit(2, asked_ns=30, answered_ns=40)]
        old = grant("a", 1, 10, 90)
        self.assertEqual(checker.over_limit([old, grant("b", 2, 35, 50, 2)], limits), [])
        self.assertEqual(len(checker.over_limit([old, grant("b", 2, 29, 50, 2)], limits)), 1)


class SlotsTwice(unittest.TestCase):

    def test_in_turn(self):
        grants = [grant("b", 7, 20, 30), grant("a", 5, 10, 20), grant("c", 6, 10, 90, slot=2)]
        self.assertEqual(checker.slots_twice(grants), [])

    def test_the_same_token_twice(self):
        grants = [grant("a", 5, 10, 20), grant("b", 5, 20, 30)]
        self.assertEqual(len(checker.slots_twice(grants)), 1)

    def test_a_token_that_falls(self):
        grants = [grant("a", 6, 10, 20), grant("b", 5, 20, 30)]
        self.assertEqual(len(checker.slots_twice(grants)), 1)

    def test_a_slot_that_is_held_by_two(self):
        grants = [grant("a", 5, 10, 21, slots=(1, 2)), grant("b", 6, 20, 30, slot=2)]
        self.assertEqual(len(checker.slots_twice(grants)), 1)

    def test_one_that_was_told_too_late_hides_nobody(self):
        grants = [grant("a", 5, 10, 40), grant("b", 6, 30, 20), grant("c", 7, 35, 50)]
        self.assertEqual(len(checker.slots_twice(grants)), 1)


class Overtaken(unittest.TestCase):

    first = grant("first", 9, 100, 110, asked_ns=10, queued_ns=20)

    def test_in_order(self):
        later = grant("later", 10, 100, 110, asked_ns=30)
        self.assertEqual(checker.overtaken([later, self.first]), [])

    def test_served_before_who_waited(self):
        later = grant("later", 8, 90, 99, asked_ns=30)
        self.assertEqual(len(checker.overtaken([later, self.first])), 1)
        self.assertEqual(checker.overtaken([later, self.first], tolerance_ns=10), [])

    def test_asked_before_the_other_was_told(self):
        later = grant("later", 8, 90, 99, asked_ns=19)
        self.assertEqual(checker.overtaken([later, self.first]), [])

    def test_priorities(self):
        lower = grant("lower", 8, 90, 99, asked_ns=30, priority=-1)
        higher = grant("higher", 8, 90, 99, asked_ns=30, priority=1)
        self.assertEqual(len(checker.overtaken([lower, self.first])), 1)
        self.assertEqual(checker.overtaken([higher, self.first]), [])

    def test_a_waiter_that_connected_again_is_left_out(self):
        later = grant("later", 8, 90, 99, asked_ns=30)
        self.assertEqual(
            checker.overtaken([later, dataclasses.replace(self.first, steady=False)]), [])


class EndedEarly(unittest.TestCase):

    def test_told_before_and_after_the_deadline(self):
        self.assertEqual(checker.ended_early([grant("a", 1, 10, 20, lost_ns=20),
                                              grant("b", 2, 30, 40)]), [])
        self.assertEqual(len(checker.ended_early([grant("a", 1, 10, 20, lost_ns=19)])), 1)


class UpdatesLost(unittest.TestCase):

    def test_in_turn(self):
        touches = [write(1, 1), write(3, 2), write(3, 3), write(2, 4, accepted=False), write(4, 4),
                   write(1, 1, slot=2)]
        self.assertEqual(checker.updates_lost(touches), [])

    def test_a_stale_token_is_accepted(self):
        self.assertEqual(len(checker.updates_lost([write(2, 1), write(1, 2)])), 1)

    def test_a_fresh_token_is_refused(self):
        self.assertEqual(len(checker.updates_lost([write(2, 1, accepted=False)])), 1)

    def test_a_read_raises_the_mark(self):
        read = Touch(slot=1, token=2, write=False, accepted=True, value=0, unchecked=0)
        self.assertEqual(len(checker.updates_lost([read, write(1, 1)])), 1)

    def test_an_update_is_written_over(self):
        self.assertEqual(len(checker.updates_lost([write(1, 1), write(2, 2), write(3, 2)])), 1)

    def test_what_is_lost_without_tokens(self):
        touches = [write(1, 1, unchecked=1), write(3, 2, unchecked=2),
                   write(2, 2, accepted=False, unchecked=2), write(4, 3, unchecked=3)]
        self.assertEqual(checker.lost_without_tokens(touches), 1)
        self.assertEqual(checker.summary([], touches)["refused"], 1)


class TheResource(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-e2e-")
        self.addCleanup(folder.cleanup)
        self.resource = Resource(folder.name)

    def test_a_paused_holder_that_was_overtaken(self):
        paused = self.resource.read(1, 5)
        seen = self.resource.read(1, 6)
        self.resource.write(1, 6, seen)
        with self.assertRaises(Stale):
            self.resource.write(1, 5, paused)
        with self.assertRaises(Stale):
            self.resource.read(1, 5)
        self.resource.write(1, 6, self.resource.read(1, 6))
        touches = self.resource.touches()
        self.assertEqual(checker.updates_lost(touches), [])
        self.assertEqual(checker.lost_without_tokens(touches), 1)
        self.assertEqual((self.resource.highest_token(1), self.resource.writes()), (6, 3))

    def test_overtaken_before_the_other_wrote(self):
        """The read alone shows the token, so that nothing can come between it and the write."""
        paused = self.resource.read(1, 5)
        seen = self.resource.read(1, 6)
        with self.assertRaises(Stale):
            self.resource.write(1, 5, paused)
        self.resource.write(1, 6, seen)
        self.assertEqual(checker.updates_lost(self.resource.touches()), [])


if __name__ == "__main__":
    unittest.main()
