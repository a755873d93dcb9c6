"""The rules of a session: connecting, resuming, pings, deadlines. Pure: no clock, no thread, no I/O.

Its driver (_driver.py; a test) calls it with the time, hands it what the stream reported, asks it
for the next message and carries out its effects. So every rule about deadlines, resuming and retrying
can be tested by moving a number. They are those of the C++ client (client/semaphore/session_machine.h).

REQUIRES of all functions: one thread at a time; `now_ns` never goes back.
"""

from __future__ import annotations

import enum
from typing import Callable, Iterable, List, Optional

import grpc

from ._backoff import Backoff
from ._calls import AcquireCall, Effects, Options, Recalled, ReleaseDone
from ._lease import LeaseState
from ._leases import Leases
from ._operations import Operations
from ._pings import Pings
from ._time import MS_NS, NEVER_NS, SECOND_NS
from .errors import Error, Loss, LossCause, LostError, make_error
from .v1 import semaphore_pb2 as pb

# So many that what is vouched for outlasts an outage of two thirds of it, with time to spare for a
# holder that wants to stop its work first.
_PINGS_IN_PACE = 8
# The daemon's own bound.
_ACKNOWLEDGEMENTS_PER_MESSAGE_MAX = 1000
_BACKOFF_FIRST_NS = 50 * MS_NS
_BACKOFF_MOST_NS = 2_000 * MS_NS
# For one endpoint to answer `open`, before the next one is tried: between these, a quarter of the TTL.
_OPEN_TIMEOUT_LEAST_NS = 500 * MS_NS
_OPEN_TIMEOUT_MOST_NS = 3_000 * MS_NS
# Taken for the TTL until the daemon has reported it.
_TTL_ASSUMED_NS = 30 * SECOND_NS

# Errors that another attempt, or another endpoint, would not mend.
_FINAL = frozenset((
    grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED))
# The session of before does not help a client that is not let in: its acquires fail.
_REFUSED_IDENTITY = frozenset((
    grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED))


class _Phase(enum.Enum):
    IDLE = 1  # no stream, and none is wanted
    WAITING = 2  # no stream; the next attempt is at _connect_at_ns
    OPENING = 3  # a stream, `opened` has not come, or not all of its pages
    OPEN = 4
    CLOSED = 5


def _unavailable(message: str) -> Error:
    return make_error(grpc.StatusCode.UNAVAILABLE, message)


