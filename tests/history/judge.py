"""Decides whether a sequential semaphore explains a history.

A sequential semaphore carries out one operation after the other. Each operation takes effect at one
point between its call and its answer; one whose outcome is unknown may take effect at any later point,
or never. The general question is exponential in the number of operations that overlap. Two facts that
grants carry make it linear here:
  - slots: two leases with a common slot never overlap, whatever else happens;
  - tokens: within a semaphore they rise in the order of the grants (on engines that promise it).
So the order of grants is known, and only their points in time are not. All that is known of these points
has the form "not before", "not after" or "one before the other". The latest point that is possible for
each grant and the earliest for each end are found in one pass; if these contradict each other, every
choice does. There is no search and no time-out.

Two questions are answered on one side only. A refusal (FULL) and a lease that verify does not find are
accepted if any lease or waiter *may* have been in the way.
"""

import collections
import dataclasses

NEVER = 1 << 62


@dataclasses.dataclass(frozen=True)
class Promises:
    """What an engine promises, of that which docs/semantics.md lets engines differ in."""
    token_order: bool = True  # Tokens rise with the grants of a semaphore, not of each slot only.
    first_come_first_served: bool = True
    leases_survive: bool = True  # A lease outlives its daemon, and the engine's connection.


@dataclasses.dataclass
class Lease:
    acquire: object  # The operation, with its repeats merged.
    releases: list = dataclasses.field(default_factory=list)
    ends: list = dataclasses.field(default_factory=list)
    verifies: list = dataclasses.field(default_factory=list)
    latest_grant_ns: int = 0
    earliest_end_ns: int = NEVER
    latest_end_ns: int = NEVER

    @property
    def name(self):
        return f"token {self.acquire.token} of {self.acquire.client}"


def merged(operations):
    """Repeats of one request count as one operation, from the first call to the first answer."""
    by_request = {}
    for operation in sorted(operations, key=lambda each: each.begin_ns):
        key = (operation.kind, operation.request, operation.semaphore, operation.outcome == "error")
        if not operation.request:
            key = id(operation)
        before = by_request.get(key)
        if before is None:
            by_request[key] = dataclasses.replace(operation)
            continue
        if operation.end_ns and (not before.end_ns or operation.end_ns < before.end_ns):
            answer = dataclasses.replace(operation, begin_ns=before.begin_ns, steady=False)
            answer.queued_ns = before.queued_ns or operation.queued_ns
            by_request[key] = answer
        before = by_request[key]
        before.steady = False
    return list(by_request.values())


def requests_have_one_effect(operations):
    """One request id has one lease, in one semaphore; one lease has one request."""
    findings = []
    leases, requests = {}, {}
    for operation in operations:
        if operation.kind != "acquire" or operation.outcome != "granted":
            continue
        granted = (operation.lease, operation.slots, operation.token)
        if leases.setdefault(operation.request, granted) != granted:
            findings.append(f"request {operation.request} was granted {granted} and "
                            f"{leases[operation.request]}")
        if requests.setdefault(operation.lease, operation.request) != operation.request:
            findings.append(f"{operation.lease} was granted to {operation.request} and "
                            f"{requests[operation.lease]}")
    return findings


def collect(operations):
    """Leases by their ids, with all that was done with them."""
    leases = {}
    for operation in operations:
        if operation.kind == "acquire" and operation.outcome == "granted":
            leases.setdefault(operation.lease, Lease(operation))
    for operation in operations:
        lease = leases.get(operation.lease)
        if lease is None or operation.kind == "acquire":
            continue
        {"release": lease.releases, "verify": lease.verifies, "end": lease.ends}[
            operation.kind].append(operation)
    return leases


def find_ends(lease):
    """Sets when the lease ended, at the earliest and at the latest."""
    done = [each for each in lease.releases if each.outcome == "released"]
    if done:
        lease.earliest_end_ns, lease.latest_end_ns = done[0].begin_ns, done[0].end_ns
        return
    unknown = [each.begin_ns for each in lease.releases if not each.end_ns]
    # Without a word of its holder, a lease stands at least as long as the daemon has vouched for it.
    silent = [each.vouched_ns for each in lease.ends]
    answered = [each.vouched_ns for each in lease.releases if each.outcome == "ended"]
    lease.earliest_end_ns = min(unknown + silent + answered, default=NEVER)


def grants(name, limit, leases, promises):
    findings = []
    in_order = sorted(leases, key=lambda lease: lease.acquire.token)
    for lease in in_order:
        slots = lease.acquire.slots
        if len(set(slots)) != lease.acquire.permits:
            findings.append(f"{name}: {lease.name} has slots {slots} for {lease.acquire.permits}")
        if slots and not 1 <= min(slots) <= max(slots) <= limit:
            findings.append(f"{name}: {lease.name} has slots {slots} of {limit}")
    latest_ns = NEVER
    for lease in reversed(in_order):
        latest_ns = min(latest_ns, lease.acquire.end_ns)
        lease.latest_grant_ns = latest_ns if promises.token_order else lease.acquire.end_ns
        if lease.latest_grant_ns < lease.acquire.begin_ns:
            findings.append(f"{name}: {lease.name} was requested after a higher token was granted")
    last = {}
    seen = {}
    for lease in in_order:
        before = seen.setdefault(lease.acquire.token, lease)
        if before is not lease and (promises.token_order or
                                    set(before.acquire.slots) & set(lease.acquire.slots)):
            findings.append(f"{name}: {lease.name} is also of {before.acquire.client}")
        for slot in lease.acquire.slots:
            before = last.get(slot)
            if before is not None and before.earliest_end_ns > lease.latest_grant_ns:
                findings.append(f"{name}: slot {slot} of {lease.name} was granted by "
                                f"{lease.latest_grant_ns}; {before.name} ended after "
                                f"{before.earliest_end_ns}")
            last[slot] = lease
    return findings


