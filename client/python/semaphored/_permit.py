"""What a permit is in both clients, of threads and of asyncio."""

from __future__ import annotations

import warnings
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Optional, Tuple

from ._core import begin_release
from ._driver import SessionDriver
from ._lease import LeaseState, Recall, good_until_ns, slots_of
from ._time import MS_NS, NEVER_NS, SECOND_NS
from .errors import Error, Loss, LossCause, LostError
from .v1 import semaphore_pb2 as pb


class PermitBase:
    """Permits of one semaphore. `lost` is an event that is set when they are lost; a loss is final.
    Everything here may be called by any thread."""

    def __init__(self, owner: object, driver: SessionDriver, lease: LeaseState) -> None:
        self._owner = owner  # A client lives at least as long as its permits.
        self._driver = driver
        self._lease = lease
        self._released = False

    def __repr__(self) -> str:
        state = "released" if self._released else "held" if self.held else "lost"
        return f"<Permit of {self.semaphore} slots={list(self.slots)} token={self.token} {state}>"

    def __del__(self) -> None:
        # Gives back a lease that was never released: pings would keep it alive for ever.
        if getattr(self, "_released", True) or self._lease.fail_open:
            return
        if self._driver.in_own_process():
            self._driver.drop(self._lease)
            if self._lease.loss is None:
                warnings.warn(f"{self!r} was never released", ResourceWarning, source=self)

    def _begin_release(self) -> Optional[Future[Optional[Error]]]:
        """None: there is nothing to give back. What breaks it off (Ctrl-C) leaves the permit to the
        garbage collector: to be released twice does no harm."""
        if self._released:
            return None
        try:
            self._released = True
            if self._lease.fail_open:
                return None
            return begin_release(self._driver, self._lease)
        except BaseException:  # KeyboardInterrupt
            self._released = False
            raise

    @property
    def semaphore(self) -> str:
        return self._lease.semaphore

    @property
    def slots(self) -> Tuple[int, ...]:
        """The places taken, from 1: as many as permits."""
        return self._lease.slots

    @property
    def slot(self) -> int:
        """The first of them; 0 for a permit that stands for nothing (fail_open)."""
        return self._lease.slots[0] if self._lease.slots else 0

    @property
    def token(self) -> int:
        """The fencing token, to hand to the resource: per slot it rises with every grant."""
        return self._lease.token

    @property
    def lease_id(self) -> str:
        """A secret of the holder: any client that knows it can give the permits back."""
        return self._lease.lease_id

    @property
    def ttl(self) -> float:
        """Seconds that the permits outlive the last sign of life of this client."""
        return self._lease.ttl_ns / SECOND_NS

    @property
    def fail_open(self) -> bool:
        """Nothing stands behind this permit; see the option of Client."""
        return self._lease.fail_open

    @property
    def held(self) -> bool:
        """Whether the permits can be relied on now: not lost, not released, and the deadline not
        reached, by the clock. Always False in a child process: they are the parent's."""
        return (not self._released and self._driver.in_own_process()
                and self._lease.held(self._driver.now_ns()))

    @property
    def valid_for(self) -> float:
        """Seconds for which the permits can be relied on if nothing more is heard; more while a
        daemon answers. Less the margin already, and 0 when they are lost or released."""
        if not self.held:
            return 0.0
        left_ns = max(0, self._lease.good_until_ns() - self._driver.now_ns())
        return float("inf") if left_ns > NEVER_NS // 2 else left_ns / SECOND_NS

    @property
    def loss(self) -> Optional[Loss]:
        """Why they are lost; None while they are not."""
        return self._lease.loss

    @property
    def recall(self) -> Optional[Recall]:
        """Set when the daemon has asked for the permits back: finish soon, and release."""
        return self._lease.recall

    def check(self) -> None:
        """Raises LostError unless the permits are held now. To be called between steps of the work;
        it only reads the clock, and sends nothing."""
        if not self.held:
            raise LostError(self._why())

    def _why(self) -> Loss:
        if self._lease.loss is not None:
            return self._lease.loss
        if self._released:
            return Loss(LossCause.UNKNOWN, "they had been released")
        if not self._driver.in_own_process():
            return Loss(LossCause.UNKNOWN, "they belong to the parent process")
        return Loss(LossCause.NO_CONTACT)


@dataclass(frozen=True)
class Verdict:
    """What the daemon says about a lease or a token, at the engine's current revision."""

    held: bool
    # When not held: why, in a word: "EXPIRED", "RELEASED", "UNKNOWN" …
    ended: str
    # When held.
    holder: str
    slots: Tuple[int, ...]
    token: int
    # Seconds for which the verdict could be relied on when it was given, less the margin.
    valid_for: float
    recalled: bool
    # When asked by slot: the token of the lease that holds the slot now. 0: the slot is free.
    slot_token: int


def make_verdict(response: pb.VerifyResponse, sent_ns: int, now_ns: int,
                 margin_ns: int) -> Verdict:
    ended = ""
    if not response.held:
        ended = pb.EndCause.Name(response.ended)[len("END_CAUSE_"):]
    until_ns = good_until_ns(sent_ns + response.validity.elapsed_ms * MS_NS,
                             response.validity.valid_for_ms * MS_NS, margin_ns)
    valid_for = max(0, until_ns - now_ns) / SECOND_NS if response.held else 0.0
    return Verdict(response.held, ended, response.lease.holder, slots_of(response.lease.slots),
                   response.lease.token, valid_for, response.HasField("recall"),
                   response.slot_token)


def verify_request(permit: Optional[PermitBase], **fields: Any) -> pb.VerifyRequest:
    if permit is not None:
        return pb.VerifyRequest(lease_id=permit.lease_id)
    return pb.VerifyRequest(**fields)
