"""The schedule of a storm, which follows from its seed, and the book of what has befallen."""

import random
import threading
import time
from dataclasses import dataclass

from traces import Fault

# Parts of semctl that can be killed or stopped at the same time. All three are only killed, and
# only where the command has started nothing: what it had started may survive then.
PAIRS = ("semctl+watcher", "semctl+guardian", "watcher+guardian")
ALL_THREE = "semctl+watcher+guardian"


@dataclass(frozen=True)
class Planned:
    after_s: float  # Since the beginning of the one before, or its end: see plan().
    kind: str  # "kill" or "stop".
    # "holder", a part of semctl, several joined by "+", "daemon", "daemons" or "engine".
    target: str
    index: int  # Which of them; those that there are not so many of begin again.
    seconds: float  # How long it lasts; of a kill, until the next start.

    def __str__(self):
        return (f"+{self.after_s:.2f} s  {self.kind} {self.target} {self.index} for "
                f"{self.seconds:.2f} s")


def lasting(chance, ttl_s):
    """By the length's name: what is borne, and what is not."""
    return {"short": chance.uniform(0.05, 0.4) * ttl_s, "long": chance.uniform(1.2, 2.5) * ttl_s,
            "none": 0.0}


def client_kinds(language):
    """(kind, target, length). To a holder that is a program, each part is the program."""
    if language not in ("semctl", "mixed"):
        return [("kill", "holder", "none"), ("stop", "holder", "short"),
                ("stop", "holder", "long")]
    parts = ("semctl", "watcher", "guardian", "command")
    return [*[("kill", part, "none") for part in (*parts, *PAIRS, ALL_THREE)],
            *[("stop", part, length) for part in (*parts, *PAIRS) for length in ("short", "long")]]


def service_kinds(daemons, engine):
    kinds = [("kill", "daemon", "none"), ("kill", "daemon", "short"), ("stop", "daemon", "short"),
             ("kill", "daemon", "long"), ("stop", "daemon", "long")]
    if daemons > 1:
        kinds += [("kill", "daemons", "short"), ("stop", "daemons", "long")]
    if engine:
        kinds += [("kill", "engine", "none"), ("kill", "engine", "short"),
                  ("stop", "engine", "short"), ("stop", "engine", "long")]
    return kinds


def plan(name, kinds, peace_s, count, ttl_s, seed):
    """So many faults of these kinds, each as often, in random order. `peace_s`: least and most."""
    chance = random.Random(f"{seed}-{name}")
    planned, bag = [], []
    for _ in range(count):
        if not bag:
            bag = list(kinds)
            chance.shuffle(bag)
        kind, target, length = bag.pop()
        planned.append(Planned(chance.uniform(*peace_s), kind, target, chance.randrange(1000),
                               lasting(chance, ttl_s)[length]))
    return planned


class Book:
    """What has befallen. Any thread."""

    def __init__(self):
        self.faults = []
        self._lock = threading.Lock()

    def begin(self, kind, target):
        fault = Fault(kind, target, time.monotonic_ns())
        with self._lock:
            self.faults.append(fault)
        return fault

    @staticmethod
    def end(fault):
        fault.end_ns = time.monotonic_ns()

    def add(self, fault):
        with self._lock:
            self.faults.append(fault)

    def counts(self):
        with self._lock:
            kinds = [f"{fault.kind} {fault.target.split()[0]}" for fault in self.faults]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


class Metronome(threading.Thread):
    """Notes when the machine gives no time to a thread that wants very little."""

    EVERY_S = 0.02
    GAP_S = 0.25

    def __init__(self, book):
        super().__init__(daemon=True)
        self.book = book
        self.stopping = threading.Event()

    def run(self):
        before_ns = time.monotonic_ns()
        while not self.stopping.wait(self.EVERY_S):
            now_ns = time.monotonic_ns()
            if now_ns - before_ns > self.GAP_S * 1e9:
                self.book.add(Fault("stall", "machine", before_ns, now_ns))
            before_ns = now_ns
