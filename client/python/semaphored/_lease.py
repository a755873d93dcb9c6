"""One lease, as its permit, the machine that keeps it alive and the thread of callbacks share it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Callable, Iterable, List, Optional, Tuple

from ._time import NEVER_NS
from .errors import Loss, LossCause
from .v1 import semaphore_pb2 as pb


@dataclass(frozen=True)
class Recall:
    """The daemon asks for the permits back: the limit was lowered, they were held for too long, an
    administrator wants them. `grace` is the time that the daemon left for it when it sent this:
    `permit.valid_for` has what is left of it. The permits count as lost a margin before its end."""

    grace: float
    reason: str


# Runs the application's handler, on the thread or loop where it belongs, and calls the second argument
# once the handler has returned.
OnRecall = Callable[[Recall, Callable[[], None]], None]


@dataclass(frozen=True)
class QueuePlace:
    """A place in the queue, from 1. `expected_wait` in seconds; None: not known yet. `reason`: why
    it waits: "FULL", "PAUSED" …, a name of the WaitReason enum of the .proto without WAIT_REASON_;
    "": nothing is in its way."""

    position: int
    expected_wait: Optional[float]
    reason: str = ""


class SharedDeadline:
    """One point in time for all the leases of a session. Any thread may read it."""

    __slots__ = ("at_ns",)

    def __init__(self, at_ns: int) -> None:
        self.at_ns = at_ns


def good_until_ns(made_ns: int, valid_for_ns: int, margin_ns: int) -> int:
    """Until when a promise of `valid_for_ns`, made at `made_ns` or later, is counted on here. The
    margin covers clocks that run at different speeds: 1 % of the promise if that is more."""
    return made_ns + valid_for_ns - max(margin_ns, valid_for_ns // 100)


def slots_of(ranges: Iterable[pb.SlotRange]) -> Tuple[int, ...]:
    """The single slots, in the order of the ranges."""
    return tuple(slot for each in ranges for slot in range(each.first, each.last + 1))


class LeaseState:
    """Invariant: `loss` is set once, and never changes again."""

    def __init__(self, semaphore: str, lease_id: str, slots: Tuple[int, ...], token: int,
                 ttl_ns: int, deadline: SharedDeadline) -> None:
        self.semaphore = semaphore
        self.lease_id = lease_id
        self.slots = slots
        self.token = token
        self.ttl_ns = ttl_ns
        self.fail_open = False
        self.on_recall: Optional[OnRecall] = None
        self.recall: Optional[Recall] = None
        self.recall_name = (0, 0)  # the number of the stream on which it came, and its id
        self.recall_deadline_ns = NEVER_NS
        self.loss: Optional[Loss] = None
        self._deadline = deadline
        self._lock = threading.Lock()
        self._listeners: List[Callable[[Loss], None]] = []

    def good_until_ns(self) -> int:
        return min(self._deadline.at_ns, self.recall_deadline_ns)

    def held(self, now_ns: int) -> bool:
        return self.loss is None and now_ns < self.good_until_ns()

    def mark_lost(self, cause: LossCause, message: str) -> Optional[Callable[[], None]]:
        """The first call wins and returns what tells the listeners, to be run without locks held;
        None for the others."""
        with self._lock:
            if self.loss is not None:
                return None
            loss = self.loss = Loss(cause, message)
            listeners, self._listeners = self._listeners, []

        def tell() -> None:
            for listener in listeners:
                listener(loss)
        return tell

    def add_listener(self, listener: Callable[[Loss], None]) -> None:
        """Called once, with the loss; at once, on this thread, if it is lost already."""
        with self._lock:
            if self.loss is None:
                self._listeners.append(listener)
                return
        listener(self.loss)
