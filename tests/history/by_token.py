"""What is left to judge where a lease may end before its holder knows (docs/rabbitmq.md): only tokens
protect the resource, so only they are judged.

  - a slot and a token belong to one lease, and for each slot tokens rise in the order of the grants;
  - a lease has one slot within the limit, and all that is answered about it names this slot and token;
  - a lease is released once, and is not held after it was released or reported as lost;
  - a wait is not ended early, and at the end all permits come back.

That two holders never work at the same time is not promised, and not judged. Nor is it that a request has
one lease: another daemon does not know what the first one answered.
"""

import collections

NEVER = 1 << 62


class Lease:
    """What was done with one lease, by its id."""

    def __init__(self):
        self.acquires, self.verifies = [], []
        self.over = []  # Operations by whose answer it had ended.
        self.released = 0

    def add(self, operation):
        if operation.kind == "acquire":
            self.acquires.append(operation)
        elif operation.outcome == "released":
            self.released += 1
            self.over.append(operation)
        elif operation.kind == "verify" and operation.outcome == "held":
            self.verifies.append(operation)
        elif operation.reason == "lost" and operation.cause not in ("", "MOVED"):
            self.over.append(operation)

    @property
    def begin_ns(self):
        return min(each.begin_ns for each in self.acquires)

    @property
    def granted_ns(self):
        return min(each.end_ns for each in self.acquires)

    @property
    def name(self):
        return f"token {self.acquires[0].token} of {self.acquires[0].client}"


def of_lease(name, limit, lease):
    findings = []
    first = lease.acquires[0]
    if len(first.slots) != 1 or not 1 <= first.slots[0] <= limit:
        findings.append(f"{name}: {lease.name} has slots {first.slots} of {limit}")
    findings += [f"{name}: {each.kind} returned {each.slots}, token {each.token} for {lease.name}"
                 for each in lease.acquires + lease.verifies
                 if (each.slots, each.token) != (first.slots, first.token)]
    if lease.released > 1:
        findings.append(f"{name}: {lease.name} was released {lease.released} times")
    over_ns = min((each.end_ns for each in lease.over), default=NEVER)
    findings += [f"{name}: {lease.name} is held at {each.begin_ns}, after its end at {over_ns}"
                 for each in lease.verifies if each.begin_ns > over_ns]
    return findings


def of_slot(name, slot, leases):
    findings = []
    latest_ns = NEVER
    after = None
    for lease in sorted(leases, key=lambda each: each.acquires[0].token, reverse=True):
        if after is not None and after.acquires[0].token == lease.acquires[0].token:
            findings.append(f"{name}: {lease.name}, slot {slot}, is also of "
                            f"{after.acquires[0].client}")
        after = lease
        if latest_ns < lease.begin_ns:
            findings.append(f"{name}: {lease.name} was requested after a higher token of slot {slot} "
                            f"was granted")
        latest_ns = min(latest_ns, lease.granted_ns)
    return findings


def judge(name, limit, operations):
    """The findings of one semaphore."""
    findings = []
    leases = collections.defaultdict(Lease)
    for operation in operations:
        if operation.lease:
            leases[operation.lease].add(operation)
        if operation.kind != "acquire" or operation.outcome != "error":
            continue
        waited_ms = (operation.end_ns - operation.begin_ns) / 1e6
        if operation.drains:
            findings.append(f"{name}: permits have not come back: {operation.reason}")
        if operation.reason == "WAIT_EXPIRED" and waited_ms < operation.wait_ms:
            findings.append(f"{name}: a wait of {operation.wait_ms} ms ended after {waited_ms:.0f}")
    by_slot = collections.defaultdict(list)
    for lease in leases.values():
        if not lease.acquires:
            continue  # Of a request whose outcome is unknown.
        findings += of_lease(name, limit, lease)
        for slot in lease.acquires[0].slots:
            by_slot[slot].append(lease)
    for slot, of_one in sorted(by_slot.items()):
        findings += of_slot(name, slot, of_one)
    return findings
