"""What the clients of threads and of asyncio have in common."""

from __future__ import annotations

import weakref
from concurrent.futures import Future, InvalidStateError
from typing import Callable, Optional, Sequence, Union

from ._calls import AcquireCall
from ._credentials import Credentials, Security
from ._driver import SessionDriver
from ._lease import LeaseState, OnRecall, QueuePlace, SharedDeadline
from ._options import make_call, make_options, to_ms
from ._process import OwnProcess
from ._time import NEVER_NS
from ._unary import UnaryCaller
from .errors import Error, Loss, unreachable
from .v1 import semaphore_pb2 as pb

Acquired = Union[LeaseState, Error]


class ClientBase:
    """Keeps all of its permits alive over one stream, and resumes it by itself after a broken
    connection, a restarted daemon or through the next endpoint, with the same leases, slots and
    tokens. When no daemon has vouched for the permits up to their deadline, on this machine's own
    steady clock and less a margin, they are lost: the client reports that *before* the daemon could
    give them to another client, and the work must stop.

    All times are seconds.

    endpoints: HOST:PORT, [HOST]:PORT or unix:PATH, or several of them, tried in this order, beginning
        again after the last.
    ttl: for how long permits outlive the last sign of life of this client. None: the daemon's
        default (30).
    margin: permits count as lost this long before the daemon's promise about them ends, or 1 % of
        that promise before if that is more. Less than half of the ttl.
    holder: for people, who holds. Default: "host:pid". At most 256 bytes.
    connect_timeout: a call fails with Unreachable when no endpoint could be reached for this long
        at first …
    reconnect_timeout: … and for this long once one had been reached; so a daemon may be restarted
        while requests wait in its queue.
    release_timeout: how long a release, and close(), wait for the daemon's answer.
    operations_max: requests that this client may have under way at once, those that wait included.
    fail_open: DANGER: when no endpoint can be reached, acquire gives a permit that *nothing stands
        behind*: its fail_open is True, it has no slots, token 0, is never lost, and the limit is
        not kept. Only for limits that are a courtesy.
    release_on_disconnect: permits go back as soon as the connection is lost, instead of after the
        ttl. Safe only if the resource checks the token: a holder that is cut off may still be at
        work.
    tls: speak TLS; implied by ca_file, cert_file, key_file and server_name.
    ca_file: PEM of the authorities to trust. Default: those of gRPC.
    cert_file, key_file: PEM of this client's certificate and its key, both or neither.
    server_name: the name that the daemon's certificate must have, if not the endpoint's.
    token, token_file: who asks, sent with every call; never without TLS, except to this machine.
        The file is read again when it has changed, and so are the files above, for the next
        connection.

    A client that was used belongs to its process: in a child made by fork it raises
    FailedPreconditionError, reason FORKED, and its permits count as not held. gRPC itself does not
    survive a fork: fork before the first use, or start a new program (multiprocessing: "spawn").
    """

    def __init__(self, endpoints: Union[str, Sequence[str]] = "127.0.0.1:7420", *,
                 ttl: Optional[float] = None, margin: float = 0.05, holder: str = "",
                 connect_timeout: float = 5.0, reconnect_timeout: float = 60.0,
                 release_timeout: float = 5.0, operations_max: int = 200_000,
                 fail_open: bool = False, release_on_disconnect: bool = False,
                 tls: bool = False, ca_file: Optional[str] = None,
                 cert_file: Optional[str] = None, key_file: Optional[str] = None,
                 server_name: Optional[str] = None, token: Optional[str] = None,
                 token_file: Optional[str] = None) -> None:
        self._options = make_options(
            endpoints, ttl=ttl, margin=margin, holder=holder, connect_timeout=connect_timeout,
            reconnect_timeout=reconnect_timeout, release_timeout=release_timeout,
            operations_max=operations_max, fail_open=fail_open,
            release_on_disconnect=release_on_disconnect)
        credentials = Credentials(
            Security(tls, ca_file, cert_file, key_file, server_name, token, token_file),
            self._options.endpoints)
        process = OwnProcess()
        self._driver = SessionDriver(self._options, credentials, process)
        self._unary = UnaryCaller(self._options, credentials, process)
        # Ends the session if close() was not called: its pings go on on threads of their own.
        weakref.finalize(self, self._driver.drop, None).atexit = False

    def _call(self, semaphore: str, *, limit: int, adopt_limit: bool, permits: int,
              wait: Optional[float], priority: int, holder: str,
              on_queued: Optional[Callable[[QueuePlace], None]],
              on_lost: Optional[Callable[[Loss], None]],
              on_recall: Optional[OnRecall]) -> AcquireCall:
        """The callbacks are what the driver is to call."""
        call = make_call(semaphore, limit=limit, adopt_limit=adopt_limit, permits=permits,
                         wait=wait, priority=priority, holder=holder)
        call.on_queued, call.on_lost, call.on_recall = on_queued, on_lost, on_recall
        return call

    def _lease_of(self, acquired: Acquired, semaphore: str) -> LeaseState:
        """Raises what it is if it is an error."""
        if isinstance(acquired, LeaseState):
            return acquired
        if not self._options.fail_open or acquired.reason != "UNREACHABLE":
            raise acquired
        nothing = LeaseState(semaphore, "", (), 0, 0, SharedDeadline(NEVER_NS))
        nothing.fail_open = True
        return nothing

    def _with_id(self, request: pb.AdministerRequest) -> pb.AdministerRequest:
        identified = pb.AdministerRequest()
        identified.CopyFrom(request)
        if not identified.HasField("request_id"):
            identified.request_id.CopyFrom(self._unary.next_id())
        return identified

    def _enqueue_request(self, semaphore: str, payload: bytes, content_type: str, limit: int,
                         adopt_limit: bool, priority: int, delay: float,
                         max_attempts: Optional[int]) -> pb.EnqueueRequest:
        return pb.EnqueueRequest(
            request_id=self._unary.next_id(), semaphore=semaphore, payload=payload,
            content_type=content_type, limit=limit, priority=priority,
            limit_mismatch=pb.LIMIT_MISMATCH_ADOPT if adopt_limit else pb.LIMIT_MISMATCH_FAIL,
            delay_ms=to_ms("delay", delay), max_attempts=max_attempts,
            attempts_unbounded=max_attempts is None)


