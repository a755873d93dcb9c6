"""Holds many leases in one session of the Python client, and says how they stand; as holder.cc beside it.

Usage: holder.py ADDRESS NAME COUNT PERMITS TTL_MS
"""

import asyncio
import sys

from semaphored import aio

AT_ONCE = 500


async def main():
    address, name, count, permits, ttl_ms = sys.argv[1:]
    count, permits, ttl = int(count), int(permits), int(ttl_ms) / 1000
    slots = asyncio.Semaphore(AT_ONCE)
    async with aio.Client(address, ttl=ttl) as client:
        async def take():
            async with slots:
                return await client.acquire(name, limit=count * permits, permits=permits)
        taken = await asyncio.gather(*(take() for _ in range(count)))
        print("held", flush=True)
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(sum(each.held for each in taken),
                  int(1000 * min(each.valid_for for each in taken)), flush=True)


asyncio.run(main())
