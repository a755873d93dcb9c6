"""A client of persistent semaphores in the format of amqp-locks, on pika: what somebody else would
write who has the recipe and the names of the queues, and knows nothing of us.

    <name>-A-<i>   a slot, i from 1          <name>-B-<i>   exclusive: its holder
    <name>         exclusive: the mutex of administrators

As a program:  amqp_locks.py URL NAME HOLD_MS [SEED]
takes a slot, holds it for about so long, gives it back, and so on until its standard input ends.
Prints a JSON object for each event, with CLOCK_MONOTONIC in nanoseconds.
"""

import json
import random
import select
import sys
import time

import pika
from pika.exceptions import ChannelClosedByBroker, UnroutableError

ARGUMENTS = {"x-max-length": 0}
RACES_MAX = 8
SKEW_S = 0.01
OVERSHOOT = 16


class Failed(Exception):
    """All slots are taken, or others were first each time."""


class Locked(Exception):
    """Another administrator has the mutex."""


class AmqpLocks:
    """On a connection of its own."""

    def __init__(self, url, name, seed=None):
        self.name = name
        self.random = random.Random(seed)
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = None
        self.reopen()

    def reopen(self):
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def close(self):
        self.connection.close()

    def slot_queue(self, slot):
        return f"{self.name}-A-{slot}"

    def holder_queue(self, slot):
        return f"{self.name}-B-{slot}"

    def exists(self, queue):
        """An empty message that nobody gets comes back."""
        try:
            self.channel.basic_publish("", queue, b"", pika.BasicProperties(delivery_mode=1),
                                       mandatory=True)
        except UnroutableError:
            return False
        return True

    # ---- clients ----

    def acquire(self):
        """The slot; raises Failed."""
        races = 0
        slot = 1
        while self.exists(self.slot_queue(slot)):
            if self.exists(self.holder_queue(slot)):
                slot += 1
                continue
            try:
                self.channel.queue_declare(self.holder_queue(slot), exclusive=True,
                                           arguments=ARGUMENTS)
            except ChannelClosedByBroker as error:
                if error.reply_code != 405:
                    raise
                self.reopen()
                races += 1
                if races >= RACES_MAX:
                    raise Failed() from error
                time.sleep(self.random.uniform(0, SKEW_S))
                slot = 1
                continue
            if self.verify(slot):
                return slot
            self.release(slot)
            slot = 1
        raise Failed()

    def verify(self, slot):
        return self.exists(self.slot_queue(slot))

    def has(self, slot):
        """Whether the holder's queue is there, and this connection's."""
        try:
            self.connection.channel().queue_declare(self.holder_queue(slot), passive=True)
        except ChannelClosedByBroker as error:
            if error.reply_code not in (404, 405):
                raise
            return False
        return True

    def release(self, slot):
        self.channel.queue_delete(self.holder_queue(slot))

    # ---- administrators ----

    def size(self):
        slot = 1
        while self.exists(self.slot_queue(slot)):
            slot += 1
        return slot - 1

    def _administer(self, act):
        try:
            self.channel.queue_declare(self.name, exclusive=True, arguments=ARGUMENTS)
        except ChannelClosedByBroker as error:
            self.reopen()
            raise Locked() from error
        try:
            size = self.size()
            for slot in range(size + OVERSHOOT, size, -1):
                self.channel.queue_delete(self.slot_queue(slot))
            act(size)
        finally:
            self.channel.queue_delete(self.name)

    def _declare(self, slots):
        for slot in slots:
            self.channel.queue_declare(self.slot_queue(slot), durable=True, arguments=ARGUMENTS)

    def _delete(self, slots):
        for slot in slots:
            self.channel.queue_delete(self.slot_queue(slot))

    def create(self, size):
        self._administer(lambda _: self._declare(range(1, size + 1)))

    def add(self, count):
        self._administer(lambda size: self._declare(range(size + 1, size + count + 1)))

    def remove(self, count):
        self._administer(lambda size: self._delete(range(size, max(0, size - count), -1)))

    def destroy(self):
        self._administer(lambda size: self._delete(range(size, 0, -1)))

    def held(self, slot):
        return self.exists(self.holder_queue(slot))


def tell(event, **fields):
    print(json.dumps({"event": event, "at_ns": time.monotonic_ns(), **fields}), flush=True)


def asked_to_stop():
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main():
    url, name, hold_ms = sys.argv[1], sys.argv[2], float(sys.argv[3])
    locks = AmqpLocks(url, name, sys.argv[4] if len(sys.argv) > 4 else None)
    tell("ready")
    while not asked_to_stop():
        asked_ns = time.monotonic_ns()
        try:
            slot = locks.acquire()
        except Failed:
            locks.connection.sleep(locks.random.uniform(0.01, 0.08))
            continue
        tell("entered", slot=slot, asked_ns=asked_ns)
        # The pace of a holder, not a wait for something.
        locks.connection.sleep(hold_ms / 1000 * locks.random.uniform(0.5, 1.5))
        # Asked after it was written down: it is not the time at which it left.
        tell("left", slot=slot, verified=locks.verify(slot))
        if locks.has(slot):
            locks.release(slot)
        else:
            tell("robbed", slot=slot)
        locks.connection.sleep(locks.random.uniform(0, 0.05))
    locks.close()
    tell("ended")


if __name__ == "__main__":
    main()
