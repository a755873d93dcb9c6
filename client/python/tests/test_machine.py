"""The rules of a session: deadlines, pings, epochs, resuming. Without a daemon; time is a number."""

import unittest

import grpc

from semaphored._time import MS_NS, NEVER_NS
from semaphored.errors import LossCause, LostError, NotFoundError
from semaphored.v1 import semaphore_pb2 as pb

from world import TTL_MS, World


class Opening(unittest.TestCase):

    def test_an_acquire_opens_a_session_and_is_sent_once_it_is_open(self):
        world = World()
        acquired = world.acquire(wait_ms=500)
        opened = world.connect()
        self.assertEqual((opened.client_id, opened.ttl_ms, opened.resume_session_id),
                         ("client-1", TTL_MS, ""))
        self.assertFalse(world.next().commands)
        world.now_ms += 100
        world.opened()
        message = world.next()
        self.assertEqual([command.sequence for command in message.commands], [1])
        acquire = message.commands[0].acquire
        self.assertEqual((acquire.semaphore, acquire.wait_ms, acquire.wait_forever,
                          acquire.report_queued), ("db", 400, False, True))
        world.queued(1)
        world.queued(1, expected_wait_ms=0, reason=pb.WAIT_REASON_HOLDER_CAP)
        world.queued(1, expected_wait_ms=1_500, reason=4_711)  # of a newer daemon
        self.assertEqual([place.position for place in acquired.queued], [1, 1, 1])
        self.assertEqual([place.expected_wait for place in acquired.queued], [None, 0, 1.5])
        self.assertEqual([place.reason for place in acquired.queued], ["", "HOLDER_CAP", ""])
        world.granted(1, "L1")
        self.assertEqual((acquired.lease.slots, acquired.lease.token), ((1,), 7))

    def test_slots_come_as_ranges(self):
        world = World()
        acquired = world.acquire()
        world.connect()
        world.opened()
        world.next()
        world.result(1, granted=pb.Lease(lease_id="L1", slots=[
            pb.SlotRange(first=1, last=1), pb.SlotRange(first=4, last=6)]))
        self.assertEqual(acquired.lease.slots, (1, 4, 5, 6))

    def test_how_long_to_wait(self):
        world = World()
        for wait_ms in (None, 0, 1, 500):
            world.acquire(wait_ms=wait_ms)
        world.connect()
        world.opened()
        self.assertEqual([(command.acquire.wait_forever, command.acquire.wait_ms)
                          for command in world.next().commands],
                         [(True, 0), (False, 0), (False, 1), (False, 500)])

    def test_all_that_waits_goes_into_one_message(self):
        world = World()
        for _ in range(3):
            world.acquire()
        world.connect()
        world.opened()
        self.assertEqual([command.sequence for command in world.next().commands], [1, 2, 3])
        self.assertFalse(world.next().commands)

    def test_a_client_that_wants_nothing_does_not_connect(self):
        world = World()
        self.assertIsNone(world.machine.start_connecting(world.now_ns))
        self.assertEqual(world.machine.next_due_ns(True), NEVER_NS)
        held = world.holding()
        world.release(held)
        world.released(world.next().commands[0].sequence)
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.advance(60_000)
        self.assertIsNone(world.machine.start_connecting(world.now_ns))