class SessionMachine:

    def __init__(self, options: Options, make_client_id: Callable[[], str]) -> None:
        self._options = options
        self._make_client_id = make_client_id
        self._effects = Effects()
        self._leases = Leases(options, self._effects)
        self._operations = Operations(options, self._leases, self._effects)
        self._set_ttl(options.ttl_ns or _TTL_ASSUMED_NS)
        # ---- the stream ----
        self._phase = _Phase.IDLE
        self._backoff = Backoff(_BACKOFF_FIRST_NS, _BACKOFF_MOST_NS)
        self._endpoint = 0
        self._attempts_in_round = 0
        self._connect_at_ns = NEVER_NS
        self._open_sent_ns: Optional[int] = None  # None: not yet, on this stream
        self._open_deadline_ns = NEVER_NS
        self._pages: List[pb.SessionResponse] = []  # of `opened`, up to one that is not the last
        self._disconnected_since_ns = 0
        self._ever_connected = False
        self._closing = False
        self._close_sent = False
        self._close_deadline_ns = NEVER_NS
        # ---- the session ----
        self._client_id = ""
        self._session_id = ""  # "": there is none
        # ---- pings ----
        self._pings = Pings()
        self._ping_due_ns = NEVER_NS
        # ---- recalls ----
        self._stream_number = 0
        self._acknowledgements: List[pb.RecallAcknowledgement] = []  # to be sent on this stream

    @property
    def closed(self) -> bool:
        return self._phase is _Phase.CLOSED

    def take_effects(self) -> Effects:
        return self._effects.take()

    # ---- operations ----

    def acquire(self, call: AcquireCall, now_ns: int) -> int:
        """Returns a number for cancel()."""
        if self._closing:
            self._operations.refuse(
                call, make_error(grpc.StatusCode.CANCELLED, "the client was closed"))
            return 0
        number = self._operations.acquire(call, now_ns)
        if number != 0:
            self._want_stream(now_ns)
        return number

    def cancel(self, number: int, now_ns: int) -> None:
        """Gives up a wait: `done` gets CANCELLED. Nothing happens if it was answered before."""
        self._operations.cancel(number, now_ns)

    def release(self, lease: LeaseState, done: Optional[ReleaseDone], now_ns: int) -> None:
        """After close() nothing is sent: the session's end gives all back."""
        if self.closed or self._close_sent:
            self._operations.refuse_release(
                done, LostError(lease.loss or Loss(LossCause.CLOSED)))
        elif self._operations.release(lease, done, now_ns):
            self._want_stream(now_ns)

    def acknowledge(self, recalled: Recalled) -> None:
        """The application knows of the recall. It goes to the daemon that sent the recall, on the
        same stream, or nowhere: after a resume the daemon sends the recall again."""
        if (recalled.stream_number == self._stream_number and self._phase is _Phase.OPEN
                and recalled.recall_id != 0 and self._leases.is_held_by_us(recalled.lease)):
            self._acknowledgements.append(pb.RecallAcknowledgement(
                lease_id=recalled.lease.lease_id, recall_id=recalled.recall_id))

    def close(self, now_ns: int) -> None:
        """Ends the session cleanly, as far as the daemon can be reached within the release time.
        A holder of a permit learns of the loss before another client can get the permit."""
        if self._closing:
            return
        self._closing = True
        self._leases.lose_all(LossCause.CLOSED, "the client was closed")
        self._operations.fail_acquires(
            make_error(grpc.StatusCode.CANCELLED, "the client was closed"))
        self._close_deadline_ns = now_ns + self._options.release_timeout_ns
        if self._phase is not _Phase.OPEN and not self._wanted():
            self._effects.drop_stream = self._phase is _Phase.OPENING
            self._phase = _Phase.CLOSED

    def _wanted(self) -> bool:
        return len(self._operations) > 0 or len(self._leases) > 0

    # ---- connecting ----

    def _want_stream(self, now_ns: int) -> None:
        if self._phase is _Phase.IDLE:
            self._phase = _Phase.WAITING
            self._connect_at_ns = now_ns
            self._disconnected_since_ns = now_ns

    def start_connecting(self, now_ns: int) -> Optional[int]:
        """The index of the endpoint to which a stream must be opened now; it then counts as being
        opened. None: no stream is to be opened."""
        if (self._phase is not _Phase.WAITING or now_ns < self._connect_at_ns
                or not self._wanted()):
            return None
        self._phase = _Phase.OPENING
        self._stream_number += 1
        self._open_sent_ns = None
        self._pages.clear()
        self._await_opened(now_ns)
        return self._endpoint

    def _await_opened(self, now_ns: int) -> None:
        self._open_deadline_ns = now_ns + min(
            max(self._ttl_ns // 4, _OPEN_TIMEOUT_LEAST_NS), _OPEN_TIMEOUT_MOST_NS)

    def _open_message(self, now_ns: int) -> pb.SessionRequest:
        if not self._session_id:
            # The daemon need not remember anything of this client, which takes a new client id.
            self._forget_session()
        self._open_sent_ns = now_ns
        self._pings.opened(now_ns)
        return pb.SessionRequest(open=pb.OpenSession(
            client_id=self._client_id, ttl_ms=self._options.ttl_ns // MS_NS,
            resume_session_id=self._session_id, holder=self._options.holder,
            release_on_disconnect=self._options.release_on_disconnect))

    def _disconnect(self, why: Error, now_ns: int) -> None:
        if self._phase is _Phase.OPEN:
            self._disconnected_since_ns = now_ns
            self._attempts_in_round = 0
        self._operations.last_error = why
        self._acknowledgements.clear()
        self._leases.disconnected()
        self._ping_due_ns = NEVER_NS
        self._endpoint = (self._endpoint + 1) % len(self._options.endpoints)
        self._attempts_in_round += 1
        self._connect_at_ns = now_ns
        if self._attempts_in_round >= len(self._options.endpoints):
            self._attempts_in_round = 0
            self._connect_at_ns += self._backoff.next_ns()
            if not self._ever_connected:
                self._operations.give_up_not_waiting(now_ns)
        self._phase = _Phase.WAITING  # the next tick sees whether a stream is still wanted

    def _drop_stream(self, why: Error, now_ns: int) -> None:
        self._effects.drop_stream = True
        self._disconnect(why, now_ns)

    def on_stream_end(self, error: Optional[Error], now_ns: int) -> None:
        """`error` None: it ended with OK."""
        self.tick(now_ns)
        if self._phase not in (_Phase.OPENING, _Phase.OPEN):
            return
        if self._close_sent:
            self._finish(error)
            return
        code = error.code if error is not None else None
        session_is_gone = self._session_id != "" and code == grpc.StatusCode.NOT_FOUND
        if session_is_gone:
            self._lose_session(now_ns)
        elif (error is not None and code in _FINAL
              and (not self._session_id or self._phase is _Phase.OPEN
                   or code in _REFUSED_IDENTITY)):
            self._operations.fail_acquires(error)
        self._disconnect(error or _unavailable("the daemon ended the session's stream"), now_ns)
        if session_is_gone:
            # This endpoint answers: the new session is opened here.
            self._endpoint = (self._endpoint - 1) % len(self._options.endpoints)
            self._connect_at_ns = now_ns

    def _finish(self, error: Optional[Error]) -> None:
        self._operations.finish_all(error)
        self._leases.clear()
        self._phase = _Phase.CLOSED

    # ---- messages ----

    def next_message(self, now_ns: int) -> Optional[pb.SessionRequest]:
        """The next message, if there is one. The caller sends it at once: `now_ns` counts as the
        time sent."""
        if self._phase is _Phase.OPENING and self._open_sent_ns is None:
            return self._open_message(now_ns)
        if self._phase is not _Phase.OPEN or self._close_sent:
            return None
        message = pb.SessionRequest()
        self._operations.fill(message, now_ns)
        if self._closing:
            self._close_sent = self._operations.all_sent
            message.close = self._close_sent
        message.acknowledged_recalls.extend(
            self._acknowledgements[:_ACKNOWLEDGEMENTS_PER_MESSAGE_MAX])
        del self._acknowledgements[:_ACKNOWLEDGEMENTS_PER_MESSAGE_MAX]
        if self._leases.ping_wanted or now_ns >= self._ping_due_ns:
            message.ping.ping_id = self._pings.send(now_ns)
            self._leases.pinged()
            self._ping_due_ns = now_ns + self._pace_ns() // _PINGS_IN_PACE
        return message if message.ListFields() else None

    def on_message(self, message: pb.SessionResponse, now_ns: int) -> None:
        # First what the time has decided: an answer that comes too late must not bring back what
        # was lost.
        self.tick(now_ns)
        messages = [message]
        if self._phase is _Phase.OPENING and message.HasField("opened"):
            self._pages.append(message)
            if message.opened.more:
                self._await_opened(now_ns)  # the next page
                return
            messages, self._pages = self._pages, []
            self._on_opened([page.opened for page in messages], now_ns)
        for each in messages:
            self._take(each, now_ns)

    def _take(self, message: pb.SessionResponse, now_ns: int) -> None:
        if self._phase is not _Phase.OPEN:
            return
        self._on_recalled_leases(
            each.granted for each in message.results if each.HasField("granted"))
        if message.HasField("pong"):
            self._on_pong(message.pong)
        for result in message.results:
            self._operations.on_result(result, now_ns)
        for event in message.events:
            if event.HasField("recalled"):
                self._on_recalled(event.recalled)
            else:
                self._leases.on_lost(event.lost)
        if message.events:
            self._leases.check(now_ns)

    def _on_recalled_leases(self, leases: Iterable[pb.Lease]) -> None:
        for lease in leases:
            if lease.HasField("recall"):
                self._on_recalled(pb.LeaseRecalled(lease_id=lease.lease_id, recall=lease.recall))

    def _on_recalled(self, recalled: pb.LeaseRecalled) -> None:
        sent_ns = self._pings.arrived_ns(recalled.recall.after_ping_id)
        self._leases.on_recalled(recalled, sent_ns, self._stream_number)

    def _on_opened(self, pages: List[pb.SessionOpened], now_ns: int) -> None:
        if self._open_sent_ns is None:
            return
        opened = pages[-1]  # Only the leases are others than in the pages before.
        if self._session_id and not opened.resumed:
            self._lose_session(now_ns)
            self._drop_stream(make_error(
                grpc.StatusCode.INTERNAL,
                "the daemon opened another session than the one to resume"), now_ns)
            return
        if self._leases.is_overtaken(opened.validity):
            self._drop_stream(_unavailable("this daemon does not host the session any more"), now_ns)
            return
        listed = [lease for page in pages for lease in page.leases]
        if opened.resumed:
            self._leases.keep_only(lease.lease_id for lease in listed)
        self._on_recalled_leases(listed)
        self._leases.extend(opened.validity, self._open_sent_ns)
        self._phase = _Phase.OPEN
        self._ever_connected = True
        self._attempts_in_round = 0
        self._backoff.reset()
        self._session_id = opened.session_id
        if opened.ttl_ms > 0:
            self._set_ttl(opened.ttl_ms * MS_NS)
        self._backoff.set_most(min(_BACKOFF_MOST_NS, self._ttl_ns // 8))
        self._ping_due_ns = self._open_sent_ns + self._pace_ns() // _PINGS_IN_PACE
        self._operations.resend_all()
        self._operations.give_back_unclaimed(now_ns)

    def _set_ttl(self, ttl_ns: int) -> None:
        self._ttl_ns = self._operations.ttl_ns = ttl_ns

    def _on_pong(self, pong: pb.SessionPong) -> None:
        sent_ns = self._pings.unanswered_ns(pong.ping_id)
        if sent_ns is None or not self._leases.extend(pong.validity, sent_ns):
            return
        # It may vouch for less than before: then the next is due sooner.
        self._ping_due_ns = min(self._ping_due_ns, sent_ns + self._pace_ns() // _PINGS_IN_PACE)
        self._pings.answered(pong.ping_id)

    # ---- losses ----

    def _forget_session(self) -> None:
        self._client_id = self._make_client_id()
        self._leases.forget_session()
        self._operations.forget_session()

    def _lose_session(self, now_ns: int) -> None:
        self._leases.lose_all(LossCause.EXPIRED, "its session expired at the daemon")
        self._leases.clear()
        self._session_id = ""
        self._forget_session()
        self._disconnected_since_ns = now_ns

    # ---- time ----

    def _pace_ns(self) -> int:
        """Pings go by what the daemon vouches for: with a long TTL, on an engine that daemons share,
        that is less than the TTL."""
        return min(self._ttl_ns, self._leases.vouched_ns or self._ttl_ns)

    def _contact_deadline_ns(self) -> int:
        """When a stream that says nothing counts as broken: a quarter of the time that is vouched
        for after a ping was sent, or should have been."""
        if self._phase is not _Phase.OPEN:
            return NEVER_NS
        oldest_ns = self._pings.oldest_unanswered_ns()
        return (self._ping_due_ns if oldest_ns is None else oldest_ns) + self._pace_ns() // 4

    def tick(self, now_ns: int) -> None:
        """Does what is due. To be called at next_due_ns(), and may be called at any time."""
        if self._phase is _Phase.CLOSED:
            return
        self._leases.check(now_ns)
        self._operations.check(now_ns)
        if self._closing and now_ns >= self._close_deadline_ns:
            self._effects.drop_stream = self._phase in (_Phase.OPENING, _Phase.OPEN)
            self._finish(_unavailable("the client was closed, and no daemon answered in time"))
            return
        if self._phase is _Phase.OPENING and now_ns >= self._open_deadline_ns:
            self._drop_stream(_unavailable("no answer in time"), now_ns)
        elif now_ns >= self._contact_deadline_ns():
            self._drop_stream(_unavailable("the connection has gone silent"), now_ns)
        elif self._phase is _Phase.WAITING and not self._wanted():
            self._phase = _Phase.CLOSED if self._closing else _Phase.IDLE
        if self._phase in (_Phase.WAITING, _Phase.OPENING):
            self._operations.give_up_unreachable(now_ns, self._disconnected_since_ns,
                                                 self._ever_connected)

    def next_due_ns(self, can_send: bool) -> int:
        """`can_send`: a message can be sent now; otherwise the end of the one under way is waited
        for anyway."""
        due_ns = min(self._close_deadline_ns, self._leases.next_due_ns(),
                     self._operations.next_due_ns())
        if self._phase is _Phase.OPEN:
            due_ns = min(due_ns, self._contact_deadline_ns())
            if can_send:
                due_ns = min(due_ns, self._ping_due_ns)
        elif self._phase in (_Phase.OPENING, _Phase.WAITING):
            due_ns = min(due_ns, self._open_deadline_ns if self._phase is _Phase.OPENING
                         else self._connect_at_ns,
                         self._operations.next_give_up_ns(self._disconnected_since_ns,
                                                          self._ever_connected))
        return due_ns
