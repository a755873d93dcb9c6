"""What a daemon asks of DynamoDB: one write for an acquire and one for a release, and no reads
beside them; its heartbeat and nothing else while nobody has a claim; and for word from others as
often as it was told to while somebody waits, which is what waiting costs."""

import collections
import itertools
import json
import statistics
import time
import unittest

from counting_proxy import CountingProxy, HttpRequest
from daemon import BOUND_S, wait_until
from dynamodb_case import DynamoCase
from work_stream import WorkStream, enqueue

NODE_TTL_S = 5
BEAT_S = NODE_TTL_S / 3
QUIET_S = 4
CYCLES = 20
LANES = 4  # If the URL does not say it.
SWEEP_S = 5  # The same.
# So that nobody asks for word again meanwhile, however long it takes.
NO_POLLS = "&poll_min_ms=60000&poll_max_ms=60000"
# What a loaded machine adds to a pause.
LATE_S = 1.0


class Request(HttpRequest):
    """One of DynamoDB."""

    @property
    def operation(self):
        return self.headers["x-amz-target"].partition(".")[2]

    def partition(self):
        """Where it reads or writes; "" for a request about several."""
        body = json.loads(self.body)
        key = body.get("Key", body.get("Item", {})).get("PK")
        key = key or body.get("ExpressionAttributeValues", {}).get(":pk", {})
        return key.get("S", "")

    def beats(self):
        """It belongs to the daemons' membership: a heartbeat, or the reading of all."""
        return self.partition() == "NODE"

    def asks_for_word(self):
        return self.operation == "Query" and self.partition().startswith("MAIL#")

    def __str__(self):
        """What it is about, so that requests of one kind look the same."""
        return f"{self.operation} {self.partition().partition('#')[0]}".strip()


def count_of(asked):
    return dict(collections.Counter(map(str, asked)))


