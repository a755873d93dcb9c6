"""Plants overlaps and needless stops in good histories: the judge finds each, and nothing else."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from judge import Rules, judge  # noqa: E402  the folder has to be on the path first
from traces import Act, Fault, History, Run, stays_of  # noqa: E402

SECOND = 1_000_000_000
RULES = Rules(ttl_s=3.0, node_ttl_s=5.0)
NAME = "storm/two"
SEMCTL = {0: []}  # Holder 0 is a semctl.


def ns(seconds):
    return int(seconds * SECOND)


def stay(holder, slot, token, first, last, end="done"):
    """Acts every 0.1 s from first to last; the last one is `end`."""
    acts = [Act("grant", ns(first), NAME, slot, token)]
    at = first + 0.1
    while at < last:
        acts.append(Act("act", ns(at), NAME, slot, token))
        at += 0.1
    if end:
        acts.append(Act(end, ns(last), NAME, slot, token, "NO_CONTACT"))
    return stays_of(holder, acts)


def fault(kind, target, begin, end=0.0):
    return Fault(kind, target, ns(begin), ns(end))


def findings(stays, faults=(), runs=None, daemons=("a", "b")):
    history = History({NAME: 2}, [each for some in stays for each in some], runs or {},
                      list(faults), ns(1000))
    return judge(history, RULES, daemons)[0]


GOOD = [stay(0, 1, 1, 100, 101), stay(1, 2, 2, 100.5, 102), stay(2, 1, 3, 101.1, 103),
        stay(0, 1, 7, 103.2, 104)]


class JudgeTest(unittest.TestCase):

    def assert_found(self, text, *arguments, **options):
        found = findings(*arguments, **options)
        self.assertEqual(len(found), 1, found)
        self.assertIn(text, found[0])


class ExclusionTest(JudgeTest):

    def test_good(self):
        self.assertEqual(findings(GOOD), [])

    def test_other_slots_and_semaphores_do_not_matter(self):
        self.assertEqual(findings([stay(0, 1, 1, 100, 105), stay(1, 2, 2, 100, 105)]), [])

    def test_two_inside(self):
        self.assert_found("acted until", [*GOOD, stay(3, 1, 9, 103.9, 105)])

    def test_one_act_after_the_next_one_has_begun(self):
        late = stays_of(0, [Act("grant", ns(100), NAME, 1, 1), Act("act", ns(106), NAME, 1, 1)])
        found = findings([late, stay(1, 1, 2, 105, 107)])
        self.assertEqual(len(found), 1, found)

    def test_an_act_under_a_token_that_was_overtaken_twice(self):
        late = stays_of(0, [Act("grant", ns(100), NAME, 1, 1), Act("act", ns(106), NAME, 1, 1)])
        found = findings([late, stay(1, 1, 2, 101, 102), stay(2, 1, 3, 105, 107)])
        self.assertEqual(len(found), 2, found)

    def test_a_higher_token_acts_first(self):
        found = findings([stay(0, 1, 5, 100, 101), stay(1, 1, 4, 102, 103)])
        self.assertEqual(len(found), 1, found)

    def test_two_have_one_token(self):
        self.assert_found("has the token of", [stay(0, 1, 5, 100, 101), stay(1, 1, 5, 102, 103)])

    def test_a_slot_above_the_limit(self):
        self.assert_found("no such slot", [stay(0, 3, 5, 100, 101)])

    def test_a_permit_that_was_lost_when_it_came_acts_not(self):
        lost = stays_of(0, [Act("lost", ns(106), NAME, 1, 1, "NO_CONTACT")])
        faults = [fault("stop", "holder 0", 100, 106)]
        self.assertEqual(findings([lost, stay(1, 1, 2, 105, 107)], faults), [])

    def test_what_was_started_acts_after_the_work_is_over(self):
        left = stays_of(0, [Act("grant", ns(100), NAME, 1, 1), Act("done", ns(101), NAME, 1, 1),
                            Act("act", ns(101.5), NAME, 1, 1)])
        self.assert_found("acted until", [left, stay(1, 1, 2, 101.2, 102)])


class NeedlessTest(JudgeTest):
    LOST = stay(0, 1, 1, 100, 110, "lost")

    def test_no_fault_at_all(self):
        self.assert_found("without a reason", [self.LOST])

    def test_its_own_stop(self):
        self.assertEqual(findings([self.LOST], [fault("stop", "holder 0", 106, 109.9)]), [])
        self.assert_found("without", [self.LOST], [fault("stop", "holder 0", 108.9, 109.9)])
        self.assert_found("without", [self.LOST], [fault("stop", "holder 0", 102, 105)])
        self.assert_found("without", [self.LOST], [fault("stop", "holder 1", 106, 109.9)])

    def test_its_kill_is_no_reason_for_the_next_process(self):
        self.assert_found("without", [self.LOST], [fault("kill", "holder 0", 99.9)])

    def test_no_daemon(self):
        both = [fault("stop", "daemon a", 107, 110), fault("kill", "daemon b", 107, 110)]
        self.assertEqual(findings([self.LOST], both), [])
        self.assert_found("without", [self.LOST], both[:1])
        self.assertEqual(findings([self.LOST], both[:1], daemons=("a",)), [])

    def test_the_way_to_another_daemon_and_a_stop_of_its_own(self):
        kill = fault("kill", "daemon a", 107, 110)
        stop = fault("stop", "holder 0", 108, 109.3)
        self.assertEqual(findings([self.LOST], [kill, stop]), [])
        self.assert_found("without", [self.LOST], [kill])
        self.assert_found("without", [self.LOST], [stop])
        self.assert_found("without", [self.LOST], [fault("kill", "daemon a", 104, 110), stop])

    def test_daemons_that_are_away_for_what_is_borne(self):
        both = [fault("stop", "daemon a", 108, 109.2), fault("kill", "daemon b", 108, 109.2)]
        self.assert_found("without", [self.LOST], both)

    def test_engine(self):
        self.assertEqual(findings([self.LOST], [fault("stop", "engine", 105, 106)]), [])
        self.assert_found("without", [self.LOST], [fault("stop", "engine", 107, 107.6)])
        self.assert_found("without", [self.LOST], [fault("stop", "engine", 90, 100)])

    def test_engine_and_one_daemon_at_once(self):
        # The other daemon cannot take over without the engine, and a moment later it can.
        engine = [fault("stop", "engine", 107, 107.7)]
        daemon_a = fault("kill", "daemon a", 104, 109)
        daemon_b = fault("kill", "daemon b", 107.7, 108.6)
        self.assertEqual(findings([self.LOST], [*engine, daemon_a, daemon_b]), [])
        self.assert_found("without", [self.LOST], [*engine, daemon_a])
        self.assert_found("without", [self.LOST], [daemon_a, daemon_b])

    def test_machine(self):
        self.assertEqual(findings([self.LOST], [fault("stall", "machine", 108, 109)]), [])
        self.assert_found("without", [self.LOST], [fault("stall", "machine", 108, 108.3)])

    def test_lost_at_its_end(self):
        late = stays_of(0, [Act("grant", ns(100), NAME, 1, 1), Act("done", ns(101), NAME, 1, 1),
                            Act("lost", ns(101.1), NAME, 1, 1, "EXPIRED")])
        self.assert_found("without a reason", [late])


class SemctlTest(JudgeTest):
    CUT = stay(0, 1, 1, 100, 110, "")
    ENDED = stay(0, 1, 1, 100, 110, "term")

    def test_work_that_was_ended(self):
        self.assert_found("without a reason", [self.ENDED], runs=SEMCTL)
        self.assert_found("without a reason", [self.CUT], runs=SEMCTL)
        self.assertEqual(findings([self.CUT]), [])  # In another language: it was killed.

    def test_any_of_the_three_is_killed(self):
        for part in ("semctl", "watcher", "guardian", "command"):
            kill = fault("kill", f"{part} 0", 110)
            self.assertEqual(findings([self.CUT], [kill], runs=SEMCTL), [])
        self.assert_found("without", [self.CUT], [fault("kill", "guardian 1", 110)], runs=SEMCTL)
        self.assert_found("without", [self.CUT], [fault("kill", "guardian 0", 99)], runs=SEMCTL)

    def test_only_semctl_keeps_the_lease(self):
        self.assertEqual(findings([self.ENDED], [fault("stop", "semctl 0", 107, 112)], runs=SEMCTL),
                         [])
        for part in ("watcher", "guardian", "command"):
            stop = fault("stop", f"{part} 0", 107, 112)
            self.assert_found("without a reason", [self.ENDED], [stop], runs=SEMCTL)

    def test_what_is_left_when_the_work_is_over_is_no_loss(self):
        left = stays_of(0, [Act("grant", ns(100), NAME, 1, 1), Act("done", ns(101), NAME, 1, 1),
                            Act("term", ns(101.1), NAME, 1, 1)])
        self.assertEqual(findings([left], runs=SEMCTL), [])

    def test_a_semctl_that_says_lost(self):
        runs = {0: [Run(ns(99), ns(102), 122)]}
        self.assert_found("said at", [stay(0, 1, 1, 100, 101)], runs=runs)
        stop = fault("stop", "semctl 0", 98, 101.9)
        self.assertEqual(findings([stay(0, 1, 1, 100, 101)], [stop], runs), [])
        # It was granted nothing that it heard of in time.
        self.assertEqual(findings([], runs=runs), [])


if __name__ == "__main__":
    unittest.main()
