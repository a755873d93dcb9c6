"""Runs a SessionMachine on real streams, a clock and threads.

Threads: one for timers, one for callbacks of the user, and two for each stream: one that reads, and
gRPC's own, which sends. All are daemon threads, and a handler at the interpreter's exit ends the
sessions cleanly.

Locks: `_changed` guards the machine and the stream. Nothing is called with it held but the machine:
what is to be done outside is taken along by _turn() and done by _carry_out() after it was let go. What
waits on `_changed` is the thread that sends.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import uuid
import weakref
from functools import partial
from typing import Callable, List, Optional, Tuple

from ._calls import AcquireCall, Effects, Options, Recalled, ReleaseDone
from ._credentials import Credentials
from ._lease import LeaseState
from ._machine import SessionMachine
from ._options import own_holder
from ._process import OwnProcess
from ._stream import Stream, StreamListener
from ._time import MS_NS, NEVER_NS, SECOND_NS, now_ns
from .errors import Error
from .v1 import semaphore_pb2 as pb

_LOG = logging.getLogger("semaphored")
# A wait does not count the time that the machine is suspended, so the clock is looked at again at
# least this often while there is a deadline.
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
            except BaseException:  # pylint: disable=broad-except  also sys.exit(): others follow
                _LOG.exception("a callback failed")


class SessionDriver(StreamListener):
    """Any thread may call it, but only of the process that used it first. Its threads start with
    the first acquire, so a client may be made before a fork if it is used only after it.

    What callers want goes through `_inbox` to the thread of timers, and they touch nothing else: so
    neither a KeyboardInterrupt nor the garbage collector, which may run on a thread that holds the
    lock, meets the machine halfway."""

    def __init__(self, options: Options, credentials: Credentials, process: OwnProcess,
                 clock: Callable[[], int] = now_ns) -> None:
        self._options = options
        self._process = process
        self._credentials = credentials
        self._clock = clock
        self._machine = SessionMachine(options, lambda: str(uuid.uuid4()))
        self._inbox: queue.SimpleQueue[Optional[Callable[[int], None]]] = queue.SimpleQueue()
        self._changed = threading.Condition(threading.Lock())
        self._stream: Optional[Stream] = None
        self._streams_alive = 0  # made, and their end was not yet reported
        self._waiting_until_ns = 0
        self._notifier = _Notifier()
        self._timers = threading.Thread(target=self._run_timers, name="semaphored-timers",
                                        daemon=True)
        self._started = False
        self._ended = threading.Event()

    def in_own_process(self) -> bool:
        return self._process.is_own()

    def _start(self) -> None:
        self._process.enter()
        with self._changed:
            if not self._started:
                self._started = True
                self._notifier.thread.start()
                self._timers.start()
                _drivers.add(self)

    # ---- operations ----

    def now_ns(self) -> int:
        return self._clock()

    def acquire(self, call: AcquireCall) -> None:
        """`done` runs on another thread, and must not block."""
        self._start()

        def begin(now: int) -> None:
            call.number = self._machine.acquire(call, now)
        self._ask(begin)

    def cancel(self, call: AcquireCall) -> None:
        self._ask(lambda now: self._machine.cancel(call.number, now))

    def release(self, lease: LeaseState, done: Optional[ReleaseDone]) -> None:
        """As acquire()."""
        self._process.enter()
        self._ask(lambda now: self._machine.release(lease, done, now))

    def drop(self, lease: Optional[LeaseState]) -> None:
        """Its permit, or (None) the client, was collected as garbage."""
        if not self.in_own_process() or self._ended.is_set():
            return
        if lease is None:
            self._ask(self._machine.close)
        else:
            self.release(lease, None)

    def _ask(self, what: Callable[[int], None]) -> None:
        self._inbox.put(what)
        if self._ended.is_set():
            self._take_inbox(None)  # The thread is gone: all is refused.

    def post(self, callback: Callable[[], None]) -> None:
        """Runs a callback of the user, or a handler of the log."""
        self._notifier.post(callback)

    # ---- the stream ----

    def next_message(self, stream: Stream) -> Optional[pb.SessionRequest]:
        with self._changed:
            while stream is self._stream:
                now = self._clock()
                message = self._machine.next_message(now)
                if message is not None:
                    if message.HasField("open") and not message.open.holder:
                        message.open.holder = own_holder()
                    self._wake_timers()
                    return message
                # What else is due is for the thread of timers: it is not outrun in a busy loop.
                due_ns = max(self._machine.next_due_ns(can_send=True), now + MS_NS)
                self._changed.wait(_seconds_until(due_ns, now))
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
        for recalled in effects.recalls:
            self._notifier.post(partial(self._tell_recall, recalled))
        self._changed.notify_all()
        self._wake_timers()
        return effects, dropped, started

    def _tell_recall(self, recalled: Recalled) -> None:
        """On the thread of callbacks. The recall is acknowledged by its handler's end alone: a
        handler that blocks, or raises, has not acknowledged anything."""
        on_recall = recalled.lease.on_recall
        if on_recall is not None:
            on_recall(recalled.recall, partial(self._acknowledge, recalled))

    def _acknowledge(self, recalled: Recalled) -> None:
        if self.in_own_process():
            self._ask(lambda _: self._machine.acknowledge(recalled))

    def _wake_timers(self) -> None:
        """If it waits for longer than it should now. With the lock held."""
        if (self._machine.closed
                or self._machine.next_due_ns(can_send=False) < self._waiting_until_ns):
            self._waiting_until_ns = 0
            self._inbox.put(None)

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

    def _run_timers(self) -> None:
        wait_s: Optional[float] = 0.0
        while True:
            self._take_inbox(wait_s)
            with self._changed:
                now = self._clock()
                self._machine.tick(now)
                turn = self._turn(now)
            self._carry_out(turn)
            with self._changed:
                if self._machine.closed and self._streams_alive == 0:
                    break
                self._waiting_until_ns = NEVER_NS
                if not self._machine.closed:
                    self._waiting_until_ns = self._machine.next_due_ns(can_send=False)
                wait_s = _seconds_until(self._waiting_until_ns, self._clock())
        self._notifier.post(None)
        self._ended.set()
        self._take_inbox(0.0)

    def _take_inbox(self, wait_s: Optional[float]) -> None:
        """Waits so long (None: until something comes) and does all that is asked."""
        try:
            if self._ended.is_set():
                wait_s = 0.0
            asked = [self._inbox.get(timeout=wait_s)]
        except queue.Empty:
            return
        while not self._inbox.empty():
            try:
                asked.append(self._inbox.get_nowait())
            except queue.Empty:
                break  # Another thread has taken it: after the end any thread may.
        with self._changed:
            now = self._clock()
            for ask in asked:
                if ask is not None:
                    ask(now)
            effects = self._machine.take_effects() if self._ended.is_set() else None
        if effects is not None:
            self._carry_out((effects, None, None))

    # ---- the end ----

    def close(self) -> None:
        """Ends the session cleanly: all its permits go back. Waits for that up to the release
        timeout, but not if it is called by a callback. May be called again."""
        if not self.in_own_process():
            return
        self.begin_close()
        own: List[threading.Thread] = [self._timers, self._notifier.thread]
        if threading.current_thread() in own:
            return
        self._ended.wait(self._options.release_timeout_ns / SECOND_NS + _CLOSE_SLACK_S)
        for thread in own:
            if thread.is_alive():
                thread.join(_CLOSE_SLACK_S)

    def begin_close(self) -> None:
        with self._changed:
            unused = not self._started
            if unused:  # Nothing is to be ended; nothing can begin any more.
                self._started = True
                self._machine.close(self._clock())
                self._ended.set()
        if not unused:
            self._ask(self._machine.close)


def _seconds_until(due_ns: int, now: int) -> Optional[float]:
    if due_ns >= NEVER_NS:
        return None
    return min(max(due_ns - now, 0) / SECOND_NS, _LONGEST_WAIT_S)


@atexit.register
def _close_all() -> None:
    """A program that ends gives its permits back, rather than let them run out."""
    living = [driver for driver in _drivers if driver.in_own_process()]
    for driver in living:
        driver.begin_close()
    for driver in living:
        driver.close()