class Requests(DynamoCase):

    def proxied(self, options="", node_id="a", sweep_interval="10m"):
        """Without sweeps, if nothing else is said: a slow machine takes longer for its cycles than their first interval."""
        proxy = CountingProxy(self.server.port, Request)
        self.addCleanup(proxy.close)
        self.make_table()
        url = self.server.url(self.table, options, proxy.port)
        return self.daemon(url, node_id, node_ttl=f"{NODE_TTL_S}s", sweep_interval=sweep_interval), proxy

    def let_pass(self, seconds):
        """The time over which is counted."""
        until = time.monotonic() + seconds
        wait_until(lambda: time.monotonic() >= until, "some time has passed", seconds + BOUND_S)

    def cycles(self, client, proxy, name_of, fields):
        """How often what is asked for CYCLES cycles after a first one, but for heartbeats."""
        for cycle in range(-1, CYCLES):
            if cycle == 0:
                before = len(proxy.asked)
            lease = client.acquire(name_of(cycle), limit=1, ttl_ms=60_000, **fields)
            client.release(lease.lease_id)
        count = count_of(each for each in proxy.asked[before:] if not each.beats())
        print(f"\n{CYCLES} cycles: {count}", flush=True)
        # The first question is asked as soon as there is a claim, if it is seen in time.
        self.assertLessEqual(count.pop("Query MAIL", 0), 1)
        return count

    # ---- cycles ----

    def test_an_acquire_and_a_release_are_one_write_each_and_no_read(self):
        daemon, proxy = self.proxied(NO_POLLS)
        for fields in ({}, {"wait_forever": True}):
            count = self.cycles(daemon.client(), proxy, lambda _: "own", fields)
            self.assertEqual(count, {"TransactWriteItems": 2 * CYCLES})

    def test_a_semaphore_that_is_new_costs_a_reading(self):
        daemon, proxy = self.proxied(NO_POLLS)
        count = self.cycles(daemon.client(), proxy, lambda cycle: f"new-{cycle}", {})
        self.assertEqual(count.pop("TransactWriteItems"), 2 * CYCLES)
        self.assertEqual(count.pop("Query SEMAPHORE"), CYCLES)
        # Each lane queries once for the client's requests of before.
        self.assertLessEqual(count.pop("Query REQUEST", 0), LANES)
        self.assertEqual(count, {})

    def test_many_that_ask_at_once_share_a_write(self):
        daemon, proxy = self.proxied(NO_POLLS)
        client = daemon.client()
        names = [f"own-{number}" for number in range(60)]

        def round_of(names):
            asked = [client.acquire_later(name, limit=1, ttl_ms=60_000) for name in names]
            for lease in [each.result(BOUND_S).lease for each in asked]:
                client.release(lease.lease_id)
        round_of(names)
        before = len(proxy.asked)
        calls = [client.acquire_later(name, limit=1, ttl_ms=60_000) for name in names]
        self.assertEqual(len({call.result(BOUND_S).lease.lease_id for call in calls}), len(names))
        writes = [each for each in proxy.asked[before:] if each.operation == "TransactWriteItems"]
        print(f"\n{len(writes)} writes for {len(names)} at once", flush=True)
        self.assertLess(len(writes), len(names) / 2)

    def test_a_ticket_for_a_worker_who_stands_ready_is_two_writes(self):
        """It comes and is given out in one; in the other it is done, and the worker ready again."""
        daemon, proxy = self.proxied(NO_POLLS)
        client = daemon.client()
        worker = WorkStream(daemon.client(), ttl_ms=60_000, semaphores=["own"])
        self.addCleanup(worker.close)
        for cycle in range(-1, CYCLES):
            if cycle == 0:
                before = len(proxy.asked)
            enqueue(client, "own", b"payload")
            worker.finish(worker.assignment())
        count = count_of(each for each in proxy.asked[before:] if not each.beats())
        print(f"\n{CYCLES} tickets: {count}", flush=True)
        self.assertLessEqual(count.pop("Query MAIL", 0), 1)
        self.assertLessEqual(count.pop("TransactWriteItems"), 2 * CYCLES + 1)
        self.assertEqual(count.pop("BatchGetItem"), CYCLES)  # The payload.
        self.assertEqual(count, {})

    # ---- while nothing happens ----

    def test_whoever_has_no_claims_asks_nothing_but_its_heartbeat(self):
        daemon, proxy = self.proxied(sweep_interval=f"{SWEEP_S}s")
        client = daemon.client()
        client.release(client.acquire("own", limit=1, ttl_ms=60_000).lease_id)
        self.let_pass(1)  # What was under way.
        before = len(proxy.asked)
        self.let_pass(QUIET_S)
        count = count_of(proxy.asked[before:])
        print(f"\n{QUIET_S} s without claims: {count}", flush=True)
        for what in ("UpdateItem NODE", "Query NODE"):
            self.assertIn(what, count)
            self.assertLessEqual(count.pop(what), QUIET_S / BEAT_S + 1)
        self.assertEqual(count, {})

    def polls_of(self, proxy, seconds):
        """When it asked for word in that time. There is nothing else but the heartbeat, and the
        sweep, in case that word was lost."""
        before = len(proxy.asked)
        self.let_pass(seconds)
        asked = [each for each in proxy.asked[before:] if not each.beats()]
        others = count_of(each for each in asked if not each.asks_for_word())
        self.assertLessEqual(others.pop("BatchGetItem", 0), seconds / SWEEP_S + 1)
        self.assertEqual(others, {})
        return [each.at_s for each in asked if each.asks_for_word()]

    def test_who_only_holds_asks_rarely(self):
        daemon, proxy = self.proxied("&poll_min_ms=20&poll_max_ms=500", sweep_interval=f"{SWEEP_S}s")
        daemon.client().acquire("own", limit=1, ttl_ms=60_000)
        polls = self.polls_of(proxy, 2.25)
        print(f"\nholding for 2.25 s: asked {len(polls)} times", flush=True)
        self.assertTrue(3 <= len(polls) <= 5, polls)

    def test_one_waiter_is_asked_for_between_both_paces(self):
        least_s, most_s = 0.05, 0.2
        (daemon, proxy), (other, _) = (
            self.proxied("&poll_min_ms=50&poll_max_ms=200", node_id, f"{SWEEP_S}s") for node_id in "ab")
        lease = other.client().acquire("shared", limit=1, ttl_ms=60_000)
        client = daemon.client()
        client.acquire("own", limit=1)  # It is known there.
        waiting = client.acquire_later("shared", limit=1, ttl_ms=60_000)
        other.client().wait_for_queue("shared", 1)
        polls = self.polls_of(proxy, 2.5)
        gaps = [later - earlier for earlier, later in itertools.pairwise(polls)]
        print(f"\nwaiting for 2.5 s: asked {len(polls)} times, after "
              f"{[round(1000 * gap) for gap in gaps]} ms", flush=True)
        self.assertGreater(statistics.median(gaps[:6]), 0.8 * least_s)
        self.assertLess(statistics.median(gaps[:6]), most_s)
        self.assertGreater(statistics.median(gaps[-3:]), 0.8 * most_s)
        self.assertLess(max(gaps), most_s + LATE_S)
        # And when somebody new waits, soon again.
        first = len(proxy.asked)
        more = client.acquire_later("shared", limit=1, ttl_ms=60_000)
        other.client().wait_for_queue("shared", 2)
        self.let_pass(0.5)
        again = [each.at_s for each in proxy.asked[first:] if each.asks_for_word()]
        self.assertGreaterEqual(len(again), 3)
        other.client().release(lease.lease_id)
        client.release(waiting.result(BOUND_S).lease.lease_id)
        self.assertTrue(more.result(BOUND_S).lease.lease_id)


if __name__ == "__main__":
    unittest.main()
