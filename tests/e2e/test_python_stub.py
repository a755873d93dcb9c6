"""Any language: the generated stub alone holds a lease, by Hold and by Acquire, Renew, Release."""

import time
import unittest

from daemon import (BOUND_S, Client, Daemon, Reader, Session, TTL_MIN_MS, error_info, grpc, pb)


class PythonStub(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()
        cls.addClassCleanup(cls.daemon.close)

    def setUp(self):
        self.client = self.daemon.client()
        self.name = "stub/" + self.id().rsplit(".", 1)[1]

    def hold(self, **fields):
        acquire = self.client.acquire_request(
            self.name, limit=1, wait_ms=-1, **fields)
        return Reader(self.client.stub.Hold(pb.HoldRequest(acquire=acquire, beat_interval_ms=100)))

    def refused(self, code, reason, call, *arguments, **fields):
        with self.assertRaises(grpc.RpcError) as caught:
            call(*arguments, **fields)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        info = error_info(caught.exception)
        self.assertIsNotNone(info, "no ErrorInfo in grpc-status-details-bin")
        self.assertEqual(info.domain, "semaphored")
        self.assertEqual(info.reason, reason)
        return info

    def test_hold_beats_and_release_ends_the_stream(self):
        stream = self.hold(ttl_ms=TTL_MIN_MS)
        granted = stream.until(lambda m: m.HasField("granted"), "granted").granted
        self.assertEqual(list(granted.lease.slots), [1])
        self.assertGreater(granted.lease.token, 0)
        self.assertEqual(granted.lease.ttl_ms, TTL_MIN_MS)
        self.assertGreater(granted.validity.valid_for_ms, 0)
        self.assertLessEqual(granted.validity.valid_for_ms, TTL_MIN_MS)
        # Beats alone keep it, well beyond its TTL.
        stream.until(lambda m: m.HasField("beat") and m.beat.elapsed_ms > 2 * TTL_MIN_MS
                     and m.beat.valid_for_ms > 0, "a beat after two TTLs")
        self.assertTrue(self.client.verify(granted.lease.lease_id).held)
        self.assertEqual(self.client.release(granted.lease.lease_id).released, 1)
        self.assertIsNone(stream.end(), "the stream did not end with OK")
        self.assertEqual(self.client.describe(self.name).held, 0)

    def test_hold_waits_its_turn(self):
        first = self.client.acquire(self.name, limit=1)
        stream = self.hold()
        queued = stream.until(lambda m: m.HasField("queued"), "queued").queued
        self.assertEqual(queued.position, 1)
        self.client.release(first.lease_id)
        granted = stream.until(lambda m: m.HasField("granted"), "granted").granted
        self.assertGreater(granted.lease.token, first.token)
        self.client.release(granted.lease.lease_id)

    def test_hold_again_with_the_same_id_goes_on_with_the_lease(self):
        request = pb.HoldRequest(acquire=self.client.acquire_request(self.name, limit=1))
        call = self.client.stub.Hold(request)
        lease = Reader(call).until(lambda m: m.HasField("granted"), "granted").granted.lease
        call.cancel()
        again = Reader(self.client.stub.Hold(request))
        same = again.until(lambda m: m.HasField("granted"), "granted again").granted.lease
        self.assertEqual((same.lease_id, same.token), (lease.lease_id, lease.token))
        self.client.release(lease.lease_id)
        self.assertIsNone(again.end())

    def test_acquire_renew_release(self):
        ttl_ms = 1500
        lease = self.client.acquire(self.name, limit=2, permits=2, ttl_ms=ttl_ms, holder="a person")
        self.assertEqual(list(lease.slots), [1, 2])
        self.assertEqual(lease.holder, "a person")
        until = time.monotonic() + 1.5 * ttl_ms / 1000
        while time.monotonic() < until:
            answer = self.client.stub.Renew(pb.RenewRequest(lease_id=lease.lease_id),
                                            timeout=BOUND_S)
            self.assertEqual(answer.lease.token, lease.token)
            self.assertGreater(answer.validity.valid_for_ms, 0)
            time.sleep(ttl_ms / 5000)  # the pace of a holder
        some = self.client.release(lease.lease_id, slots=[2])
        self.assertEqual((some.released, some.remaining), (1, 1))
        rest = self.client.release(lease.lease_id)
        self.assertEqual((rest.released, rest.remaining), (1, 0))
        again = self.client.release(lease.lease_id)
        self.assertEqual((again.released, again.ended), (0, pb.END_CAUSE_RELEASED))

    def test_a_lease_that_is_not_renewed_expires(self):
        lease = self.client.acquire(self.name, limit=1, ttl_ms=TTL_MIN_MS)
        taken = self.client.acquire(self.name, wait_ms=10000)
        self.assertGreater(taken.token, lease.token)
        verdict = self.client.verify(lease.lease_id)
        self.assertEqual((verdict.held, verdict.ended), (False, pb.END_CAUSE_EXPIRED))
        self.refused(grpc.StatusCode.NOT_FOUND, "NOT_HELD", self.client.stub.Renew,
                     pb.RenewRequest(lease_id=lease.lease_id))

    def test_the_resource_asks_with_slot_and_token(self):
        earlier = self.client.acquire(self.name, limit=1)
        self.client.release(earlier.lease_id)
        lease = self.client.acquire(self.name)
        ask = pb.VerifyRequest(semaphore=self.name, slot=1, token=lease.token)
        self.assertTrue(self.client.stub.Verify(ask).held)
        ask.token = earlier.token
        verdict = self.client.stub.Verify(ask)
        self.assertFalse(verdict.held)
        self.assertEqual(verdict.slot_token, lease.token)

    def test_errors_carry_an_error_info(self):
        info = self.refused(grpc.StatusCode.NOT_FOUND, "NO_SUCH_SEMAPHORE",
                            self.client.acquire, self.name)
        self.assertEqual(info.metadata["semaphore"], self.name)
        self.client.acquire(self.name, limit=1)
        self.refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "FULL", self.client.acquire, self.name)
        self.refused(grpc.StatusCode.DEADLINE_EXCEEDED, "WAIT_EXPIRED",
                     self.client.acquire, self.name, wait_ms=100)
        self.refused(grpc.StatusCode.FAILED_PRECONDITION, "LIMIT_MISMATCH",
                     self.client.acquire, self.name, limit=2)
        self.refused(grpc.StatusCode.FAILED_PRECONDITION, "EXCEEDS_LIMIT",
                     self.client.acquire, self.name, permits=2)
        self.refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD",
                     self.client.acquire, self.name, ttl_ms=1)

    def test_session(self):
        session = Session(self.client, ttl_ms=5000)
        opened = session.opened()
        self.assertFalse(opened.resumed)
        acquire = pb.SessionAcquire(semaphore=self.name, limit=2)
        session.send(commands=[pb.SessionCommand(sequence=1, acquire=acquire),
                               pb.SessionCommand(sequence=2, acquire=acquire)])
        results = {}
        while len(results) < 2:
            message = session.reader.until(lambda m: m.results, "results")
            results.update((r.sequence, r) for r in message.results)
        self.assertEqual([results[1].granted.slots[0], results[2].granted.slots[0]], [1, 2])
        session.send(ping=pb.Ping(ping_id=7))
        pong = session.reader.until(lambda m: m.HasField("pong"), "pong").pong
        self.assertEqual(pong.ping_id, 7)
        self.assertGreater(pong.validity.valid_for_ms, 0)
        session.command(3, release=pb.SessionRelease(lease_id=results[1].granted.lease_id))
        self.assertEqual(session.result(3).released.released, 1)
        session.send(close=True)
        self.assertIsNone(session.reader.end())
        self.assertEqual(self.client.describe(self.name).held, 0)

    def test_watch(self):
        watch = Reader(self.client.stub.Watch(pb.WatchRequest(prefix=self.name)))
        lease = None

        def kinds_until(kind):
            return watch.until(lambda m: m.kind == kind, f"watch event {kind}")
        # A watch begins when it is served; a first event tells that it is.
        other = Client(self.daemon.channel())
        lease = other.acquire(self.name, limit=1)
        watch_again = Reader(self.client.stub.Watch(pb.WatchRequest(semaphore=self.name)))
        snapshot = watch_again.until(lambda m: m.kind == pb.WatchEvent.SNAPSHOT, "a snapshot")
        self.assertEqual((snapshot.semaphore.limit, snapshot.semaphore.held), (1, 1))
        other.release(lease.lease_id)
        ended = watch_again.until(lambda m: m.kind == pb.WatchEvent.ENDED, "an end")
        self.assertEqual((ended.token, ended.cause), (lease.token, pb.END_CAUSE_RELEASED))
        kinds_until(pb.WatchEvent.ENDED)

    def test_reflection_is_served(self):
        call = self.client.channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        list_services = b"\x3a\x00"
        answer = next(call(iter([list_services]), timeout=BOUND_S))
        self.assertIn(b"semaphore.v1.SemaphoreService", answer)


if __name__ == "__main__":
    unittest.main()
