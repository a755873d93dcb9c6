"""Daemons with layout=slots and clients of amqp-locks share a semaphore of a real RabbitMQ, while
both sides are killed. What each has written down of when it was inside is judged afterwards.

SEMAPHORED_TEST_CHURN_S: for how long the churn goes on.
"""

import contextlib
import dataclasses
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import checker
from amqp_locks import AmqpLocks, Failed, Locked
from cluster import Cluster
from crowd import Crowd, Detached, InSession
from daemon import BIN_DIR, BOUND_S, error_info, grpc, slots_of, wait_until
from postgres import is_running
from rabbitmq import RabbitServer

SEMCTL = os.path.join(BIN_DIR, "semctl")
CHURN_S = float(os.environ.get("SEMAPHORED_TEST_CHURN_S", "20"))
LIMIT = 3
CLIENTS = 10
OTHERS = 3
TTL_MS = 3000
SEMAPHORE = "shared/churn"
# A Hold that is sent again to another daemon is another request there, and gets another lease.
KINDS = (Detached, InSession)


class Other:
    """amqp_locks.py as a process, until it is killed or asked to end."""

    def __init__(self, url, number):
        self.name = f"amqp-locks {number}"
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "amqp_locks.py")
        self.process = subprocess.Popen(
            [sys.executable, "-B", script, url, SEMAPHORE, "60", str(number)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.events = []
        self.ended_ns = checker.NEVER
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def kill(self):
        self.ended_ns = time.monotonic_ns()
        self.process.kill()
        self._wait()

    def end(self):
        self.process.stdin.close()
        self._wait()

    def _wait(self):
        self.process.wait(BOUND_S)
        self._reader.join(BOUND_S)
        self.process.stdout.close()
        if not self.process.stdin.closed:
            self.process.stdin.close()

    def grants(self):
        found = []
        entered = None
        for event in self.events:
            if event["event"] == "entered":
                entered = event
            elif event["event"] == "left":
                found.append(self._grant(entered, event["at_ns"]))
                entered = None
        if entered is not None:
            found.append(self._grant(entered, self.ended_ns))
        return found

    def robbed(self):
        return [event["slot"] for event in self.events if event["event"] == "robbed"]

    def _grant(self, entered, ended_ns):
        return checker.Grant(client=self.name, slots=(entered["slot"],), token=0,
                             asked_ns=entered["asked_ns"], granted_ns=entered["at_ns"],
                             ended_ns=min(ended_ns, self.ended_ns), where="amqp-locks")


def cut_at_kills(grants, kills):
    """The grants as the broker has them, which frees what a killed daemon held at once; and for how
    many seconds each client believed in it for longer."""
    cut, believed = [], []
    for grant in grants:
        for where, at_ns, _ in kills:
            if grant.where == where and grant.granted_ns < at_ns < grant.ended_ns:
                believed.append((grant.ended_ns - at_ns) / 1e9)
                grant = dataclasses.replace(grant, ended_ns=at_ns)
        # One that was on its way to the client when its daemon was killed, and was read before the
        # daemon served again.
        if not any(grant.where == where and at_ns <= grant.granted_ns < again_ns
                   for where, at_ns, again_ns in kills):
            cut.append(grant)
    return cut, believed


class Slots(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="semaphored-e2e-")
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.server = RabbitServer(folder)
        cls.addClassCleanup(cls.server.remove)
        cls.server.start()

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="semaphored-e2e-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def daemons(self, names="ab"):
        return Cluster({name: self.server.url(options="?layout=slots") for name in names})

    def locks(self, name):
        locks = AmqpLocks(self.server.url(), name)
        self.addCleanup(lambda: locks.connection.is_open and locks.close())
        return locks

    def semctl(self, daemons, *arguments):
        """Its exit code."""
        return subprocess.run([SEMCTL, "--server", ",".join(daemons.addresses), *arguments],
                              capture_output=True, timeout=BOUND_S, check=False).returncode

    def test_churn_of_both_sides(self):
        self.locks(SEMAPHORE).create(LIMIT)
        dice = random.Random(4)
        kills = []
        with self.daemons() as daemons, \
                Crowd(daemons.addresses, SEMAPHORE, LIMIT, self.folder, CLIENTS,
                      ttl_ms=TTL_MS, kinds=KINDS) as crowd:
            others = [Other(self.server.url(), number) for number in range(OTHERS)]
            alive = list(others)
            end = time.monotonic() + CHURN_S
            while time.monotonic() < end:
                time.sleep(dice.uniform(0.8, 1.6))  # between two kills
                if dice.random() < 0.5:
                    alive.pop(0).kill()
                    alive.append(Other(self.server.url(), len(others)))
                    others.append(alive[-1])
                else:
                    daemon = dice.choice(list(daemons.daemons.values()))
                    at_ns = time.monotonic_ns()
                    daemon.kill9()
                    daemon.start()
                    kills.append((daemon.address, at_ns, time.monotonic_ns()))
            last_kill_ns = time.monotonic_ns()
            time.sleep(3)  # in which both sides go on
            grants, unexpected = crowd.finish()
            for other in alive:
                other.end()
        theirs = [grant for other in others for grant in other.grants()]
        cut, believed = cut_at_kills(grants, kills)
        summary = checker.summary(cut + theirs)
        raw = checker.over_limit(grants + theirs, [checker.Limit(LIMIT)])
        print(f"\nours {len(grants)}, theirs {len(theirs)}, daemons killed {len(kills)}, "
              f"peak {summary['peak']}, believed {len(believed)} for at most "
              f"{max(believed, default=0):.3f} s, entries above the limit meanwhile {len(raw)}",
              flush=True)
        self.assertEqual(unexpected, [])
        # A program that is killed while it declares the queue of a slot may delete that of the
        # slot's new holder (docs/rabbitmq.md): both sides say when that was done to them.
        robbed = [slot for other in others for slot in other.robbed()]
        robbed += self.robbed_daemons(daemons)
        print(f"slots that the broker gave to another: {robbed}", flush=True)
        self.assertLessEqual(len(robbed), 2)
        self.assertEqual([found for found in self.slots_shared(cut + theirs)
                          if found[0] not in robbed], [])
        if not robbed:
            self.assertEqual(checker.over_limit(cut + theirs, [checker.Limit(LIMIT)]), [])
            self.assertEqual(summary["peak"], LIMIT, "never full: this proved nothing")
        for side in (grants, theirs):
            self.assertGreater(len(side), 2 * CHURN_S)
            self.assertTrue(any(grant.granted_ns > last_kill_ns for grant in side))
        self.assertGreater(len(kills), CHURN_S / 10)
        # Whoever believes after its daemon's end, believes no longer than its lease was good for.
        self.assertLess(max(believed, default=0), TTL_MS / 1000)

    @staticmethod
    def robbed_daemons(daemons):
        text = "".join(daemon.log() for daemon in daemons.daemons.values())
        return [int(slot) for slot in
                re.findall(rf"{SEMAPHORE}-B-(\d+) is not ours any more", text)]

    @staticmethod
    def slots_shared(grants):
        """Slots that two held at a time. (There are no tokens here.)"""
        found = []
        last = {}
        for grant in sorted(grants, key=lambda grant: grant.granted_ns):
            slot = grant.slots[0]
            before = last.get(slot)
            if grant.ended_ns <= grant.granted_ns:
                continue
            if before is not None and before.ended_ns > grant.granted_ns:
                found.append((slot, before, grant))
            last[slot] = grant
        return found

    def test_each_sees_what_the_other_has(self):
        theirs = self.locks("shared/seen")
        with self.daemons("a") as daemons:
            client = daemons["a"].client()
            self.assertEqual(self.semctl(daemons, "create", "shared/seen", "--limit", "2"), 0)
            self.assertEqual(theirs.size(), 2)
            lease = client.acquire("shared/seen", ttl_ms=60_000)
            self.assertEqual(slots_of(lease.slots), [1])
            self.assertEqual(theirs.acquire(), 2)
            with self.assertRaises(Failed):
                self.locks("shared/seen").acquire()
            self.assertEqual(client.describe("shared/seen").held, 2)
            waiting = client.acquire_later("shared/seen", ttl_ms=60_000)
            client.wait_for_queue("shared/seen", 1)
            theirs.add(1)
            self.assertEqual(slots_of(waiting.result(BOUND_S).lease.slots), [3])
            theirs.remove(2)
            self.assertTrue(theirs.held(3))
            client.release(waiting.result().lease.lease_id)
            self.assertFalse(theirs.held(3))
            client.release(lease.lease_id)
            self.assertEqual(self.locks("shared/seen").acquire(), 1)

    def test_drain_waits_for_holders_and_verify_looks_at_the_slot(self):
        """Of ours and of others; nothing is paused."""
        theirs = self.locks("shared/drain")
        theirs.create(2)
        with self.daemons("a") as daemons:
            client = daemons["a"].client()
            lease = client.acquire("shared/drain", ttl_ms=60_000)
            self.assertEqual(theirs.acquire(), 2)
            theirs.remove(1)
            drain = ("drain", "shared/drain", "--held-max", "1")
            self.assertEqual(self.semctl(daemons, *drain), 1)
            waiting = subprocess.Popen(
                [SEMCTL, "--server", ",".join(daemons.addresses), *drain, "--wait", "1m"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.addCleanup(waiting.kill)
            theirs.release(2)
            output, _ = waiting.communicate(timeout=BOUND_S)
            self.assertEqual(waiting.returncode, 0, output)
            self.assertTrue(client.verify(lease.lease_id).held)
            theirs.remove(1)
            self.assertFalse(client.verify(lease.lease_id).held)
            self.assertTrue(theirs.held(1), "the lease stands until its holder gives it back")
            client.release(lease.lease_id)
            self.assertFalse(theirs.held(1))

    def test_one_administrator_at_a_time(self):
        theirs = self.locks("shared/admin")
        theirs.create(1)
        theirs.channel.queue_declare("shared/admin", exclusive=True,
                                     arguments={"x-max-length": 0})
        with self.daemons("a") as daemons:
            self.assertNotEqual(self.semctl(daemons, "resize", "shared/admin", "--limit", "4"), 0)
            self.assertEqual(theirs.size(), 1)
            with self.assertRaises(Locked):
                self.locks("shared/admin").add(1)
            theirs.channel.queue_delete("shared/admin")
            self.assertEqual(self.semctl(daemons, "resize", "shared/admin", "--limit", "4"), 0)
            self.assertEqual(theirs.size(), 4)
            self.assertEqual(self.semctl(daemons, "destroy", "shared/admin"), 0)
            self.assertEqual(theirs.size(), 0)

    def test_how_long_a_command_outlives_its_permit(self):
        """The daemon is killed: the broker frees the slot at once. semctl ends the command when
        another daemon tells it, or when nobody has vouched for the lease for long."""
        for names, bound_s in (("ab", 2), ("a", 3.5)):
            with self.subTest(daemons=names), self.daemons(names) as daemons:
                window_s, freed_s = self.measure_window(daemons)
                print(f"\n{len(names)} endpoints: the slot was free after {freed_s:.3f} s, the "
                      f"command ended after {window_s:.3f} s", flush=True)
                self.assertLess(window_s, bound_s)

    def test_a_broker_without_memory_takes_no_permit_back(self):
        """It reads no more from whoever publishes: the connection of the probes, not that of the
        permits."""
        with self.daemons("a") as daemons:
            client = daemons["a"].client()
            lease = client.acquire("shared/alarm", limit=2, ttl_ms=60_000)
            self.addCleanup(self.server.ctl, "set_vm_memory_high_watermark", "0.6")
            self.server.ctl("set_vm_memory_high_watermark", "0.00001")
            # It cannot be seen, so nobody is told that it is full.
            with self.assertRaises(grpc.RpcError) as refused:
                client.acquire("shared/alarm", ttl_ms=60_000)
            self.assertEqual(error_info(refused.exception).reason, "ENGINE_UNAVAILABLE")
            time.sleep(8)  # for longer than a sweep and a time-out
            self.assertTrue(client.verify(lease.lease_id).held)
            later = client.acquire_later("shared/alarm", ttl_ms=60_000)
            self.server.ctl("set_vm_memory_high_watermark", "0.6")
            self.assertEqual(slots_of(later.result(BOUND_S).lease.slots), [2])
            self.assertEqual(client.describe("shared/alarm").held, 2)
            self.assertTrue(client.verify(lease.lease_id).held)

    def test_the_slots_outlive_the_broker_and_the_permits_do_not(self):
        with self.daemons("a") as daemons:
            client = daemons["a"].client()
            lease = client.acquire("shared/restart", limit=2, ttl_ms=60_000)
            self.server.restart(kill=True)

            def granted():
                with contextlib.suppress(grpc.RpcError):
                    return client.acquire("shared/restart", ttl_ms=60_000)
            fresh = wait_until(granted, "a grant after the restart")
            self.assertEqual(slots_of(fresh.slots), [1])
            self.assertFalse(client.verify(lease.lease_id).held)
            self.assertEqual(self.locks("shared/restart").size(), 2)

    def measure_window(self, daemons):
        name = "shared/window" + str(len(daemons.addresses))
        theirs = self.locks(name)
        theirs.create(1)
        inside = subprocess.Popen(
            [SEMCTL, "--server", ",".join(daemons.addresses), "run", name, "--ttl", "3s",
             "--", "sh", "-c", "echo $$; exec sleep 60"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.addCleanup(inside.stdout.close)
        self.addCleanup(inside.wait, BOUND_S)
        self.addCleanup(inside.kill)
        command = int(inside.stdout.readline())
        killed = time.monotonic()
        daemons["a"].kill9()
        wait_until(lambda: not theirs.held(1), "the broker frees the slot of a killed daemon")
        freed_s = time.monotonic() - killed
        wait_until(lambda: not is_running(command), "semctl ends the command")
        window_s = time.monotonic() - killed
        return window_s, freed_s


if __name__ == "__main__":
    unittest.main()