class PendingAcquire:
    """An acquire under way. A grant that its caller no longer waits for is given back."""

    def __init__(self, driver: SessionDriver, call: AcquireCall) -> None:
        self._driver = driver
        self.future: Future[Acquired] = Future()
        self._call = call
        call.done = self._answered

    def begin(self) -> None:
        self._driver.acquire(self._call)

    def _answered(self, acquired: Acquired) -> None:
        try:
            self.future.set_result(acquired)
        except InvalidStateError:
            self._give_back(acquired)

    def _give_back(self, acquired: Acquired) -> None:
        if isinstance(acquired, LeaseState):
            self._driver.release(acquired, None)

    def abandon(self) -> None:
        """The caller no longer waits, and will not take the answer."""
        self._driver.cancel(self._call)
        if not self.future.cancel():
            self._give_back(self.future.result())


def begin_release(driver: SessionDriver, lease: LeaseState) -> Future[Optional[Error]]:
    """Gives the permits back. The answer may never come, if no daemon can be reached."""
    future: Future[Optional[Error]] = Future()

    def answered(error: Optional[Error]) -> None:
        try:
            future.set_result(error)
        except InvalidStateError:
            pass  # its caller no longer waits for it
    driver.release(lease, answered)
    return future


def no_answer() -> Error:
    return unreachable("no daemon answered in time; it is still tried, and at the latest the TTL "
                       "gives the permits back")
