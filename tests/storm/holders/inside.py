"""What `semctl run` runs in a storm: it acts, and records each act in a trace, until its time is
over or it is ended. It knows nothing of its lease: that it is ended in time is semctl's promise.

Usage: inside.py FOLDER STAY_MS FAMILY MANNERS

  FOLDER   a trace for each process, PID.trace; a file "stop" there ends the work
  FAMILY   alone, or family: with a child in a session of its own, and a daemon
  MANNERS  mild: ends at SIGTERM, or deaf: ignores it
"""

import os
import signal
import sys
import time

ACT_EVERY_S = 0.01

folder, stay_ms, family, manners = sys.argv[1:]
stop = os.path.join(folder, os.pardir, "stop")
work = " ".join(os.environ[f"SEMAPHORE_{name}"] for name in ("NAME", "SLOT", "TOKEN"))
file = None


def write(kind):
    os.write(file, f"{kind} {time.monotonic_ns()} {work} -\n".encode())


def on_term(*_):
    if file is not None:
        write("term")
    if manners == "mild":
        os._exit(0)


def act(first, until):
    global file
    file = os.open(os.path.join(folder, f"{os.getpid()}.trace"),
                   os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    write(first)
    while until is None or (time.monotonic() < until and not os.path.exists(stop)):
        write("act")
        time.sleep(ACT_EVERY_S)


signal.signal(signal.SIGTERM, on_term)
if family == "family":
    if os.fork() == 0:
        os.setsid()
        act("act", None)
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        act("act", None)
act("grant", time.monotonic() + int(stay_ms) / 1000)
# What the work has started ends after it, and is no loss.
write("done")
