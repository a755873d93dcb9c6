"""Uses the Python package as programs do, and writes what it called and was answered, one operation of
history.py in each line; driver.cc and driver.mjs beside it do the same.

Usage: driver.py ADDRESS[,ADDRESS...] NAME=LIMIT[,...] ADMINISTERED[,...] SEED LABEL WORKERS PERMITS_MAX

It ends when its input does. What the package promises is recorded, not what it sent: when it said that a
lease was held, until when (`vouched_ns`), and when it said that the lease was lost. A call that was given
up may have left something behind for a while: `until_ns`.
"""

import json
import random
import sys
import threading
import time

import semaphored

TTL_S = 1.5
WAIT_MS = 3000
LINGERS_NS = 30_000_000_000
# Refusals that only the daemon can give.
REFUSALS = ("FULL", "PAUSED", "EXCEEDS_LIMIT")

now_ns = time.monotonic_ns
out_lock = threading.Lock()
stopping = threading.Event()


def write(**operation):
    with out_lock:
        sys.stdout.write(json.dumps(operation) + "\n")
        sys.stdout.flush()


class Worker:

    def __init__(self, client, semaphores, administered, label, seed, permits_max):
        self.permits_max = permits_max
        self.client, self.semaphores, self.administered = client, semaphores, administered
        self.label = label
        self.random = random.Random(f"{seed}-{label}")
        self.calls = 0

    def run(self):
        while not stopping.is_set():
            self.turn()

    def turn(self):
        semaphore = self.random.choice(list(self.semaphores))
        permit, note = self.acquire(semaphore)
        if permit is None:
            return
        held = Held(self, semaphore, permit, note)
        held.look()
        if self.random.random() < 0.3:
            held.stay(self.random.uniform(0, 0.004))
        elif semaphore in self.administered and self.random.random() < 0.08:
            held.stay(self.random.uniform(0, 0.25))
        if self.random.random() < 0.25:
            held.verify()
        held.release()

    def acquire(self, semaphore):
        limit = self.semaphores[semaphore]
        wait_ms = 0 if self.random.random() < 0.25 else WAIT_MS
        note = {"recalled_ns": 0, "queued_ns": 0}
        self.calls += 1
        operation = {
            "kind": "acquire", "client": self.label, "semaphore": semaphore, "begin_ns": now_ns(),
            "request": f"{self.label}/{self.calls}", "holder": self.label, "steady": False,
            "permits": self.random.randint(1, min(self.permits_max, limit)),
            "priority": self.random.choice((0, 0, 0, 1)),
            "wait_ms": max(0, wait_ms - 1)}  # The package rounds what is left of a wait down.
        try:
            permit = self.client.acquire(
                semaphore, limit=limit, adopt_limit=semaphore in self.administered,
                permits=operation["permits"], wait=wait_ms / 1000, holder=self.label,
                priority=operation["priority"],
                on_queued=lambda _: note.update(queued_ns=note["queued_ns"] or now_ns()),
                on_recall=lambda _: note.update(recalled_ns=now_ns()))
        except semaphored.Error as error:
            end_ns = now_ns()
            until_ns = 0 if error.reason in REFUSALS else end_ns + LINGERS_NS
            write(**operation, end_ns=end_ns, outcome="error", until_ns=until_ns,
                  reason=error.reason or error.code.name)
            return None, note
        write(**operation, end_ns=now_ns(), outcome="granted", lease=permit.lease_id,
              slots=list(permit.slots), token=permit.token, queued_ns=note["queued_ns"])
        return permit, note


class Held:
    """A permit, and what was said of it."""

    def __init__(self, worker, semaphore, permit, note):
        self.worker, self.permit, self.note = worker, permit, note
        self.common = {"client": worker.label, "semaphore": semaphore, "lease": permit.lease_id}
        self.vouched_ns = 0
        self.is_lost = False

    def look(self):
        """Until when it can be relied on; or that it is lost."""
        at_ns = now_ns()
        valid_for_s = self.permit.valid_for
        if valid_for_s > 0:
            self.vouched_ns = max(self.vouched_ns, at_ns + int(valid_for_s * 1e9))
        elif not self.is_lost:
            self.is_lost = True
            self.write_loss()

    def write_loss(self):
        at_ns = now_ns()
        loss = self.permit.loss
        cause = loss.cause.name if loss is not None else "NO_CONTACT"
        # Of a recall the package itself says when the grace is over, a margin before the daemon does; and on a busy
        # machine before our handler of recalls has had its turn.
        recalled = self.note["recalled_ns"] or (
            cause == "RECALLED" and not loss.message.startswith("the daemon says"))
        reported = cause in ("EXPIRED", "REVOKED", "RECALLED", "MOVED", "UNKNOWN") and not recalled
        until_ns = min(self.vouched_ns, at_ns) if recalled else self.vouched_ns
        write(**self.common, kind="end", begin_ns=at_ns, end_ns=at_ns, outcome="left",
              reason="lost" if reported else "left", vouched_ns=until_ns,
              cause=cause if reported and cause != "UNKNOWN" else "")

    def stay(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.is_lost:
            self.permit.lost.wait(min(0.01, max(0.0, until - time.monotonic())))
            self.look()

    def verify(self):
        begin_ns = now_ns()
        operation = {**self.common, "kind": "verify", "begin_ns": begin_ns,
                     "vouched_ns": 0 if self.is_lost else self.vouched_ns}
        try:
            verdict = self.worker.client.verify(self.permit)
        except semaphored.Error:
            write(**operation)
            return
        if verdict.held:
            write(**operation, end_ns=now_ns(), outcome="held", slots=list(verdict.slots),
                  token=verdict.token)
        else:
            write(**operation, end_ns=now_ns(), outcome="ended", cause=verdict.ended)

    def release(self):
        self.look()
        if self.note["recalled_ns"]:
            write(**self.common, kind="recalled", begin_ns=self.note["recalled_ns"],
                  end_ns=self.note["recalled_ns"], outcome="left")
        operation = {**self.common, "kind": "release", "begin_ns": now_ns(),
                     "vouched_ns": 0 if self.is_lost else self.vouched_ns}
        try:
            self.permit.release()
        except semaphored.LostError as error:
            # After a loss the release is still sent, and its answer is not said.
            known = not self.is_lost and error.loss.cause.name in ("REVOKED", "UNKNOWN")
            write(**operation, end_ns=now_ns() if known else 0, outcome="ended" if known else "",
                  reason=error.loss.cause.name if known else "")
        except semaphored.Error:
            write(**operation)
        else:
            write(**operation, end_ns=now_ns(), outcome="released")


def main():
    addresses, limits, administered, seed, label, workers, permits_max = sys.argv[1:]
    semaphores = {name: int(limit) for name, limit in
                  (each.split("=") for each in limits.split(","))}
    with semaphored.Client(addresses.split(","), ttl=TTL_S) as client:
        threads = [threading.Thread(target=Worker(
            client, semaphores, administered.split(","), f"{label}-{number}", seed,
            int(permits_max)).run)
            for number in range(int(workers))]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        stopping.set()
        for thread in threads:
            thread.join()


main()
