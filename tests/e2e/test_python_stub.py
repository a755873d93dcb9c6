"""Any language: the generated stub alone holds a lease, by Hold and by Acquire, Renew, Release."""

import queue
import time
import unittest
import uuid

from daemon import (BOUND_S, Client, Daemon, Reader, Session, TTL_MIN_MS, error_info, grpc, pb,
                    slots_of, wait_until)


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
            self.name, limit=1, wait_forever=True, **fields)
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
        self.assertEqual(slots_of(granted.lease.slots), [1])
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
        self.assertEqual((queued.position, queued.reason), (1, pb.WAIT_REASON_FULL))
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
        self.assertEqual(list(lease.slots), [pb.SlotRange(first=1, last=2)])
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

    def test_slots_are_ranges(self):
        lease = self.client.acquire(self.name, limit=6, permits=6)
        some = self.client.release(lease.lease_id, slots=[5, 2])
        self.assertEqual((some.released, some.remaining), (2, 4))
        kept = self.client.verify(lease.lease_id).lease
        self.assertEqual([(each.first, each.last) for each in kept.slots], [(1, 1), (3, 4), (6, 6)])
        between = self.client.acquire(self.name, permits=2)
        self.assertEqual([(each.first, each.last) for each in between.slots], [(2, 2), (5, 5)])
        request = pb.ReleaseRequest(request_id=self.client.next_id(), lease_id=lease.lease_id,
                                    slots=[pb.SlotRange(first=3, last=4)])
        some = self.client.stub.Release(request, timeout=BOUND_S)
        self.assertEqual((some.released, some.remaining), (2, 2))

    def test_one_shot_requests(self):
        ids = [pb.RequestId(one_shot=str(uuid.uuid4())) for _ in range(2)]
        leases = [self.client.acquire(self.name, limit=2, request_id=ids[number])
                  for number in (0, 1, 0)]
        self.assertEqual(leases[0], leases[2])
        self.assertNotEqual(leases[0].lease_id, leases[1].lease_id)
        release = pb.ReleaseRequest(request_id=pb.RequestId(one_shot=str(uuid.uuid4())),
                                    lease_id=leases[0].lease_id)
        for _ in range(2):
            self.assertEqual(self.client.stub.Release(release, timeout=BOUND_S).released, 1)
        self.assertEqual(self.client.describe(self.name).held, 1)

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
        self.assertEqual([slots_of(results[number].granted.slots) for number in (1, 2)],
                         [[1], [2]])
        session.send(ping=pb.SessionPing(ping_id=7))
        pong = session.reader.until(lambda m: m.HasField("pong"), "pong").pong
        self.assertEqual(pong.ping_id, 7)
        self.assertGreater(pong.validity.valid_for_ms, 0)
        session.command(3, release=pb.SessionRelease(lease_id=results[1].granted.lease_id))
        self.assertEqual(session.result(3).released.released, 1)
        session.send(close=True)
        self.assertIsNone(session.reader.end())
        self.assertEqual(self.client.describe(self.name).held, 0)

    def test_a_resumed_session_lists_its_leases_in_several_messages(self):
        count = 2_500
        session = Session(self.client, ttl_ms=20_000)
        session_id = session.opened().session_id
        acquire = pb.SessionAcquire(semaphore=self.name, limit=count)
        leases = set()
        for first in range(1, count, 500):
            session.send(commands=[pb.SessionCommand(sequence=number, acquire=acquire)
                                   for number in range(first, first + 500)])
        while len(leases) < count:
            message = session.reader.until(lambda m: m.results, "grants")
            leases.update(result.granted.lease_id for result in message.results)
        session.reader.call.cancel()
        requests = queue.Queue()
        requests.put(pb.SessionRequest(open=pb.OpenSession(
            client_id=self.client.client_id, resume_session_id=session_id)))
        reader = Reader(self.client.stub.Session(iter(requests.get, None)))
        pages = [reader.next().opened]
        while pages[-1].more:
            pages.append(reader.next().opened)
        self.assertGreaterEqual(len(pages), 3)
        self.assertLessEqual(max(len(page.leases) for page in pages), 1_000)
        listed = [lease.lease_id for page in pages for lease in page.leases]
        self.assertEqual((len(listed), set(listed)), (count, leases))
        for page in pages:
            self.assertEqual((page.session_id, page.resumed), (session_id, True))
        requests.put(pb.SessionRequest(close=True))
        self.assertIsNone(reader.end())

    def test_listings_come_in_pages(self):
        held = [self.client.acquire(self.name, limit=3) for _ in range(3)]
        waiting = [self.client.acquire_later(self.name, holder=f"waiter {number}")
                   for number in range(2)]
        self.client.wait_for_queue(self.name, 2)
        pages = self.pages(describe=pb.DescribeSemaphore(page_size=2))
        self.assertEqual([(len(page.leases), len(page.waiters)) for page in pages],
                         [(2, 2), (1, 0)])
        self.assertEqual([row.lease.token for page in pages for row in page.leases],
                         [lease.token for lease in held])
        self.assertEqual([row.position for page in pages for row in page.waiters], [1, 2])
        for call in waiting:
            call.cancel()
        self.client.wait_for_queue(self.name, 0)
        for lease in held:
            self.client.release(lease.lease_id)
        pages = self.pages(history=pb.ListHistory(page_size=2))
        self.assertEqual([[row.token for row in page.rows] for page in pages],
                         [[held[2].token, held[1].token], [held[0].token]])
        now = time.time()
        for row in pages[0].rows:
            self.assertLess(abs(row.granted_at.ToMilliseconds() / 1000 - now), 60)
            self.assertLessEqual(row.granted_at.ToMilliseconds(), row.ended_at.ToMilliseconds())

    def pages(self, **act):
        """The results of all pages of a listing."""
        pages = [self.client.administer(self.name, **act)]
        (message,) = act.values()
        while pages[-1].next_page_token:
            message.page_token = pages[-1].next_page_token
            pages.append(self.client.administer(self.name, **act))
        return pages

    def test_what_is_absent_is_the_default_and_0_is_none(self):
        self.client.administer(self.name, create=pb.CreateSemaphore(limit=1))
        info = self.client.describe(self.name)
        self.assertEqual(info.settings.recall_grace_ms, 30_000)
        self.assertLess(abs(info.created_at.ToMilliseconds() / 1000 - time.time()), 60)
        configured = self.client.administer(self.name, configure=pb.ConfigureSemaphore(
            settings=pb.SemaphoreSettings(recall_grace_ms=0))).semaphore.settings
        self.assertEqual((configured.HasField("recall_grace_ms"), configured.recall_grace_ms),
                         (True, 0))
        shrink = pb.ResizeSemaphore(limit=0, policy=pb.SHRINK_POLICY_RECALL)
        lease = self.client.acquire(self.name, ttl_ms=1_000)
        self.assertEqual(self.client.administer(self.name, resize=shrink).recalled, 1)
        wait_until(lambda: not self.client.verify(lease.lease_id).held, "it ends with its validity")
        self.client.administer(self.name, resize=pb.ResizeSemaphore(limit=1))
        lease = self.client.acquire(self.name)
        shrink.grace_ms = 60_000
        self.assertEqual(self.client.administer(self.name, resize=shrink).recalled, 1)
        self.assertTrue(self.client.verify(lease.lease_id).HasField("recall"))

    def test_watch(self):
        watch = Reader(self.client.stub.Watch(pb.WatchRequest(prefix=self.name)))
        lease = None

        def kinds_until(kind):
            return watch.until(lambda m: m.kind == kind, f"watch event {kind}")
        # A watch begins when it is served; a first event tells that it is.
        other = Client(self.daemon.channel())
        lease = other.acquire(self.name, limit=1)
        watch_again = Reader(self.client.stub.Watch(pb.WatchRequest(semaphore=self.name)))
        snapshot = watch_again.until(lambda m: m.kind == pb.WATCH_EVENT_KIND_SNAPSHOT, "a snapshot")
        self.assertEqual((snapshot.semaphore.limit, snapshot.semaphore.held), (1, 1))
        other.release(lease.lease_id)
        ended = watch_again.until(lambda m: m.kind == pb.WATCH_EVENT_KIND_ENDED, "an end")
        self.assertEqual((ended.token, ended.cause), (lease.token, pb.END_CAUSE_RELEASED))
        self.assertEqual(slots_of(ended.slots), [1])
        for event in (snapshot, ended):
            self.assertLess(abs(event.time.ToMilliseconds() / 1000 - time.time()), 60)
        kinds_until(pb.WATCH_EVENT_KIND_ENDED)

    def test_a_watch_from_a_revision(self):
        self.client.administer(self.name, create=pb.CreateSemaphore(limit=1))
        old = self.client.describe(self.name).revision
        self.client.administer(self.name, pause=pb.PauseSemaphore())
        self.assertEqual(self.first_event(old), pb.WATCH_EVENT_KIND_SNAPSHOT)
        # The act may come before the watch has begun: then there is a snapshot, of a later revision.
        wait_until(lambda: self.first_event(self.client.describe(self.name).revision) ==
                   pb.WATCH_EVENT_KIND_CHANGED, "a watch without a snapshot")

    def first_event(self, revision):
        """The kind, of a watch from this revision, while something changes a little later."""
        watch = Reader(self.client.stub.Watch(pb.WatchRequest(
            semaphore=self.name, start_revision=revision)))
        time.sleep(0.05)
        self.client.administer(self.name, resume=pb.ResumeSemaphore())
        self.client.administer(self.name, pause=pb.PauseSemaphore())
        kind = watch.next().kind
        watch.call.cancel()
        return kind

    def test_reflection_is_served(self):
        call = self.client.channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        list_services = b"\x3a\x00"
        answer = next(call(iter([list_services]), timeout=BOUND_S))
        self.assertIn(b"semaphore.v1.SemaphoreService", answer)


if __name__ == "__main__":
    unittest.main()
