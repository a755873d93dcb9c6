"""Clients of the bare stub whose calls are recorded: one keeps a session, one makes unary calls.

Both are polite most of the time. Sometimes they repeat a request that was granted, use a request id for
two semaphores or in two sessions, release twice, cancel a wait as it is granted, or go away without a word.
Each has one command under way at a time. A command whose answer is lost is sent again with the same id,
to the next daemon, until GIVE_UP_S have passed; then its outcome is recorded as unknown.
"""

import dataclasses
import random
import threading
import time
import uuid

from daemon import grpc, numbered, pb, pb_grpc, slots_of
from history import Op

TTL_MS = 1500
GIVE_UP_S = 20.0
WAIT_MS = 3000
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE.value[0]
UNSETTLED = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED,
             grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED}


def now_ns():
    return time.monotonic_ns()


def cause_name(cause):
    return pb.EndCause.Name(cause).removeprefix("END_CAUSE_")


@dataclasses.dataclass(frozen=True)
class Manners:
    """What the clients of one run do."""
    permits_max: int = 3
    priorities: tuple = (0, 0, 0, 1)
    impolite: float = 0.08  # How often each of the impolite acts is done.
    verify: float = 0.25
    leave: float = 0.005
    move: float = 0.004  # How often a request is repeated in another session of the same client.
    hold: float = 0.08  # How often a lease is held for longer where administrators act.
    hold_s: float = 0.25


class Channels:
    """A channel of its own to each daemon, in turn."""

    def __init__(self, addresses, first):
        self._channels = [grpc.insecure_channel(
            address, options=(("grpc.use_local_subchannel_pool", 1),
                              ("grpc.min_reconnect_backoff_ms", 100),
                              ("grpc.initial_reconnect_backoff_ms", 100),
                              ("grpc.max_reconnect_backoff_ms", 500))) for address in addresses]
        self._stubs = [pb_grpc.SemaphoreServiceStub(channel) for channel in self._channels]
        self._index = first % len(addresses)

    def stub(self):
        return self._stubs[self._index]

    def next(self):
        self._index = (self._index + 1) % len(self._stubs)

    def close(self):
        for channel in self._channels:
            channel.close()


class Client(threading.Thread):
    """What both kinds have in common: what they do, in which order, and what is recorded of it."""

    def __init__(self, recorder, addresses, number, manners, seed):
        super().__init__(daemon=True)
        self.recorder = recorder
        self.label = f"{type(self).__name__}-{number}"
        self.manners = manners
        self.random = random.Random(f"{seed}-{self.label}")
        self.channels = Channels(addresses, number)
        self.stopping = threading.Event()
        self.failure = None
        self.new_client()

    def new_client(self):
        self.client_id = uuid.UUID(int=self.random.getrandbits(128)).hex
        self.sequence = 0

    def next_sequence(self):
        self.sequence += 1
        return self.sequence

    def op(self, kind, semaphore, sequence, **fields):
        return Op(kind, self.label, semaphore, now_ns(),
                  request=f"{self.client_id}/{sequence}" if sequence else "", **fields)

    def finish(self, operation, outcome="", **fields):
        """Records the answer; without `outcome` there is none."""
        if outcome:
            operation.end_ns = now_ns()
        operation.outcome = outcome
        for name, value in fields.items():
            setattr(operation, name, value)
        self.recorder.add(operation)
        return operation

    def vouched(self, acquired):
        """Until when a daemon has vouched for the lease, in ns; 0: not at all."""
        raise NotImplementedError

    def limit_of(self, semaphore):
        """An administrator may have given it another limit."""
        administered = semaphore in self.recorder.administered
        return {"limit": self.recorder.semaphores[semaphore],
                "limit_mismatch": pb.LIMIT_MISMATCH_ADOPT if administered else pb.LIMIT_MISMATCH_FAIL}

    def record_end(self, acquired, reason, cause=""):
        self.finish(self.op("end", acquired.semaphore, 0, lease=acquired.lease,
                            vouched_ns=self.vouched(acquired)), "left", reason=reason, cause=cause)

    def record_recall(self, acquired, grace_ms):
        self.finish(self.op("recalled", acquired.semaphore, 0, lease=acquired.lease,
                            grace_ms=grace_ms), "left")

    def hold(self, acquired, seconds):
        time.sleep(seconds)

    def move_held(self, acquired, _sequence):
        return acquired

    def sometimes(self):
        return self.random.random() < self.manners.impolite

    def run(self):
        try:
            while not self.stopping.is_set():
                self.turn()
            self.go()
        except Exception as error:  # pylint: disable=broad-except  reported by the run
            self.failure = error
        finally:
            self.channels.close()

    def choose(self):
        semaphore = self.random.choice(list(self.recorder.semaphores))
        most = min(self.manners.permits_max, self.recorder.semaphores[semaphore])
        wait_ms = 0 if self.random.random() < 0.25 else WAIT_MS
        return semaphore, self.random.randint(1, most), wait_ms

    def turn(self):
        semaphore, permits, wait_ms = self.choose()
        sequence = self.next_sequence()
        client = self.client_id
        acquired = self.acquire(semaphore, sequence, permits, wait_ms,
                                self.random.choice(self.manners.priorities))
        if acquired is None or acquired.outcome != "granted":
            return
        if self.random.random() < 0.3:
            time.sleep(self.random.uniform(0, 0.004))
        elif semaphore in self.recorder.administered and self.random.random() < self.manners.hold:
            self.hold(acquired, self.random.uniform(0, self.manners.hold_s))
        if self.random.random() < self.manners.verify:
            self.verify(acquired)
        # The client that has lost its session is another one, and the number is not its own.
        if self.sometimes() and self.client_id == client:
            # The same request once more has the same lease.
            self.acquire(semaphore, sequence, permits, wait_ms, acquired.priority)
        if self.random.random() < self.manners.move and self.client_id == client and (
                self.move_held(acquired, sequence) is None):
            return
        if self.sometimes() and self.client_id == client:
            # The same id for another semaphore is refused.
            others = [name for name in self.recorder.semaphores if name != semaphore]
            if others:
                self.acquire(self.random.choice(others), sequence, 1, 0, 0)
        if self.random.random() < self.manners.leave:
            self.leave(acquired)
            return
        self.release(acquired, self.next_sequence())
        if self.sometimes():
            self.release(acquired, self.next_sequence())


