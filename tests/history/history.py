"""What was called, when, and what was answered. Times are nanoseconds of CLOCK_MONOTONIC, which all
processes of one machine share. One line of JSON is one operation; a file begins with a line that has
the limits and the semaphores that administrators change.
"""

import dataclasses
import json
import threading


@dataclasses.dataclass
class Op:
    # acquire, release, verify; "end": the holder stopped counting on its lease; "recalled": the
    # holder was asked to give it back; "administer": an act of an administrator, or a question.
    kind: str
    client: str
    semaphore: str
    begin_ns: int
    end_ns: int = 0  # When the answer came. 0: it never came, the outcome is unknown.
    request: str = ""  # Client id and sequence number. Repeats of a request have the same.
    # acquire
    permits: int = 0
    priority: int = 0
    wait_ms: int = 0
    holder: str = ""
    queued_ns: int = 0  # When the daemon reported that the request waits. 0: it did not.
    steady: bool = True  # Sent once, on a connection that stood until the answer.
    drains: bool = False  # Sent after all other clients had ended: it must be granted.
    until_ns: int = 0  # Of an acquire that its client gave up: nothing is left of it by then.
    # The answer. granted, released, held, ended, done, error.
    outcome: str = ""
    lease: str = ""
    slots: tuple = ()
    token: int = 0
    # Of an error its Reason; of a release that came too late its EndCause; of an end, "lost": it was
    # reported, or "left": the holder went away, or its time had run out.
    reason: str = ""
    cause: str = ""  # Of an end that was reported, its EndCause.
    # release, verify, end: until when the daemon had vouched for the lease when the operation began.
    vouched_ns: int = 0
    # administer: add, remove, set (of the limit), pause, resume, revoke, describe.
    act: str = ""
    amount: int = 0  # Of permits.
    policy: str = ""  # Of a smaller limit: wait, recall, refuse.
    grace_ms: int = 0  # Of a recall and of a revoke. 0: none, the lease ends at once.
    target: str = ""  # Of a revoke: "lease ID" or "holder TEXT".
    # Its answer, and what it says about the semaphore after the act.
    affected: int = 0
    limit: int = 0
    held: int = 0
    paused: bool = False


class Recorder:
    """Collects operations of many threads."""

    def __init__(self, semaphores, administered=()):
        self.semaphores = dict(semaphores)
        self.administered = tuple(administered)
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


def operation_of(line):
    """The operation that a line of JSON says; what it does not say has its default."""
    operation = Op(**json.loads(line))
    operation.slots = tuple(operation.slots)
    return operation


def load(path):
    """(limits by semaphore, operations)."""
    with open(path, encoding="utf-8") as file:
        limits = json.loads(next(file))["semaphores"]
        return limits, [operation_of(line) for line in file]
