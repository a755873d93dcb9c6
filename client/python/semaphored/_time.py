"""Time that decides: integer nanoseconds on a steady clock, which also counts while the machine is
suspended where the system has such a clock. Nothing here reads the wall clock."""

from __future__ import annotations

import time

MS_NS = 1_000_000
SECOND_NS = 1_000_000_000
NEVER_NS = 1 << 62


def now_ns() -> int:
    """The steady clock of this machine. A daemon's lease goes on to expire while this machine
    sleeps, so the time of the sleep has to count where that is possible."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    if boot_clock is None:
        return time.monotonic_ns()
    return time.clock_gettime_ns(boot_clock)


def to_ns(seconds: float) -> int:
    """Rounded to whole milliseconds, the unit of the protocol; more than 0 never becomes 0."""
    milliseconds = round(seconds * 1000)
    if milliseconds == 0 and seconds > 0:
        milliseconds = 1
    return milliseconds * MS_NS
