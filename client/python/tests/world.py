"""A session's rules with a clock and a daemon that are the test's own: no threads, no sockets, and
time is a number. As tests/service/client_machine_world.h is for the C++ client."""

from semaphored._calls import AcquireCall, Options
from semaphored._machine import SessionMachine
from semaphored._time import MS_NS, NEVER_NS
from semaphored.errors import Error, make_error
from semaphored.v1 import error_details_pb2
from semaphored.v1 import semaphore_pb2 as pb
from semaphored.v1 import status_pb2

TTL_MS = 9_000


def options(**changed):
    given = {"endpoints": ("a:1", "b:1"), "ttl_ns": TTL_MS * MS_NS, "margin_ns": 100 * MS_NS}
    return Options(**{**given, **changed})


class Acquired:

    def __init__(self):
        self.number = 0
        self.results = []
        self.queued = []
        self.losses = []
        self.recalls = []

    @property
    def lease(self):
        assert len(self.results) == 1, self.results
        if isinstance(self.results[0], Error):
            raise self.results[0]
        return self.results[0]

    @property
    def error(self):
        assert len(self.results) == 1, self.results
        assert isinstance(self.results[0], Error), self.results
        return self.results[0]


class World:

    def __init__(self, **changed):
        self.now_ms = 1_000_000
        self.clients = 0
        self.dropped = 0
        self.endpoint = None
        self.machine = SessionMachine(options(**changed), self._next_client)

    def _next_client(self):
        self.clients += 1
        return f"client-{self.clients}"

    @property
    def now_ns(self):
        return self.now_ms * MS_NS

    def effect(self):
        effects = self.machine.take_effects()
        self.dropped += effects.drop_stream
        for tell in (*effects.losses, *effects.results, *effects.callbacks):
            tell()

    def acquire(self, semaphore="db", wait_ms=None):
        acquired = Acquired()
        call = AcquireCall(
            pb.SessionAcquire(semaphore=semaphore), acquired.results.append,
            None if wait_ms is None else wait_ms * MS_NS, on_queued=acquired.queued.append,
            on_lost=acquired.losses.append, on_recall=acquired.recalls.append)
        acquired.number = self.machine.acquire(call, self.now_ns)
        self.effect()
        return acquired

    def release(self, acquired):
        answers = []
        self.machine.release(acquired.lease, answers.append, self.now_ns)
        self.effect()
        return answers

    def advance(self, by_ms):
        self.now_ms += by_ms
        self.machine.tick(self.now_ns)
        self.effect()

    def connect(self):
        """Opens the stream that the machine wants; returns its first message's `open`."""
        while True:
            self.endpoint = self.machine.start_connecting(self.now_ns)
            if self.endpoint is not None:
                break
            due_ns = self.machine.next_due_ns(True)
            assert due_ns != NEVER_NS, "it wants no stream"
            self.now_ms = max(self.now_ms, -(-due_ns // MS_NS))
            self.machine.tick(self.now_ns)
            self.effect()
        message = self.machine.next_message(self.now_ns)
        assert message.HasField("open")
        return message.open

    def receive(self, **fields):
        self.machine.on_message(pb.SessionResponse(**fields), self.now_ns)
        self.effect()

    def opened(self, leases=(), resumed=False, session="s1", epoch=1, valid_for_ms=TTL_MS,
               more=False, **beside):
        self.receive(opened=pb.SessionOpened(
            session_id=session, ttl_ms=TTL_MS, resumed=resumed, more=more,
            validity=pb.LeaseValidity(valid_for_ms=valid_for_ms, epoch=epoch),
            leases=[pb.Lease(lease_id=lease) for lease in leases]), **beside)

    def next(self):
        """The next message; an empty one if there is none."""
        return self.machine.next_message(self.now_ns) or pb.SessionRequest()

    def result(self, sequence, **fields):
        self.receive(results=[pb.SessionResult(sequence=sequence, **fields)])

    def granted(self, sequence, lease_id):
        self.result(sequence, granted=pb.Lease(
            lease_id=lease_id, slots=[pb.SlotRange(first=1, last=1)], token=7))

    def queued(self, sequence, expected_wait_ms=None, reason=pb.WAIT_REASON_UNSPECIFIED):
        self.result(sequence, queued=pb.WaitQueued(
            position=1, expected_wait_ms=expected_wait_ms, reason=reason))

    def error(self, sequence, code, reason):
        error = status_pb2.Status(code=code.value[0])
        error.details.add().Pack(error_details_pb2.ErrorInfo(
            reason=pb.Reason.Name(reason)[len("REASON_"):]))
        self.result(sequence, error=error)

    def released(self, sequence, released=1):
        self.result(sequence, released=pb.ReleaseResponse(
            released=released, ended=0 if released else pb.END_CAUSE_EXPIRED))

    def pong(self, ping_id, epoch=1, valid_for_ms=TTL_MS, elapsed_ms=0):
        self.receive(pong=pb.SessionPong(ping_id=ping_id, validity=pb.LeaseValidity(
            valid_for_ms=valid_for_ms, epoch=epoch, elapsed_ms=elapsed_ms)))

    def end(self, code=None):
        """The stream ends. None: with OK."""
        error = make_error(code, "the stream broke") if code is not None else None
        self.machine.on_stream_end(error, self.now_ns)
        self.effect()

    def holding(self):
        """A permit L1, acquired with sequence 1 in session s1."""
        acquired = self.acquire()
        self.connect()
        self.opened()
        self.next()
        self.granted(1, "L1")
        assert acquired.lease.lease_id == "L1"
        return acquired

    def held(self, acquired):
        return acquired.lease.held(self.now_ns)
