"""The acts of administrators on semaphores: which took effect, and in which order with the grants.

An act takes effect at one point between its call and its answer. Repeats under one request id are one
act. An act whose answer is unknown takes effect at any later point, or never; it is decided if its id
was then refused to another act (it had taken effect), or accepted for one (it never will).

Acts of several administrators overlap, and their order is not known. `Order` therefore keeps all states
(acts done, limit, paused) that are possible after each grant, each with the earliest time at which it
can be reached. An earlier time allows all that a later one does, so that one time per state decides.
The states are as many as acts overlap, not as many as there are acts.
"""

import bisect
import collections
import dataclasses

NEVER = 1 << 62
STATES_MAX = 4000
RESIZES = ("add", "remove", "set")
# What may be answered to an act that is not done, besides REQUEST_ID_REUSED.
REFUSALS = {"WOULD_OVERSHOOT", "INVALID_FIELD", "REQUEST_TOO_OLD", "LIMIT_REACHED"}


class Undecided(Exception):
    pass


@dataclasses.dataclass
class Act:
    operation: object
    begin_ns: int
    end_ns: int  # NEVER: not known.
    required: bool  # It has taken effect by then; otherwise it may have, or will.
    seen: bool  # Its answer shows the semaphore as it was right after it.

    def limit_after(self, limit):
        operation = self.operation
        return {"add": limit + operation.amount, "remove": limit - operation.amount,
                "set": operation.amount}.get(operation.act, limit)

    def after(self, limit, paused):
        """(limit, paused) after the act; None: it cannot have been done, or refused, here."""
        operation = self.operation
        if operation.outcome == "error":
            below = operation.act == "remove" and limit < operation.amount
            return (limit, paused) if below or operation.reason != "INVALID_FIELD" else None
        limit = self.limit_after(limit)
        paused = {"pause": True, "resume": False}.get(operation.act, paused)
        if limit < 0 or (self.seen and (limit, paused) != (operation.limit, operation.paused)):
            return None
        return limit, paused


def effect_of(operation):
    return (operation.semaphore, operation.act, operation.amount, operation.policy,
            operation.grace_ms, operation.target)


class Request:
    """All operations under one request id."""

    def __init__(self, request, operations):
        self.request = request
        self.findings = []
        by_effect = collections.defaultdict(list)
        for operation in sorted(operations, key=lambda each: each.begin_ns):
            by_effect[effect_of(operation)].append(operation)
        self.by_effect = by_effect
        self.done = {effect: [each for each in of_one if each.outcome == "done"]
                     for effect, of_one in by_effect.items()}
        # Those that may have taken effect, or yet will: a refusal after a lost answer says nothing of
        # the first attempt.
        self.open = {effect: [each for each in of_one
                              if not each.outcome or (each.outcome == "error" and not each.steady)]
                     for effect, of_one in by_effect.items()}

    def acts(self):
        found = []
        accepted = [effect for effect, done in self.done.items() if done]
        if len(accepted) > 1:
            self.findings.append(f"request {self.request} was accepted for {len(accepted)} acts: "
                                 f"{accepted}")
        for effect, operations in self.by_effect.items():
            if self.done[effect]:
                found.append(self.accepted(effect, operations))
            elif self.open[effect] and not accepted:
                end_ns = self.known_done_ns(effect)
                begin_ns = self.open[effect][0].begin_ns
                found.append(Act(dataclasses.replace(self.open[effect][0], outcome=""), begin_ns,
                                 end_ns, end_ns != NEVER, seen=False))
            found += [Act(each, each.begin_ns, each.end_ns, required=True, seen=False)
                      for each in operations
                      if each.outcome == "error" and each.reason in REFUSALS]
            for each in operations:
                if each.outcome == "error":
                    self.refused(effect, each)
        return found

    def accepted(self, effect, operations):
        first = min(self.done[effect], key=lambda each: each.end_ns)
        begin_ns = min(each.begin_ns for each in self.done[effect] + self.open[effect])
        alone = all(each is first or each.begin_ns > first.end_ns for each in operations)
        for each in self.done[effect]:
            if each.affected != first.affected:
                self.findings.append(f"request {self.request} was answered {first.affected} and "
                                     f"{each.affected}")
        return Act(first, begin_ns, first.end_ns, required=True, seen=alone and first.steady)

    def known_done_ns(self, effect):
        """When the id was refused to another act: by then this one, the only other, was done."""
        rivals = [each for each, open_ones in self.open.items() if open_ones]
        refused = [each.end_ns for other, operations in self.by_effect.items() if other != effect
                   for each in operations if each.reason == "REQUEST_ID_REUSED"]
        return min(refused, default=NEVER) if rivals == [effect] else NEVER

    def refused(self, effect, operation):
        others = [each for other, done in self.done.items() for each in done
                  if other != effect and each.begin_ns < operation.end_ns]
        others += [each for other, open_ones in self.open.items() for each in open_ones
                   if other != effect and each.begin_ns < operation.end_ns]
        before = [each for done in self.done.values() for each in done
                  if each.end_ns < operation.begin_ns]
        if operation.reason == "REQUEST_ID_REUSED":
            if not others:
                self.findings.append(f"request {self.request} was refused as reused by "
                                     f"{operation.client}; its id had no other use")
        elif operation.reason not in REFUSALS:
            self.findings.append(f"{operation.semaphore}: {operation.act} of {operation.client} "
                                 f"was refused: {operation.reason}")
        elif before and operation.reason != "REQUEST_TOO_OLD":
            self.findings.append(f"request {self.request} was done, and was then refused "
                                 f"for {operation.act}: {operation.reason}")


