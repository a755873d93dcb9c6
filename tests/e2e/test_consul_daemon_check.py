"""sessions=daemon: permits end with a health check of the daemon, as the recipe has it. The next is let
in long before the leases' TTL, and not before whoever held has stopped."""

import json
import signal
import subprocess
import sys
import time
import unittest

from consul_case import SEMCTL, ConsulCase
from daemon import BOUND_S, Daemon, wait_until
from ports import free_port

CHECK_TTL_S = 5
# Where nothing may be lost however slow the machine is for a while.
PATIENT_CHECK_TTL_S = 15
TTL = "60s"  # In which nothing of this would happen by itself.
FREED_S = 30.0
LOST = 122  # What `semctl run` ends with when its lease is lost.

WORK = """
import json, os, signal, sys, time
def note(event):
    with open(sys.argv[1], "a", encoding="ascii") as file:
        file.write(json.dumps([event, sys.argv[2], time.monotonic_ns()]) + "\\n")
def leave(*unused):
    note("out")
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
note("in")
time.sleep(float(sys.argv[3]))
leave()
"""


class DaemonCheck(ConsulCase):

    def bound(self, node_id, check_ttl_s=CHECK_TTL_S):
        """A daemon with which its permits end."""
        store = f"{self.server.url(self.PREFIX)}?sessions=daemon&check_ttl_s={check_ttl_s}"
        settings = {"node_ttl": f"{check_ttl_s}s", "node_id": f"{node_id}-{self.name}"}
        daemon = Daemon(settings, port=free_port(), store=store)
        self.addCleanup(daemon.close)
        return daemon.start()

    def work(self, who, seconds=60.0):
        return [sys.executable, "-S", "-E", "-c", WORK, self.record, who, str(seconds)]

    def run_at(self, daemon, who, *options, seconds=60.0):
        return self.spawn(SEMCTL, "--server", daemon.address, "run", self.name, "--limit", "2",
                          *options, "--", *self.work(who, seconds))

    def when(self, event, who):
        """In nanoseconds; None: not yet."""
        try:
            with open(self.record, encoding="ascii") as file:
                for line in map(json.loads, file):
                    if line[:2] == [event, who]:
                        return line[2]
        except FileNotFoundError:
            pass
        return None

    def enters(self, who, bound_s=BOUND_S):
        wait_until(lambda: self.when("in", who), f"{who} is inside", bound_s)

    def fill(self, daemon):
        """Two at one daemon, who hold all there is."""
        processes = [self.run_at(daemon, who, "--ttl", TTL) for who in ("first", "second")]
        for who in ("first", "second"):
            self.enters(who)
        return processes

    def check_that_both_had_left(self, who):
        for before in ("first", "second"):
            self.assertIsNotNone(self.when("out", before), f"{before} was let work on")
            self.assertLess(self.when("out", before), self.when("in", who))

    def test_what_a_killed_daemon_gave_is_free_soon(self):
        held, other = self.bound("a"), self.bound("b")
        self.fill(held)
        self.run_at(other, "ours")
        other.client().wait_for_queue(self.name, 1)
        started = time.monotonic()
        held.kill9()
        self.enters("ours", FREED_S)
        print(f"\nmeasured: free after {time.monotonic() - started:.1f} s, with a check of "
              f"{CHECK_TTL_S} s", flush=True)
        self.check_that_both_had_left("ours")

    def test_a_foreign_client_is_let_in_as_well(self):
        held = self.bound("a")
        self.fill(held)
        self.spawn("consul", "lock", f"-http-addr={self.server.address}", "-n=2", "-shell=false",
                   f"{self.PREFIX}/{self.name}", *self.work("foreign"))
        time.sleep(1)  # so that it stands there; whether it does is not judged
        self.assertIsNone(self.when("in", "foreign"), held.log()[-2000:])
        held.kill9()
        self.enters("foreign", FREED_S)
        self.check_that_both_had_left("foreign")

    def test_a_permit_is_kept_while_its_daemon_lives(self):
        daemon = self.bound("a", PATIENT_CHECK_TTL_S)
        kept_s = 1.3 * PATIENT_CHECK_TTL_S
        process = self.run_at(daemon, "long", "--ttl", TTL, seconds=kept_s)
        self.assertEqual(process.wait(kept_s + BOUND_S), 0)
        self.assertIsNotNone(self.when("out", "long"))

    def test_a_daemon_that_is_stopped_tells_who_holds(self):
        held, other = self.bound("a"), self.bound("b")
        processes = self.fill(held)
        self.run_at(other, "ours")
        other.client().wait_for_queue(self.name, 1)
        held.signal(signal.SIGTERM)
        for process in processes:
            self.assertEqual(process.wait(BOUND_S), LOST)
        self.enters("ours")
        self.assertEqual(held.wait_exit(), 0)

    def test_a_check_that_fails_is_told(self):
        """The agent has declared the daemon dead, and it lives: its clients are told."""
        daemon = self.bound("a")
        processes = self.fill(daemon)
        checks = self.server.request("GET", "agent/checks")[1]
        check = next(name for name in checks if name.startswith(f"semaphored:{self.PREFIX}:")
                     and checks[name]["Status"] == "passing")
        self.assertEqual(self.server.request("PUT", f"agent/check/fail/{check}")[0], 200)
        for process in processes:
            self.assertEqual(process.wait(BOUND_S), LOST)
        # It passes its check again, and goes on.
        again = subprocess.run([SEMCTL, "--server", daemon.address, "run", self.name, "--limit", "2",
                                "--", "true"], timeout=FREED_S, check=False)
        self.assertEqual(again.returncode, 0)


if __name__ == "__main__":
    unittest.main()
