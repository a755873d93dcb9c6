"""Judges what clients of semaphores have written down. Knows nothing of any daemon: only when
clients asked, were told and let go, on the one steady clock that all processes of a machine share,
and what a resource saw that they wrote to under their permits.

Each check returns its findings as texts, one for each violation. A check that finds nothing proves
something only if there was something to find: see summary().
"""

import dataclasses

NEVER = 1 << 62


@dataclasses.dataclass(frozen=True)
class Grant:
    """A lease in the eyes of its holder. Times are CLOCK_MONOTONIC in nanoseconds."""
    client: str
    slots: tuple
    token: int
    asked_ns: int  # When the request was sent, for the first time.
    granted_ns: int  # When the holder was told.
    # When the holder began to give it back or when its own deadline was, whichever was first.
    # Not after granted_ns: it was never held.
    ended_ns: int
    queued_ns: int = 0  # When the holder was told that it waits. 0: it was not told.
    steady: bool = True  # The request was sent once, and the connection stood until the grant.
    priority: int = 0
    # When it was told that the lease had ended, although nobody had given it back or taken it
    # away. 0: it was not told.
    lost_ns: int = 0
    where: str = ""  # Who granted it, for people.


@dataclasses.dataclass(frozen=True)
class Limit:
    """A limit, from when it was asked for and when that was answered."""
    limit: int
    asked_ns: int = 0
    answered_ns: int = 0


@dataclasses.dataclass(frozen=True)
class Touch:
    """What a resource did when somebody came to one of its slots, in its own order."""
    slot: int
    token: int
    write: bool  # Otherwise a read, which shows the token too.
    accepted: bool
    # The number that was read; a write puts down one more than its writer had read.
    value: int
    # The same of a twin of the resource that looks at no token and accepts everything.
    unchecked: int


def over_limit(grants, limits):
    """Whenever somebody is told of a grant, no more permits are held than the limit. `limits` is
    in order; where it is lowered, what was granted before may stand, and only falls."""
    changes = []
    for grant in grants:
        if grant.ended_ns > grant.granted_ns:
            changes.append((grant.granted_ns, 1, len(grant.slots), grant))
            changes.append((grant.ended_ns, 0, -len(grant.slots), grant))
    findings = []
    held = 0
    # At equal times, what leaves goes first.
    for at_ns, is_grant, permits, grant in sorted(changes, key=lambda change: change[:2]):
        held += permits
        if is_grant and held > highest_limit(limits, grant):
            findings.append(f"{held} permits of {highest_limit(limits, grant)} are held when "
                            f"{grant.client} gets slots {grant.slots} at {at_ns}")
    return findings


def highest_limit(limits, grant):
    """The highest limit that was in force at some time while the grant may have been made."""
    earliest = max(grant.asked_ns, grant.queued_ns)
    replaced = [limit.answered_ns for limit in limits[1:]] + [NEVER]
    return max(limit.limit for limit, replaced_ns in zip(limits, replaced)
               if limit.asked_ns <= grant.granted_ns and replaced_ns > earliest)


def slots_twice(grants):
    """For each slot, tokens strictly rise, and one holder has let go before the next is told."""
    by_slot = {}
    for grant in grants:
        for slot in grant.slots:
            by_slot.setdefault(slot, []).append(grant)
    findings = []
    for slot, of_slot in sorted(by_slot.items()):
        of_slot.sort(key=lambda grant: (grant.token, grant.granted_ns))
        last = None  # That was held. One that was told too late to be held is in nobody's way.
        for before, grant in zip([None, *of_slot], of_slot):
            if before is not None and before.token == grant.token:
                findings.append(f"slot {slot}: token {grant.token} was given to both "
                                f"{before.client} and {grant.client}")
            held = grant.ended_ns > grant.granted_ns
            if last is not None and held and last.ended_ns > grant.granted_ns:
                findings.append(
                    f"slot {slot}: {grant.client} got token {grant.token} at {grant.granted_ns}, "
                    f"{last.client} holds it with {last.token} from {last.granted_ns} "
                    f"to {last.ended_ns}")
            if held:
                last = grant
    return findings