class Deadlines(unittest.TestCase):

    def test_good_from_the_time_sent_plus_elapsed_plus_validity_less_the_margin(self):
        world = World()
        held = world.holding()
        sent_ms = world.now_ms
        self.assertEqual(held.lease.good_until_ns(), (sent_ms + TTL_MS - 100) * MS_NS)
        world.advance(TTL_MS // 3)
        ping = world.next().ping
        pinged_ms = world.now_ms
        world.advance(1_000)
        world.pong(ping.ping_id, valid_for_ms=8_500, elapsed_ms=300)
        self.assertEqual(held.lease.good_until_ns(), (pinged_ms + 300 + 8_500 - 100) * MS_NS)

    def test_one_percent_is_the_margin_when_that_is_more(self):
        world = World(margin_ns=10 * MS_NS)
        held = world.holding()
        self.assertEqual(held.lease.good_until_ns(), (world.now_ms + TTL_MS - 90) * MS_NS)

    def test_a_later_answer_takes_no_earlier_promise_back(self):
        world = World()
        held = world.holding()
        until_ns = held.lease.good_until_ns()
        world.advance(TTL_MS // 3)
        world.pong(world.next().ping.ping_id, valid_for_ms=1_000)
        self.assertEqual(held.lease.good_until_ns(), until_ns)

    def test_silence_up_to_the_deadline_loses_it_and_not_a_moment_before(self):
        world = World()
        held = world.holding()
        world.advance(TTL_MS - 101)
        self.assertTrue(world.held(held))
        self.assertEqual(held.losses, [])
        self.assertEqual(world.machine.next_due_ns(True) // MS_NS <= world.now_ms + 1, True)
        world.advance(1)
        self.assertFalse(world.held(held))
        self.assertEqual([loss.cause for loss in held.losses], [LossCause.NO_CONTACT])

    def test_an_answer_after_the_deadline_does_not_bring_it_back(self):
        world = World()
        held = world.holding()
        world.now_ms += TTL_MS // 3
        ping_id = world.next().ping.ping_id
        world.now_ms += TTL_MS
        world.pong(ping_id)
        self.assertFalse(world.held(held))
        self.assertEqual(len(held.losses), 1)

    def test_a_permit_that_is_lost_here_is_still_given_back(self):
        world = World()
        held = world.holding()
        world.advance(TTL_MS)
        answers = world.release(held)
        self.assertIsInstance(answers[0], LostError)
        world.connect()
        world.opened(["L1"], resumed=True)
        self.assertEqual(world.next().commands[0].release.lease_id, "L1")

    def test_a_recall_is_a_loss_a_margin_before_its_grace_ends(self):
        world = World()
        held = world.holding()
        world.receive(events=[pb.SessionEvent(recalled=pb.LeaseRecalled(
            lease_id="L1", recall=pb.LeaseRecall(grace_ms=1_000, reason="resized")))])
        self.assertEqual([(told.grace, told.reason) for told in held.recalls], [(1.0, "resized")])
        world.advance(899)
        self.assertTrue(world.held(held))
        world.advance(1)
        self.assertFalse(world.held(held))
        self.assertEqual([loss.cause for loss in held.losses], [LossCause.RECALLED])

    def test_a_permit_that_was_given_back_in_its_grace_is_not_lost(self):
        world = World()
        held = world.holding()
        world.receive(events=[pb.SessionEvent(recalled=pb.LeaseRecalled(
            lease_id="L1", recall=pb.LeaseRecall(grace_ms=1_000)))])
        answers = world.release(held)
        world.released(world.next().commands[0].sequence)
        world.advance(1_000)
        self.assertEqual((answers, held.losses), ([None], []))


class Pings(unittest.TestCase):

    def test_every_third_of_the_ttl(self):
        world = World()
        world.holding()
        self.assertFalse(world.next().HasField("ping"))
        world.advance(TTL_MS // 3)
        self.assertTrue(world.next().HasField("ping"))
        self.assertFalse(world.next().HasField("ping"))

    def test_every_third_of_what_is_vouched_for_when_that_is_less(self):
        world = World()
        world.acquire()
        world.connect()
        world.opened(valid_for_ms=3_000)
        world.next()
        world.granted(1, "L1")
        world.advance(1_000)
        self.assertTrue(world.next().HasField("ping"))

    def test_a_silent_stream_is_given_up_a_quarter_after_its_ping(self):
        world = World()
        world.holding()
        world.advance(TTL_MS // 3)
        world.next()
        world.advance(TTL_MS // 4 - 1)
        self.assertEqual(world.dropped, 0)
        world.advance(1)
        self.assertEqual(world.dropped, 1)
        self.assertEqual(world.connect().resume_session_id, "s1")
        self.assertEqual(world.endpoint, 1)

    def test_an_answer_with_an_older_epoch_is_ignored(self):
        world = World()
        held = world.holding()
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.connect()
        world.opened(["L1"], resumed=True, epoch=2)
        until_ns = held.lease.good_until_ns()
        world.advance(TTL_MS // 3)
        world.pong(world.next().ping.ping_id, epoch=1)
        self.assertEqual(held.lease.good_until_ns(), until_ns)

    def test_a_daemon_that_was_overtaken_is_left_at_once(self):
        world = World()
        world.holding()
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.connect()
        world.opened(["L1"], resumed=True, epoch=5)
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.connect()
        world.opened(["L1"], resumed=True, epoch=4)
        self.assertEqual(world.dropped, 1)


class Resuming(unittest.TestCase):

    def test_same_client_same_numbers_same_content(self):
        world = World()
        held = world.holding()
        world.acquire("other", wait_ms=5_000)
        first = world.next().commands[0]
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.now_ms += 500
        opened = world.connect()
        self.assertEqual((opened.client_id, opened.resume_session_id), ("client-1", "s1"))
        world.opened(["L1"], resumed=True)
        self.assertEqual(list(world.next().commands), [first])
        self.assertTrue(world.held(held))

    def test_a_lease_that_is_not_listed_is_lost(self):
        world = World()
        held = world.holding()
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.connect()
        world.opened([], resumed=True)
        self.assertEqual([loss.cause for loss in held.losses], [LossCause.UNKNOWN])

    def test_leases_are_listed_in_several_messages(self):
        world = World()
        held = world.holding()
        gone = world.acquire("other")
        world.next()
        world.granted(2, "L2")
        waiting = world.acquire("third")
        first = world.next().commands[0]
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.connect()
        world.opened(["L3", "L4"], resumed=True, more=True)
        self.assertFalse(world.next().commands)
        world.opened([], resumed=True, more=True)
        self.assertTrue(world.held(held) and world.held(gone))
        world.opened(["L1"], resumed=True)
        self.assertTrue(world.held(held))
        self.assertEqual([loss.cause for loss in gone.losses], [LossCause.UNKNOWN])
        self.assertEqual(list(world.next().commands), [first])
        world.granted(first.sequence, "L4")
        self.assertEqual(waiting.lease.lease_id, "L4")
        self.assertEqual([command.release.lease_id for command in world.next().commands], ["L3"])

    def test_what_comes_beside_a_list_counts_once_all_of_it_is_there(self):
        world = World()
        held = world.holding()
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.connect()
        world.opened(["L1"], resumed=True, more=True, events=[pb.SessionEvent(
            lost=pb.LeaseLost(lease_id="L1", cause=pb.END_CAUSE_REVOKED))])
        self.assertEqual(held.losses, [])
        world.opened([], resumed=True)
        self.assertEqual([loss.cause for loss in held.losses], [LossCause.REVOKED])
        self.assertFalse(world.next().commands)

    def test_a_list_that_breaks_off_is_asked_for_again_from_the_beginning(self):
        world = World()
        held = world.holding()
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.connect()
        world.opened(["L1"], resumed=True, more=True)
        world.end(grpc.StatusCode.UNAVAILABLE)
        self.assertTrue(world.held(held))
        world.connect()
        world.opened(["L2"], resumed=True, more=True)
        world.opened(["L3"], resumed=True)
        self.assertEqual([loss.cause for loss in held.losses], [LossCause.UNKNOWN])

    def test_each_message_of_a_list_has_its_own_time_to_come(self):
        world = World()
        held = world.holding()
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.connect()
        for _ in range(2):
            world.advance(TTL_MS // 4 - 1)
            world.opened([], resumed=True, more=True)
        self.assertEqual(world.dropped, 0)
        world.advance(TTL_MS // 4)
        self.assertEqual((world.dropped, held.losses), (1, []))

    def resumed_with(self, *leases):
        """These are listed, of which L1 is known, and L2 may be what is asked for once more."""
        world = World()
        world.holding()
        acquired = world.acquire("other")
        world.next()  # granted there as L2, and the answer was lost
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.connect()
        world.opened(leases, resumed=True)
        again = world.next()
        self.assertEqual(len(again.commands), 1)
        return world, acquired, again.commands[0]

    def test_one_that_nobody_here_knows_is_given_back_but_not_one_whose_answer_was_lost(self):
        world, acquired, again = self.resumed_with("L1", "L2", "L3")
        world.granted(again.sequence, "L2")
        self.assertEqual(acquired.lease.lease_id, "L2")
        self.assertEqual([command.release.lease_id for command in world.next().commands], ["L3"])

    def listed_and_to_be_sent_again(self):
        """L2 is listed, and the command that may claim it cannot be carried out now."""
        world, acquired, again = self.resumed_with("L1", "L2")
        world.error(again.sequence, grpc.StatusCode.UNAVAILABLE, pb.REASON_NOT_VOUCHED)
        self.assertFalse(world.next().commands)
        world.advance(200)
        self.assertEqual(list(world.next().commands), [again])
        return world, acquired, again.sequence

    def test_one_whose_acquire_is_to_be_sent_again_is_not_given_back(self):
        world, acquired, sequence = self.listed_and_to_be_sent_again()
        world.granted(sequence, "L2")
        self.assertEqual(acquired.lease.lease_id, "L2")
        self.assertFalse(world.next().commands)

    def test_one_whose_acquire_has_failed_is_given_back(self):
        world, acquired, sequence = self.listed_and_to_be_sent_again()
        world.error(sequence, grpc.StatusCode.PERMISSION_DENIED, pb.REASON_PERMISSION_DENIED)
        self.assertIsNotNone(acquired.error)
        self.assertEqual([command.release.lease_id for command in world.next().commands], ["L2"])

    def test_a_waiter_that_is_queued_again_claims_nothing(self):
        world = World()
        world.holding()
        world.acquire("other")
        world.next()
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.connect()
        world.opened(["L1", "L3"], resumed=True)
        world.queued(world.next().commands[0].sequence)
        self.assertEqual([command.release.lease_id for command in world.next().commands], ["L3"])

    def test_a_lost_session_loses_its_permits_and_what_waits_goes_on_in_a_new_one(self):
        world = World()
        held = world.holding()
        waiting = world.acquire()
        world.next()
        world.queued(2)
        released = world.release(held)
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.connect()
        world.end(grpc.StatusCode.NOT_FOUND)
        self.assertEqual([loss.cause for loss in held.losses], [LossCause.EXPIRED])
        self.assertIsInstance(released[0], NotFoundError)
        opened = world.connect()
        self.assertEqual((opened.resume_session_id, opened.client_id == "client-1"), ("", False))
        world.opened(session="s2")
        self.assertEqual([command.sequence for command in world.next().commands], [1])
        world.granted(1, "L9")
        self.assertEqual(waiting.lease.lease_id, "L9")

    def test_a_daemon_that_opens_another_session_is_not_believed(self):
        world = World()
        held = world.holding()
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.connect()
        world.opened(["L1"], resumed=False, session="s2")
        self.assertEqual((len(held.losses), world.dropped), (1, 1))


class Closing(unittest.TestCase):

    def test_says_close_after_what_is_to_be_sent_and_ends_with_the_stream(self):
        world = World()
        held = world.holding()
        waiting = world.acquire("other")
        world.next()
        released = world.release(held)
        world.machine.close(world.now_ns)
        world.effect()
        self.assertEqual([loss.cause for loss in held.losses], [LossCause.CLOSED])
        self.assertEqual(waiting.error.code, grpc.StatusCode.CANCELLED)
        message = world.next()
        self.assertTrue(message.close)
        self.assertEqual(message.commands[0].release.lease_id, "L1")
        world.end()
        self.assertTrue(world.machine.closed)
        self.assertEqual(released, [None])
        self.assertEqual(world.acquire().error.code, grpc.StatusCode.CANCELLED)

    def test_is_bounded_when_nobody_answers(self):
        world = World(release_timeout_ns=5_000 * MS_NS)
        world.holding()
        world.end(grpc.StatusCode.UNAVAILABLE)
        world.machine.close(world.now_ns)
        world.advance(4_999)
        self.assertFalse(world.machine.closed)
        world.advance(1)
        self.assertTrue(world.machine.closed)

    def test_without_a_session_is_at_once(self):
        world = World()
        waiting = world.acquire()
        world.machine.close(world.now_ns)
        world.effect()
        self.assertTrue(world.machine.closed)
        self.assertEqual(waiting.error.code, grpc.StatusCode.CANCELLED)


if __name__ == "__main__":
    unittest.main()
