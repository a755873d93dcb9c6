"""Judges a storm by what was recorded from outside.

1. Two holders are never inside: for each slot, no act under a permit comes after the first act
   under a permit with a higher token. A slot and a token belong to one holder, and a slot is within
   the limit.
2. No holder is stopped that need not be: a permit that was lost, and work that was ended, have a
   reason among the faults of the time before: see Reasons.
"""

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Rules:
    ttl_s: float
    node_ttl_s: float
    # What a client bears without any daemon: documented are two thirds of the TTL. The rest is for
    # the way back: a client that reaches a daemon again only then.
    bears: float = 0.5
    # The same without an engine, as a part of the node TTL. Daemons vouch for nine tenths of it
    # from their last heartbeat. One that fails is sent again only a third of it later, if by then
    # each lane has reached the engine, which it tries every two seconds at the most.
    engine_bears: float = 0.15
    # How long after its time a loss may be noticed, on a busy machine.
    late_s: float = 0.5

    @property
    def bears_ns(self):
        return self.bears * self.ttl_s * SECOND_NS

    def ns(self, seconds):
        return int(seconds * SECOND_NS)


def overlap_ns(spans, begin_ns, end_ns):
    """How much of the time from begin to end lies in one of the spans at least."""
    covered, at = 0, begin_ns
    for first, last in sorted(spans):
        first, last = max(first, at), min(last, end_ns)
        if last > first:
            covered += last - first
            at = last
    return covered


def common(spans, others):
    """The spans of time in one of each."""
    return [(max(a, c), min(b, d)) for a, b in spans for c, d in others if max(a, c) < min(b, d)]


class Reasons:
    """Why a permit may be lost. `daemons`: the names of all.

    own       its process, of semctl the one that keeps the lease alive, stood still for longer than
              a client bears, or one of the three of semctl was killed
    daemons   for longer than a client bears no daemon served, or one was away while the other could
              not take over, since the engine was away, too
    engine    the engine was away for so long that daemons may vouch no more: see Rules.engine_bears
    together  its own stops, the daemons' and the way to another daemon are as long only together
    machine   the machine itself stood still
    """

    PARTS = ("semctl", "watcher", "guardian", "command")
    # Between the start of a command and its first act.
    START_S = 0.3
    # What is left to do when a daemon serves again, or another one has taken over.
    WAY_BACK_S = 1.0

    def __init__(self, faults, daemons, rules, end_ns):
        self.rules, self.end_ns, self.faults = rules, end_ns, faults
        self.engine, self.machine = self.spans("engine"), self.spans("machine")
        each = [self.spans(f"daemon {name}") for name in daemons]
        self.down = each[0]
        for spans in each[1:]:
            self.down = common(self.down, spans)
        way_back_ns = rules.ns(self.WAY_BACK_S)
        one = [(begin, end + way_back_ns) for spans in each for begin, end in spans]
        self.down = self.down + common(one, self.engine)
        self.ways = [(begin, begin + way_back_ns) for begin, _ in one]

    def spans(self, *targets, kinds=("stop", "kill", "end", "stall")):
        return [(fault.begin_ns, fault.end_ns or self.end_ns) for fault in self.faults
                if fault.target in targets and fault.kind in kinds]

    def why(self, stay, lost_ns):
        """A word, or None."""
        rules = self.rules
        begin_ns = lost_ns - rules.ns(rules.ttl_s + rules.late_s)
        own = self.spans(f"holder {stay.holder}", f"semctl {stay.holder}", kinds=("stop",))
        if overlap_ns(own, begin_ns, lost_ns) >= rules.bears_ns or self.was_killed(stay, lost_ns):
            return "own"
        if overlap_ns(self.down, begin_ns, lost_ns) >= rules.bears_ns:
            return "daemons"
        if overlap_ns(own + self.down + self.ways, begin_ns, lost_ns) >= rules.bears_ns:
            return "together"
        vouched_ns = begin_ns - rules.ns(rules.node_ttl_s)
        if overlap_ns(self.engine, vouched_ns, lost_ns) >= rules.ns(
                rules.engine_bears * rules.node_ttl_s):
            return "engine"
        if overlap_ns(self.machine, begin_ns, lost_ns) >= rules.ns(rules.late_s):
            return "machine"
        return None

    def was_killed(self, stay, lost_ns):
        """The last act comes a moment before the kill."""
        targets = [f"{part} {stay.holder}" for part in self.PARTS]
        return any(fault.kind == "kill" and fault.target in targets
                   and stay.first_ns - self.rules.ns(self.START_S) <= fault.begin_ns
                   and fault.begin_ns <= lost_ns + self.rules.ns(0.1) for fault in self.faults)


def exclusion(history):
    """Findings: holders that were inside at the same time."""
    findings = []
    slots = {}
    for stay in history.stays:
        if stay.acts > 0:
            slots.setdefault((stay.semaphore, stay.slot), []).append(stay)
        if not 1 <= stay.slot <= history.limits[stay.semaphore]:
            findings.append(f"{stay.semaphore}: {stay.name}: there is no such slot")
    for (semaphore, _), stays in sorted(slots.items()):
        stays.sort(key=lambda stay: stay.token)
        before = None
        for stay in stays:
            if before is not None and stay.token == before.token:
                findings.append(f"{semaphore}: {stay.name} has the token of {before.name}")
            elif before is not None and before.last_ns >= stay.first_ns:
                late_ms = (before.last_ns - stay.first_ns) / 1e6
                findings.append(f"{semaphore}: {before.name} acted until {late_ms:.1f} ms after "
                                f"the first act of {stay.name}, at {stay.first_ns}")
            if before is None or stay.last_ns >= before.last_ns:
                before = stay
    return findings


def losses(history):
    """(stay, when it was lost). What has no end of its own was ended by its semctl; a program that ends
    so was killed."""
    for stay in history.stays:
        if stay.lost_ns:
            yield stay, stay.lost_ns
        elif stay.holder in history.runs and not stay.done_ns and stay.last_ns < history.end_ns:
            yield stay, stay.last_ns


def needless(history, reasons):
    """(findings, losses by reason)."""
    findings, counts = [], {}
    for stay, lost_ns in losses(history):
        why = reasons.why(stay, lost_ns)
        if why is None:
            findings.append(f"{stay.semaphore}: {stay.name} was stopped at {lost_ns} "
                            f"({stay.cause or 'killed'}) without a reason")
        counts[why or "none"] = counts.get(why or "none", 0) + 1
    return findings, counts


def judge(history, rules, daemons):
    """(findings, losses by reason)"""
    reasons = Reasons(history.faults, daemons, rules, history.end_ns)
    findings, counts = needless(history, reasons)
    findings += unexplained_codes(history, reasons)
    return exclusion(history) + findings, counts


LOST = 122


def unexplained_codes(history, reasons):
    """A semctl that ends with "lost", whatever its command has recorded."""
    findings = []
    for holder, runs in history.runs.items():
        stays = [stay for stay in history.stays if stay.holder == holder]
        for run in runs:
            inside = [stay for stay in stays if run.begin_ns <= stay.first_ns <= run.end_ns]
            if run.code != LOST or not inside or any(
                    stay.lost_ns or not stay.done_ns for stay in inside):
                continue  # Nothing was begun, or it is judged by when it was ended.
            if reasons.why(inside[0], run.end_ns) is None:
                findings.append(f"semctl of holder {holder}, which began at {run.begin_ns}, said "
                                f"at {run.end_ns} that its lease was lost, without a reason")
    return findings
