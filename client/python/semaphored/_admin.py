"""Administration and tickets: one thin method for each act. All answer with the protocol's own
message, which is described in semaphore/v1/semaphore.proto."""

from __future__ import annotations

from typing import Any, Callable, Generic, Optional, TypeVar

from .v1 import semaphore_pb2 as pb

Answer = TypeVar("Answer", covariant=True)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


class Admin(Generic[Answer]):
    """`Answer` is AdministerResponse, or an awaitable of it in semaphored.aio.

    Times are seconds. `expected_revision`: the act is done only if the semaphore stands at this
    revision (AbortedError otherwise); 0 means any."""

    def __init__(self, call: Callable[[pb.AdministerRequest, float], Answer]) -> None:
        self._call = call

    def _act(self, semaphore: str, expected_revision: int = 0, wait: float = 0,
             **act: Any) -> Answer:
        request = pb.AdministerRequest(semaphore=semaphore, expected_revision=expected_revision,
                                       **act)
        return self._call(request, wait)

    def create(self, semaphore: str, limit: int,
               settings: Optional[pb.Settings] = None) -> Answer:
        """AlreadyExistsError unless it exists with the same limit and settings."""
        return self._act(semaphore, create=pb.Create(limit=limit, settings=settings))

    def set_limit(self, semaphore: str, limit: int, *,
                  policy: pb.ShrinkPolicy = pb.SHRINK_POLICY_WAIT, grace: float = 0,
                  expected_revision: int = 0) -> Answer:
        """`grace` is for SHRINK_POLICY_RECALL; 0 means the semaphore's own."""
        return self._act(semaphore, expected_revision, resize=pb.Resize(
            limit=limit, policy=policy, grace_ms=_ms(grace)))

    def configure(self, semaphore: str, settings: pb.Settings, *,
                  expected_revision: int = 0) -> Answer:
        """Replaces the settings."""
        return self._act(semaphore, expected_revision, configure=pb.Configure(settings=settings))

    def destroy(self, semaphore: str, *, policy: pb.DestroyPolicy = pb.DESTROY_POLICY_REFUSE,
                wait: float = 0, expected_revision: int = 0) -> Answer:
        """`wait` is for DESTROY_POLICY_WAIT: how long to wait for the last holder."""
        return self._act(semaphore, expected_revision, wait,
                         destroy=pb.Destroy(policy=policy, wait_ms=_ms(wait)))

    def drain(self, semaphore: str, *, held_max: int = 0, wait: float = 0) -> Answer:
        """Pauses it, and waits until at most `held_max` permits are held."""
        return self._act(semaphore, wait=wait,
                         drain=pb.Drain(held_max=held_max, wait_ms=_ms(wait)))

    def pause(self, semaphore: str) -> Answer:
        """Nothing more is granted until resume()."""
        return self._act(semaphore, pause=pb.Pause())

    def resume(self, semaphore: str) -> Answer:
        return self._act(semaphore, resume=pb.Resume())

    def revoke_lease(self, semaphore: str, lease_id: str, *, grace: float = 0) -> Answer:
        """With a grace it is recalled first, and revoked after it."""
        return self._act(semaphore, revoke=pb.Revoke(lease_id=lease_id, grace_ms=_ms(grace)))

    def revoke_holder(self, semaphore: str, holder: str, *, grace: float = 0) -> Answer:
        """All leases whose holder text is this."""
        return self._act(semaphore, revoke=pb.Revoke(holder=holder, grace_ms=_ms(grace)))

    def revoke_all(self, semaphore: str, *, grace: float = 0) -> Answer:
        return self._act(semaphore, revoke=pb.Revoke(all=True, grace_ms=_ms(grace)))

    def prune(self, semaphore: str) -> Answer:
        """Mends what an engine may leave behind."""
        return self._act(semaphore, prune=pb.Prune())

    def describe(self, semaphore: str, *, rows_max: int = 0) -> Answer:
        """Who holds and who waits."""
        return self._act(semaphore, describe=pb.Describe(rows_max=rows_max))

    def list(self, prefix: str = "", *, after: str = "", rows_max: int = 0) -> Answer:
        return self._act("", list=pb.List(prefix=prefix, after=after, rows_max=rows_max))

    def history(self, semaphore: str, *, rows_max: int = 0, before: int = 0) -> Answer:
        """The newest first."""
        return self._act(semaphore, history=pb.History(rows_max=rows_max, before=before))

    def administer(self, request: pb.AdministerRequest, *, wait: float = 0) -> Answer:
        """Any act of the protocol, such as those of tickets. A request id is put in."""
        return self._call(request, wait)
