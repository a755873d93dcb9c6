"""The client for programs with threads."""

from __future__ import annotations

import concurrent.futures
import threading
from types import TracebackType
from typing import Callable, Optional, Type

from ._admin import Admin
from ._core import ClientBase, PendingAcquire, no_answer
from ._driver import SessionDriver
from ._lease import LeaseState, OnRecall, QueuePlace, Recall
from ._permit import PermitBase, Verdict, make_verdict, verify_request
from ._time import SECOND_NS, now_ns
from .errors import Loss, LostError, Unreachable
from .v1 import semaphore_pb2 as pb


class Permit(PermitBase):
    """Permits, held until release() or the end of the `with` block.

    A thread cannot be stopped from outside. So when the permits are lost, `lost` is set and on_lost
    is called, and the work has to look: at `lost`, or by check(). A `with` block whose permits were
    lost ends with LostError, unless its body raised something itself."""

    def __init__(self, owner: object, driver: SessionDriver, lease: LeaseState,
                 release_timeout_s: float) -> None:
        super().__init__(owner, driver, lease)
        self._release_timeout_s = release_timeout_s
        self.lost = threading.Event()
        event = self.lost
        lease.add_listener(lambda _: event.set())

    def __enter__(self) -> Permit:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if self._released or not self._driver.in_own_process():
            return  # by the body itself; or this is a child, and it is the parent's
        was_held = self.held
        why = self._why() if not was_held else None
        try:
            self.release()
        except Unreachable:
            pass  # The work is done under the permit; it is given back in time, see release().
        except LostError:
            if kind is None:
                raise
            return
        if kind is None and why is not None:
            raise LostError(why)

    def add_lost_callback(self, callback: Callable[[Loss], None]) -> None:
        """Called once, on the thread of callbacks, if the permits are lost, or are already."""
        driver = self._driver
        self._lease.add_listener(lambda loss: driver.post(lambda: callback(loss)))

    def release(self) -> None:
        """Gives the permits back and waits for the answer. Nothing happens the second time.

        LostError: they had been lost before, nothing was changed. Unreachable: no answer within
        release_timeout; it is still tried, and at the latest the TTL gives them back. After another
        error, too, it is still tried, unless this client may not give them back
        (PermissionDeniedError)."""
        future = self._begin_release()
        if future is None:
            return
        try:
            error = future.result(self._release_timeout_s)
        except concurrent.futures.TimeoutError:
            raise no_answer() from None
        if error is not None:
            raise error


class PermitContext:
    """`with` takes a permit, and gives it back at the end of the block. May be used again."""

    def __init__(self, acquire: Callable[[], Permit]) -> None:
        self._acquire = acquire
        self._held = threading.local()

    def __enter__(self) -> Permit:
        permit = self._acquire()
        stack = self._held.__dict__.setdefault("permits", [])
        stack.append(permit)
        return permit

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        permit: Permit = self._held.permits.pop()
        permit.__exit__(kind, error, trace)


