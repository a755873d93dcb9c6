"""The leases of a session and the deadline that they hang on. Pure: no clock, no thread, no I/O."""

from __future__ import annotations

import heapq
from typing import Dict, Iterable, List, Optional, Set, Tuple

from ._calls import Effects, Options
from ._lease import LeaseState, Recall, SharedDeadline, good_until_ns, slots_of
from ._time import MS_NS, NEVER_NS
from .errors import LossCause
from .v1 import semaphore_pb2 as pb

# However little a daemon vouches for, it is not asked more often than three times in this.
_VOUCHED_LEAST_NS = 300 * MS_NS

_CAUSES = {
    pb.END_CAUSE_EXPIRED: LossCause.EXPIRED,
    pb.END_CAUSE_RELEASED: LossCause.REVOKED,  # by somebody else who knew the lease id
    pb.END_CAUSE_REVOKED: LossCause.REVOKED,
    pb.END_CAUSE_RECALLED: LossCause.RECALLED,
    pb.END_CAUSE_DESTROYED: LossCause.DESTROYED,
    pb.END_CAUSE_DISCONNECTED: LossCause.DISCONNECTED,
    pb.END_CAUSE_ENGINE_LOST: LossCause.ENGINE_LOST,
    pb.END_CAUSE_MOVED: LossCause.MOVED,
}


class Leases:
    """Invariant: a lease in here is one that the daemon may still hold for us. Only an answered
    release, a `lost` event, a resume that does not list it or the loss of the session takes it out.
    That it is lost *here* (its deadline passed) does not: its release must still be sent, or we would
    keep it alive for ever."""

    def __init__(self, options: Options, effects: Effects) -> None:
        self._margin_ns = options.margin_ns
        self._effects = effects
        self._by_id: Dict[str, LeaseState] = {}
        self._recalls: List[Tuple[int, int, LeaseState]] = []
        self._recall_count = 0
        self._epoch = 0
        self._deadline: Optional[SharedDeadline] = None
        self._deadline_told = True  # no lease that is not lost hangs on the deadline
        # What the last answer vouched for; 0: there was none.
        self.vouched_ns = 0
        # Leases that a resumed session holds and we do not know: the answers to commands that are
        # sent again claim them, or they are given back.
        self.unclaimed: Set[str] = set()

    def __len__(self) -> int:
        return len(self._by_id)

    def forget_session(self) -> None:
        """The next session is another one: with a deadline and epochs of its own."""
        self._epoch = 0
        self._deadline = None
        self._deadline_told = True
        self.unclaimed.clear()

    def extend(self, validity: pb.LeaseValidity, sent_ns: int) -> bool:
        """Counts an answer to what was sent at `sent_ns`. False if it comes from a daemon that has
        been overtaken by another one."""
        if validity.epoch < self._epoch:
            return False
        self._epoch = validity.epoch
        valid_for_ns = validity.valid_for_ms * MS_NS
        self.vouched_ns = max(valid_for_ns, _VOUCHED_LEAST_NS)
        until_ns = good_until_ns(sent_ns + validity.elapsed_ms * MS_NS, valid_for_ns,
                                 self._margin_ns)
        if self._deadline is None:
            self._deadline = SharedDeadline(sent_ns)
        # A later answer does not take an earlier promise back; what has ended is told by an event.
        self._deadline.at_ns = max(self._deadline.at_ns, until_ns)
        return True

    def grant(self, granted: pb.Lease, ttl_ns: int) -> LeaseState:
        """REQUIRES: extend() was called in this session."""
        assert self._deadline is not None
        lease = LeaseState(granted.semaphore, granted.lease_id, slots_of(granted.slots),
                           granted.token, ttl_ns, self._deadline)
        self.unclaimed.discard(lease.lease_id)
        self._by_id[lease.lease_id] = lease
        self._deadline_told = False
        return lease

    def is_held_by_us(self, lease: LeaseState) -> bool:
        return self._by_id.get(lease.lease_id) is lease

    def knows(self, lease_id: str) -> bool:
        return lease_id in self._by_id

    def ended(self, lease_id: str) -> None:
        """The daemon has answered its release."""
        self._by_id.pop(lease_id, None)

    def keep_only(self, listed: Iterable[str]) -> None:
        """The ids of what a resumed session still holds."""
        ids = set(listed)
        for lease_id, lease in list(self._by_id.items()):
            if lease_id not in ids:
                del self._by_id[lease_id]
                self._lose(lease, LossCause.UNKNOWN,
                           "the daemon does not list it after the session was resumed")
        self.unclaimed = ids - set(self._by_id)

    def lose_all(self, cause: LossCause, message: str) -> None:
        """They are told; they stay in here, since their release must still be sent."""
        for lease in self._by_id.values():
            self._lose(lease, cause, message)

    def clear(self) -> None:
        """The session is gone."""
        self._by_id.clear()

    def on_event(self, event: pb.SessionEvent, now_ns: int) -> None:
        is_lost = event.HasField("lost")
        lease_id = event.lost.lease_id if is_lost else event.recalled.lease_id
        lease = self._by_id.get(lease_id)
        if lease is None:
            if is_lost:
                self.unclaimed.discard(lease_id)
        elif is_lost:
            cause = _CAUSES.get(event.lost.cause, LossCause.UNKNOWN)
            del self._by_id[lease_id]
            self._lose(lease, cause, f"the daemon says: {cause.value}")
        elif event.HasField("recalled") and lease.loss is None:
            self._recalled(lease, event.recalled.recall, now_ns)

    def _recalled(self, lease: LeaseState, told: pb.LeaseRecall, now_ns: int) -> None:
        recall = Recall(told.grace_ms / 1000, told.reason)
        deadline_ns = good_until_ns(now_ns, told.grace_ms * MS_NS, self._margin_ns)
        if deadline_ns < lease.recall_deadline_ns:
            lease.recall_deadline_ns = deadline_ns
            self._recall_count += 1  # so that leases are never compared
            heapq.heappush(self._recalls, (deadline_ns, self._recall_count, lease))
        lease.recall = recall
        on_recall = lease.on_recall
        if on_recall is not None:
            tell = on_recall
            self._effects.callbacks.append(lambda: tell(recall))

    def _lose(self, lease: LeaseState, cause: LossCause, message: str) -> None:
        tell = lease.mark_lost(cause, message)
        if tell is not None:
            self._effects.losses.append(tell)

    def check(self, now_ns: int) -> None:
        """Tells the losses that are due."""
        if not self._deadline_told and self._deadline is not None and now_ns >= self._deadline.at_ns:
            self._deadline_told = True
            self.lose_all(LossCause.NO_CONTACT, "no daemon vouched for it up to its deadline")
        while self._recalls and self._recalls[0][0] <= now_ns:
            lease = heapq.heappop(self._recalls)[2]
            if self.is_held_by_us(lease):  # otherwise it was given back in time
                self._lose(lease, LossCause.RECALLED, "its grace after a recall has passed")

    def next_due_ns(self) -> int:
        due_ns = self._recalls[0][0] if self._recalls else NEVER_NS
        if not self._deadline_told and self._by_id and self._deadline is not None:
            due_ns = min(due_ns, self._deadline.at_ns)
        return due_ns
