"""What the process tests measure of a daemon."""

import os
import statistics
import time


def memory_bytes(daemon):
    """What it has of the machine's memory now."""
    with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def sockets(daemon):
    """How many sockets it has."""
    folder = f"/proc/{daemon.process.pid}/fd"
    count = 0
    for name in os.listdir(folder):
        try:
            count += os.readlink(os.path.join(folder, name)).startswith("socket:")
        except FileNotFoundError:
            pass
    return count


def latency_ms(client, semaphore, count=200):
    """The median of an acquire with its release, in milliseconds."""
    spans = []
    for _ in range(count):
        begun = time.monotonic()
        client.release(client.acquire(semaphore, limit=1).lease_id)
        spans.append(time.monotonic() - begun)
    return statistics.median(spans) * 1000


def told(text):
    """For people: shown by ctest -V."""
    print(f"measured: {text}", flush=True)
