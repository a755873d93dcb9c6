"""Administration: one thin method for each act, in the class for threads and in that for asyncio.
Each answers with the protocol's own message of its result; semaphore/v1/semaphore.proto describes
them."""

from __future__ import annotations

from typing import (Any, AsyncIterator, Awaitable, Callable, Iterator, Optional, Type, TypeVar,
                    cast)

import grpc
from google.protobuf.message import Message

from ._options import to_ms
from .errors import invalid, make_error
from .v1 import semaphore_pb2 as pb

Result = TypeVar("Result", bound=Message)


def _result(response: pb.AdministerResponse, kind: Type[Result]) -> Result:
    name = response.WhichOneof("result")
    result = getattr(response, name) if name is not None else None
    # By descriptor: a program that has stubs of its own has two classes for each message.
    if result is None or result.DESCRIPTOR.full_name != kind.DESCRIPTOR.full_name:
        raise make_error(grpc.StatusCode.INTERNAL, "the daemon's answer is not one to this act")
    return cast(Result, result)


def _request(semaphore: str, expected_revision: int = 0, **act: Any) -> pb.AdministerRequest:
    return pb.AdministerRequest(semaphore=semaphore, expected_revision=expected_revision, **act)


def _resize(limit: int, policy: pb.ShrinkPolicy, grace: Optional[float],
            now: bool) -> pb.ResizeSemaphore:
    return pb.ResizeSemaphore(limit=limit, policy=policy, now=now,
                              grace_ms=None if grace is None else to_ms("grace", grace))


def _destroy(policy: pb.DestroyPolicy, wait: float, grace: Optional[float],
             now: bool) -> pb.DestroySemaphore:
    return pb.DestroySemaphore(policy=policy, wait_ms=to_ms("wait", wait), now=now,
                               grace_ms=_grace_ms(grace))


def _drain(held_max: int, wait: float) -> pb.DrainSemaphore:
    return pb.DrainSemaphore(held_max=held_max, wait_ms=to_ms("wait", wait))


def _grace_ms(grace: Optional[float]) -> int:
    """Where the protocol's 0 is the semaphore's own."""
    if grace is None:
        return 0
    if grace == 0:
        raise invalid("grace: more than 0 seconds; None is the semaphore's own, and for none there "
                      "is `now`")
    return to_ms("grace", grace)


def _revoke(grace: Optional[float], now: bool, **which: Any) -> pb.RevokeLeases:
    return pb.RevokeLeases(grace_ms=_grace_ms(grace), now=now, **which)


