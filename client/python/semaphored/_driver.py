"""Runs a SessionMachine on real streams, a clock and threads.

Threads: one for timers, one for callbacks of the user, and two for each stream: one that reads, and
gRPC's own, which sends. All are daemon threads, and a handler at the interpreter's exit ends the
sessions cleanly.

Locks: `_changed` guards the machine and the stream. Nothing is called with it held but the machine:
what is to be done outside is taken along by _turn() and done by _carry_out() after it was let go.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import uuid
import weakref
from typing import Callable, List, Optional, Tuple

from ._calls import AcquireCall, Effects, Options, ReleaseDone
from ._credentials import Credentials
from ._lease import LeaseState
from ._machine import SessionMachine
from ._process import OwnProcess
from ._stream import Stream, StreamListener
from ._time import MS_NS, NEVER_NS, SECOND_NS, now_ns
from .errors import Error
from .v1 import semaphore_pb2 as pb

_LOG = logging.getLogger("semaphored")
# A wait does not count the time that the machine is suspended, so the clock is looked at again at
# least this often; and what was dropped without a release is found so.
_LONGEST_WAIT_S = 0.5
# Longer than the machine's own bound.
_CLOSE_SLACK_S = 1.0

_drivers: weakref.WeakSet[SessionDriver] = weakref.WeakSet()


class _Notifier:
    """Runs callbacks of the user in order, so that a slow one holds up only those after it."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Optional[Callable[[], None]]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="semaphored-callbacks", daemon=True)

    def post(self, callback: Optional[Callable[[], None]]) -> None:
        """None ends the thread, after what was posted before."""
        self._queue.put(callback)

    def _run(self) -> None:
        while True:
            callback = self._queue.get()
            if callback is None:
                return
            try:
                callback()
            except Exception:  # pylint: disable=broad-except  the others shall be called all the same
                _LOG.exception("a callback failed")


