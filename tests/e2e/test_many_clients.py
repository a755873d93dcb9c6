"""1,000 clients and a small limit. A checker that knows only the clients' records finds no moment
over the limit, and tokens that rise per slot."""

import asyncio
import multiprocessing
import time
import unittest
import uuid

from daemon import Daemon, TTL_MIN_MS, grpc, numbered, pb, pb_grpc, slots_of

PROCESSES = 2
CLIENTS_PER_PROCESS = 500
CYCLES = 3
LIMIT = 7
BOUND_S = 90


async def one_client(stub, number, records):
    """Some cycles, each recorded as (granted at, released at, slots, token, permits, released); the
    times are the machine's steady clock, which its processes share."""
    client_id = uuid.uuid4().hex
    permits = 1 + number % 3
    for cycle in range(CYCLES):
        grant = await stub.Acquire(pb.AcquireRequest(
            request_id=numbered(client_id, 2 * cycle + 1),
            semaphore="crowd", limit=LIMIT, permits=permits, wait_forever=True,
            ttl_ms=60 * TTL_MIN_MS), timeout=BOUND_S)
        granted_ns = time.monotonic_ns()
        await asyncio.sleep(0)
        release_ns = time.monotonic_ns()
        answer = await stub.Release(pb.ReleaseRequest(
            request_id=numbered(client_id, 2 * cycle + 2),
            lease_id=grant.lease.lease_id), timeout=BOUND_S)
        records.append((granted_ns, release_ns, slots_of(grant.lease.slots), grant.lease.token,
                        permits, answer.released))


async def crowd(address, first):
    records = []
    channels = [grpc.aio.insecure_channel(address, options=(
        ("grpc.use_local_subchannel_pool", 1), ("semaphored.number", first + i)))
        for i in range(10)]
    stubs = [pb_grpc.SemaphoreServiceStub(channel) for channel in channels]
    await asyncio.gather(*(one_client(stubs[i % len(stubs)], first + i, records)
                           for i in range(CLIENTS_PER_PROCESS)))
    for channel in channels:
        await channel.close()
    return records


def run_process(arguments):
    return asyncio.run(asyncio.wait_for(crowd(*arguments), BOUND_S))


class ManyClients(unittest.TestCase):

    def check_never_over_the_limit(self, records):
        changes = []
        for granted_ns, release_ns, slots, _, _, _ in records:
            changes += [(granted_ns, len(slots)), (release_ns, -len(slots))]
        held = peak = 0
        # At equal times what leaves goes first: the release was sent before the grant was read.
        for _, change in sorted(changes):
            held += change
            peak = max(peak, held)
        self.assertLessEqual(peak, LIMIT)
        self.assertGreater(peak, 1, "the clients never overlapped: this proved nothing")

    def check_slots(self, records):
        by_slot = {}
        for granted_ns, release_ns, slots, token, _, _ in records:
            for slot in slots:
                by_slot.setdefault(slot, []).append((token, granted_ns, release_ns))
        self.assertLessEqual(max(by_slot), LIMIT)
        for slot, grants in by_slot.items():
            grants.sort()
            for (token, _, released_ns), (next_token, granted_ns, _) in zip(grants, grants[1:]):
                self.assertLess(token, next_token, f"slot {slot}: a token was given twice")
                self.assertLessEqual(released_ns, granted_ns,
                                     f"slot {slot}: token {next_token} while {token} was held")

    def test_never_over_the_limit(self):
        with Daemon() as daemon:
            with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
                parts = pool.map_async(run_process, [
                    (daemon.address, i * CLIENTS_PER_PROCESS) for i in range(PROCESSES)])
                records = [record for part in parts.get(BOUND_S + 30) for record in part]
            self.assertEqual(len(records), PROCESSES * CLIENTS_PER_PROCESS * CYCLES)
            for _, _, slots, _, permits, released in records:
                self.assertEqual((len(slots), len(set(slots)), released),
                                 (permits, permits, permits))
            self.check_never_over_the_limit(records)
            self.check_slots(records)
            info = daemon.client().describe("crowd")
            self.assertEqual((info.held, info.waiting), (0, 0))


if __name__ == "__main__":
    unittest.main()