class Admin:
    """Times are seconds. `expected_revision`: the act is done only if the semaphore stands at this
    revision (AbortedError otherwise); 0 means any.

    Where leases are to end, their holders are asked first, and have a grace: a lease ends when it is
    over, and later if its holder may not have heard of it. `grace` None: the semaphore's own
    (recall_grace_ms of its settings).

    now: the leases end with this act. DANGER: a holder that has not heard of it, because its
        connection or its daemon's is cut, goes on until the validity that it has received is over,
        up to the TTL, while others are let in. Safe if the resource checks tokens, or if the
        holders are known to be gone. Not together with `grace`.

    A listing comes in pages of at most `page_size` rows (0: 100; at most 10000). `page_token` is
    the `next_page_token` of the page before, which is empty on the last one. A method whose name
    ends in _all or _pages goes through them by itself."""

    def __init__(self, call: Callable[[pb.AdministerRequest, float],
                                      pb.AdministerResponse]) -> None:
        self._call = call

    def _act(self, kind: Type[Result], request: pb.AdministerRequest, wait: float = 0) -> Result:
        return _result(self._call(request, wait), kind)

    def create(self, semaphore: str, limit: int,
               settings: Optional[pb.SemaphoreSettings] = None) -> pb.CreateSemaphoreResult:
        """AlreadyExistsError unless it exists with the same limit and settings."""
        return self._act(pb.CreateSemaphoreResult, _request(
            semaphore, create=pb.CreateSemaphore(limit=limit, settings=settings)))

    def set_limit(self, semaphore: str, limit: int, *,
                  policy: pb.ShrinkPolicy = pb.SHRINK_POLICY_WAIT, grace: Optional[float] = None,
                  now: bool = False, expected_revision: int = 0) -> pb.ResizeSemaphoreResult:
        """`grace` and `now` are for SHRINK_POLICY_RECALL; a grace of 0 is none."""
        return self._act(pb.ResizeSemaphoreResult, _request(
            semaphore, expected_revision, resize=_resize(limit, policy, grace, now)))

    def configure(self, semaphore: str, settings: pb.SemaphoreSettings, *,
                  expected_revision: int = 0) -> pb.ConfigureSemaphoreResult:
        """Replaces the settings."""
        return self._act(pb.ConfigureSemaphoreResult, _request(
            semaphore, expected_revision, configure=pb.ConfigureSemaphore(settings=settings)))

    def destroy(self, semaphore: str, *, policy: pb.DestroyPolicy = pb.DESTROY_POLICY_REFUSE,
                wait: float = 0, grace: Optional[float] = None, now: bool = False,
                expected_revision: int = 0) -> pb.DestroySemaphoreResult:
        """`wait` is for DESTROY_POLICY_WAIT and _FORCE: how long to wait for the last holder. `grace`
        and `now` are for DESTROY_POLICY_FORCE, which recalls the leases."""
        return self._act(pb.DestroySemaphoreResult, _request(
            semaphore, expected_revision, destroy=_destroy(policy, wait, grace, now)), wait)

    def drain(self, semaphore: str, *, held_max: int = 0,
              wait: float = 0) -> pb.DrainSemaphoreResult:
        """Pauses it, and waits until at most `held_max` permits are held. The result has the first
        page of the leases that still stand; describe() goes on with its `next_page_token`."""
        return self._act(pb.DrainSemaphoreResult, _request(
            semaphore, drain=_drain(held_max, wait)), wait)

    def pause(self, semaphore: str) -> pb.PauseSemaphoreResult:
        """Nothing more is granted until resume()."""
        return self._act(pb.PauseSemaphoreResult, _request(semaphore, pause=pb.PauseSemaphore()))

    def resume(self, semaphore: str) -> pb.ResumeSemaphoreResult:
        return self._act(pb.ResumeSemaphoreResult,
                         _request(semaphore, resume=pb.ResumeSemaphore()))

    def revoke_lease(self, semaphore: str, lease_id: str, *,
                     grace: Optional[float] = None, now: bool = False) -> pb.RevokeLeasesResult:
        """Recalls it, or ends it `now`."""
        return self._act(pb.RevokeLeasesResult,
                         _request(semaphore, revoke=_revoke(grace, now, lease_id=lease_id)))

    def revoke_holder(self, semaphore: str, holder: str, *,
                      grace: Optional[float] = None, now: bool = False) -> pb.RevokeLeasesResult:
        """All leases whose holder text is this."""
        return self._act(pb.RevokeLeasesResult,
                         _request(semaphore, revoke=_revoke(grace, now, holder=holder)))

    def revoke_all(self, semaphore: str, *, grace: Optional[float] = None,
                   now: bool = False) -> pb.RevokeLeasesResult:
        return self._act(pb.RevokeLeasesResult,
                         _request(semaphore, revoke=_revoke(grace, now, all=True)))

    def prune(self, semaphore: str) -> pb.PruneSemaphoreResult:
        """Mends what an engine may leave behind."""
        return self._act(pb.PruneSemaphoreResult, _request(semaphore, prune=pb.PruneSemaphore()))

    def adopt(self, semaphore: str, limit: int = 0) -> pb.AdoptSemaphoreResult:
        """Makes a semaphore of what programs of a recipe have in the engine, if they have `limit`
        permits. 0: only says how many they have, and what would change."""
        return self._act(pb.AdoptSemaphoreResult,
                         _request(semaphore, adopt=pb.AdoptSemaphore(limit=limit)))

    def describe(self, semaphore: str, *, page_size: int = 0,
                 page_token: str = "") -> pb.DescribeSemaphoreResult:
        """The semaphore, its leases in slot order, and its waiters in queue order: at most
        `page_size` of both."""
        return self._act(pb.DescribeSemaphoreResult, _request(
            semaphore,
            describe=pb.DescribeSemaphore(page_size=page_size, page_token=page_token)))

    def describe_pages(self, semaphore: str, *,
                       page_size: int = 0) -> Iterator[pb.DescribeSemaphoreResult]:
        """All pages of describe()."""
        token = ""
        while True:
            page = self.describe(semaphore, page_size=page_size, page_token=token)
            yield page
            token = page.next_page_token
            if not token:
                return

    def list(self, prefix: str = "", *, page_size: int = 0,
             page_token: str = "") -> pb.ListSemaphoresResult:
        """Semaphores by name."""
        return self._act(pb.ListSemaphoresResult, _request("", list=pb.ListSemaphores(
            prefix=prefix, page_size=page_size, page_token=page_token)))

    def list_all(self, prefix: str = "", *, page_size: int = 0) -> Iterator[pb.SemaphoreInfo]:
        """Those of all pages of list()."""
        token = ""
        while True:
            page = self.list(prefix, page_size=page_size, page_token=token)
            yield from page.semaphores
            token = page.next_page_token
            if not token:
                return

    def history(self, semaphore: str, *, page_size: int = 0,
                page_token: str = "") -> pb.ListHistoryResult:
        """Leases that have ended, the newest first."""
        return self._act(pb.ListHistoryResult, _request(
            semaphore, history=pb.ListHistory(page_size=page_size, page_token=page_token)))

    def history_all(self, semaphore: str, *, page_size: int = 0) -> Iterator[pb.HistoryRow]:
        """The rows of all pages of history()."""
        token = ""
        while True:
            page = self.history(semaphore, page_size=page_size, page_token=token)
            yield from page.rows
            token = page.next_page_token
            if not token:
                return

    def administer(self, request: pb.AdministerRequest, *,
                   wait: float = 0) -> pb.AdministerResponse:
        """Any act of the protocol, such as those of tickets. A request id is put in. The field of
        the answer that is set has the name of the act."""
        return self._call(request, wait)


