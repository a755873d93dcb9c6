"""What holders record while they believe that they hold a permit, and what a storm knows of its
faults.

A trace is a file of one process. Each line is one act: KIND AT_NS SEMAPHORE SLOT TOKEN DETAIL, with
times of CLOCK_MONOTONIC, which all processes of a machine share.

  grant, act, done   the work was allowed at that time; "done": it is over, and the permit goes back
  term               semctl ends the work
  lost               the client says that the permit is not held any more; DETAIL is the cause

The permit of a holder that is killed has neither "done" nor "lost".
"""

import glob
import json
import os
from dataclasses import asdict, dataclass

WORK = ("grant", "act", "done", "term")


@dataclass(frozen=True)
class Act:
    kind: str
    at_ns: int
    semaphore: str
    slot: int
    token: int
    detail: str = "-"


@dataclass(frozen=True)
class Run:
    """A semctl, from its start until it was seen to have ended with this code."""
    begin_ns: int
    end_ns: int
    code: int


@dataclass
class Fault:
    """`target` is "daemon a", "engine", "machine", or a part of a holder, such as "guardian 3".
    A fault ends when what it befell works again. A process that is killed stays so: `end_ns` is
    0."""
    kind: str
    target: str
    begin_ns: int
    end_ns: int = 0


@dataclass
class Stay:
    """A holder under one permit, in all of its processes."""
    holder: int
    semaphore: str
    slot: int
    token: int
    first_ns: int
    # The last act under the permit.
    last_ns: int
    acts: int = 0
    # When the work was over in good order, and when the permit was seen to be lost; 0: it was not.
    done_ns: int = 0
    lost_ns: int = 0
    cause: str = ""

    @property
    def name(self):
        return f"holder {self.holder} in slot {self.slot} with token {self.token}"


@dataclass
class History:
    limits: dict  # By the semaphore's name.
    stays: list
    runs: dict  # By holder; each that is a semctl, and no other.
    faults: list
    end_ns: int  # When holders were asked to end.


def parse(line):
    kind, at_ns, semaphore, slot, token, detail = line.split()
    return Act(kind, int(at_ns), semaphore, int(slot), int(token), detail)


def stays_of(holder, acts):
    """The acts of one holder, in any order, as stays."""
    stays = {}
    for act in sorted(acts, key=lambda each: each.at_ns):
        key = act.semaphore, act.slot, act.token
        stay = stays.get(key)
        if stay is None:
            stay = stays[key] = Stay(holder, *key, act.at_ns, act.at_ns)
        if act.kind in WORK:
            stay.last_ns = act.at_ns
            stay.acts += 1
        if act.kind == "done":
            stay.done_ns = stay.done_ns or act.at_ns
        # What the work has left behind is ended after it.
        elif act.kind in ("term", "lost") and (not stay.done_ns or act.kind == "lost"):
            stay.lost_ns = stay.lost_ns or act.at_ns
            stay.cause = stay.cause or (act.detail if act.kind == "lost" else "TERM")
    return list(stays.values())


def holder_folder(folder, holder):
    return os.path.join(folder, f"holder-{holder}")


def read_stays(folder, holder):
    acts = []
    for path in glob.glob(os.path.join(holder_folder(folder, holder), "*.trace")):
        with open(path, encoding="ascii") as file:
            acts += [parse(line) for line in file if line.endswith("\n")]
    return stays_of(holder, acts)


def save(folder, limits, holders, runs, faults, end_ns):
    """Beside the traces: what else the judge needs."""
    with open(os.path.join(folder, "storm.json"), "w", encoding="utf-8") as file:
        json.dump({"limits": limits, "holders": holders, "end_ns": end_ns,
                   "runs": {holder: [asdict(run) for run in each] for holder, each in runs.items()},
                   "faults": [asdict(fault) for fault in faults]}, file, indent=1)


def load(folder):
    with open(os.path.join(folder, "storm.json"), encoding="utf-8") as file:
        known = json.load(file)
    stays = [stay for holder in range(known["holders"]) for stay in read_stays(folder, holder)]
    runs = {int(holder): [Run(**run) for run in each] for holder, each in known["runs"].items()}
    return History(known["limits"], stays, runs, [Fault(**each) for each in known["faults"]],
                   known["end_ns"])
