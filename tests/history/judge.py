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
choice does.

Where administrators change the limit, pause or resume, the points of their acts are searched for along
with those of the grants (acts.py). This is exact for grants: limit, pause and the number of permits held.
Acts that end leases are not searched for. A lease ends no earlier than the first act that means it
allows, and no later than a revoke of it was acknowledged.

Some questions are answered on one side only. A refusal (FULL, PAUSED, EXCEEDS_LIMIT, WOULD_OVERSHOOT) and
a lease that verify does not find are accepted if any lease, waiter or act *may* have been in the way.
"""

import bisect
import collections
import dataclasses

import acts as administration
import by_token

NEVER = administration.NEVER


@dataclasses.dataclass(frozen=True)
class Promises:
    """What an engine promises, of that which docs/semantics.md lets engines differ in."""
    token_order: bool = True  # Tokens rise with the grants of a semaphore, not of each slot only.
    first_come_first_served: bool = True
    leases_survive: bool = True  # A lease outlives its daemon, and the engine's connection.
    only_tokens: bool = False  # Only the token protects the resource: by_token.py.


@dataclasses.dataclass
class Lease:
    acquire: object  # The operation, with its repeats merged.
    releases: list = dataclasses.field(default_factory=list)
    ends: list = dataclasses.field(default_factory=list)
    verifies: list = dataclasses.field(default_factory=list)
    notices: list = dataclasses.field(default_factory=list)
    latest_grant_ns: int = 0
    earliest_end_ns: int = NEVER
    latest_end_ns: int = NEVER

    @property
    def name(self):
        return f"token {self.acquire.token} of {self.acquire.client}"

    def released(self):
        return [each for each in self.releases if each.outcome == "released"]

    def ended(self):
        """Answers and reports that it had ended, with what is known of the cause."""
        found = [(each, each.cause or each.reason) for each in self.releases + self.verifies
                 if each.outcome == "ended"]
        return found + [(each, each.cause) for each in self.ends if each.reason == "lost"]


class Withdrawals:
    """The acts that end leases: revokes, and resizes that recall."""

    def __init__(self, acts):
        self.revokes = collections.defaultdict(list)  # By "lease ID" and "holder TEXT".
        self.recalls = []
        for act in acts:
            if act.operation.outcome == "error":
                continue
            if act.operation.act == "revoke":
                self.revokes[act.operation.target].append(act)
            elif act.operation.policy == "recall":
                self.recalls.append(act)

    def that_mean(self, acquire, cause):
        """The acts that may have ended the lease of a grant. `cause` empty or UNKNOWN: not known."""
        found = []
        if cause in ("", "UNKNOWN", "UNSPECIFIED", "REVOKED"):
            found += self.revokes.get(f"lease {acquire.lease}", [])
            found += self.revokes.get(f"holder {acquire.holder}", [])
        if cause in ("", "UNKNOWN", "UNSPECIFIED", "RECALLED"):
            found += self.recalls
        return [act for act in found if act.end_ns > acquire.begin_ns]

    def earliest_ns(self, acquire, cause):
        return min((act.begin_ns + act.operation.grace_ms * 1_000_000
                    for act in self.that_mean(acquire, cause)), default=NEVER)

    def certain(self, acquire):
        """A revoke of this very lease, at once, that found it; or nothing."""
        return next((act for act in self.revokes.get(f"lease {acquire.lease}", ())
                     if act.operation.outcome == "done" and act.operation.affected
                     and act.operation.grace_ms == 0), None)


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
        {"release": lease.releases, "verify": lease.verifies, "end": lease.ends,
         "recalled": lease.notices}[operation.kind].append(operation)
    return leases


def find_ends(lease, withdrawals):
    """Sets when the lease ended, at the earliest and at the latest."""
    done = lease.released()
    if done:
        lease.earliest_end_ns, lease.latest_end_ns = done[0].begin_ns, done[0].end_ns
        return
    ended = lease.ended()
    unknown = [each for each in lease.releases if not each.end_ns]
    # A lease that was not released stands at least as long as the daemon has vouched for it. It may
    # have ended after that, before a release whose answer is not known. 0 says nothing of the time
    # before the holder gave up.
    silent = [*unknown, *lease.ends, *(each for each in lease.releases if each.outcome == "ended")]
    vouched = [each.vouched_ns for each in silent if each.vouched_ns] or ([0] if silent else [])
    cause = next((cause for _, cause in ended if cause), "")
    lease.earliest_end_ns = min(
        [*(each.begin_ns for each in unknown), *vouched,
         withdrawals.earliest_ns(lease.acquire, cause)])
    held = [each.begin_ns for each in lease.verifies if each.outcome == "held"]
    lease.earliest_end_ns = max([lease.earliest_end_ns, *held])
    # A lease that moves has not ended, although its former session does not have it.
    lease.latest_end_ns = min((each.end_ns for each, cause in ended
                               if cause not in ("", "UNSPECIFIED", "MOVED")), default=NEVER)
    revoke = withdrawals.certain(lease.acquire)
    if revoke is not None:
        lease.earliest_end_ns = max(lease.earliest_end_ns, revoke.begin_ns)
        lease.latest_end_ns = min(lease.latest_end_ns, revoke.end_ns)


def grants(name, most, leases, promises):
    """Slots and tokens, and the latest time of each grant. The limit was never above `most`."""
    findings = []
    in_order = sorted(leases, key=lambda lease: lease.acquire.token)
    for lease in in_order:
        slots = lease.acquire.slots
        if len(set(slots)) != lease.acquire.permits:
            findings.append(f"{name}: {lease.name} has slots {slots} for {lease.acquire.permits}")
        if slots and not 1 <= min(slots) <= max(slots) <= most:
            findings.append(f"{name}: {lease.name} has slots {slots} of {most}")
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


class Room:
    """The leases so far by their earliest ends: from when on there is room for another grant."""

    def __init__(self):
        self.ends = []  # (earliest end, permits), sorted.

    def add(self, lease):
        bisect.insort(self.ends, (lease.earliest_end_ns, lease.acquire.permits))

    def forget(self, before_ns):
        """What had ended by then; no later grant can come before."""
        self.ends = self.ends[bisect.bisect_right(self.ends, (before_ns, NEVER)):]

    def from_ns(self, permits, limit):
        for end_ns, other in reversed(self.ends):
            permits += other
            if permits > limit:
                return end_ns
        return 0


def in_force(name, limit, leases, acts):
    """(findings, spans): each grant when there was room under the limit in force, and no pause."""
    findings = []
    order = administration.Order(limit, acts)
    room = Room()
    begin_ns = 0
    for lease in sorted(leases, key=lambda lease: lease.acquire.token):
        acquire = lease.acquire
        begin_ns = max(begin_ns, acquire.begin_ns)
        room.forget(begin_ns)
        why = order.grant(begin_ns, lease.latest_grant_ns, max(acquire.slots, default=0),
                          lambda limit, permits=acquire.permits: room.from_ns(permits, limit))
        if why and lease.latest_grant_ns >= begin_ns:
            findings.append(f"{name}: {lease.name}, granted by {lease.latest_grant_ns}: {why}")
        if not order.states:
            return findings, order.spans
        room.add(lease)
    if not order.finish():
        findings.append(f"{name}: no order of the administrators' acts explains their answers")
    return findings, order.spans


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


def held_at_most(leases, begin_ns, end_ns):
    return sum(lease.acquire.permits for lease in leases
               if lease.acquire.begin_ns < end_ns and lease.latest_end_ns > begin_ns)


def refusals(name, spans, operations, leases):
    """Refusals and waits that ended need a reason."""
    findings = []
    acquires = [each for each in operations if each.kind == "acquire"]
    waiting = [each for each in acquires
               if each.wait_ms != 0 or not each.end_ns or each.until_ns]
    for operation in acquires:
        if operation.outcome == "granted" or not operation.end_ns:
            continue
        window = operation.begin_ns, operation.end_ns
        if operation.drains:
            findings.append(f"{name}: permits have not come back: {operation.reason}")
        waited_ms = (operation.end_ns - operation.begin_ns) / 1e6
        if operation.reason == "WAIT_EXPIRED" and waited_ms < operation.wait_ms:
            findings.append(f"{name}: a wait of {operation.wait_ms} ms ended after {waited_ms:.0f}")
        if operation.reason == "PAUSED" and not spans.may_be_paused(*window):
            findings.append(f"{name}: {operation.client} was refused since it was paused at "
                            f"{operation.end_ns}, when it was not")
        if operation.reason == "EXCEEDS_LIMIT" and spans.least_limit(*window) >= operation.permits:
            findings.append(f"{name}: {operation.client} asked for {operation.permits} permits, and "
                            f"the answer says that the limit is below that at "
                            f"{operation.end_ns}")
        if operation.reason != "FULL" or operation.wait_ms != 0:
            continue
        limit = spans.least_limit(*window)
        held = held_at_most(leases, *window)
        if held + operation.permits > limit:
            continue
        in_the_way = any(other.begin_ns < operation.end_ns
                         and max(other.end_ns, other.until_ns) > operation.begin_ns
                         or not other.end_ns for other in waiting)
        if not in_the_way:
            findings.append(f"{name}: {operation.client} was refused {operation.permits} permits at "
                            f"{operation.end_ns}, when at most {held} of {limit} were held")
    return findings


def answers(name, leases, promises, withdrawals):
    """What was answered about each lease agrees with what had been done with it."""
    findings = []
    for lease in leases:
        done = lease.released()
        revoke = withdrawals.certain(lease.acquire)
        if len(done) + (revoke is not None) > 1:
            findings.append(f"{name}: {lease.name} was released {len(done)} times"
                            f"{', and revoked' if revoke else ''}")
        for operation, cause in lease.ended():
            if not may_have_ended(lease, operation, cause, withdrawals) and promises.leases_survive:
                findings.append(f"{name}: {lease.name} had ended at {operation.end_ns} "
                                f"({operation.kind} {cause}); vouched for until "
                                f"{operation.vouched_ns}")
        for notice in lease.notices:
            if not any(act.begin_ns < notice.end_ns
                       for act in withdrawals.that_mean(lease.acquire, "")):
                findings.append(f"{name}: {lease.name} was asked back, by no act")
        for verify in lease.verifies:
            if verify.outcome != "held":
                continue
            if (verify.slots, verify.token) != (lease.acquire.slots, lease.acquire.token):
                findings.append(f"{name}: verify returned {verify.slots}, token {verify.token} for "
                                f"{lease.name}")
            if verify.begin_ns > lease.latest_end_ns:
                findings.append(f"{name}: {lease.name} is held at {verify.begin_ns}, after its "
                                f"end at {lease.latest_end_ns}")
    return findings


def may_have_ended(lease, operation, cause, withdrawals):
    """Whether anything can have ended the lease by the answer of `operation`."""
    if cause not in ("EXPIRED", "RELEASED") and (
            withdrawals.earliest_ns(lease.acquire, cause) <= operation.end_ns):
        return True
    if cause in ("REVOKED", "RECALLED"):
        return False
    if operation.end_ns >= operation.vouched_ns:
        return True
    return any(other is not operation and other.begin_ns < operation.end_ns
               and other.outcome in ("released", "") for other in lease.releases)


def acts_and_leases(name, acts, leases, withdrawals, spans):
    """What administrators were answered agrees with the leases."""
    findings = []
    by_target = {f"lease {lease.acquire.lease}": lease for lease in leases}
    for act in acts:
        operation = act.operation
        window = act.begin_ns, act.end_ns
        if operation.reason == "WOULD_OVERSHOOT":
            most = held_at_most(leases, *window)
            if all(act.limit_after(limit) >= most for limit, _ in spans.between(*window)):
                findings.append(f"{name}: a limit was refused at {act.end_ns}, when at most {most} "
                                f"were held")
        if operation.outcome != "done":
            continue
        surely = sum(lease.acquire.permits for lease in leases
                     if lease.latest_grant_ns < act.begin_ns and lease.earliest_end_ns > act.end_ns)
        if act.seen and operation.act not in ("revoke",) and operation.held < surely:
            findings.append(f"{name}: {operation.held} were said to be held by {act.end_ns}; at "
                            f"least {surely} were")
        if act.seen and operation.policy == "refuse" and operation.limit < surely:
            findings.append(f"{name}: the limit became {operation.limit} at {act.end_ns} although "
                            f"{surely} were held")
        lease = by_target.get(operation.target)
        if operation.act == "revoke" and lease is not None and not operation.affected and (
                lease.latest_grant_ns < act.begin_ns and lease.earliest_end_ns > act.end_ns):
            findings.append(f"{name}: {lease.name} was not found by its revoke at {act.end_ns}")
    revokes = [act for found in withdrawals.revokes.values() for act in found]
    for cause, found in (("REVOKED", revokes), ("RECALLED", withdrawals.recalls)):
        if any(act.operation.outcome != "done" for act in found):
            continue
        said = sum(act.operation.affected for act in found)
        ended = sum(any(each == cause for _, each in lease.ended()) for lease in leases)
        if ended > said:
            findings.append(f"{name}: {ended} leases ended as {cause}; acts said {said}")
    return findings


def judge_semaphore(name, limit, operations, acts, promises):
    withdrawals = Withdrawals(acts)
    leases = list(collect(operations).values())
    for lease in leases:
        find_ends(lease, withdrawals)
    try:
        # More than that the limit can never have been.
        most = limit + sum(act.operation.amount for act in acts if act.operation.act == "add")
        most = max([most, *(act.operation.amount for act in acts if act.operation.act == "set")])
        findings = grants(name, most, leases, promises)
        spans = [(0, NEVER, limit, False)]
        if promises.token_order:
            more, spans = in_force(name, limit, leases, acts)
            findings += more
    except administration.Undecided:
        return [f"{name}: undecided: too many acts overlap"]
    spans = administration.Spans(spans)
    if promises.first_come_first_served and promises.token_order:
        findings += overtaken(name, leases)
    findings += refusals(name, spans, operations, leases)
    findings += answers(name, leases, promises, withdrawals)
    return findings + acts_and_leases(name, acts, leases, withdrawals, spans)


def judge(limits, operations, promises=Promises()):
    """The findings, as texts. None: a sequential semaphore explains the history."""
    if promises.only_tokens:
        return [finding for name, limit in limits.items() for finding in by_token.judge(
            name, limit, [each for each in operations if each.semaphore == name])]
    findings = requests_have_one_effect(operations)
    more, acts = administration.acts_of(operations)
    findings += more
    by_semaphore = collections.defaultdict(list)
    for operation in merged([each for each in operations if each.kind != "administer"]):
        by_semaphore[operation.semaphore].append(operation)
    for name in sorted({*by_semaphore, *acts}):
        findings += judge_semaphore(name, limits[name], by_semaphore[name], acts.get(name, []),
                                    promises)
    return findings


def summary(operations):
    """What there was to find something in."""
    operations = [each for each in operations if each.kind != "recalled"]
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
            "acts": sum(each.kind == "administer" and each.outcome == "done" for each in operations),
            "revoked": sum("REVOKED" in (each.reason, each.cause) for each in operations),
            "recalled": sum("RECALLED" in (each.reason, each.cause) for each in operations),
            "repeated": sum(1 for each in operations if each.kind == "acquire" and not each.steady),
            **dict(outcomes.most_common())}