class Client(ClientBase):
    """The client for programs with threads; semaphored.aio.Client is that for asyncio.

        with semaphored.Client("127.0.0.1:7420") as client:
            with client.permit("team/db", limit=5) as permit:
                work(permit.slot, permit.token)

    Every function may be called by any thread at once. Callbacks run one after the other on a thread
    of their own, so that a slow one delays no loss.
    """

    @property
    def admin(self) -> Admin:
        """Administration: create, set_limit, describe, list, drain, revoke …"""
        return Admin(self._administer)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the session cleanly: all permits go back, requests that wait end with
        CancelledError. Permits that were still held count as lost, CLOSED. Waits at most
        release_timeout. A program that ends closes its clients by itself."""
        self._driver.close()
        self._unary.close()

    def acquire(self, semaphore: str, *, limit: int = 0, adopt_limit: bool = False,
                permits: int = 1, wait: Optional[float] = None, priority: int = 0,
                holder: str = "", on_queued: Optional[Callable[[QueuePlace], None]] = None,
                on_lost: Optional[Callable[[Loss], None]] = None,
                on_recall: Optional[Callable[[Recall], None]] = None) -> Permit:
        """Takes permits, and waits for them.

        limit: creates the semaphore with this limit if it does not exist; 0: it must exist.
        adopt_limit: if the semaphore has another limit, take it as it is.
        wait: how long to stand in the queue. None: for ever. 0: at once, or Full.
        priority: higher is served first, -1000 to 1000.
        holder: for people; default: the client's.
        on_queued: called when the request stands in the queue, and each further time that the
            daemon reports its position.
        on_lost: called once if the permits are lost.
        on_recall: called when the daemon recalls them, and again with a later recall, such as after
            a broken connection. When it returns, the daemon learns that the work knows of it. A
            daemon that does not learn that lets others in later; the permits end here all the same.

        Errors: Full; WaitExpired; NotFoundError; FailedPreconditionError (LIMIT_MISMATCH,
        EXCEEDS_LIMIT, PAUSED, DESTROYED); ResourceExhaustedError; InvalidArgumentError; Unreachable,
        UnavailableError; CancelledError when the client was closed."""
        call = self._call(semaphore, limit=limit, adopt_limit=adopt_limit, permits=permits,
                          wait=wait, priority=priority, holder=holder, on_queued=on_queued,
                          on_lost=self._posted(on_lost), on_recall=_then_done(on_recall))
        pending = PendingAcquire(self._driver, call)
        try:
            pending.begin()
            acquired = pending.future.result()
        except BaseException:  # KeyboardInterrupt
            pending.abandon()
            raise
        lease = self._lease_of(acquired, semaphore)
        return Permit(self, self._driver, lease, self._options.release_timeout_ns / SECOND_NS)

    def permit(self, semaphore: str, *, limit: int = 0, adopt_limit: bool = False,
               permits: int = 1, wait: Optional[float] = None, priority: int = 0,
               holder: str = "", on_queued: Optional[Callable[[QueuePlace], None]] = None,
               on_lost: Optional[Callable[[Loss], None]] = None,
               on_recall: Optional[Callable[[Recall], None]] = None) -> PermitContext:
        """For `with`: as acquire(), with the same options, at the beginning of the block."""
        return PermitContext(lambda: self.acquire(
            semaphore, limit=limit, adopt_limit=adopt_limit, permits=permits, wait=wait,
            priority=priority, holder=holder, on_queued=on_queued, on_lost=on_lost,
            on_recall=on_recall))

    def _posted(self, on_lost: Optional[Callable[[Loss], None]]
                ) -> Optional[Callable[[Loss], None]]:
        if on_lost is None:
            return None
        driver, callback = self._driver, on_lost
        return lambda loss: driver.post(lambda: callback(loss))

    def verify(self, permit: Permit) -> Verdict:
        """Asked by the holder: is it still good? An error means that the verdict is not known."""
        return self._verify(verify_request(permit))

    def verify_token(self, semaphore: str, slot: int, token: int) -> Verdict:
        """Asked by the protected resource, which was shown a slot and a token."""
        return self._verify(verify_request(None, semaphore=semaphore, slot=slot, token=token))

    def _verify(self, request: pb.VerifyRequest) -> Verdict:
        sent_ns = now_ns()
        response: pb.VerifyResponse = self._unary.call("Verify", request)
        return make_verdict(response, sent_ns, now_ns(), self._options.margin_ns)

    def _administer(self, request: pb.AdministerRequest, wait: float) -> pb.AdministerResponse:
        answer: pb.AdministerResponse = self._unary.call("Administer", self._with_id(request), wait)
        return answer

    def enqueue(self, semaphore: str, payload: bytes = b"", *, content_type: str = "",
                limit: int = 0, adopt_limit: bool = False, priority: int = 0, delay: float = 0,
                max_attempts: Optional[int] = 0) -> str:
        """Puts a ticket, a piece of work with a payload, into a semaphore's queue; returns its id.
        It outlives this client and the daemon, until a worker has done it.

        delay: a worker gets it no sooner than after this time.
        max_attempts: after so many attempts that did not end well it is a dead letter. 0: the
        daemon's default (5). None: no bound."""
        request = self._enqueue_request(semaphore, payload, content_type, limit, adopt_limit,
                                        priority, delay, max_attempts)
        answer: pb.EnqueueResponse = self._unary.call("Enqueue", request)
        return answer.ticket_id


def _then_done(on_recall: Optional[Callable[[Recall], None]]) -> Optional[OnRecall]:
    if on_recall is None:
        return None
    wanted = on_recall

    def tell(recall: Recall, done: Callable[[], None]) -> None:
        wanted(recall)
        done()
    return tell
