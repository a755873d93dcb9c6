"""A client of the bare stub that keeps a session, and records its calls; see clients.py."""

import queue
import threading
import time

from clients import GIVE_UP_S, TTL_MS, UNAVAILABLE, Client, cause_name, now_ns
from daemon import grpc, pb, reason_of, slots_of

PING_EVERY_S = 0.3


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
        return self.vouched_ns if acquired.lease in self.leases else 0

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
            pages, message = self.read_opened(stream)
            if message is None:
                self.on_opened(stream, [page.opened for page in pages])
                for page in pages:
                    self.on_message(page)
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

    @staticmethod
    def read_opened(stream):
        """(all messages with a part of `opened`, None), or what ended the stream before."""
        pages = []
        while True:
            try:
                message = stream.received.get(timeout=3.0)
            except queue.Empty:
                message = TimeoutError()
            if not isinstance(message, pb.SessionResponse):
                return pages, message or StreamEnded()
            pages.append(message)
            if not message.opened.more:
                return pages, None

    def on_opened(self, stream, pages):
        self.stream = stream
        opened = pages[-1]  # Only the leases are others than in the pages before.
        self.pings.clear()
        self.ping_at = time.monotonic() + PING_EVERY_S
        self.session_id = opened.session_id
        listed = {lease.lease_id: lease.semaphore for page in pages for lease in page.leases}
        if opened.resumed:
            for lease in set(self.leases) - set(listed):
                self.on_lost(lease)  # The daemon vouches for those that it lists.
        self.extend(opened.validity, stream.opened_ns)
        self.unknown = {(lease, name) for lease, name in listed.items() if lease not in self.leases}

    def on_lost(self, lease, cause=""):
        acquired = self.leases.get(lease)
        if acquired is not None:
            self.record_end(acquired, "lost", cause)
            del self.leases[lease]

    def on_message(self, message):
        for event in message.events:
            if event.HasField("lost"):
                self.on_lost(event.lost.lease_id, cause_name(event.lost.cause))
            elif event.HasField("recalled") and event.recalled.lease_id in self.leases:
                self.record_recall(self.leases[event.recalled.lease_id],
                                   event.recalled.recall.grace_ms)
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
                            priority=priority, holder=self.client_id)
        result = self.command(operation, sequence, cancel_after_s, move_after_s, acquire=pb.SessionAcquire(
            semaphore=semaphore, permits=permits, wait_ms=wait_ms, priority=priority,
            report_queued=True, **self.limit_of(semaphore)))
        self.end_former()
        if result is None:
            return self.finish(operation)
        if result.HasField("error"):
            return self.finish(operation, "error", reason=reason_of(result.error))
        granted = result.granted
        self.finish(operation, "granted", lease=granted.lease_id,
                    slots=tuple(slots_of(granted.slots)), token=granted.token)
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
            return self.finish(operation, "error", reason=reason_of(error))
        return self.finish(operation, "ended", reason=cause_name(released.ended))

    def verify(self, acquired):
        sequence = self.next_sequence()
        operation = self.op("verify", acquired.semaphore, sequence, lease=acquired.lease,
                            vouched_ns=self.vouched(acquired))
        result = self.command(operation, sequence, verify=pb.VerifyRequest(lease_id=acquired.lease))
        if result is None or result.HasField("error"):
            return self.finish(operation)
        if result.verified.held:
            lease = result.verified.lease
            return self.finish(operation, "held", slots=tuple(slots_of(lease.slots)),
                               token=lease.token)
        return self.finish(operation, "ended", cause=cause_name(result.verified.ended))

    def hold(self, acquired, seconds):
        """Keeps the session alive meanwhile, and hears of a recall and of a loss."""
        until = time.monotonic() + seconds
        nothing = self.op("hold", acquired.semaphore, 0)
        while self.stream is not None and acquired.lease in self.leases:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return
            self.receive(nothing, 0, min(left_s, 0.05))

    def leave(self, _acquired=None):
        """Without a word: what it holds ends with its time."""
        for lease in list(self.leases):
            self.record_end(self.leases[lease], "left")
        self.leases.clear()
        if self.stream is not None:
            self.stream.end()
        self.stream = None
        self.forget()
        self.new_client()

    def go(self):
        self.leave()
