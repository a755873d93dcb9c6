"""Stops processes for certain."""

import glob
import os
import signal
import time

STOPPED_WITHIN_S = 10


def _states(pid):
    """Of its threads, a letter each."""
    for path in glob.glob(f"/proc/{pid}/task/*/stat"):
        try:
            with open(path, encoding="utf-8") as stat:
                yield stat.read().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            pass  # It has ended meanwhile.


def pause(pid):
    """Returns when no thread runs any more: kill() does when the signal was noted, and on a busy
    machine others go on until the thread that gets it has its turn."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + STOPPED_WITHIN_S
    while not all(state in "TtZX" for state in _states(pid)):
        if time.monotonic() > deadline:
            raise RuntimeError(f"process {pid} was not stopped in {STOPPED_WITHIN_S} s")
        time.sleep(0.001)
