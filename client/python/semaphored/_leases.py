"""The leases of a session and the deadline that they hang on. Pure: no clock, no thread, no I/O."""

from __future__ import annotations

import heapq
from typing import Dict, Iterable, List, Optional, Set, Tuple

from ._calls import Effects, Options, Recalled
from ._lease import LeaseState, OnRecall, Recall, SharedDeadline, good_until_ns, slots_of
from ._time import MS_NS, NEVER_NS
from .errors import LossCause
from .v1 import semaphore_pb2 as pb

# However little a daemon vouches for, pings go as if it were this.
_VOUCHED_LEAST_NS = 300 * MS_NS

_CAUSES: Dict[int, LossCause] = {
    pb.END_CAUSE_EXPIRED: LossCause.EXPIRED,
    pb.END_CAUSE_RELEASED: LossCause.REVOKED,  # by another client that knew the lease id
    pb.END_CAUSE_REVOKED: LossCause.REVOKED,
    pb.END_CAUSE_RECALLED: LossCause.RECALLED,
    pb.END_CAUSE_DESTROYED: LossCause.DESTROYED,
    pb.END_CAUSE_DISCONNECTED: LossCause.DISCONNECTED,
    pb.END_CAUSE_ENGINE_LOST: LossCause.ENGINE_LOST,
    pb.END_CAUSE_MOVED: LossCause.MOVED,
}


