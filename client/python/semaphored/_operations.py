"""What becomes of acquires and releases: sent, sent again, answered, given up. Pure: no clock, no
thread, no I/O.

Invariants:
  * an operation is in the table from its call until its last answer; its `done` is run exactly once;
  * a sequence number is given out when a command is first sent, and the command is sent again with
    the same number and the same content until it is answered, or its session is lost;
  * a release whose caller was answered with an error stays, and is sent again: the session's pings
    would keep the lease alive for ever.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Deque, Dict, List, Optional, Set, Tuple, Union

import grpc

from ._calls import AcquireCall, Effects, Kind, Operation, Options, ReleaseDone
from ._lease import LeaseState, QueuePlace
from ._leases import Leases, cause_of
from ._time import MS_NS, NEVER_NS
from .errors import (Error, Loss, LossCause, LostError, from_status, make_error, unreachable)
from .v1 import semaphore_pb2 as pb

# The daemon's own bound.
_COMMANDS_PER_MESSAGE_MAX = 1000
# The daemon remembers a client's last 1024 answers; what is sent again must be among them.
_WINDOW = 1000
# A wait that the daemon should have ended is ended here after this much more.
_WAIT_SLACK_NS = 250 * MS_NS
# Between attempts of a command that the daemon cannot carry out now.
_RETRY_PAUSE_NS = 200 * MS_NS
# Between attempts to give a lease back the pause doubles up to this.
_GIVE_BACK_PAUSE_MOST_NS = 10_000 * MS_NS
# After these answers a lease is not held any more, or this client never may give it back.
_ENDS_GIVING_BACK = frozenset((
    grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED))
_WAIT_MOST_MS = (1 << 32) - 1


class Operations:

    def __init__(self, options: Options, leases: Leases, effects: Effects) -> None:
        self._options = options
        self._leases = leases
        self._effects = effects
        self.last_error: Optional[Error] = None
        # For how long the leases of the session outlive its last sign of life.
        self.ttl_ns = 0
        self._next_operation = 1
        self._next_sequence = 1
        self._table: Dict[int, Operation] = {}  # in the order of the calls
        self._to_send: Deque[int] = deque()  # of operations; may name some that are gone
        self._by_sequence: Dict[int, int] = {}
        # Sent, and neither answered nor reported as queued, in order: the daemon's window must
        # reach back to the first of them.
        self._in_flight: Dict[int, None] = {}
        self._local_ends: List[Tuple[int, int]] = []  # may name some that are gone
        self._retries: List[Tuple[int, int]] = []  # likewise
        # Acquires that were sent again after a resume: each may claim a lease that is listed.
        self._claimants: Set[int] = set()

    def __len__(self) -> int:
        return len(self._table)

    @property
    def all_sent(self) -> bool:
        return not self._to_send

    # ---- calls ----

    def acquire(self, call: AcquireCall, now_ns: int) -> int:
        """A number for cancel(); 0: it was answered already."""
        operation = Operation(Kind.ACQUIRE, now_ns, acquire=call)
        if call.wait_ns is not None and call.wait_ns > 0:
            operation.wait_end_ns = now_ns + call.wait_ns
            operation.local_end_ns = operation.wait_end_ns + _WAIT_SLACK_NS
        elif call.wait_ns is not None:
            operation.local_end_ns = now_ns + self._options.connect_timeout_ns
        operation.command.acquire.CopyFrom(call.request)
        operation.command.acquire.report_queued = True
        if len(self._table) >= self._options.operations_max:
            self.refuse(call, make_error(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"this client has operations_max ({self._options.operations_max}) requests under way",
                "LIMIT_REACHED"))
            return 0
        return self._add(operation)

    def cancel(self, number: int, now_ns: int) -> None:
        operation = self._table.get(number)
        if operation is not None and not operation.abandoned:
            self._abandon(number, make_error(grpc.StatusCode.CANCELLED, "the wait was given up",
                                             "WAIT_CANCELLED"), now_ns)

    def release(self, lease: LeaseState, done: Optional[ReleaseDone], now_ns: int) -> bool:
        """False if there is nothing to send: the daemon does not hold it for us any more."""
        operation = Operation(Kind.RELEASE, now_ns, release_done=done, abandoned=done is None)
        if lease.loss is not None:
            self._finish_release(operation, LostError(lease.loss))
        if not self._leases.is_held_by_us(lease):
            self._finish_release(operation, LostError(lease.loss or Loss(LossCause.UNKNOWN)))
            return False
        operation.command.release.lease_id = lease.lease_id
        self._add(operation)
        return True

    def _give_back(self, lease_id: str, now_ns: int) -> None:
        operation = Operation(Kind.RELEASE, now_ns, abandoned=True)
        operation.command.release.lease_id = lease_id
        self._add(operation)

    def give_back_unclaimed(self, now_ns: int) -> None:
        """Once all that might claim them have been answered."""
        if self._claimants:
            return
        for lease_id in sorted(self._leases.unclaimed):
            self._give_back(lease_id, now_ns)
        self._leases.unclaimed.clear()

    def _add(self, operation: Operation) -> int:
        number = self._next_operation
        self._next_operation += 1
        self._table[number] = operation
        self._to_send.append(number)
        if operation.local_end_ns != NEVER_NS:
            heapq.heappush(self._local_ends, (operation.local_end_ns, number))
            self._compact_local_ends()
        return number

    def _compact_local_ends(self) -> None:
        if len(self._local_ends) > 64 + 2 * len(self._table):
            self._local_ends = [end for end in self._local_ends if self._waits_for(end)]
            heapq.heapify(self._local_ends)

    def _waits_for(self, end: Tuple[int, int]) -> bool:
        operation = self._table.get(end[1])
        return (operation is not None and not operation.abandoned
                and operation.local_end_ns == end[0])

    def _erase(self, number: int) -> None:
        self._forget_sequence(self._table.pop(number).command.sequence)

    def _forget_sequence(self, sequence: int) -> None:
        """0: nothing happens."""
        self._by_sequence.pop(sequence, None)
        self._in_flight.pop(sequence, None)
        self._claimants.discard(sequence)

    def _abandon(self, number: int, error: Error, now_ns: int) -> None:
        """Answers the caller now. If the daemon may know of the acquire, the operation stays until
        the daemon has answered it."""
        operation = self._table[number]
        self._finish_acquire(operation, error)
        if operation.command.sequence == 0:
            self._erase(number)
            return
        operation.abandoned = True
        if operation.retrying:  # before the cancel, which then ends what it asks for
            self._send_again(number)
        self._send_cancel(operation.command.sequence, now_ns)

    def _send_cancel(self, sequence: int, now_ns: int) -> None:
        cancel = Operation(Kind.CANCEL, now_ns, abandoned=True)
        cancel.command.cancel = sequence
        self._add(cancel)

    # ---- answers to callers ----

    def refuse(self, call: AcquireCall, error: Error) -> None:
        """Of a call that is not in the table."""
        self._finish_acquire(Operation(Kind.ACQUIRE, 0, acquire=call), error)

    def refuse_release(self, done: Optional[ReleaseDone], error: Error) -> None:
        self._finish_release(Operation(Kind.RELEASE, 0, release_done=done), error)

    def _finish_acquire(self, operation: Operation, result: Union[LeaseState, Error]) -> None:
        call = operation.acquire
        if call is not None and call.done is not None:
            tell, call.done = call.done, None
            self._effects.results.append(lambda: tell(result))

    def _finish_release(self, operation: Operation, error: Optional[Error]) -> None:
        operation.abandoned = True
        if operation.release_done is not None:
            tell, operation.release_done = operation.release_done, None
            self._effects.results.append(lambda: tell(error))

    def fail_acquires(self, error: Error) -> None:
        for number, operation in list(self._table.items()):
            if operation.kind is Kind.ACQUIRE:
                self._finish_acquire(operation, error)
                self._erase(number)

    def finish_all(self, error: Optional[Error]) -> None:
        """The session is closed: what was not answered never will be."""
        for operation in self._table.values():
            self._finish_acquire(operation, error or make_error(
                grpc.StatusCode.CANCELLED, "the client was closed"))
            self._finish_release(operation, error)
        self._table.clear()

    # ---- sending ----

    def fill(self, message: pb.SessionRequest, now_ns: int) -> None:
        while self._to_send and len(message.commands) < _COMMANDS_PER_MESSAGE_MAX:
            number = self._to_send[0]
            operation = self._table.get(number)
            if operation is not None:
                if operation.command.sequence == 0 and not self._give_sequence(number, now_ns):
                    return
                if not operation.queued:
                    self._in_flight[operation.command.sequence] = None
                message.commands.append(operation.command)
            self._to_send.popleft()

    def _give_sequence(self, number: int, now_ns: int) -> bool:
        if self._in_flight and self._next_sequence - next(iter(self._in_flight)) >= _WINDOW:
            return False
        operation = self._table[number]
        operation.command.sequence = self._next_sequence
        self._by_sequence[self._next_sequence] = number
        self._next_sequence += 1
        if operation.kind is Kind.ACQUIRE:
            # Now, and never again: what is sent once more with this number must be the same.
            acquire = operation.command.acquire
            left_ms = max((operation.wait_end_ns - now_ns) // MS_NS, 1)
            if operation.wait_end_ns == NEVER_NS:
                acquire.wait_forever = operation.local_end_ns == NEVER_NS
            elif left_ms > _WAIT_MOST_MS:
                acquire.wait_forever = True  # It ends here.
            else:
                acquire.wait_ms = left_ms
        return True

    def resend_all(self) -> None:
        """After the stream was opened again: sends all unanswered commands, in the old order."""
        self._to_send = deque(self._table)
        self._retries.clear()
        self._claimants.clear()
        for operation in self._table.values():
            operation.retrying = False
            if operation.kind is Kind.ACQUIRE and operation.command.sequence != 0:
                self._claimants.add(operation.command.sequence)
            elif operation.kind is Kind.RELEASE:
                self._leases.unclaimed.discard(operation.command.release.lease_id)

    def forget_session(self) -> None:
        """The next session is another client to the daemon. Acquires are new requests to it; the
        rest has no meaning any more."""
        self._next_sequence = 1
        self._by_sequence.clear()
        self._in_flight.clear()
        self._claimants.clear()
        for number, operation in list(self._table.items()):
            if operation.kind is Kind.ACQUIRE and not operation.abandoned:
                operation.command.sequence = 0
                operation.queued = False
                continue
            if operation.kind is Kind.RELEASE:
                self._finish_release(operation, LostError(
                    Loss(LossCause.EXPIRED, "its session expired at the daemon")))
            self._erase(number)

    # ---- answers of the daemon ----

    def on_result(self, result: pb.SessionResult, now_ns: int) -> None:
        # A waiter holds no listed lease. An acquire that is to be sent again may: see _erase.
        if result.HasField("queued"):
            self._claimants.discard(result.sequence)
        number = self._by_sequence.get(result.sequence)
        if number is None:
            # An acquire that failed for its caller long ago; or the same answer once more.
            if result.HasField("granted") and not self._leases.knows(result.granted.lease_id):
                self._leases.unclaimed.discard(result.granted.lease_id)
                self._give_back(result.granted.lease_id, now_ns)
        elif self._table[number].kind is Kind.ACQUIRE:
            self._on_acquire_result(number, result, now_ns)
        elif self._table[number].kind is Kind.RELEASE:
            self._on_release_result(number, result, now_ns)
        else:
            self._erase(number)
        if self._leases.unclaimed:
            self.give_back_unclaimed(now_ns)

    def _on_acquire_result(self, number: int, result: pb.SessionResult, now_ns: int) -> None:
        operation = self._table[number]
        kind = result.WhichOneof("result")
        if kind == "queued":
            self._on_queued(operation, result)
        elif kind == "granted":
            self._on_granted(number, result.granted, now_ns)
        else:
            error = (from_status(result.error) if kind == "error" else
                     make_error(grpc.StatusCode.INTERNAL,
                                "the daemon's answer is not one to an acquire"))
            if operation.abandoned or not self._retry_after_error(number, error, now_ns):
                self._finish_acquire(operation, error)
                self._erase(number)

    def _on_queued(self, operation: Operation, result: pb.SessionResult) -> None:
        operation.queued = True
        operation.unavailable_since_ns = NEVER_NS
        self._in_flight.pop(result.sequence, None)
        on_queued = operation.acquire.on_queued if operation.acquire is not None else None
        if on_queued is None or operation.abandoned:
            return
        tell = on_queued
        queued = result.queued
        known = queued.HasField("expected_wait_ms")
        reason = ""
        if queued.reason != pb.WAIT_REASON_UNSPECIFIED and queued.reason in pb.WaitReason.values():
            reason = pb.WaitReason.Name(queued.reason)[len("WAIT_REASON_"):]
        place = QueuePlace(queued.position, queued.expected_wait_ms / 1000 if known else None,
                           reason)
        self._effects.callbacks.append(lambda: tell(place))

    def _on_granted(self, number: int, granted: pb.Lease, now_ns: int) -> None:
        operation = self._table[number]
        call = operation.acquire
        if operation.abandoned or call is None:
            self._leases.unclaimed.discard(granted.lease_id)
            self._erase(number)
            self._give_back(granted.lease_id, now_ns)
            return
        lease = self._leases.grant(granted, self.ttl_ns, call.on_recall)
        if call.on_lost is not None:
            lease.add_listener(call.on_lost)
        self._finish_acquire(operation, lease)
        self._erase(number)

    def _on_release_result(self, number: int, result: pb.SessionResult, now_ns: int) -> None:
        operation = self._table[number]
        kind = result.WhichOneof("result")
        error: Optional[Error] = None
        if kind == "error":
            error = from_status(result.error)
            if self._retry_after_error(number, error, now_ns):
                return
        elif kind != "released":
            error = make_error(grpc.StatusCode.INTERNAL,
                               "the daemon's answer is not one to a release")
        elif result.released.released == 0 and not operation.reissued:
            cause = cause_of(result.released.ended)
            error = LostError(Loss(cause, f"the daemon says: {cause.value}"))
        self._finish_release(operation, error)
        self._leases.ended(operation.command.release.lease_id)
        if error is None or error.code in _ENDS_GIVING_BACK:
            self._erase(number)
        else:
            self._give_back_later(number, now_ns)

    def _give_back_later(self, number: int, now_ns: int) -> None:
        """Its caller has an error, and the daemon still holds the lease. Under a new number each
        time: an old one would hold up the window."""
        release = self._table[number]
        release.pause_ns = min(max(release.pause_ns * 2, _RETRY_PAUSE_NS), _GIVE_BACK_PAUSE_MOST_NS)
        self._renumber(release)
        self._retry_at(number, now_ns + release.pause_ns)

    def _retry_at(self, number: int, at_ns: int) -> None:
        self._table[number].retrying = True
        heapq.heappush(self._retries, (at_ns, number))

    def _is_retrying(self, number: int) -> bool:
        operation = self._table.get(number)
        return operation is not None and operation.retrying

    def _send_again(self, number: int) -> None:
        self._table[number].retrying = False
        self._to_send.append(number)

    def _retry_after_error(self, number: int, error: Error, now_ns: int) -> bool:
        """True if the command will be sent again."""
        operation = self._table[number]
        if error.reason == "REQUEST_TOO_OLD" and not operation.reissued:
            self._reissue(number, now_ns)
            return True
        if error.code != grpc.StatusCode.UNAVAILABLE:
            return False
        # Nothing is known to have been done: the same again, until the caller has waited enough.
        operation.unavailable_since_ns = min(operation.unavailable_since_ns, now_ns)
        if now_ns - operation.unavailable_since_ns >= self._options.reconnect_timeout_ns:
            return False
        self._retry_at(number, now_ns + _RETRY_PAUSE_NS)
        return True

    def _reissue(self, number: int, now_ns: int) -> None:
        """The daemon has forgotten the number, and so whether it carried the command out. The client
        cancels the old wait and sends the command under a new number. A grant that still comes under
        the old number is given back."""
        renewed = self._table[number]
        old_sequence = renewed.command.sequence
        self._renumber(renewed)
        if renewed.kind is Kind.ACQUIRE:
            self._send_cancel(old_sequence, now_ns)
        self._to_send.append(number)

    def _renumber(self, operation: Operation) -> None:
        """It gets its next number when it is sent."""
        self._forget_sequence(operation.command.sequence)
        operation.command.sequence = 0
        operation.queued = False
        operation.reissued = True

    # ---- time ----

    def give_up_at_ns(self, operation: Operation, disconnected_since_ns: int,
                      ever_connected: bool) -> int:
        patience_ns = (self._options.reconnect_timeout_ns if ever_connected
                       else self._options.connect_timeout_ns)
        return max(operation.called_ns, disconnected_since_ns) + patience_ns

    def give_up_unreachable(self, now_ns: int, disconnected_since_ns: int,
                            ever_connected: bool) -> None:
        for number, operation in list(self._table.items()):
            if operation.abandoned:
                continue
            if now_ns < self.give_up_at_ns(operation, disconnected_since_ns, ever_connected):
                return  # those after it were called later
            error = self._unreachable("no endpoint could be reached")
            if operation.kind is Kind.ACQUIRE:
                self._abandon(number, error, now_ns)
            else:
                self._finish_release(operation, error)

    def give_up_not_waiting(self, now_ns: int) -> None:
        """After a round in which no endpoint was reached: what must not wait does not."""
        for number, operation in list(self._table.items()):
            call = operation.acquire
            if call is not None and call.wait_ns == 0 and not operation.abandoned:
                self._abandon(number, self._unreachable("no endpoint could be reached"), now_ns)

    def _unreachable(self, what: str) -> Error:
        said = self.last_error.message if self.last_error is not None else "nothing yet"
        return unreachable(f"{what}; the last one said: {said}")

    def check(self, now_ns: int) -> None:
        while self._retries and self._retries[0][0] <= now_ns:
            number = heapq.heappop(self._retries)[1]
            if self._is_retrying(number):
                self._send_again(number)
        while self._local_ends and self._local_ends[0][0] <= now_ns:
            end = heapq.heappop(self._local_ends)
            if self._waits_for(end):
                self._end_wait(end[1], now_ns)

    def _end_wait(self, number: int, now_ns: int) -> None:
        operation = self._table[number]
        if operation.command.sequence != 0 and operation.wait_end_ns != NEVER_NS:
            error = make_error(grpc.StatusCode.DEADLINE_EXCEEDED,
                               "the permits did not come free in time", "WAIT_EXPIRED")
        else:
            error = self._unreachable("no daemon answered in time")
        self._abandon(number, error, now_ns)

    def next_due_ns(self) -> int:
        while self._local_ends and not self._waits_for(self._local_ends[0]):
            heapq.heappop(self._local_ends)
        while self._retries and not self._is_retrying(self._retries[0][1]):
            heapq.heappop(self._retries)
        due_ns = self._local_ends[0][0] if self._local_ends else NEVER_NS
        return min(due_ns, self._retries[0][0]) if self._retries else due_ns

    def next_give_up_ns(self, disconnected_since_ns: int, ever_connected: bool) -> int:
        for operation in self._table.values():
            if not operation.abandoned:
                return self.give_up_at_ns(operation, disconnected_since_ns, ever_connected)
        return NEVER_NS
