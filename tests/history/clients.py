"""Clients of the bare stub whose calls are recorded: one keeps a session, one makes unary calls.

Both are polite most of the time. Sometimes they repeat a request that was granted, use a request id for
two semaphores or in two sessions, release twice, cancel a wait as it is granted, or go away without a word.
Each has one command under way at a time. A command whose answer is lost is sent again with the same id,
to the next daemon, until GIVE_UP_S have passed; then its outcome is recorded as unknown.
"""

import dataclasses
import queue
import random
import threading
import time
import uuid

from daemon import grpc, pb, pb_grpc
from history import Op

TTL_MS = 1500
GIVE_UP_S = 20.0
PING_EVERY_S = 0.3
WAIT_MS = 3000
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE.value[0]
UNSETTLED = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED,
             grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED}


def now_ns():
    return time.monotonic_ns()


@dataclasses.dataclass(frozen=True)
class Manners:
    """What the clients of one run do."""
    permits_max: int = 3
    priorities: tuple = (0, 0, 0, 1)
    impolite: float = 0.08  # How often each of the impolite acts is done.
    leave: float = 0.005
    move: float = 0.004  # How often a request is repeated in another session of the same client.


class Stream:
    """One stream of a session. Messages, then the error that ended it, come out of `received`."""

    def __init__(self, stub, open_session):
        self._requests = queue.SimpleQueue()
        self.received = queue.SimpleQueue()
        self.send(pb.SessionRequest(open=open_session))
        self.opened_ns = now_ns()
        self.call = stub.Session(iter(self._requests.get, None))
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message):
        self._requests.put(message)

    def _read(self):
        try:
            for message in self.call:
                self.received.put(message)
            self.received.put(None)
        except Exception as error:  # pylint: disable=broad-except  also when the channel was closed
            self.received.put(error)

    def end(self):
        self._requests.put(None)
        self.call.cancel()


class StreamEnded(Exception):
    pass


class SessionLost(Exception):
    pass


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

    def record_end(self, acquired, reason):
        self.finish(self.op("end", acquired.semaphore, 0, lease=acquired.lease,
                            vouched_ns=self.vouched(acquired)), "left", reason=reason)

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
        acquired = self.acquire(semaphore, sequence, permits, wait_ms,
                                self.random.choice(self.manners.priorities))
        if acquired is None or acquired.outcome != "granted":
            return
        if self.random.random() < 0.3:
            time.sleep(self.random.uniform(0, 0.004))
        if self.sometimes():
            self.verify(acquired)
        if self.sometimes():  # The same request once more has the same lease.
            self.acquire(semaphore, sequence, permits, wait_ms, acquired.priority)
        if self.random.random() < self.manners.move and self.move_held(acquired, sequence) is None:
            return
        if self.sometimes():  # The same id for another semaphore is refused.
            others = [name for name in self.recorder.semaphores if name != semaphore]
            if others:
                self.acquire(self.random.choice(others), sequence, 1, 0, 0)
        if self.random.random() < self.manners.leave:
            self.leave(acquired)
            return
        self.release(acquired, self.next_sequence())
        if self.sometimes():
            self.release(acquired, self.next_sequence())


def reason_name(reason):
    return pb.Reason.Name(reason).removeprefix("REASON_")


