"""The client for asyncio.

    async with semaphored.aio.Client("127.0.0.1:7420") as client:
        async with client.permit("team/db", limit=5) as permit:
            await work(permit.slot, permit.token)

The permits are kept alive by threads beside the event loop: a loop that is busy, for however long,
loses nothing, unless it is busy in C code that keeps the interpreter's lock for longer than the TTL.
Callbacks run in the loop.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Awaitable, Callable, Optional, Type, TypeVar

from ._admin import AsyncAdmin
from ._core import ClientBase, PendingAcquire, no_answer
from ._driver import SessionDriver
from ._lease import LeaseState, OnRecall, QueuePlace, Recall
from ._permit import PermitBase, Verdict, make_verdict, verify_request
from ._time import SECOND_NS, now_ns
from ._unary import post_to_loop
from .errors import Error, Loss, LostError, Unreachable
from .v1 import semaphore_pb2 as pb

__all__ = ["Client", "Permit", "PermitContext"]

_Told = TypeVar("_Told")


class Permit(PermitBase):
    """Permits, held until release() or the end of the `async with` block. `lost` is an asyncio.Event."""

    def __init__(self, owner: object, driver: SessionDriver, lease: LeaseState,
                 release_timeout_s: float) -> None:
        super().__init__(owner, driver, lease)
        self._release_timeout_s = release_timeout_s
        self._loop = asyncio.get_running_loop()
        self.lost = asyncio.Event()
        loop, event = self._loop, self.lost
        lease.add_listener(lambda _: post_to_loop(loop, event.set))

    async def __aenter__(self) -> Permit:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        if self._released or not self._driver.in_own_process():
            return
        why = self._why() if not self.held else None
        try:
            await self.release()
        except Unreachable:
            pass  # The work is done under the permit; it is given back in time, see release().
        except LostError:
            if kind is None:
                raise
            return
        if kind is None and why is not None:
            raise LostError(why)

    def add_lost_callback(self, callback: Callable[[Loss], None]) -> None:
        """Called once, in the loop, if the permits are lost, or are already."""
        loop = self._loop
        self._lease.add_listener(lambda loss: post_to_loop(loop, callback, loss))

    async def release(self) -> None:
        """As in the client of threads. A task that is cancelled here has given them back all the
        same."""
        future = self._begin_release()
        if future is None:
            return
        try:
            error: Optional[Error] = await asyncio.wait_for(asyncio.wrap_future(future),
                                                            self._release_timeout_s)
        except asyncio.TimeoutError:
            raise no_answer() from None
        if error is not None:
            raise error


class PermitContext:
    """`async with` takes a permit, and gives it back at the end of the block. If it is lost
    meanwhile, the task is cancelled inside of the block, and the block ends with LostError. Used
    once."""

    def __init__(self, acquire: Callable[[], Awaitable[Permit]], cancel_on_loss: bool) -> None:
        self._acquire = acquire
        self._cancel_on_loss = cancel_on_loss
        self._permit: Optional[Permit] = None
        self._task: Optional[asyncio.Task[Any]] = None
        self._cancelling = 0
        self._cancelled_by_us = False
        self._inside = False

    async def __aenter__(self) -> Permit:
        if self._permit is not None:
            raise RuntimeError("client.permit() is for one `async with`; call it again for the next")
        self._permit = permit = await self._acquire()
        self._task = asyncio.current_task()
        self._cancelling = _count_cancelling(self._task)
        self._inside = True
        if self._cancel_on_loss:
            permit.add_lost_callback(self._cancel)
        return permit

    def _cancel(self, _: Loss) -> None:
        if self._inside and self._task is not None and not self._cancelled_by_us:
            self._cancelled_by_us = True
            self._task.cancel()

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self._inside = False
        permit = self._permit
        assert permit is not None
        only_by_us = self._cancelled_by_us and _uncancel(self._task) <= self._cancelling
        if only_by_us and kind is asyncio.CancelledError and permit.loss is not None:
            lost = LostError(permit.loss)
            await permit.__aexit__(kind, error, trace)
            raise lost from None
        await permit.__aexit__(kind, error, trace)


class Client(ClientBase):
    """The client for asyncio: as semaphored.Client, with the same options. It is used by one event
    loop; the loop may run anything else beside it."""

    @property
    def admin(self) -> AsyncAdmin:
        """Administration: create, set_limit, describe, list, drain, revoke …"""
        return AsyncAdmin(self._administer)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *unused: object) -> None:
        await self.close()

    async def close(self) -> None:
        """As semaphored.Client.close()."""
        closed: Future[None] = Future()

        def close() -> None:
            self._driver.close()
            closed.set_result(None)
        # Not in the loop's executor, which may be full.
        threading.Thread(target=close, name="semaphored-close", daemon=True).start()
        await asyncio.shield(asyncio.wrap_future(closed))
        self._unary.close()

    async def acquire(self, semaphore: str, *, limit: int = 0, adopt_limit: bool = False,
                      permits: int = 1, wait: Optional[float] = None, priority: int = 0,
                      holder: str = "", on_queued: Optional[Callable[[QueuePlace], None]] = None,
                      on_lost: Optional[Callable[[Loss], None]] = None,
                      on_recall: Optional[Callable[[Recall], None]] = None) -> Permit:
        """As semaphored.Client.acquire(). A task that is cancelled gives up its wait."""
        loop = asyncio.get_running_loop()
        call = self._call(semaphore, limit=limit, adopt_limit=adopt_limit, permits=permits,
                          wait=wait, priority=priority, holder=holder,
                          on_queued=_in_loop(loop, on_queued), on_lost=_in_loop(loop, on_lost),
                          on_recall=_recall_in_loop(loop, on_recall))
        pending = PendingAcquire(self._driver, call)
        try:
            pending.begin()
            acquired = await asyncio.wrap_future(pending.future)
        except BaseException:  # CancelledError; GeneratorExit, when its loop is gone
            pending.abandon()
            raise
        lease = self._lease_of(acquired, semaphore)
        return Permit(self, self._driver, lease, self._options.release_timeout_ns / SECOND_NS)

    def permit(self, semaphore: str, *, cancel_on_loss: bool = True, limit: int = 0,
               adopt_limit: bool = False, permits: int = 1, wait: Optional[float] = None,
               priority: int = 0, holder: str = "",
               on_queued: Optional[Callable[[QueuePlace], None]] = None,
               on_lost: Optional[Callable[[Loss], None]] = None,
               on_recall: Optional[Callable[[Recall], None]] = None) -> PermitContext:
        """For `async with`: as acquire(), with the same options, at the beginning of the block.
        cancel_on_loss=False leaves the body alone when the permits are lost; it has to look at
        `permit.lost` itself."""
        return PermitContext(lambda: self.acquire(
            semaphore, limit=limit, adopt_limit=adopt_limit, permits=permits, wait=wait,
            priority=priority, holder=holder, on_queued=on_queued, on_lost=on_lost,
            on_recall=on_recall), cancel_on_loss)

    async def verify(self, permit: Permit) -> Verdict:
        """As semaphored.Client.verify()."""
        return await self._verify(verify_request(permit))

    async def verify_token(self, semaphore: str, slot: int, token: int) -> Verdict:
        """As semaphored.Client.verify_token()."""
        return await self._verify(verify_request(None, semaphore=semaphore, slot=slot, token=token))

    async def _verify(self, request: pb.VerifyRequest) -> Verdict:
        sent_ns = now_ns()
        response: pb.VerifyResponse = await self._unary.call_async("Verify", request)
        return make_verdict(response, sent_ns, now_ns(), self._options.margin_ns)

    async def _administer(self, request: pb.AdministerRequest,
                          wait: float) -> pb.AdministerResponse:
        answer: pb.AdministerResponse = await self._unary.call_async(
            "Administer", self._with_id(request), wait)
        return answer

    async def enqueue(self, semaphore: str, payload: bytes = b"", *, content_type: str = "",
                      limit: int = 0, adopt_limit: bool = False, priority: int = 0,
                      delay: float = 0, max_attempts: Optional[int] = 0) -> str:
        """As semaphored.Client.enqueue()."""
        request = self._enqueue_request(semaphore, payload, content_type, limit, adopt_limit,
                                        priority, delay, max_attempts)
        answer: pb.EnqueueResponse = await self._unary.call_async("Enqueue", request)
        return answer.ticket_id


def _count_cancelling(task: Any) -> int:
    """Requests to cancel that the task has not handled yet. 0 before Python 3.11, whose tasks do
    not count them."""
    return int(task.cancelling()) if hasattr(task, "cancelling") else 0


def _uncancel(task: Any) -> int:
    """Takes one back, and returns how many are left."""
    return int(task.uncancel()) if hasattr(task, "uncancel") else 0


def _in_loop(loop: asyncio.AbstractEventLoop, callback: Optional[Callable[[_Told], None]]
             ) -> Optional[Callable[[_Told], None]]:
    if callback is None:
        return None
    wanted = callback
    return lambda told: post_to_loop(loop, wanted, told)


def _recall_in_loop(loop: asyncio.AbstractEventLoop, on_recall: Optional[Callable[[Recall], None]]
                    ) -> Optional[OnRecall]:
    if on_recall is None:
        return None
    wanted = on_recall

    def tell(recall: Recall, done: Callable[[], None]) -> None:
        wanted(recall)
        done()
    return lambda recall, done: post_to_loop(loop, tell, recall, done)
