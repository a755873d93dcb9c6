"""What becomes of acquires and releases: sent again, given up, refused. Without a daemon."""

import unittest

import grpc

from semaphored._time import MS_NS
from semaphored._wording import in_options
from semaphored.errors import (Full, LostError, NotFoundError, ResourceExhaustedError, Unreachable,
                               UnauthenticatedError, WaitExpired, UnavailableError)
from semaphored.v1 import semaphore_pb2 as pb

from world import World

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


class Operations(unittest.TestCase):

    def test_a_wait_that_is_given_up_is_cancelled_there_and_a_grant_that_crosses_it_goes_back(self):
        world = World()
        world.holding()
        waiting = world.acquire("other")
        world.next()
        world.queued(2)
        world.machine.cancel(waiting.number, world.now_ns)
        world.effect()
        self.assertEqual((waiting.error.code, waiting.error.reason),
                         (grpc.StatusCode.CANCELLED, "WAIT_CANCELLED"))
        self.assertEqual(world.next().commands[0].cancel, 2)
        world.granted(2, "L2")
        self.assertEqual(world.next().commands[0].release.lease_id, "L2")

    def test_a_wait_that_is_given_up_before_it_was_sent_is_never_sent(self):
        world = World()
        waiting = world.acquire()
        world.machine.cancel(waiting.number, world.now_ns)
        world.effect()
        self.assertEqual(waiting.error.code, grpc.StatusCode.CANCELLED)
        world.advance(0)
        self.assertIsNone(world.machine.start_connecting(world.now_ns))

    def test_a_grant_that_is_told_twice_is_not_given_back(self):
        world = World()
        held = world.holding()
        world.granted(1, "L1")
        self.assertFalse(world.next().commands)
        self.assertEqual(world.release(held), [])
        world.released(world.next().commands[0].sequence)

    def test_errors_of_the_daemon_come_through_with_their_class(self):
        world = World()
        world.holding()
        for code, reason, kind in (
                (grpc.StatusCode.RESOURCE_EXHAUSTED, pb.REASON_FULL, Full),
                (grpc.StatusCode.RESOURCE_EXHAUSTED, pb.REASON_LIMIT_REACHED,
                 ResourceExhaustedError),
                (grpc.StatusCode.DEADLINE_EXCEEDED, pb.REASON_WAIT_EXPIRED, WaitExpired),
                (grpc.StatusCode.NOT_FOUND, pb.REASON_NO_SUCH_SEMAPHORE, NotFoundError)):
            refused = world.acquire(wait_ms=0)
            command = world.next().commands[0]
            self.assertEqual(command.acquire.wait_ms, 0)
            world.error(command.sequence, code, reason)
            self.assertIs(type(refused.error), kind)
            self.assertEqual("REASON_" + refused.error.reason, pb.Reason.Name(reason))

    def test_what_the_daemon_cannot_do_now_is_sent_again_with_the_same_number(self):
        world = World(reconnect_timeout_ns=1_000 * MS_NS)
        world.holding()
        refused = world.acquire("other")
        first = world.next().commands[0]
        for _ in range(5):
            world.error(first.sequence, UNAVAILABLE, pb.REASON_ENGINE_UNAVAILABLE)
            self.assertEqual(refused.results, [])
            world.advance(199)
            self.assertFalse(world.next().commands)
            world.advance(1)
            self.assertEqual(list(world.next().commands), [first])
        world.error(first.sequence, UNAVAILABLE, pb.REASON_ENGINE_UNAVAILABLE)
        self.assertIs(type(refused.error), UnavailableError)
        self.assertEqual(refused.error.reason, "ENGINE_UNAVAILABLE")

    def test_another_answer_ends_what_was_unavailable(self):
        world = World(reconnect_timeout_ns=1_000 * MS_NS)
        world.holding()
        waiting = world.acquire("other")
        first = world.next().commands[0]
        for _ in range(3):
            world.error(first.sequence, UNAVAILABLE, pb.REASON_ENGINE_UNAVAILABLE)
            world.advance(600)
            self.assertEqual(list(world.next().commands), [first])
            world.queued(first.sequence)
        self.assertEqual(waiting.results, [])

    def test_an_acquire_whose_number_was_forgotten_is_given_up_there_and_asked_anew(self):
        world = World()
        world.holding()
        acquired = world.acquire("other")
        world.next()
        world.error(2, grpc.StatusCode.ABORTED, pb.REASON_REQUEST_TOO_OLD)
        cancel, again = world.next().commands
        self.assertEqual((cancel.cancel, again.acquire.semaphore), (2, "other"))
        world.granted(2, "L2")  # under the old number, after all
        self.assertEqual(world.next().commands[0].release.lease_id, "L2")
        world.granted(again.sequence, "L3")
        self.assertEqual(acquired.lease.lease_id, "L3")

    def test_numbers_stay_within_the_window_of_the_first_that_is_unanswered(self):
        world = World()
        for _ in range(1_500):
            world.acquire()
        world.connect()
        world.opened()
        self.assertEqual(len(world.next().commands), 1_000)
        self.assertFalse(world.next().commands)
        world.queued(1)
        self.assertEqual(len(world.next().commands), 1)

    def test_nobody_answers_it_fails_closed_within_the_time_to_connect(self):
        world = World(connect_timeout_ns=5_000 * MS_NS)
        acquired = world.acquire()
        begun_ms = world.now_ms
        while not acquired.results:
            if world.machine.start_connecting(world.now_ns) is not None:
                world.next()
                world.end(UNAVAILABLE)
            world.advance(10)
        self.assertIs(type(acquired.error), Unreachable)
        self.assertIn("the stream broke", acquired.error.message)
        self.assertEqual(world.now_ms - begun_ms, 5_000)

    def test_one_that_waits_in_the_queue_outlasts_a_restart_up_to_the_time_to_reconnect(self):
        world = World(reconnect_timeout_ns=60_000 * MS_NS)
        world.holding()
        waiting = world.acquire("other")
        world.next()
        world.queued(2)
        world.end(UNAVAILABLE)
        world.advance(59_000)
        self.assertEqual(waiting.results, [])
        world.advance(1_000)
        self.assertIs(type(waiting.error), Unreachable)

    def test_every_endpoint_is_tried_before_the_first_pause_and_pauses_grow(self):
        world = World()
        world.acquire()
        pauses = []
        for _ in range(4):
            for endpoint in (0, 1):
                before_ms = world.now_ms
                world.connect()
                self.assertEqual(world.endpoint, endpoint)
                if endpoint == 0:
                    pauses.append(world.now_ms - before_ms)
                else:
                    self.assertEqual(world.now_ms, before_ms)
                world.end(UNAVAILABLE)
        self.assertEqual(pauses[0], 0)
        for pause_ms, most_ms in zip(pauses[1:], (50, 100, 200)):
            self.assertTrue(most_ms // 2 <= pause_ms <= most_ms + 1, pauses)

    def test_a_wait_ends_here_when_the_daemon_does_not_end_it(self):
        world = World()
        world.holding()
        waiting = world.acquire("other", wait_ms=1_000)
        world.next()
        world.queued(2)
        world.advance(1_249)
        self.assertEqual(waiting.results, [])
        world.advance(1)
        self.assertIs(type(waiting.error), WaitExpired)
        self.assertEqual(world.next().commands[0].cancel, 2)

    def test_an_open_that_is_refused_for_good_fails_what_waits_for_it(self):
        world = World()
        acquired = world.acquire()
        world.connect()
        world.end(grpc.StatusCode.UNAUTHENTICATED)
        self.assertIs(type(acquired.error), UnauthenticatedError)

    def test_the_clients_own_limit(self):
        world = World(operations_max=2)
        world.acquire()
        world.acquire()
        refused = world.acquire()
        self.assertEqual((type(refused.error), refused.error.reason),
                         (ResourceExhaustedError, "LIMIT_REACHED"))

    def test_a_release_is_answered_once_and_repeated_over_a_broken_connection(self):
        world = World()
        held = world.holding()
        answers = world.release(held)
        first = world.next().commands[0]
        world.end(UNAVAILABLE)
        world.connect()
        world.opened(["L1"], resumed=True)
        self.assertEqual(list(world.next().commands), [first])
        world.released(first.sequence)
        self.assertEqual(answers, [None])
        self.assertIsInstance(world.release(held)[0], LostError)

    def test_a_release_that_comes_after_the_lease_ended_says_so(self):
        world = World()
        held = world.holding()
        answers = world.release(held)
        world.released(world.next().commands[0].sequence, released=0)
        self.assertIsInstance(answers[0], LostError)

    def test_many_short_waits_leave_nothing_behind(self):
        world = World()
        world.holding()
        for number in range(1_000):
            world.acquire("other", wait_ms=1_000_000)
            command = world.next().commands[0]
            world.granted(command.sequence, f"M{number}")
        self.assertLess(len(world.machine._operations._local_ends), 100)


class WordingTest(unittest.TestCase):

    def test_errors_speak_of_the_options_of_the_package(self):
        for said, shown in (
                ("open.ttl_ms: must be 1000 to 86400000, not 5",
                 "ttl: must be 1 s to 86400 s, not 0.005 s"),
                ("my_wait_ms: its limit is 3; see limit_mismatch",
                 "my_wait_ms: its limit is 3; see adopt_limit"),
                ("wait_ms: must be 0 to 5; see wait_forever", "wait: must be 0 s to 0.005 s; see wait"),
                ("permits: must be 1 to 7, not 9", "permits: must be 1 to 7, not 9"),
                ("create.settings.longest_hold_ms: must be 1 to 7",
                 "create.settings.longest_hold_ms: must be 1 to 7"),
                ("wait (wait_ms), or try again later", "wait (wait), or try again later"),
                ("nothing of all this.", "nothing of all this."), ("", "")):
            self.assertEqual(in_options(said, "my_wait_ms"), shown)
        self.assertEqual(in_options("ttl_ms: x: must be", "ttl_ms"), "ttl_ms: x: must be")


if __name__ == "__main__":
    unittest.main()