class SessionClient(Client):

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.stream = None
        self.former = []  # Streams of sessions that the client has not closed.
        self.forget()

    def forget(self):
        self.session_id = ""
        self.leases = {}  # By id: the acquire.
        self.unknown = set()  # Listed by a resumed session, and granted to no request of ours yet.
        self.vouched_ns = 0  # For all leases of the session.
        self.epoch = 0
        self.pings = {}
        self.ping_at = 0.0

    # ---- the stream ----

    def vouched(self, acquired):
        return self.vouched_ns

    def extend(self, validity, sent_ns):
        if validity.epoch < self.epoch:
            return
        self.epoch = validity.epoch
        good_ns = (validity.elapsed_ms * 1_000_000 + validity.valid_for_ms * 990_000)
        self.vouched_ns = max(self.vouched_ns, sent_ns + good_ns)

    def connect(self, deadline):
        while True:
            stream = Stream(self.channels.stub(), pb.OpenSession(
                client_id=self.client_id, ttl_ms=TTL_MS, resume_session_id=self.session_id))
            try:
                message = stream.received.get(timeout=3.0)
            except queue.Empty:
                message = TimeoutError()
            if isinstance(message, pb.SessionResponse):
                self.on_opened(stream, message.opened)
                self.on_message(message)
                return
            stream.end()
            gone = (isinstance(message, grpc.RpcError)
                    and message.code() == grpc.StatusCode.NOT_FOUND)
            if gone and self.session_id:
                for lease in list(self.leases):
                    self.on_lost(lease)
                self.forget()
                self.new_client()
                raise SessionLost()
            self.channels.next()
            if time.monotonic() > deadline:
                raise StreamEnded()
            time.sleep(0.05)

    def on_opened(self, stream, opened):
        self.stream = stream
        self.pings.clear()
        self.ping_at = time.monotonic() + PING_EVERY_S
        self.session_id = opened.session_id
        self.extend(opened.validity, stream.opened_ns)
        listed = {lease.lease_id: lease.semaphore for lease in opened.leases}
        if opened.resumed:
            for lease in set(self.leases) - set(listed):
                self.on_lost(lease)
        self.unknown = {(lease, name) for lease, name in listed.items() if lease not in self.leases}

    def on_lost(self, lease):
        acquired = self.leases.pop(lease, None)
        if acquired is None:
            return
        self.record_end(acquired, "lost")

    def on_message(self, message):
        for event in message.events:
            if event.HasField("lost"):
                self.on_lost(event.lost.lease_id)
        if message.HasField("pong") and message.pong.ping_id in self.pings:
            self.extend(message.pong.validity, self.pings.pop(message.pong.ping_id))

    def ping(self, message):
        if time.monotonic() >= self.ping_at:
            self.ping_at = time.monotonic() + PING_EVERY_S
            message.ping.ping_id = len(self.pings) + int(time.monotonic_ns() % 1_000_000_000) + 1
            self.pings[message.ping.ping_id] = now_ns()

    def move(self):
        """To another session of the same client. The former one stands, and is silent."""
        self.former.append(self.stream)
        self.stream = None
        self.forget()

    def command(self, operation, sequence, cancel_after_s=None, move_after_s=None, **fields):
        """Returns the result, which is no `queued`; None: it is unknown."""
        deadline = time.monotonic() + GIVE_UP_S
        send_at = time.monotonic()
        cancel_at = None if cancel_after_s is None else send_at + cancel_after_s
        move_at = None if move_after_s is None else send_at + move_after_s
        while True:
            try:
                if self.stream is None:
                    operation.steady = operation.steady and send_at is not None
                    self.connect(deadline)
                    send_at = time.monotonic()
                if send_at is not None and time.monotonic() >= send_at:
                    message = pb.SessionRequest(
                        commands=[pb.SessionCommand(sequence=sequence, **fields)])
                    self.ping(message)
                    self.stream.send(message)
                    send_at = None
                if cancel_at is not None and time.monotonic() >= cancel_at:
                    self.stream.send(pb.SessionRequest(commands=[
                        pb.SessionCommand(sequence=self.next_sequence(), cancel=sequence)]))
                    cancel_at = None
                if move_at is not None and time.monotonic() >= move_at:
                    operation.steady = False
                    self.move()
                    move_at = None
                    continue
                soon = cancel_at or send_at or move_at
                result = self.receive(operation, sequence, 0.02 if soon else 0.3)
                if result is not None and result.WhichOneof("result") == "error" \
                        and result.error.code == UNAVAILABLE:
                    operation.steady = False
                    send_at = time.monotonic() + 0.05
                    result = None
            except SessionLost:
                return None
            except StreamEnded:
                result = None
            if result is not None:
                return result
            if time.monotonic() > deadline:
                return None

    def receive(self, operation, sequence, bound_s):
        """The result, if it comes within the bound."""
        try:
            message = self.stream.received.get(timeout=bound_s)
        except queue.Empty:
            message = pb.SessionRequest()
            self.ping(message)
            if message.HasField("ping"):
                self.stream.send(message)
            if self.pings and now_ns() - min(self.pings.values()) > 2_000_000_000:
                self.break_stream(operation)  # It has gone silent.
            return None
        if not isinstance(message, pb.SessionResponse):
            self.break_stream(operation)
            return None
        self.on_message(message)
        found = None
        for result in message.results:
            if result.sequence == 0 or result.sequence > self.sequence:
                raise AssertionError(f"an answer to no command: {result}")
            if result.sequence != sequence:
                continue
            if result.HasField("queued"):
                operation.queued_ns = operation.queued_ns or now_ns()
            else:
                found = result
        return found

    def break_stream(self, operation):
        operation.steady = False
        self.stream.end()
        self.stream = None
        self.channels.next()

    # ---- what it does ----

    def move_held(self, acquired, sequence):
        """The lease moves to another session, which repeats the request. None: it was lost."""
        self.record_end(acquired, "left")  # The former session is silent from now on.
        self.move()
        again = self.acquire(acquired.semaphore, sequence, acquired.permits, acquired.wait_ms,
                             acquired.priority)
        return again if again is not None and again.outcome == "granted" else None

    def acquire(self, semaphore, sequence, permits, wait_ms, priority):
        if self.stream is None:
            try:
                self.connect(time.monotonic() + GIVE_UP_S)
            except (SessionLost, StreamEnded):
                return None
        cancel_after_s = move_after_s = None
        if wait_ms and self.sometimes():
            cancel_after_s = self.random.uniform(0, 0.05)
        elif not self.leases and self.random.random() < self.manners.move:
            move_after_s = self.random.uniform(0, 0.02)
        operation = self.op("acquire", semaphore, sequence, permits=permits, wait_ms=wait_ms,
                            priority=priority)
        result = self.command(operation, sequence, cancel_after_s, move_after_s, acquire=pb.SessionAcquire(
            semaphore=semaphore, permits=permits, limit=self.recorder.semaphores[semaphore],
            wait_ms=wait_ms, priority=priority, report_queued=True))
        self.end_former()
        if result is None:
            return self.finish(operation)
        if result.HasField("error"):
            return self.finish(operation, "error", reason=reason_name(result.error.reason))
        granted = result.granted
        self.finish(operation, "granted", lease=granted.lease_id, slots=tuple(granted.slots),
                    token=granted.token)
        self.leases[granted.lease_id] = operation
        self.give_back_unknown()
        return operation

    def end_former(self):
        for stream in self.former:
            stream.end()
        self.former.clear()

    def give_back_unknown(self):
        """Leases of requests whose outcome was unknown, and that no request claims."""
        for lease, semaphore in sorted(self.unknown):
            self.unknown.discard((lease, semaphore))
            if lease not in self.leases:
                self.command(self.op("release", semaphore, 0), self.next_sequence(),
                             release=pb.SessionRelease(lease_id=lease))

    def release(self, acquired, sequence):
        operation = self.op("release", acquired.semaphore, sequence, lease=acquired.lease,
                            vouched_ns=self.vouched(acquired))
        # From here on the client does not count on it.
        self.leases.pop(acquired.lease, None)
        result = self.command(operation, sequence,
                              release=pb.SessionRelease(lease_id=acquired.lease))
        return self.finish_release(operation, result and result.released, result and result.error)

    def finish_release(self, operation, released, error):
        if released is None:
            return self.finish(operation)
        if released.released:
            return self.finish(operation, "released")
        if error is not None and error.code:
            return self.finish(operation, "error", reason=reason_name(error.reason))
        return self.finish(operation, "ended",
                           reason=pb.EndCause.Name(released.ended).removeprefix("END_CAUSE_"))

    def verify(self, acquired):
        sequence = self.next_sequence()
        operation = self.op("verify", acquired.semaphore, sequence, lease=acquired.lease,
                            vouched_ns=self.vouched(acquired))
        result = self.command(operation, sequence, verify=pb.VerifyRequest(lease_id=acquired.lease))
        if result is None or result.HasField("error"):
            return self.finish(operation)
        if result.verified.held:
            lease = result.verified.lease
            return self.finish(operation, "held", slots=tuple(lease.slots), token=lease.token)
        return self.finish(operation, "ended")

    def leave(self, _acquired=None):
        """Without a word: what it holds ends with its time."""
        for lease in list(self.leases):
            self.record_end(self.leases.pop(lease), "left")
        if self.stream is not None:
            self.stream.end()
        self.stream = None
        self.forget()
        self.new_client()

    def go(self):
        self.leave()


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
                            priority=priority)
        response = self.call(operation, "Acquire", pb.AcquireRequest(
            request_id=self.id(sequence), semaphore=semaphore, permits=permits,
            limit=self.recorder.semaphores[semaphore], wait_ms=wait_ms, priority=priority,
            ttl_ms=TTL_MS))
        if response is None:
            return self.finish(operation)
        if isinstance(response, grpc.RpcError):
            return self.finish(operation, "error", reason=reason_of(response))
        lease, validity = response.lease, response.validity
        # Counted from the first attempt, since the answered one is not known: shorter, never longer.
        self.vouched_of[lease.lease_id] = operation.begin_ns + (
            validity.elapsed_ms * 1_000_000 + validity.valid_for_ms * 990_000
            if operation.steady else 0)
        return self.finish(operation, "granted", lease=lease.lease_id, slots=tuple(lease.slots),
                           token=lease.token)

    def id(self, sequence):
        return pb.RequestId(client_id=self.client_id, sequence=sequence)

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
        return self.finish(operation, "ended",
                           reason=pb.EndCause.Name(response.ended).removeprefix("END_CAUSE_"))

    def verify(self, acquired):
        operation = self.op("verify", acquired.semaphore, self.next_sequence(),
                            lease=acquired.lease, vouched_ns=self.vouched(acquired))
        response = self.call(operation, "Verify", pb.VerifyRequest(lease_id=acquired.lease))
        if response is None or isinstance(response, grpc.RpcError):
            return self.finish(operation)
        if response.held:
            return self.finish(operation, "held", slots=tuple(response.lease.slots),
                               token=response.lease.token)
        return self.finish(operation, "ended")

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