def overtaken(grants, tolerance_ns=0):
    """First come, first served, at whichever daemon they come: who was told that it waits before
    another of the same or a lower priority even asked gets the lower token. Tokens tell the order
    in which grants were made, so no tolerance is needed on one machine's clock. A waiter that had
    to connect again is left out: its place may have been lost with the connection."""
    waited = sorted((grant for grant in grants if grant.steady and grant.queued_ns),
                    key=lambda grant: grant.queued_ns)
    findings = []
    latest = {}  # By priority, of those that waited already: who was served last.
    place = 0
    for grant in sorted(grants, key=lambda grant: grant.asked_ns):
        while place < len(waited) and waited[place].queued_ns + tolerance_ns < grant.asked_ns:
            first = waited[place]
            if first.priority not in latest or latest[first.priority].token < first.token:
                latest[first.priority] = first
            place += 1
        for priority, first in latest.items():
            if priority >= grant.priority and first.token > grant.token:
                findings.append(
                    f"{grant.client} asked at {grant.asked_ns} and got token {grant.token}, before "
                    f"{first.client}, which waited at {first.queued_ns} and got {first.token}")
    return findings


def ended_early(grants):
    """Nobody is told that a lease is gone before the time for which it was vouched."""
    return [f"{grant.client} was told at {grant.lost_ns} that token {grant.token} is gone, which "
            f"was vouched for until {grant.ended_ns}"
            for grant in grants if grant.lost_ns and grant.lost_ns < grant.ended_ns]


def updates_lost(touches):
    """The resource turns away exactly the tokens that are lower than one it has seen, and then no
    update is lost: each accepted write builds on the one before it."""
    findings = []
    highest, values = {}, {}
    for touch in touches:
        stale = touch.token < highest.get(touch.slot, 0)
        highest[touch.slot] = max(touch.token, highest.get(touch.slot, 0))
        if touch.accepted == stale:
            findings.append(f"slot {touch.slot}: token {touch.token} was "
                            f"{'accepted' if touch.accepted else 'refused'} after "
                            f"{highest[touch.slot]}")
        if not touch.write or not touch.accepted:
            continue
        if touch.value != values.get(touch.slot, 0) + 1:
            findings.append(f"slot {touch.slot}: token {touch.token} wrote {touch.value} over "
                            f"{values.get(touch.slot, 0)}: an update is lost")
        values[touch.slot] = touch.value
    return findings


def lost_without_tokens(touches):
    """How many updates the twin that looks at no token has lost."""
    writes, last = {}, {}
    for touch in touches:
        if touch.write:
            writes[touch.slot] = writes.get(touch.slot, 0) + 1
            last[touch.slot] = touch.unchecked
    return sum(writes.values()) - sum(last.values())


def findings(grants, limits, touches=()):
    """Of all checks."""
    return (over_limit(grants, limits) + slots_twice(grants) + overtaken(grants)
            + ended_early(grants) + updates_lost(touches))


def summary(grants, touches=()):
    """What there was to find something in."""
    changes = []
    for grant in grants:
        if grant.ended_ns > grant.granted_ns:
            changes += [(grant.granted_ns, len(grant.slots)), (grant.ended_ns, -len(grant.slots))]
    held = peak = 0
    for _, change in sorted(changes):
        held += change
        peak = max(peak, held)
    return {"grants": len(grants), "peak": peak,
            "waited": sum(1 for grant in grants if grant.steady and grant.queued_ns),
            "connected_again": sum(1 for grant in grants if not grant.steady),
            "ran_out": sum(1 for grant in grants if grant.lost_ns),
            "told_too_late": sum(1 for grant in grants if grant.ended_ns <= grant.granted_ns),
            "writes": sum(1 for touch in touches if touch.write),
            "refused": sum(1 for touch in touches if touch.write and not touch.accepted),
            "lost_without_tokens": lost_without_tokens(touches)}
