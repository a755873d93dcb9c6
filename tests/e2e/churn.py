"""Commands that go in and out of a semaphore, again and again, and what they write down of it."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import checker
from daemon import BOUND_S

WORK = """
import json, os, signal, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(event):
    line = {"event": event, "pid": os.getpid(), "group": os.getpgrp(), "kind": sys.argv[2],
            "at_ns": time.monotonic_ns()}
    os.write(file, (json.dumps(line) + "\\n").encode())
def leave(*unused):
    note("out")
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGINT, leave)
note("in")
time.sleep(float(sys.argv[3]))
leave()
"""


class Side:
    """Commands of one kind, one after the other, in so many threads. Each is a group of processes,
    which is killed as a whole: what a lock protects dies with it."""

    def __init__(self, kind, command, record, workers):
        self.kind, self.command, self.record = kind, command, record
        self.killed_ns = {}  # By process group.
        self.codes = []
        self.processes = [None] * workers
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(index,), daemon=True)
                        for index in range(workers)]
        for thread in self.threads:
            thread.start()

    def _run(self, index):
        while not self.stopping.is_set():
            work = [sys.executable, "-S", "-E", "-c", WORK, self.record, self.kind,
                    str(random.uniform(0.02, 0.3))]
            process = subprocess.Popen(self.command + work, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       start_new_session=True)
            self.processes[index] = process
            self.codes.append(process.wait())
            # Whoever was refused comes back, but not at once.
            self.stopping.wait(random.uniform(0, 0.1) if self.codes[-1] == 0 else 0.3)

    def kill_one(self):
        """One of those that run, if there is one at the moment."""
        process = random.choice(self.processes)
        if process is not None and process.poll() is None:
            kill_group(process, self.killed_ns)

    def close(self):
        self.stopping.set()
        for process in self.processes:
            if process is not None and process.poll() is None:
                process.terminate()
        for thread in self.threads:
            thread.join(BOUND_S)


def kill_group(process, killed_ns):
    """Kills the group of processes of which it is the first, and writes down when."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    killed_ns[process.pid] = time.monotonic_ns()


def lines(record):
    """What they have written so far."""
    try:
        with open(record, encoding="ascii") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


def stays(record, killed_ns):
    """Who was inside, from when to when, as grants for the checker."""
    entered, grants = {}, []

    def add(line, left_ns):
        grants.append(checker.Grant(
            client=f"{line['kind']} {line['pid']}", slots=(0,), token=0, asked_ns=line["at_ns"],
            granted_ns=line["at_ns"], ended_ns=left_ns))
    for line in lines(record):
        if line["event"] == "in":
            entered[line["pid"]] = line
        elif line["pid"] in entered:
            add(entered.pop(line["pid"]), line["at_ns"])
    for line in entered.values():
        add(line, killed_ns[line["group"]])  # Whoever neither left nor was killed is a fault.
    return grants


def count_by_kind(grants, kinds):
    return {kind: sum(grant.client.startswith(f"{kind} ") for grant in grants) for kind in kinds}
