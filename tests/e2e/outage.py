"""What holds while an engine is away and when it is back: for the tests of each engine."""

import time
from concurrent import futures

from cluster import NODE_TTL_S, PATIENT_NODE_TTL_S
from daemon import BOUND_S, Reader, error_info, grpc, pb, wait_until

TTL_MS = 60000
# What a call may take when the engine does not answer: those before it and its own, each with one
# time-out and one attempt to connect anew, and what a loaded machine adds.
ENGINE_TIMEOUT_S = 2
REFUSED_S = 2 * 2 * ENGINE_TIMEOUT_S + 2
SETTINGS = {"engine_timeout": f"{ENGINE_TIMEOUT_S}s"}


class Holder:
    """A Hold stream, and until when its messages said that the lease is good."""

    def __init__(self, client, semaphore, request=None):
        self.request = request or pb.HoldRequest(
            acquire=client.acquire_request(semaphore, limit=1, ttl_ms=TTL_MS),
            beat_interval_ms=200)
        self.sent = time.monotonic()
        call = client.stub.Hold(self.request)
        self.ended = 0.0
        call.add_done_callback(self._note_end)
        self.reader = Reader(call)
        granted = self.reader.until(lambda m: m.HasField("granted"), "granted").granted
        self.lease = granted.lease
        self.until = 0.0
        self.hear(granted.validity)

    def _note_end(self, _):
        self.ended = time.monotonic()

    def hear(self, validity):
        self.until = self.sent + (validity.elapsed_ms + validity.valid_for_ms) / 1000

    def beat(self):
        self.hear(self.reader.until(lambda m: m.HasField("beat"), "a beat").beat)

    def end(self):
        """Reads to the end of the stream; returns the error. `ended` is when it came."""
        deadline = time.monotonic() + BOUND_S
        while True:
            message = self.reader.next(max(0.01, deadline - time.monotonic()))
            if isinstance(message, tuple):
                wait_until(lambda: self.ended, "the end of the stream is noted")
                return message[1]
            if message.HasField("beat"):
                self.hear(message.beat)


class Outages:
    """Of a TestCase with daemons(): a Cluster of "a" and "b" with these SETTINGS, which wait for the
    engine for ENGINE_TIMEOUT_S."""

    def refused(self, *calls):
        """All fail, soon, as calls that are to be repeated."""
        begun = time.monotonic()
        with futures.ThreadPoolExecutor(len(calls)) as pool:
            for asked in [pool.submit(call) for call in calls]:
                error = asked.exception(BOUND_S)
                self.assertIsInstance(error, grpc.RpcError, asked)
                self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE, error)
                self.assertIn(error_info(error).reason, ("ENGINE_UNAVAILABLE", "NOT_VOUCHED"))
        self.assertLess(time.monotonic() - begun, REFUSED_S)

    def acquired(self, client, semaphore, **fields):
        """A lease, as soon as the daemon can give one. The same request each time."""
        request = client.acquire_request(semaphore, **fields)

        def granted():
            try:
                return client.stub.Acquire(request, timeout=BOUND_S).lease
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE, error)
                return None
        return wait_until(granted, f"{semaphore} can be acquired again")

    def check_long_outage(self, begin, end):
        """From begin() to end() the engine is away, for longer than daemons may vouch for."""
        with self.daemons() as daemons:
            client, other = daemons["a"].client(), daemons["b"].client()
            holder = Holder(client, "held")
            processes = [daemon.process.pid for daemon in daemons.daemons.values()]
            wait_until(lambda: (holder.beat(), daemons["b"].is_serving())[1], "both serve")
            waiter = other.acquire_later("held")
            client.wait_for_queue("held", 1)
            free = other.acquire("free", limit=1, ttl_ms=TTL_MS)
            begun = time.monotonic()
            begin()
            self.refused(lambda: client.acquire("new", limit=1), lambda: client.describe("held"),
                         lambda: other.acquire("new", limit=1),
                         lambda: other.verify(free.lease_id))
            error = holder.end()
            self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertEqual(error_info(error).reason, "NOT_VOUCHED")
            self.assertLessEqual(holder.until, begun + NODE_TTL_S,
                                 "vouched for longer than the others wait for a heartbeat")
            self.assertLess(holder.ended, holder.until + 1, "told too late that it is not vouched")
            self.assertFalse(waiter.done() and waiter.exception() is None, "granted in the outage")
            end()
            # Everything goes on, with what was there before.
            again = Holder(client, "held", self.await_hold(client, holder.request))
            self.assertEqual(again.lease, holder.lease)
            again.beat()
            self.acquired(other, "new", limit=1)
            wait_until(lambda: self.verdict(other, free.lease_id), "the other lease stands, too")
            self.assertEqual([daemon.process.pid for daemon in daemons.daemons.values()],
                             processes)
            for daemon in daemons.daemons.values():
                self.assertIsNone(daemon.process.poll(), "a daemon ended")
            # And pushes again.
            waiter = waiter if not waiter.done() else other.acquire_later("held")
            client.wait_for_queue("held", 1)
            client.release(again.lease.lease_id)
            self.assertGreater(waiter.result(BOUND_S).lease.token, again.lease.token)

    def check_commits_under_way(self, disturb):
        """Answers get lost; who repeats the request gets the same lease."""
        with self.daemons() as daemons:
            client = daemons["a"].client()
            client.acquire("warm", limit=1)
            requests = [client.acquire_request("storm", limit=1000, ttl_ms=TTL_MS)
                        for _ in range(300)]
            calls = [client.stub.Acquire.future(request, timeout=BOUND_S) for request in requests]
            calls[20].exception(BOUND_S)  # On a busy machine it may be refused: that is an answer, too.
            disturb()
            told = {}
            for number, call in enumerate(calls):
                if call.exception(BOUND_S) is None:
                    told[number] = call.result().lease
            other = daemons["b"].client()
            leases = []
            for number, request in enumerate(requests):
                leases.append(wait_until(lambda request=request: self.repeated(other, request),
                                         f"request {number} is answered"))
                if number in told:
                    self.assertEqual(leases[-1].lease_id, told[number].lease_id)
                    self.assertEqual(leases[-1].token, told[number].token)
            self.assertEqual(len({lease.token for lease in leases}), len(requests))
            self.assertEqual(other.describe("storm").held, len(requests))

    def await_hold(self, client, request):
        """Hold answers again; returns the request, whose stream is given up."""
        def held():
            call = client.stub.Hold(request)
            try:
                return next(call).HasField("granted")
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE, error)
                return False
            finally:
                call.cancel()
        wait_until(held, "the holder finds its lease again")
        return request

    @staticmethod
    def verdict(client, lease_id):
        try:
            return client.verify(lease_id).held
        except grpc.RpcError:
            return False

    @staticmethod
    def wait_for_heartbeat(holder):
        """Until the daemon, one that is patient, vouches for as long as it does in peace."""
        def vouched():
            holder.beat()
            return holder.until - time.monotonic() > PATIENT_NODE_TTL_S * 0.6
        wait_until(vouched, "a fresh heartbeat")

    @staticmethod
    def repeated(client, request):
        try:
            return client.stub.Acquire(request, timeout=BOUND_S).lease
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                return None
            raise
