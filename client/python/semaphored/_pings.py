"""When the pings of a session were sent. Pure: no clock, no thread, no I/O."""

from __future__ import annotations

from collections import deque
from typing import Deque, Optional, Tuple

# At eight within the time that is vouched for, those of several such times: what a recall names was
# sent long after the oldest of them.
_REMEMBERED = 64


class Pings:
    """Numbers rise over all streams. Answers and recalls name a number, and count from the time at
    which its ping was sent."""

    def __init__(self) -> None:
        self._sent: Deque[Tuple[int, int]] = deque(maxlen=_REMEMBERED)  # number, time
        self._last = 0
        self._answered = 0  # the last number that is not awaited any more
        self._opened_ns = 0

    def opened(self, now_ns: int) -> None:
        """The first message of a stream is sent. What was not answered on the one before never
        will be."""
        self._opened_ns = now_ns
        self._answered = self._last

    def send(self, now_ns: int) -> int:
        """The number of a ping that is sent now."""
        self._last += 1
        self._sent.append((self._last, now_ns))
        return self._last

    def _sent_ns(self, number: int) -> Optional[int]:
        return next((at_ns for each, at_ns in self._sent if each == number), None)

    def unanswered_ns(self, number: int) -> Optional[int]:
        """When it was sent; None if no answer to it is awaited."""
        return self._sent_ns(number) if number > self._answered else None

    def oldest_unanswered_ns(self) -> Optional[int]:
        return self._sent_ns(self._answered + 1)

    def answered(self, number: int) -> None:
        """And all before it."""
        self._answered = max(self._answered, number)

    def arrived_ns(self, number: int) -> int:
        """When the message was sent that arrived last at the daemon before it sent a recall; 0: the
        first message of the stream. Of a ping that is not known any more: a time that is no later."""
        if number == 0:
            return self._opened_ns
        sent_ns = self._sent_ns(number)
        if sent_ns is not None:
            return sent_ns
        return min(self._opened_ns, self._sent[0][1] if self._sent else self._opened_ns)