def overtaken(name, leases):
    """A request that waited before another of no higher priority was sent has the lower token."""
    findings = []
    waited = sorted((lease.acquire for lease in leases
                     if lease.acquire.queued_ns and lease.acquire.steady),
                    key=lambda acquire: acquire.queued_ns)
    last = {}  # By priority, of those that waited already: the one with the highest token.
    place = 0
    for acquire in sorted((lease.acquire for lease in leases), key=lambda each: each.begin_ns):
        while place < len(waited) and waited[place].queued_ns < acquire.begin_ns:
            first = waited[place]
            if first.token > getattr(last.get(first.priority), "token", 0):
                last[first.priority] = first
            place += 1
        for priority, first in last.items():
            if priority >= acquire.priority and first.token > acquire.token:
                findings.append(f"{name}: token {acquire.token} of {acquire.client} passed over "
                                f"{first.client}, which waited before and has {first.token}")
    return findings


def waits(name, limit, operations, leases):
    """Refusals and waits that ended need a reason."""
    findings = []
    acquires = [each for each in operations if each.kind == "acquire"]
    for operation in acquires:
        if operation.outcome == "granted" or not operation.end_ns:
            continue
        if operation.drains:
            findings.append(f"{name}: permits have not come back: {operation.reason}")
        waited_ms = (operation.end_ns - operation.begin_ns) / 1e6
        if operation.reason == "WAIT_EXPIRED" and waited_ms < operation.wait_ms:
            findings.append(f"{name}: a wait of {operation.wait_ms} ms ended after {waited_ms:.0f}")
        if operation.reason != "FULL" or operation.wait_ms != 0:
            continue
        held = sum(len(lease.acquire.slots) for lease in leases
                   if lease.acquire.begin_ns < operation.end_ns
                   and lease.latest_end_ns > operation.begin_ns)
        in_the_way = any(
            (other.wait_ms != 0 or not other.end_ns) and other.begin_ns < operation.end_ns
            and (other.end_ns or NEVER) > operation.begin_ns for other in acquires)
        if held + operation.permits <= limit and not in_the_way:
            findings.append(f"{name}: {operation.client} was refused {operation.permits} permits at "
                            f"{operation.end_ns}, when at most {held} of {limit} were held")
    return findings


def answers(name, leases, promises):
    """What was answered about each lease agrees with what had been done with it."""
    findings = []
    for lease in leases:
        done = [each for each in lease.releases if each.outcome == "released"]
        if len(done) > 1:
            findings.append(f"{name}: {lease.name} was released {len(done)} times")
        for operation in [*lease.releases, *lease.verifies, *lease.ends]:
            ended = operation.outcome == "ended" or operation.reason == "lost"
            if ended and not may_have_ended(lease, operation) and promises.leases_survive:
                findings.append(f"{name}: {lease.name} had ended at {operation.end_ns} "
                                f"({operation.kind}); vouched for until {operation.vouched_ns}")
        for verify in lease.verifies:
            if verify.outcome != "held":
                continue
            if (verify.slots, verify.token) != (lease.acquire.slots, lease.acquire.token):
                findings.append(f"{name}: verify returned {verify.slots}, token {verify.token} for "
                                f"{lease.name}")
            if verify.begin_ns > lease.latest_end_ns:
                findings.append(f"{name}: {lease.name} is held at {verify.begin_ns}, after its "
                                f"release at {lease.latest_end_ns}")
    return findings


def may_have_ended(lease, operation):
    """Whether anything can have ended the lease by the answer of `operation`."""
    if operation.end_ns >= operation.vouched_ns:
        return True
    return any(other is not operation and other.begin_ns < operation.end_ns
               and other.outcome in ("released", "") for other in lease.releases)


def judge(limits, operations, promises=Promises()):
    """The findings, as texts. None: a sequential semaphore explains the history."""
    findings = requests_have_one_effect(operations)
    operations = merged(operations)
    by_semaphore = collections.defaultdict(list)
    for operation in operations:
        by_semaphore[operation.semaphore].append(operation)
    for name, of_one in sorted(by_semaphore.items()):
        leases = list(collect(of_one).values())
        for lease in leases:
            find_ends(lease)
        findings += grants(name, limits[name], leases, promises)
        if promises.first_come_first_served and promises.token_order:
            findings += overtaken(name, leases)
        findings += waits(name, limits[name], of_one, leases)
        findings += answers(name, leases, promises)
    return findings


def summary(operations):
    """What there was to find something in."""
    overlaps = 0
    open_until = {}
    for operation in sorted(operations, key=lambda each: each.begin_ns):
        until = open_until.get(operation.semaphore, 0)
        overlaps += operation.begin_ns < until
        open_until[operation.semaphore] = max(until, operation.end_ns or NEVER
                                              if operation.kind == "acquire" else operation.end_ns)
    outcomes = collections.Counter(
        each.reason if each.outcome == "error" else each.outcome or "unknown" for each in operations)
    return {"operations": len(operations), "overlaps": overlaps,
            "unknown": sum(1 for each in operations if not each.end_ns and each.kind != "end"),
            "waited": sum(1 for each in operations if each.queued_ns),
            "repeated": sum(1 for each in operations if each.kind == "acquire" and not each.steady),
            **dict(outcomes.most_common())}
