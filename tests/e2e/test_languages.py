"""C++, Python, Node and semctl together on one semaphore of 3, while workers and the daemon are
killed: never over 3, and everyone gets its turn."""

import os
import random
import subprocess
import sys
import tempfile
import time
import unittest

import checker
import churn
import node_packages
from daemon import BIN_DIR, BOUND_S, Daemon, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 3
NAME = "languages/db"
DURATION_S = 30
WORKERS_PER_KIND = 2
TTL_MS = 2_000
# So many stays of each language, at least, over the whole time. On a quiet machine it is hundreds.
STAYS_LEAST = 5


class Worker:
    """One worker of a language after the other, each a process that takes permits until it ends."""

    def __init__(self, kind, command, environment, record):
        self.kind = kind
        self._command = command
        self._environment = {**os.environ, **environment, "WORKER_TTL_MS": str(TTL_MS)}
        self._record = record
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            self._command, env=self._environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=self._record, start_new_session=True)

    def kill(self, killed_ns):
        """When a process was seen to be dead: it may have been inside until then."""
        self.process.kill()
        self.process.wait(BOUND_S)
        killed_ns[self.process.pid] = time.monotonic_ns()

    def close(self, killed_ns):
        if self.process.poll() is None:
            self.kill(killed_ns)


def stays(log, kinds, killed_ns):
    """What the workers have written, as grants for the checker. Without an exit, a worker was
    inside until it was killed."""
    entered, grants = {}, []

    def add(pid, entered_ns, left_ns):
        grants.append(checker.Grant(client=f"{kinds[pid]} {pid}", slots=(0,), token=0,
                                    asked_ns=entered_ns, granted_ns=entered_ns, ended_ns=left_ns))
    with open(log, encoding="ascii") as file:
        for line in file:
            what, pid, at_ns = line.split()
            if what == "enter":
                entered[int(pid)] = int(at_ns)
            else:
                add(int(pid), entered.pop(int(pid)), int(at_ns))
    for pid, entered_ns in entered.items():
        add(pid, entered_ns, killed_ns[pid])
    return grants


class Languages(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-languages-")
        self.addCleanup(folder.cleanup)
        self.log = os.path.join(folder.name, "stays.log")
        self.semctl_log = os.path.join(folder.name, "semctl.log")
        self.said = open(os.path.join(folder.name, "said.log"), "w+b")
        self.addCleanup(self.said.close)
        self.kinds, self.killed_ns = {}, {}

    def start_workers(self, address):
        arguments = [address, NAME, str(LIMIT), self.log, "3600"]
        package = os.path.abspath(os.path.join(BIN_DIR, os.pardir, "python_client"))
        modules = os.path.join(node_packages.folder(), "node_modules")
        script = os.path.join(HERE, "languages", "worker")
        commands = {
            "cpp": ([os.path.abspath(os.path.join(BIN_DIR, "worker_cpp"))], {}),
            "python": ([sys.executable, "-B", script + ".py"], {"PYTHONPATH": package}),
            "node": (["node", script + ".mjs"], {"NODE_PATH": modules})}
        workers = []
        for kind, (command, environment) in commands.items():
            for _ in range(WORKERS_PER_KIND):
                worker = Worker(kind, command + arguments, environment, self.said)
                self.addCleanup(worker.close, self.killed_ns)
                self.kinds[worker.process.pid] = kind
                workers.append(worker)
        return workers

    def start_semctl(self, address):
        side = churn.Side("semctl", [
            os.path.join(BIN_DIR, "semctl"), "--server", address, "run", NAME, "--limit",
            str(LIMIT), "--ttl", f"{TTL_MS}ms", "--"], self.semctl_log, 2)
        self.addCleanup(side.close)
        return side

    def disturb(self, daemon, workers, semctl):
        """Kills one thing after the other, the daemon among them, until the time is over."""
        ends_at = time.monotonic() + DURATION_S
        turn = daemon_kills = 0
        while time.monotonic() < ends_at:
            time.sleep(random.uniform(0.5, 1.5))  # The pace of the disturbance.
            turn += 1
            if turn % 6 == 0:
                daemon.kill9()
                daemon.start()
                daemon_kills += 1
            elif turn % 6 == 3:
                semctl.kill_one()
            else:
                worker = random.choice(workers)
                self.assertIsNone(worker.process.poll(), self.what_they_said())
                worker.kill(self.killed_ns)
                worker.start()
                self.kinds[worker.process.pid] = worker.kind
        return daemon_kills

    def what_they_said(self):
        self.said.seek(0)
        return self.said.read().decode(errors="replace")[-4000:]

    def all_stays(self, semctl):
        grants = stays(self.log, self.kinds, self.killed_ns)
        return grants + churn.stays(self.semctl_log, semctl.killed_ns)

    def test_together(self):
        with Daemon({"ttl_min": "1s"}) as daemon:
            workers = self.start_workers(daemon.address)
            semctl = self.start_semctl(daemon.address)
            wait_until(lambda: os.path.exists(self.log), "somebody is inside")
            daemon_kills = self.disturb(daemon, workers, semctl)
            self.assertGreater(daemon_kills, 1)
            self.assertGreater(len(self.killed_ns), 5)
            semctl.close()
            for worker in workers:
                worker.close(self.killed_ns)
            grants = self.all_stays(semctl)
            self.assertEqual(checker.over_limit(grants, [checker.Limit(LIMIT)]), [])
            counts = churn.count_by_kind(grants, ("cpp", "python", "node", "semctl"))
            print(f"stays: {counts}, daemon kills: {daemon_kills}, {checker.summary(grants)}")
            self.assertGreaterEqual(min(counts.values()), STAYS_LEAST, counts)
            self.assertEqual(checker.summary(grants)["peak"], LIMIT, "they never met")


if __name__ == "__main__":
    unittest.main()
