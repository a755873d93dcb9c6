"""Holds permits with the Python package, one after the other, and records each act of its work in a
trace; see traces.py. holder.cc and holder.mjs beside it do the same.

Usage: holder.py ADDRESS[,ADDRESS...] NAME LIMIT TTL_MS SEED TRACE

It ends when its input does.
"""

import os
import random
import sys
import threading
import time

import semaphored

WAIT_S = 5.0
ACT_EVERY_S = 0.01
STAYS_S = ((0.05, 0.4), (0.05, 0.4), (0.4, 2.0), (2.0, 7.0))

stopping = threading.Event()


class Trace:
    """One line in one write, so that it is there whole when the process is killed."""

    def __init__(self, path, semaphore):
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.semaphore = semaphore

    def write(self, kind, at_ns, permit, detail=""):
        os.write(self.file, f"{kind} {at_ns} {self.semaphore} {permit.slot} {permit.token} "
                            f"{detail or '-'}\n".encode())


def work(permit, trace, stay_s):
    """Acts until the time is over; False if the permit was lost."""
    until = time.monotonic() + stay_s
    kind = "grant"
    while True:
        # Before the check: the permit was held at this time, however long this process stands
        # still.
        at_ns = time.monotonic_ns()
        if not permit.held:
            cause = permit.loss.cause.name if permit.loss else "NO_CONTACT"
            trace.write("lost", time.monotonic_ns(), permit, cause)
            return False
        is_over = time.monotonic() >= until or stopping.is_set()
        trace.write("done" if is_over else kind, at_ns, permit)
        if is_over:
            return True
        kind = "act"
        permit.lost.wait(ACT_EVERY_S)


def turn(client, semaphore, limit, trace, chance):
    permit = client.acquire(semaphore, limit=limit, wait=WAIT_S)
    is_held = work(permit, trace, chance.uniform(*chance.choice(STAYS_S)))
    try:
        permit.release()
    except semaphored.LostError as error:
        if is_held:
            trace.write("lost", time.monotonic_ns(), permit, error.loss.cause.name)


def main():
    addresses, semaphore, limit, ttl_ms, seed, path = sys.argv[1:]
    trace = Trace(path, semaphore)
    chance = random.Random(f"{seed}-{path}")
    threading.Thread(target=lambda: (sys.stdin.read(), stopping.set()), daemon=True).start()
    with semaphored.Client(addresses.split(","), ttl=int(ttl_ms) / 1000) as client:
        while not stopping.is_set():
            try:
                turn(client, semaphore, int(limit), trace, chance)
            except (semaphored.DeadlineExceededError, semaphored.UnavailableError):
                stopping.wait(0.05)
            except semaphored.NotFoundError as error:
                # What it was granted has ended before it heard of the grant.
                if error.reason != "NOT_HELD":
                    raise


main()