class SessionDriver(StreamListener):
    """Any thread may call it, but only of the process that used it first. Its threads start with
    the first acquire, so a client may be made before a fork if it is used only after it."""

    def __init__(self, options: Options, credentials: Credentials, process: OwnProcess,
                 clock: Callable[[], int] = now_ns) -> None:
        self._options = options
        self._process = process
        self._credentials = credentials
        self._clock = clock
        self._machine = SessionMachine(options, lambda: str(uuid.uuid4()))
        self._changed = threading.Condition(threading.Lock())
        self._stream: Optional[Stream] = None
        self._streams_alive = 0  # made, and their end was not told
        self._notifier = _Notifier()
        self._timers = threading.Thread(target=self._run_timers, name="semaphored-timers",
                                        daemon=True)
        self._started = False
        self._closed = False
        # Of permits, or of the whole client (None), that nobody refers to any more. It is put in by
        # the garbage collector, which may run on a thread that holds the lock.
        self._dropped: queue.SimpleQueue[Optional[LeaseState]] = queue.SimpleQueue()

    def in_own_process(self) -> bool:
        return self._process.is_own()

    def _enter(self) -> None:
        """To be called first, before a lock is taken."""
        self._process.enter()
        with self._changed:
            if not self._started and not self._closed:
                self._started = True
                self._notifier.thread.start()
                self._timers.start()
                _drivers.add(self)

    # ---- operations ----

    def now_ns(self) -> int:
        return self._clock()

    def acquire(self, call: AcquireCall) -> int:
        """As SessionMachine's. `done` runs on any thread, maybe before this returns, and must not
        block."""
        self._enter()
        with self._changed:
            now = self._clock()
            number = self._machine.acquire(call, now)
            turn = self._turn(now)
        self._carry_out(turn)
        return number

    def cancel(self, number: int) -> None:
        if not self.in_own_process():
            return
        with self._changed:
            now = self._clock()
            self._machine.cancel(number, now)
            turn = self._turn(now)
        self._carry_out(turn)

    def release(self, lease: LeaseState, done: Optional[ReleaseDone]) -> None:
        self._enter()
        with self._changed:
            now = self._clock()
            self._machine.release(lease, done, now)
            turn = self._turn(now)
        self._carry_out(turn)

    def drop(self, lease: Optional[LeaseState]) -> None:
        """Its permit, or (None) the client, was collected as garbage. Takes no lock."""
        self._dropped.put(lease)

    def post(self, callback: Callable[[], None]) -> None:
        """Runs a callback of the user."""
        self._notifier.post(callback)

    # ---- the stream ----

    def next_message(self, stream: Stream) -> Optional[pb.SessionRequest]:
        with self._changed:
            while stream is self._stream:
                now = self._clock()
                message = self._machine.next_message(now)
                if message is not None:
                    self._changed.notify_all()
                    return message
                # What else is due is for the thread of timers: it is not outrun in a busy loop.
                self._wait(max(self._machine.next_due_ns(can_send=True), now + MS_NS), now)
            return None

    def on_message(self, stream: Stream, message: pb.SessionResponse) -> None:
        with self._changed:
            if stream is not self._stream:
                return
            now = self._clock()
            self._machine.on_message(message, now)
            turn = self._turn(now)
        self._carry_out(turn)

    def on_stream_end(self, stream: Stream, error: Optional[Error]) -> None:
        with self._changed:
            self._streams_alive -= 1
            now = self._clock()
            if stream is self._stream:
                self._stream = None
                self._machine.on_stream_end(error, now)
            turn = self._turn(now)
        self._carry_out(turn)

    # ---- turns ----

    def _turn(self, now: int) -> Tuple[Effects, Optional[Stream], Optional[Stream]]:
        """Takes what the machine wants. With the lock held; what it returns is for _carry_out()."""
        effects = self._machine.take_effects()
        dropped = started = None
        if effects.drop_stream:
            dropped, self._stream = self._stream, None
        endpoint = self._machine.start_connecting(now)
        if endpoint is not None:
            started = self._stream = Stream(self._options.endpoints[endpoint], self._credentials,
                                            self)
            self._streams_alive += 1
        for callback in effects.callbacks:
            self._notifier.post(callback)
        self._changed.notify_all()
        return effects, dropped, started

    def _carry_out(self, turn: Tuple[Effects, Optional[Stream], Optional[Stream]]) -> None:
        effects, dropped, started = turn
        for tell in effects.losses:
            tell()
        if dropped is not None:
            dropped.cancel()
        if started is not None:
            started.start()
        for answer in effects.results:
            answer()

    def _wait(self, due_ns: int, now: int) -> None:
        """With the lock held. May return early."""
        if due_ns >= NEVER_NS:
            self._changed.wait()
        elif due_ns > now:
            self._changed.wait(min((due_ns - now) / SECOND_NS, _LONGEST_WAIT_S))

    def _run_timers(self) -> None:
        while True:
            with self._changed:
                now = self._clock()
                self._take_dropped(now)
                self._machine.tick(now)
                turn = self._turn(now)
            self._carry_out(turn)
            with self._changed:
                if self._machine.closed:
                    break
                self._wait(self._machine.next_due_ns(can_send=False), self._clock())
        self._notifier.post(None)

    def _take_dropped(self, now: int) -> None:
        while True:
            try:
                lease = self._dropped.get_nowait()
            except queue.Empty:
                return
            if lease is not None:
                self._machine.release(lease, None, now)
            else:
                self._closed = True
                self._machine.close(now)

    # ---- the end ----

    def close(self) -> None:
        """Ends the session cleanly: all its permits go back. Waits for that up to the release
        timeout, but not if it is called by a callback. May be called again."""
        if not self.in_own_process():
            return
        self.begin_close()
        if self._started:
            self._await_end()

    def begin_close(self) -> None:
        with self._changed:
            self._closed = True
            now = self._clock()
            self._machine.close(now)
            turn = self._turn(now)
        self._carry_out(turn)

    def _await_end(self) -> None:
        own: List[threading.Thread] = [self._timers, self._notifier.thread]
        if threading.current_thread() in own:
            return
        with self._changed:
            self._changed.wait_for(
                lambda: self._machine.closed and self._streams_alive == 0,
                self._options.release_timeout_ns / SECOND_NS + _CLOSE_SLACK_S)
        for thread in own:
            thread.join(_CLOSE_SLACK_S)


@atexit.register
def _close_all() -> None:
    """A program that ends gives its permits back, rather than let them run out."""
    living = [driver for driver in _drivers if driver.in_own_process()]
    for driver in living:
        driver.begin_close()
    for driver in living:
        driver.close()