class AsyncAdmin:
    """Each method as that of semaphored.Client.admin."""

    def __init__(self, call: Callable[[pb.AdministerRequest, float],
                                      Awaitable[pb.AdministerResponse]]) -> None:
        self._call = call

    async def _act(self, kind: Type[Result], request: pb.AdministerRequest,
                   wait: float = 0) -> Result:
        return _result(await self._call(request, wait), kind)

    async def create(self, semaphore: str, limit: int,
                     settings: Optional[pb.SemaphoreSettings] = None) -> pb.CreateSemaphoreResult:
        return await self._act(pb.CreateSemaphoreResult, _request(
            semaphore, create=pb.CreateSemaphore(limit=limit, settings=settings)))

    async def set_limit(self, semaphore: str, limit: int, *,
                        policy: pb.ShrinkPolicy = pb.SHRINK_POLICY_WAIT,
                        grace: Optional[float] = None, now: bool = False,
                        expected_revision: int = 0) -> pb.ResizeSemaphoreResult:
        return await self._act(pb.ResizeSemaphoreResult, _request(
            semaphore, expected_revision, resize=_resize(limit, policy, grace, now)))

    async def configure(self, semaphore: str, settings: pb.SemaphoreSettings, *,
                        expected_revision: int = 0) -> pb.ConfigureSemaphoreResult:
        return await self._act(pb.ConfigureSemaphoreResult, _request(
            semaphore, expected_revision, configure=pb.ConfigureSemaphore(settings=settings)))

    async def destroy(self, semaphore: str, *,
                      policy: pb.DestroyPolicy = pb.DESTROY_POLICY_REFUSE,
                      wait: float = 0, grace: Optional[float] = None, now: bool = False,
                      expected_revision: int = 0) -> pb.DestroySemaphoreResult:
        return await self._act(pb.DestroySemaphoreResult, _request(
            semaphore, expected_revision, destroy=_destroy(policy, wait, grace, now)), wait)

    async def drain(self, semaphore: str, *, held_max: int = 0,
                    wait: float = 0) -> pb.DrainSemaphoreResult:
        return await self._act(pb.DrainSemaphoreResult, _request(
            semaphore, drain=_drain(held_max, wait)), wait)

    async def pause(self, semaphore: str) -> pb.PauseSemaphoreResult:
        return await self._act(pb.PauseSemaphoreResult,
                               _request(semaphore, pause=pb.PauseSemaphore()))

    async def resume(self, semaphore: str) -> pb.ResumeSemaphoreResult:
        return await self._act(pb.ResumeSemaphoreResult,
                               _request(semaphore, resume=pb.ResumeSemaphore()))

    async def revoke_lease(self, semaphore: str, lease_id: str, *,
                           grace: Optional[float] = None,
                           now: bool = False) -> pb.RevokeLeasesResult:
        return await self._act(pb.RevokeLeasesResult,
                               _request(semaphore, revoke=_revoke(grace, now, lease_id=lease_id)))

    async def revoke_holder(self, semaphore: str, holder: str, *,
                            grace: Optional[float] = None,
                            now: bool = False) -> pb.RevokeLeasesResult:
        return await self._act(pb.RevokeLeasesResult,
                               _request(semaphore, revoke=_revoke(grace, now, holder=holder)))

    async def revoke_all(self, semaphore: str, *, grace: Optional[float] = None,
                         now: bool = False) -> pb.RevokeLeasesResult:
        return await self._act(pb.RevokeLeasesResult,
                               _request(semaphore, revoke=_revoke(grace, now, all=True)))

    async def prune(self, semaphore: str) -> pb.PruneSemaphoreResult:
        return await self._act(pb.PruneSemaphoreResult,
                               _request(semaphore, prune=pb.PruneSemaphore()))

    async def adopt(self, semaphore: str, limit: int = 0) -> pb.AdoptSemaphoreResult:
        return await self._act(pb.AdoptSemaphoreResult,
                               _request(semaphore, adopt=pb.AdoptSemaphore(limit=limit)))

    async def describe(self, semaphore: str, *, page_size: int = 0,
                       page_token: str = "") -> pb.DescribeSemaphoreResult:
        return await self._act(pb.DescribeSemaphoreResult, _request(
            semaphore,
            describe=pb.DescribeSemaphore(page_size=page_size, page_token=page_token)))

    async def describe_pages(self, semaphore: str, *,
                             page_size: int = 0) -> AsyncIterator[pb.DescribeSemaphoreResult]:
        token = ""
        while True:
            page = await self.describe(semaphore, page_size=page_size, page_token=token)
            yield page
            token = page.next_page_token
            if not token:
                return

    async def list(self, prefix: str = "", *, page_size: int = 0,
                   page_token: str = "") -> pb.ListSemaphoresResult:
        return await self._act(pb.ListSemaphoresResult, _request("", list=pb.ListSemaphores(
            prefix=prefix, page_size=page_size, page_token=page_token)))

    async def list_all(self, prefix: str = "", *,
                       page_size: int = 0) -> AsyncIterator[pb.SemaphoreInfo]:
        token = ""
        while True:
            page = await self.list(prefix, page_size=page_size, page_token=token)
            for row in page.semaphores:
                yield row
            token = page.next_page_token
            if not token:
                return

    async def history(self, semaphore: str, *, page_size: int = 0,
                      page_token: str = "") -> pb.ListHistoryResult:
        return await self._act(pb.ListHistoryResult, _request(
            semaphore, history=pb.ListHistory(page_size=page_size, page_token=page_token)))

    async def history_all(self, semaphore: str, *,
                          page_size: int = 0) -> AsyncIterator[pb.HistoryRow]:
        token = ""
        while True:
            page = await self.history(semaphore, page_size=page_size, page_token=token)
            for row in page.rows:
                yield row
            token = page.next_page_token
            if not token:
                return

    async def administer(self, request: pb.AdministerRequest, *,
                         wait: float = 0) -> pb.AdministerResponse:
        return await self._call(request, wait)
