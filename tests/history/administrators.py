"""Administrators whose acts are recorded: they resize, revoke, pause, resume and ask.

Several act on the same semaphores at the same time. They repeat acts under the same request id, also at
another daemon and at two daemons at once, some of them much later, and use an id for another act.

An act whose outcome stays unknown, or that was refused after its first answer was lost, is followed by
another act under the same id: if that is refused as reused, the first one was done, and if it is done, the
first one never will be.
"""

import collections
import time

from acts import effect_of
from clients import UNSETTLED, UnaryClient, reason_of
from daemon import grpc, pb, result_of

ACTS = {"resize": 5, "squeeze": 4, "pause": 1.5, "revoke": 3, "describe": 1.5,
        "again": 1}
POLICIES = {"wait": pb.SHRINK_POLICY_WAIT, "recall": pb.SHRINK_POLICY_RECALL,
            "refuse": pb.SHRINK_POLICY_REFUSE}
# 0: the leases end with the act. No recall is asked for that the holders, who keep leases for Manners.hold_s, never see the end of.
GRACES_MS = (0, 0, 60, 150)
BOUND_S = 5.0


def message_of(operation, request_id):
    message = pb.AdministerRequest(request_id=request_id, semaphore=operation.semaphore)
    if operation.act in ("add", "remove", "set"):
        message.resize.policy = POLICIES[operation.policy]
        message.resize.now = operation.policy == "recall" and operation.grace_ms == 0
        if operation.grace_ms:
            message.resize.grace_ms = operation.grace_ms
        setattr(message.resize, "limit" if operation.act == "set" else operation.act,
                operation.amount)
    elif operation.act == "revoke":
        message.revoke.now = operation.grace_ms == 0
        message.revoke.grace_ms = operation.grace_ms
        by_lease = operation.target.startswith("lease ")
        setattr(message.revoke, "lease_id" if by_lease else "holder",
                operation.target.partition(" ")[2])
    else:
        getattr(message, operation.act).SetInParent()
    return message