def cause_of(ended: int) -> LossCause:
    """Of an EndCause; one that a newer daemon has added is an unknown one."""
    return _CAUSES.get(ended, LossCause.UNKNOWN)


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
        # For how long pings take the leases to be vouched for; 0: there was no answer.
        self.vouched_ns = 0
        # The last answer vouched for less than that, since all leases were recalled, and no ping was
        # sent after it.
        self._shortened = False
        self.ping_wanted = False  # before it is due
        # Leases that a resumed session holds and we do not know: the answers to commands that are
        # sent again claim them, or they are given back.
        self.unclaimed: Set[str] = set()
        # Recalls of leases that are not known here: their grant may still be on its way. With the
        # time from which they count, and the number of the stream.
        self._early: Dict[str, Tuple[pb.LeaseRecall, int, int]] = {}
        self._early_max = options.operations_max

    def __len__(self) -> int:
        return len(self._by_id)

    def forget_session(self) -> None:
        """The next session is another one: with a deadline and epochs of its own."""
        self._epoch = 0
        self._deadline = None
        self._deadline_told = True
        self.unclaimed.clear()

    def disconnected(self) -> None:
        """What the daemon recalls, it recalls again on the next stream."""
        self._early.clear()

    def pinged(self) -> None:
        self.ping_wanted = self._shortened = False

    def is_overtaken(self, validity: pb.LeaseValidity) -> bool:
        """It comes from a daemon that has been overtaken by another one."""
        return validity.epoch < self._epoch

    def extend(self, validity: pb.LeaseValidity, sent_ns: int) -> bool:
        """Counts an answer to what was sent at `sent_ns`. False if it is overtaken."""
        if self.is_overtaken(validity):
            return False
        self._epoch = validity.epoch
        valid_for_ns = validity.valid_for_ms * MS_NS
        vouched_ns = max(valid_for_ns, _VOUCHED_LEAST_NS)
        # Where all leases are recalled the daemon vouches for less, but pings need not go faster.
        self._shortened = vouched_ns < self.vouched_ns and self._all_recalled()
        if not self._shortened:
            self.vouched_ns = vouched_ns
        until_ns = good_until_ns(sent_ns + validity.elapsed_ms * MS_NS, valid_for_ns,
                                 self._margin_ns)
        if self._deadline is None:
            self._deadline = SharedDeadline(sent_ns)
        # A later answer does not take an earlier promise back; an event reports what has ended.
        self._deadline.at_ns = max(self._deadline.at_ns, until_ns)
        return True

    def _all_recalled(self) -> bool:
        leases = self._by_id.values()
        return bool(leases) and all(lease.recall_deadline_ns != NEVER_NS for lease in leases)

    def grant(self, granted: pb.Lease, ttl_ns: int, on_recall: Optional[OnRecall]) -> LeaseState:
        """REQUIRES: extend() was called in this session."""
        assert self._deadline is not None
        lease = LeaseState(granted.semaphore, granted.lease_id, slots_of(granted.slots),
                           granted.token, ttl_ns, self._deadline)
        lease.on_recall = on_recall
        self.unclaimed.discard(lease.lease_id)
        self._by_id[lease.lease_id] = lease
        self._deadline_told = False
        # Up to the next answer it is good for no longer than those that were recalled.
        self.ping_wanted |= self._shortened
        early = self._early.pop(lease.lease_id, None)
        if early is not None:
            self._recalled(lease, *early)
        return lease

    def is_held_by_us(self, lease: LeaseState) -> bool:
        return self._by_id.get(lease.lease_id) is lease

    def knows(self, lease_id: str) -> bool:
        return lease_id in self._by_id

    def ended(self, lease_id: str) -> None:
        """The daemon has answered its release."""
        self._remove(lease_id)

    def _remove(self, lease_id: str) -> Optional[LeaseState]:
        self._early.pop(lease_id, None)
        lease = self._by_id.pop(lease_id, None)
        if lease is not None and not self._by_id:
            self.ping_wanted |= self._shortened  # so that the next lease is good for longer
        return lease

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
        """Reports the loss of each; they stay in here, since their release must still be sent."""
        for lease in self._by_id.values():
            self._lose(lease, cause, message)

    def clear(self) -> None:
        """The session is gone."""
        self._by_id.clear()

    def on_lost(self, lost: pb.LeaseLost) -> None:
        lease = self._remove(lost.lease_id)
        if lease is None:
            self.unclaimed.discard(lost.lease_id)
            return
        cause = cause_of(lost.cause)
        self._lose(lease, cause, f"the daemon says: {cause.value}")

    def on_recalled(self, recalled: pb.LeaseRecalled, sent_ns: int, stream_number: int) -> None:
        """`sent_ns`: when the message was sent from whose arrival the recall counts."""
        lease = self._by_id.get(recalled.lease_id)
        if lease is not None:
            if lease.loss is None:
                self._recalled(lease, recalled.recall, sent_ns, stream_number)
            return
        if len(self._early) >= self._early_max:
            del self._early[next(iter(self._early))]
        self._early[recalled.lease_id] = (recalled.recall, sent_ns, stream_number)

    def _recalled(self, lease: LeaseState, told: pb.LeaseRecall, sent_ns: int,
                  stream_number: int) -> None:
        deadline_ns = good_until_ns(sent_ns + told.elapsed_ms * MS_NS, told.grace_ms * MS_NS,
                                    self._margin_ns)
        if deadline_ns < lease.recall_deadline_ns:
            lease.recall_deadline_ns = deadline_ns
            self._recall_count += 1  # so that leases are never compared
            heapq.heappush(self._recalls, (deadline_ns, self._recall_count, lease))
        name = (stream_number, told.recall_id)
        if told.recall_id != 0 and name == lease.recall_name:
            return  # the same once more
        lease.recall_name = name
        lease.recall = Recall(told.grace_ms / 1000, told.reason)
        if lease.on_recall is not None:
            self._effects.recalls.append(
                Recalled(lease, lease.recall, told.recall_id, stream_number))

    def _lose(self, lease: LeaseState, cause: LossCause, message: str) -> None:
        tell = lease.mark_lost(cause, message)
        if tell is not None:
            self._effects.losses.append(tell)

    def check(self, now_ns: int) -> None:
        """Tells the losses that are due."""
        # A recall first: it is the reason, if the session was vouched for no longer because of it.
        while self._recalls and self._recalls[0][0] <= now_ns:
            lease = heapq.heappop(self._recalls)[2]
            if self.is_held_by_us(lease):  # otherwise it was given back in time
                self._lose(lease, LossCause.RECALLED, "its grace after a recall has passed")
        if not self._deadline_told and self._deadline is not None and now_ns >= self._deadline.at_ns:
            self._deadline_told = True
            self.lose_all(LossCause.NO_CONTACT, "no daemon vouched for it up to its deadline")

    def next_due_ns(self) -> int:
        due_ns = self._recalls[0][0] if self._recalls else NEVER_NS
        if not self._deadline_told and self._by_id and self._deadline is not None:
            due_ns = min(due_ns, self._deadline.at_ns)
        return due_ns
