"""Tickets in Consul: what is enqueued at one daemon is carried out at another, whoever is killed,
and dead letters come back when they are asked to."""

import json
import os
import subprocess
import sys
import unittest

from consul_case import SEMCTL, ConsulCase
from daemon import BOUND_S, wait_until

# Says which attempt it is and what its payload was, and ends when it is told to.
WORK = """
import os, sys, time
folder, attempt = sys.argv[1], os.environ["SEMAPHORE_ATTEMPT"]
with open(f"{folder}/new", "w") as file: file.write(f"{os.getpid()} {sys.stdin.read()}")
os.rename(f"{folder}/new", f"{folder}/begun-{sys.argv[2]}-{attempt}")
while not os.path.exists(f"{folder}/end"): time.sleep(0.01)
"""


class Tickets(ConsulCase):

    def setUp(self):
        super().setUp()
        self.a = self.daemon(f"a-{self.name}")
        self.b = self.daemon(f"b-{self.name}")

    def enqueue(self, daemon, payload, *options):
        done = subprocess.run([SEMCTL, "--server", daemon.address, "enqueue", self.name, "--limit",
                               "1", "--payload", "-", "-q", *options], input=payload, text=True,
                              capture_output=True, timeout=BOUND_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def work(self, servers, who):
        """A worker; `who` is in what it writes down."""
        return self.spawn(SEMCTL, "--server", servers, "work", self.name, "--ttl", "2s",
                          "--", sys.executable, "-S", "-E", "-c", WORK, self.folder, who)

    def wait_begun(self, who, attempt):
        """Its payload."""
        path = os.path.join(self.folder, f"begun-{who}-{attempt}")
        wait_until(lambda: os.path.exists(path), f"{who} begins attempt {attempt}")
        with open(path, encoding="utf-8") as file:
            return file.read().split(" ", 1)[1]

    def let_end(self):
        with open(os.path.join(self.folder, "end"), "w", encoding="ascii"):
            pass

    def tickets(self, daemon, *options):
        code, said = self.semctl(daemon, "tickets", self.name, "-o", "json", *options)
        self.assertEqual(code, 0, said)
        return json.loads(said).get("tickets", [])

    def wait_states(self, daemon, *states):
        def seen():
            return [ticket["state"] for ticket in self.tickets(daemon)]
        wait_until(lambda: seen() == list(states), f"the tickets are {states}")

    def wait_none(self, daemon):
        wait_until(lambda: not self.tickets(daemon), "no tickets are left")

    def test_it_comes_to_a_worker_at_another_daemon(self):
        self.enqueue(self.a, "first")
        self.work(self.b.address, "b")
        self.assertEqual(self.wait_begun("b", 1), "first")
        self.assertEqual(len(self.tickets(self.a)), 1)
        self.let_end()
        self.wait_none(self.a)
        # Nothing is left of it but the semaphore's own keys.
        for kind in ("t", "p"):
            under = f"kv/{self.PREFIX}/.semaphored/{kind}/{self.name}!"
            self.assertEqual(self.server.request("GET", f"{under}?recurse")[0], 404)

    def test_a_daemon_is_killed_and_the_dead_letter_requeued(self):
        ticket = self.enqueue(self.a, "fragile", "--max-attempts", "1")
        self.work(self.b.address, "b")
        self.wait_begun("b", 1)
        self.b.kill9()
        def dead():
            return [each["ticket_id"] for each in self.tickets(self.a, "--state", "dead")]
        # A finds that B is dead; then the worker's lease has its TTL.
        wait_until(lambda: dead() == [ticket], "it is a dead letter", 2 * BOUND_S)
        code, said = self.semctl(self.a, "dead-letters", self.name, "requeue", "--all")
        self.assertEqual(code, 0, said)
        self.work(self.a.address, "a")
        self.assertEqual(self.wait_begun("a", 1), "fragile")
        self.let_end()
        self.wait_none(self.a)

    def test_a_worker_that_knows_both_daemons_goes_on_at_the_other(self):
        self.enqueue(self.a, "steady", "--max-attempts", "1")
        worker = self.work(f"{self.b.address},{self.a.address}", "both")
        self.wait_begun("both", 1)
        self.b.kill9()
        self.let_end()
        self.wait_none(self.a)
        self.assertIsNone(worker.poll())

    def test_a_key_that_was_removed_by_hand(self):
        ticket = self.enqueue(self.a, "kept")
        key = f".semaphored/t/{self.name}!{ticket}"
        self.assertIsNotNone(self.stored(key))
        self.server.request("DELETE", f"kv/{self.PREFIX}/{key}")
        # B has never seen it.
        code, said = self.semctl(self.b, "tickets", self.name)
        self.assertNotEqual(code, 0)
        self.assertIn("their keys were changed by hand", said)
        code, said = self.semctl(self.b, "prune", self.name)
        self.assertEqual(code, 0, said)
        code, said = self.semctl(self.b, "dead-letters", self.name, "requeue", "--all")
        self.assertEqual(code, 0, said)
        self.work(self.a.address, "a")
        self.assertEqual(self.wait_begun("a", 1), "kept")


if __name__ == "__main__":
    unittest.main()
