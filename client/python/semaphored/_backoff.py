"""How long to wait before the next attempt to reach a daemon."""

from __future__ import annotations

import random

# Not that of the program, which may have chosen its seed for many processes.
_RANDOM = random.SystemRandom()


class Backoff:
    """Doubles from `first_ns` to `most_ns`. Each delay is drawn from the upper half, so that the
    clients of a daemon which came back do not all arrive at once."""

    def __init__(self, first_ns: int, most_ns: int) -> None:
        self._first_ns = first_ns
        self._most_ns = max(first_ns, most_ns)
        self._current_ns = first_ns

    def next_ns(self) -> int:
        delay_ns = min(self._current_ns, self._most_ns)
        self._current_ns = min(self._current_ns * 2, self._most_ns)
        return _RANDOM.randint(delay_ns // 2, delay_ns)

    def reset(self) -> None:
        """After a success: begin again with the first."""
        self._current_ns = self._first_ns

    def set_most(self, most_ns: int) -> None:
        self._most_ns = max(self._first_ns, most_ns)
