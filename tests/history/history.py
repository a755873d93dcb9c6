"""What clients have recorded of their calls: one Op for each call, or for each end of a lease that no
call of its holder brought about. All times are CLOCK_MONOTONIC in nanoseconds.

A history file has one JSON object per line: first {"semaphores": {name: limit}}, then the operations.
"""

import dataclasses
import json
import threading


@dataclasses.dataclass
class Op:
    kind: str  # acquire, release, verify; "end": the holder stopped counting on its lease.
    client: str
    semaphore: str
    begin_ns: int
    end_ns: int = 0  # When the answer came. 0: it never came, the outcome is unknown.
    request: str = ""  # Client id and sequence number. Repeats of a request have the same.
    # acquire
    permits: int = 0
    priority: int = 0
    wait_ms: int = 0
    queued_ns: int = 0  # When the daemon reported that the request waits. 0: it did not.
    steady: bool = True  # Sent once, on a connection that stood until the answer.
    drains: bool = False  # Sent after all other clients had ended: it must be granted.
    # The answer. granted, released, held, ended, error.
    outcome: str = ""
    lease: str = ""
    slots: tuple = ()
    token: int = 0
    reason: str = ""  # Of an error, its Reason; of an end, its EndCause.
    # release, verify, end: until when the daemon had vouched for the lease when the operation began.
    vouched_ns: int = 0
    # end: "lost": the daemon reported it. "left": the holder went away, or its time had run out.


class Recorder:
    """Collects operations of many threads."""

    def __init__(self, semaphores):
        self.semaphores = dict(semaphores)
        self.ops = []
        self._lock = threading.Lock()

    def add(self, operation):
        with self._lock:
            self.ops.append(operation)

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps({"semaphores": self.semaphores}) + "\n")
            for operation in self.ops:
                file.write(json.dumps(dataclasses.asdict(operation)) + "\n")


def load(path):
    """(limits by semaphore, operations)."""
    with open(path, encoding="utf-8") as file:
        limits = json.loads(next(file))["semaphores"]
        ops = [Op(**json.loads(line)) for line in file]
    for operation in ops:
        operation.slots = tuple(operation.slots)
    return limits, ops
