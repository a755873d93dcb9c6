"""Sessions with very many leases, and with a lease of very many permits, in each client: the daemon is killed
(kill -9) and started again, and not one lease is lost.

SEMAPHORED_TEST_LEASES says how many leases; the time until all are good for longer than before is printed."""

import os
import subprocess
import time
import unittest

import node_packages
from daemon import BIN_DIR, BOUND_S, Daemon

HERE = os.path.dirname(os.path.abspath(__file__))
LEASES = int(os.environ.get("SEMAPHORED_TEST_LEASES", "5000"))
# One message with all slots as numbers would be larger than gRPC takes.
PERMITS = 1_000_000
TTL_MS = int(os.environ.get("SEMAPHORED_TEST_TTL_MS", "5000"))


class Holder:
    """A client that holds leases, in a process of its own."""

    def __init__(self, command, environment, address, count, permits):
        self.process = subprocess.Popen(
            [*command, address, "large", str(count), str(permits), str(TTL_MS)],
            env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.process.kill()
        self.process.wait(BOUND_S)
        self.process.stdin.close()
        self.process.stdout.close()

    def said(self):
        return self.process.stdout.readline().strip()

    def state(self):
        """(leases held, ms for which each of them is good at least)."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        held, least_ms = self.said().split()
        return int(held), int(least_ms)


class LargeSessions(unittest.TestCase):

    def check(self, language, command, environment, count, permits):
        with Daemon({"ttl_max": "60s"}) as daemon, \
                Holder(command, environment, daemon.address, count, permits) as holder:
            self.assertEqual(holder.said(), "held")
            self.assertEqual(holder.state()[0], count)
            daemon.kill9()
            daemon.start()
            begun = time.monotonic()
            while True:
                held, least_ms = holder.state()
                took_s = time.monotonic() - begun
                self.assertEqual(held, count, f"after {took_s:.1f} s")
                # Without a daemon it would be less by now.
                if least_ms > TTL_MS - 1000 * took_s + 1000 or least_ms > 0.9 * TTL_MS:
                    break
                time.sleep(0.05)
            print(f"\n{language}: {count} leases of {permits} permits go on {1000 * took_s:.0f} ms "
                  f"after the daemon serves again", flush=True)
            # They go on for longer than they could without the new daemon.
            while time.monotonic() - begun < 1.2 * TTL_MS / 1000:
                self.assertEqual(holder.state()[0], count)
                time.sleep(0.5)

    def check_both(self, language, command, environment=None):
        self.check(language, command, environment or {}, 1, PERMITS)
        self.check(language, command, environment or {}, LEASES, 1)

    def test_cpp(self):
        self.check_both("C++", [os.path.abspath(os.path.join(BIN_DIR, "holder_cpp"))])

    def test_python(self):
        root = os.path.dirname(os.path.abspath(BIN_DIR))
        self.check_both("Python", ["/usr/bin/python3", "-B", os.path.join(HERE, "languages", "holder.py")],
                        {"PYTHONPATH": os.path.join(root, "python_client")})

    def test_node(self):
        self.check_both("Node", ["node", os.path.join(HERE, "languages", "holder.mjs")],
                        {"NODE_PATH": os.path.join(node_packages.folder(), "node_modules")})


if __name__ == "__main__":
    unittest.main()