class UnaryClient(Client):
    """Detached leases, which are not renewed: they are short."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.vouched_of = {}  # By lease. A client that drains holds several.

    def vouched(self, acquired):
        return self.vouched_of.get(acquired.lease, 0)

    def call(self, operation, method, request):
        """The response, an error that is an answer, or None: it is unknown."""
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            try:
                return getattr(self.channels.stub(), method)(
                    request, timeout=max(0.1, deadline - time.monotonic()))
            except grpc.RpcError as error:
                if error.code() not in UNSETTLED or is_wait_over(error):
                    return error
            operation.steady = False
            self.channels.next()
            if time.monotonic() > deadline:
                return None
            time.sleep(0.05)

    def acquire(self, semaphore, sequence, permits, wait_ms, priority):
        operation = self.op("acquire", semaphore, sequence, permits=permits, wait_ms=wait_ms,
                            priority=priority, holder=self.client_id)
        response = self.call(operation, "Acquire", pb.AcquireRequest(
            request_id=self.id(sequence), semaphore=semaphore, permits=permits, wait_ms=wait_ms,
            priority=priority, ttl_ms=TTL_MS, **self.limit_of(semaphore)))
        if response is None:
            return self.finish(operation)
        if isinstance(response, grpc.RpcError):
            return self.finish(operation, "error", reason=reason_of(response))
        lease, validity = response.lease, response.validity
        # Counted from the first attempt, since the answered one is not known: shorter, never longer.
        self.vouched_of[lease.lease_id] = operation.begin_ns + (
            validity.elapsed_ms * 1_000_000 + validity.valid_for_ms * 990_000
            if operation.steady else 0)
        return self.finish(operation, "granted", lease=lease.lease_id,
                           slots=tuple(slots_of(lease.slots)), token=lease.token)

    def id(self, sequence):
        return numbered(self.client_id, sequence)

    def release(self, acquired, sequence):
        operation = self.op("release", acquired.semaphore, sequence, lease=acquired.lease,
                            vouched_ns=self.vouched(acquired))
        response = self.call(operation, "Release", pb.ReleaseRequest(
            request_id=self.id(sequence), lease_id=acquired.lease))
        if response is None:
            return self.finish(operation)
        if isinstance(response, grpc.RpcError):
            return self.finish(operation, "error", reason=reason_of(response))
        if response.released:
            return self.finish(operation, "released")
        return self.finish(operation, "ended", reason=cause_name(response.ended))

    def verify(self, acquired):
        operation = self.op("verify", acquired.semaphore, self.next_sequence(),
                            lease=acquired.lease, vouched_ns=self.vouched(acquired))
        response = self.call(operation, "Verify", pb.VerifyRequest(lease_id=acquired.lease))
        if response is None or isinstance(response, grpc.RpcError):
            return self.finish(operation)
        if response.held:
            return self.finish(operation, "held", slots=tuple(slots_of(response.lease.slots)),
                               token=response.lease.token)
        return self.finish(operation, "ended", cause=cause_name(response.ended))

    def leave(self, acquired):
        self.record_end(acquired, "left")
        self.new_client()

    def go(self):
        pass

    def drain(self, semaphore, limit):
        """All permits come back: within the time of leases that were left, and of a wait."""
        acquired = []
        while limit > 0:
            permits = min(limit, self.manners.permits_max)
            limit -= permits
            acquired.append(self.acquire(semaphore, self.next_sequence(), permits, 10 * TTL_MS, 0))
            acquired[-1].drains = True
        for each in acquired:
            if each.outcome == "granted":
                self.release(each, self.next_sequence())


def reason_of(error):
    from daemon import error_info  # pylint: disable=import-outside-toplevel
    info = error_info(error)
    return info.reason if info is not None else error.code().name


def is_wait_over(error):
    return reason_of(error) == "WAIT_EXPIRED"