class Administrator(UnaryClient):

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.limits = dict(self.recorder.semaphores)  # As last heard of.
        self.past = collections.deque(maxlen=40)  # (semaphore, sequence, act): some seconds of them.

    # ---- one act ----

    def administer(self, semaphore, sequence, **spec):
        operation = self.op("administer", semaphore, sequence, **spec)
        return self.answered(operation, self.call(
            operation, "Administer", message_of(operation, self.id(sequence))))

    def answered(self, operation, response):
        if response is None:
            return self.finish(operation)
        if isinstance(response, grpc.RpcError):
            return self.finish(operation, "error", reason=reason_of(response))
        after = result_of(response).semaphore
        self.limits[operation.semaphore] = after.limit
        return self.finish(operation, "done", limit=after.limit, held=after.held,
                           paused=after.paused,
                           affected=response.resize.recalled + response.revoke.revoked)

    def at_once(self, sequence, *specs):
        """Under one id, at all daemons at the same time. The operations."""
        under_way = []
        for spec in specs:
            operation = self.op("administer", sequence=sequence, **spec)
            message = message_of(operation, self.id(sequence))
            under_way.append((operation, self.channels.stub().Administer.future(
                message, timeout=BOUND_S)))
            self.channels.next()
        for operation, future in under_way:
            try:
                response = future.result()
            except grpc.RpcError as error:
                response = None if error.code() in UNSETTLED else error
            operation.steady = response is not None
            self.answered(operation, response)
        return [operation for operation, _ in under_way]

    def act(self, semaphore, **spec):
        """Once, or several times; then it is known whether it was done."""
        sequence = self.next_sequence()
        self.past.append((semaphore, sequence, spec))
        if self.random.random() < 0.15:
            other = self.resize(semaphore) if self.sometimes() else spec
            done = self.at_once(sequence, {"semaphore": semaphore, **spec},
                                {"semaphore": semaphore, **other})
        else:
            done = [self.administer(semaphore, sequence, **spec)]
        if self.random.random() < 0.25:
            self.channels.next()
            done.append(self.administer(semaphore, sequence, **spec))
        if any(not each.end_ns or (each.outcome == "error" and not each.steady) for each in done):
            self.settle(sequence, done)
        if self.random.random() < 0.15:
            self.administer(self.random.choice(self.recorder.administered), sequence,
                            **self.resize(semaphore))

    def settle(self, sequence, done):
        """Once more, and then another act under the same id. `resume` does no harm, and a pause is
        never the last act."""
        for each in {effect_of(each): each for each in done}.values():
            self.administer(each.semaphore, sequence, act=each.act, amount=each.amount,
                            policy=each.policy, grace_ms=each.grace_ms, target=each.target)
        self.administer(done[0].semaphore, sequence, act="resume")

    # ---- which ----

    def resize(self, semaphore):
        base, limit = self.recorder.semaphores[semaphore], self.limits[semaphore]
        act = "remove" if limit > base * 1.3 else "add" if limit < base * 0.6 else (
            self.random.choice(["add", "remove", "remove", "set"]))
        amount = self.random.randint(1, max(1, base // 2))
        if act == "set":
            amount += base // 2
        if self.sometimes():
            act, amount = "remove", base * 10  # More than there are.
        policy = self.random.choice(list(POLICIES)) if act != "add" else "wait"
        grace_ms = self.random.choice(GRACES_MS) if policy == "recall" else 0
        return {"act": act, "amount": amount, "policy": policy, "grace_ms": grace_ms}

    def squeeze(self, semaphore):
        """Holders are asked for their permits; a moment later there is room again."""
        described = self.ask(semaphore)
        if described is None or described.semaphore.held == 0:
            return
        self.act(semaphore, act="set", amount=self.random.randrange(described.semaphore.held),
                 policy="recall", grace_ms=self.random.choice(GRACES_MS))
        self.stopping.wait(self.random.uniform(0, 0.2))
        self.act(semaphore, act="add", amount=max(1, self.recorder.semaphores[semaphore] // 2),
                 policy="wait")

    def ask(self, semaphore, page_size=0):
        """What describe answers, or None."""
        operation = self.op("administer", semaphore, self.next_sequence(), act="describe")
        response = self.call(operation, "Administer", pb.AdministerRequest(
            semaphore=semaphore, describe=pb.DescribeSemaphore(page_size=page_size)))
        self.answered(operation, response)
        return response.describe if operation.outcome == "done" else None

    def revoke(self, semaphore):
        described = self.ask(semaphore, page_size=50)
        if described is None or not described.leases:
            return
        lease = self.random.choice(list(described.leases)).lease
        by_lease = self.random.random() < 0.7
        target = f"lease {lease.lease_id}" if by_lease else f"holder {lease.holder}"
        self.act(semaphore, act="revoke", target=target,
                 grace_ms=self.random.choice(GRACES_MS))

    def again(self):
        """An act of some time ago, perhaps of before its daemon was killed, under its id."""
        if self.past:
            semaphore, sequence, spec = self.random.choice(self.past)
            self.administer(semaphore, sequence, **spec)

    def turn(self):
        time.sleep(self.random.uniform(0, 0.08))
        semaphore = self.random.choice(self.recorder.administered)
        kind = self.random.choices(list(ACTS), list(ACTS.values()))[0]
        if kind == "resize":
            self.act(semaphore, **self.resize(semaphore))
        elif kind == "again":
            self.again()
        elif kind == "squeeze":
            self.squeeze(semaphore)
        elif kind == "revoke":
            self.revoke(semaphore)
        elif kind == "describe":
            self.ask(semaphore)
        else:
            self.act(semaphore, act="pause")
            self.stopping.wait(self.random.uniform(0, 0.15))
            self.act(semaphore, act="resume")

    # ---- before and after the others ----

    def create(self):
        """The semaphores that stay, used or not."""
        for semaphore in self.recorder.administered:
            operation = self.op("create", semaphore, 0)
            self.call(operation, "Administer", pb.AdministerRequest(
                semaphore=semaphore,
                create=pb.CreateSemaphore(limit=self.recorder.semaphores[semaphore])))

    def restore(self):
        """Limits as they were, and no pause; then what the semaphores are is asked."""
        for semaphore in self.recorder.administered:
            self.administer(semaphore, self.next_sequence(), act="resume")
            self.administer(semaphore, self.next_sequence(), act="set", policy="wait",
                            amount=self.recorder.semaphores[semaphore])
            self.ask(semaphore)