def acts_of(operations):
    """(findings, acts by semaphore)."""
    findings, by_semaphore = [], collections.defaultdict(list)
    by_request = collections.defaultdict(list)
    for operation in operations:
        if operation.kind != "administer":
            continue
        if operation.act != "describe":
            by_request[operation.request].append(operation)
        elif operation.outcome == "done":
            by_semaphore[operation.semaphore].append(
                Act(operation, operation.begin_ns, operation.end_ns, required=True, seen=True))
    for request, of_one in by_request.items():
        group = Request(request, of_one)
        for act in group.acts():
            by_semaphore[act.operation.semaphore].append(act)
        findings += group.findings
    return findings, by_semaphore


class Order:
    """The states that the acts and the grants so far can have led to."""

    def __init__(self, limit, acts):
        self.acts = sorted(acts, key=lambda act: act.begin_ns)
        self.first_end_ns = [NEVER]  # Of the required acts from each place on.
        for act in reversed(self.acts):
            self.first_end_ns.append(
                min(self.first_end_ns[-1], act.end_ns if act.required else NEVER))
        self.first_end_ns.reverse()
        self.begun = 0
        self.open = []  # Begun, and not done in all states.
        self.states = {(frozenset(), limit, False): 0}
        self.spans = [(0, self.bound_ns(frozenset()), limit, False)]

    def bound_ns(self, done):
        """Until when the semaphore can stay in a state."""
        ends = [self.acts[each].end_ns for each in self.open
                if self.acts[each].required and each not in done]
        return min(ends + [self.first_end_ns[self.begun]])

    def extend(self, horizon_ns):
        """All states that acts which begin by then lead to."""
        while self.begun < len(self.acts) and self.acts[self.begun].begin_ns <= horizon_ns:
            self.open.append(self.begun)
            self.begun += 1
        work = list(self.states)
        while work:
            key = work.pop()
            done, limit, paused = key
            for place in self.open:
                if place in done:
                    continue
                act = self.acts[place]
                at_ns = max(self.states[key], act.begin_ns)
                after = act.after(limit, paused)
                if after is None or at_ns > self.bound_ns(done) or at_ns > act.end_ns:
                    continue
                reached = (done | {place}, *after)
                if at_ns < self.states.get(reached, NEVER):
                    self.states[reached] = at_ns
                    self.spans.append((at_ns, self.bound_ns(reached[0]), *after))
                    work.append(reached)
            if len(self.states) > STATES_MAX:
                raise Undecided()

    def grant(self, begin_ns, end_ns, top_slot, room_ns):
        """Grants between these times; `room_ns`: from when on there is room under a limit. Returns why
        it cannot be, or nothing."""
        self.extend(end_ns)
        alive = {key: at_ns for key, at_ns in self.states.items()
                 if self.bound_ns(key[0]) >= max(at_ns, begin_ns)}
        found = {}
        for key, at_ns in alive.items():
            done, limit, paused = key
            if paused or top_slot > limit:
                continue
            at_ns = max(at_ns, begin_ns, room_ns(limit))
            if at_ns <= min(end_ns, self.bound_ns(done)):
                found[key] = at_ns
        if found:
            self.states = found
            self.forget_done()
            return ""
        self.states = alive
        if not alive:
            return "no order of the administrators' acts explains their answers"
        if all(paused for _, _, paused in alive):
            return "was granted while the semaphore was paused"
        return f"was granted above the limit, {max(limit for _, limit, _ in alive)} at most"

    def forget_done(self):
        common = frozenset.intersection(*(done for done, _, _ in self.states))
        if common:
            self.open = [each for each in self.open if each not in common]
            self.states = {(done - common, limit, paused): at_ns
                           for (done, limit, paused), at_ns in self.states.items()}

    def finish(self):
        """Whether all acts that have taken effect can have done so."""
        self.extend(NEVER)
        return any(self.bound_ns(done) == NEVER for done, _, _ in self.states)


class Spans:
    """Which limits, and whether a pause, were possible between two times."""

    def __init__(self, spans):
        self.spans = sorted(spans)
        self.begins = [each[0] for each in self.spans]
        self.longest = []  # The latest end up to each place.
        for each in self.spans:
            self.longest.append(max(each[1], self.longest[-1] if self.longest else 0))

    def between(self, begin_ns, end_ns):
        place = bisect.bisect_right(self.begins, end_ns) - 1
        while place >= 0 and self.longest[place] >= begin_ns:
            if self.spans[place][1] >= begin_ns:
                yield self.spans[place][2:]
            place -= 1

    def least_limit(self, begin_ns, end_ns):
        return min((limit for limit, _ in self.between(begin_ns, end_ns)), default=0)

    def may_be_paused(self, begin_ns, end_ns):
        return any(paused for _, paused in self.between(begin_ns, end_ns))
