"""The memory of unary calls that wait: as many as calls_max allows by default fit into 1 GiB."""

import subprocess
import os
import unittest

from daemon import BIN_DIR, Client, Daemon, wait_until

CALLS = 4000
CHANNELS = 8
GIB = 2 ** 30


def memory_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return 1024 * int(line.split()[1])
    raise AssertionError("the process has ended")


def calls_max():
    """The default."""
    shown = subprocess.run([os.path.join(BIN_DIR, "semaphored"), "--print-config"], check=True,
                           capture_output=True, text=True, timeout=60).stdout
    line, = (line for line in shown.splitlines() if line.lstrip("# ").startswith("calls_max ="))
    return int(line.split("=")[1])


class WaitingCalls(unittest.TestCase):

    def test_as_many_as_are_allowed_fit_into_a_gibibyte(self):
        with Daemon() as daemon:
            client = daemon.client()
            client.acquire("s", limit=1, ttl_ms=3_600_000)
            clients = [Client(daemon.channel()) for _ in range(CHANNELS)]
            calls = [each.acquire_later("s") for each in clients for _ in range(50)]
            client.wait_for_queue("s", len(calls))
            before, few = memory_bytes(daemon.process.pid), len(calls)
            calls += [clients[i % CHANNELS].acquire_later("s") for i in range(CALLS)]
            wait_until(lambda: client.waiting("s") == few + CALLS, "all wait", 60)
            each = (memory_bytes(daemon.process.pid) - before) / CALLS
            print(f"\na call that waits takes {each / 1024:.1f} KiB", flush=True)
            self.assertLess(each * calls_max(), GIB)
            for call in calls:
                call.cancel()


if __name__ == "__main__":
    unittest.main()
