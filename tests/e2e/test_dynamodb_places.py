"""What two daemons on one DynamoDB table owe to each other's clients: leases and places in a queue
that outlive their daemon, and permits that go to the other one at the pace of its questions."""

import statistics
import time
import unittest

from daemon import BOUND_S, Reader, pb, slots_of, wait_until
from dynamodb_case import DynamoCase

TTL_MS = 60_000
POLL_MIN_MS, POLL_MAX_MS = 20, 200
# What a hand-off takes beside the pace of the questions, on a loaded machine.
COMMITS_S = 0.6


class Queue:
    """Waiters of one permit, each on a Hold stream, and who held it before them."""

    def __init__(self, client):
        self.lease = client.acquire("db", limit=1, ttl_ms=TTL_MS)

    @staticmethod
    def join(client, request=None):
        """(request, reader of its stream, position in the queue)."""
        request = request or pb.HoldRequest(
            acquire=client.acquire_request("db", limit=1, ttl_ms=TTL_MS, wait_forever=True))
        reader = Reader(client.stub.Hold(request))
        position = reader.until(lambda m: m.HasField("queued"), "its place").queued.position
        return request, reader, position


class Places(DynamoCase):

    OPTIONS = f"&poll_min_ms={POLL_MIN_MS}&poll_max_ms={POLL_MAX_MS}"

    def daemons(self):
        self.make_table()
        return self.cluster({name: self.url(self.OPTIONS) for name in "ab"})

    def test_leases_and_places_outlive_their_daemon(self):
        """The permit and the middle one of three waiters are with a daemon that is killed."""
        with self.daemons() as daemons:
            client, other = daemons["a"].client(), daemons["b"].client()
            queue = Queue(client)
            first, second, third = (queue.join(each) for each in (other, client, other))
            self.assertEqual([first[2], second[2], third[2]], [1, 2, 3])
            daemons["a"].kill9()
            # Whoever was there comes to the other one, with the same request, and is there still.
            verified = other.verify(queue.lease.lease_id)
            self.assertTrue(verified.held)
            self.assertEqual(verified.lease, queue.lease)
            moved = queue.join(other, second[0])
            self.assertEqual(moved[2], 2)
            tokens = [queue.lease.token]
            other.release(queue.lease.lease_id)
            for _, reader, _ in (first, moved, third):
                lease = reader.until(lambda m: m.HasField("granted"), "its turn").granted.lease
                self.assertEqual(slots_of(lease.slots), [1])
                tokens.append(lease.token)
                other.release(lease.lease_id)
            self.assertEqual(tokens, sorted(set(tokens)))

    def test_a_daemon_that_starts_again_knows_its_own(self):
        with self.daemons() as daemons:
            queue = Queue(daemons["a"].client())
            request, _, _ = queue.join(daemons["a"].client())
            daemons["a"].kill9()
            daemons["a"].start()
            client = daemons["a"].client()
            _, reader, position = queue.join(client, request)
            self.assertEqual(position, 1)
            self.assertEqual(client.verify(queue.lease.lease_id).lease.token, queue.lease.token)
            daemons["b"].client().release(queue.lease.lease_id)
            granted = reader.until(lambda m: m.HasField("granted"), "its turn").granted.lease
            self.assertGreater(granted.token, queue.lease.token)

    def hand_off(self, giver, taker, lease, waited_s=0.0):
        """(the new lease, how long it took) from one daemon to the other, after so long a wait."""
        waiting = taker.acquire_later("db", limit=1, ttl_ms=TTL_MS)
        giver.wait_for_queue("db", 1)
        until = time.monotonic() + waited_s
        wait_until(lambda: time.monotonic() >= until, "it has waited for a while",
                   waited_s + BOUND_S)
        begun = time.monotonic()
        giver.release(lease.lease_id)
        lease = waiting.result(BOUND_S).lease
        return lease, time.monotonic() - begun

    def test_a_permit_goes_to_another_daemon_at_the_pace_of_its_questions(self):
        with self.daemons() as daemons:
            clients = [daemons[name].client() for name in "ab"]
            lease = clients[0].acquire("db", limit=1, ttl_ms=TTL_MS)
            soon, late, tokens = [], [], [lease.token]
            for turn in range(23):
                # After a long wait it asks as rarely as it ever does.
                waited_s = 0.0 if turn < 20 else 0.008 * POLL_MAX_MS
                lease, took_s = self.hand_off(clients[turn % 2], clients[1 - turn % 2], lease,
                                              waited_s)
                (late if waited_s else soon).append(took_s)
                tokens.append(lease.token)
            for what, took_s in (("soon", soon), ("after a long wait", late)):
                print(f"\n{len(took_s)} hand-offs {what}: p50 "
                      f"{1000 * statistics.median(took_s):.0f} ms, at most "
                      f"{1000 * max(took_s):.0f} ms", flush=True)
            self.assertEqual(tokens, sorted(set(tokens)))
            self.assertLess(statistics.median(soon), POLL_MIN_MS / 1000 + COMMITS_S)
            self.assertLess(statistics.median(late), POLL_MAX_MS / 1000 + COMMITS_S)
            self.assertLess(max(soon + late), POLL_MAX_MS / 1000 + 3 * COMMITS_S)


if __name__ == "__main__":
    unittest.main()
