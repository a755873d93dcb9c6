"""Clients that do not read what they asked for: the stream ends, with a word why, not the daemon;
and what waits for them is bounded."""

import threading
import unittest

from daemon import BOUND_S, Daemon, Session, pb, wait_until
from http2 import RawConnection, grpc_message
from measure import memory_bytes, told
from work_stream import WorkStream, enqueue

MIB = 1 << 20
EXHAUSTED = b"grpc-status\x018"  # RESOURCE_EXHAUSTED, as it is on the wire.
# A client that takes nothing is cut off after the sum of them; so is the connection of gRPC for
# Python, while no call is under way on it.
SOON = {"keepalive_interval": "1s", "keepalive_timeout": "1s"}


class WireReaders(unittest.TestCase):

    def assert_cut_off(self, raw, stream, *words):
        """It is ended, with a code, though no message of it can be delivered."""
        kind, what = raw.wait_end(stream)
        self.assertEqual(kind, "trailers", what)
        for word in words:
            self.assertIn(word, what)

    def test_hold(self):
        with Daemon(SOON) as daemon, RawConnection(daemon.port, window=100) as raw:
            stream = raw.call("Hold", pb.HoldRequest(
                acquire=pb.AcquireRequest(semaphore="held", limit=1, ttl_ms=1000),
                beat_interval_ms=100))
            other = daemon.client()
            wait_until(lambda: daemon.client().administer(
                "", list=pb.ListSemaphores()).semaphores, "the semaphore is there")
            # The beats that are not read do not keep it alive.
            lease = other.acquire("held", wait_ms=int(BOUND_S * 1000))
            self.assert_cut_off(raw, stream, b"has not read", EXHAUSTED)
            daemon.client().release(lease.lease_id)

    def test_watch(self):
        most = 100
        with Daemon({"watch_events_max": most}) as daemon, \
                RawConnection(daemon.port, window=100) as raw:
            stream = raw.call("Watch", pb.WatchRequest(prefix="seen"))
            client = daemon.client()
            before = memory_bytes(daemon)
            # Each acquire and release is one event at least.
            for _ in range(most):
                client.release(client.acquire("seen", limit=1).lease_id)
            self.assertLess(memory_bytes(daemon) - before, 32 * MIB)
            # Who begins to read in time is told.
            raw.give(stream)
            kind, what = raw.wait_end(stream)
            self.assertEqual(kind, "trailers", what)
            self.assertIn(b"watch_events_max", what)

    def test_many_watches(self):
        """Each leaves unread what one may, and all together too much."""
        most = 1_000_000
        with Daemon({**SOON, "stream_bytes_max": most, "answers_bytes_max": most}) as daemon, \
                RawConnection(daemon.port, window=100) as raw:
            streams = [raw.call("Watch", pb.WatchRequest(prefix="seen")) for _ in range(20)]
            client = daemon.client()
            for _ in range(200):
                client.release(client.acquire("seen/" + "x" * 200, limit=1).lease_id)
            raw.wait(lambda: any(raw.streams[each].ended for each in streams), "the fullest ends")
            ended = next(each for each in streams if raw.streams[each].ended)
            self.assert_cut_off(raw, ended, b"streams_bytes_max", EXHAUSTED)

    def test_watch_that_is_never_read(self):
        with Daemon({**SOON, "watch_events_max": 10}) as daemon, \
                RawConnection(daemon.port, window=100) as raw:
            stream = raw.call("Watch", pb.WatchRequest(prefix="seen"))
            client = daemon.client()
            for _ in range(20):
                client.release(client.acquire("seen", limit=1).lease_id)
            self.assert_cut_off(raw, stream, b"watch_events_max", EXHAUSTED)

    def test_session(self):
        """Commands without end, whose results are not read: they are not read any more either, so
        that the session shows no sign of life and ends."""
        with Daemon(SOON) as daemon, RawConnection(daemon.port, window=100) as raw:
            stream = raw.call("Session", pb.SessionRequest(open=pb.OpenSession(
                client_id="deaf", ttl_ms=1000)), end=False)
            before = memory_bytes(daemon)
            flood = threading.Thread(target=self.flood, args=(raw, stream), daemon=True)
            flood.start()
            self.assert_cut_off(raw, stream)
            flood.join(BOUND_S)
            grown = memory_bytes(daemon) - before
            told(f"a session whose client does not read: grown by {grown / MIB:.1f} MiB")
            self.assertLess(grown, 128 * MIB)
            # Its leases come free with its TTL.
            daemon.client().acquire("flood/0", limit=1, wait_ms=int(BOUND_S * 1000))

    def flood(self, raw, stream):
        sequence = 0
        for _ in range(100):
            commands = []
            for i in range(500):
                sequence += 1
                commands.append(pb.SessionCommand(sequence=sequence, acquire=pb.SessionAcquire(
                    semaphore=f"flood/{i}", limit=1)))
            if not raw.write(stream, grpc_message(pb.SessionRequest(commands=commands))):
                return

    def test_a_session_goes_while_it_is_not_read(self):
        """Its results fill the window and what is kept of them, so that the daemon reads no more of it."""
        with Daemon() as daemon:
            client = daemon.client()
            with RawConnection(daemon.port, window=100) as raw:
                stream = raw.call("Session", pb.SessionRequest(open=pb.OpenSession(
                    client_id="gone", ttl_ms=600_000, release_on_disconnect=True)), end=False)
                self.assertTrue(raw.write(stream, grpc_message(pb.SessionRequest(commands=[
                    pb.SessionCommand(sequence=1, acquire=pb.SessionAcquire(semaphore="held", limit=1))]))))
                wait_until(lambda: client.administer("", list=pb.ListSemaphores()).semaphores,
                           "the permit is held")
                verify = pb.VerifyRequest(semaphore="held", slot=1,
                                          token=client.describe_rows("held").leases[0].lease.token)
                for first in range(2, 12_002, 1000):
                    raw.write(stream, grpc_message(pb.SessionRequest(commands=[
                        pb.SessionCommand(sequence=sequence, verify=verify)
                        for sequence in range(first, first + 1000)])))
                self.assertTrue(client.stub.Verify(verify, timeout=BOUND_S).held)
            # Long before its TTL.
            wait_until(lambda: client.describe("held").held == 0, "its permit is free")

    def test_work(self):
        with Daemon({**SOON, "stream_bytes_max": 1_000_000}) as daemon, \
                RawConnection(daemon.port, window=100) as raw:
            client = daemon.client()
            for _ in range(40):
                enqueue(client, "jobs", bytes(60_000), limit=100)
            stream = raw.call("Work", pb.WorkRequest(open=pb.OpenWork(
                client_id="deaf", ttl_ms=1000, semaphores=["jobs"], tickets_max=100)), end=False)
            self.assert_cut_off(raw, stream, b"stream_bytes_max", EXHAUSTED)
            # Its tickets are not lost: another worker is given them.
            worker = WorkStream(daemon.client(), semaphores=["jobs"], tickets_max=1)
            try:
                for _ in range(40):
                    worker.finish(worker.assignment())
            finally:
                worker.close()

    def test_reflection(self):
        """By a client that needs no token."""
        with Daemon(SOON) as daemon, RawConnection(daemon.port, window=100) as raw:
            # file_containing_symbol: an answer of some 20 KB.
            name = b"semaphore.v1.SemaphoreService"
            stream = raw.call("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                              b"\x22" + bytes([len(name)]) + name, end=False)
            self.assert_cut_off(raw, stream, b"has not read", EXHAUSTED)

    def test_long_answers(self):
        most = 1_000_000
        with Daemon({**SOON, "answers_bytes_max": most}) as daemon:
            client = daemon.client()
            session = Session(client, ttl_ms=60_000)
            session.opened()
            session.send(commands=[pb.SessionCommand(sequence=i, acquire=pb.SessionAcquire(
                semaphore=f"a-name-that-is-rather-long/{i:0100}", limit=1))
                for i in range(1, 1001)])
            session.reader.until(lambda m: any(r.sequence == 1000 for r in m.results), "the last")
            request = pb.AdministerRequest(list=pb.ListSemaphores(page_size=1000))
            size = client.stub.Administer(request, timeout=BOUND_S).ByteSize()
            self.assertGreater(size, 100_000)
            count = most // size + 20
            before = memory_bytes(daemon)
            with RawConnection(daemon.port, window=100) as raw:
                streams = [raw.call("Administer", request) for _ in range(count)]
                ends = [raw.wait_end(stream) for stream in streams]
                self.assertEqual(sum(b"has not read" in what for _, what in ends), count)
                daemon.wait_log(f"answers_bytes_max ({most}) is reached")
            self.assertLess(memory_bytes(daemon) - before, 64 * MIB)
            again = daemon.client().stub.Administer(request, timeout=BOUND_S)
            self.assertEqual(len(again.list.semaphores), 1000)
            session.half_close()


if __name__ == "__main__":
    unittest.main()
