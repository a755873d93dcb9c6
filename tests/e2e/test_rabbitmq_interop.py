"""Workers that follow RabbitMQ's blog post, and know nothing of us, share a semaphore's queue with
our clients. Whoever is killed, and whenever: never more are inside than the limit.

But for one window, which belongs to the recipe: when a daemon is killed, the broker gives its
permits to others at once, and its clients stop their work a moment later. It is measured.
"""

import collections
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import broker
import checker
from broker import OPTIONS, TTL_MS, free_tokens, token_queue
from daemon import BIN_DIR, BOUND_S, wait_until

CHURN_S = float(os.environ.get("SEMAPHORED_TEST_CHURN_S", "20"))
LIMIT = 4
BLOG_WORKERS = 4
RUNNERS = 4  # Of semctl, at each daemon.
TTL = "2s"
# A daemon vouches for less than two heartbeats after it was last in touch with the broker; the
# command has to end by then, and a loaded machine takes its time.
WINDOW_S = 2 * broker.HEARTBEAT_S + 1
SEMCTL = os.path.join(BIN_DIR, "semctl")

# What semctl runs: the same entries and exits as those of the blog's workers.
WORK = """
import json, os, random, signal, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(event):
    line = {"event": event, "pid": os.getpid(), "at_ns": time.monotonic_ns(), "kind": sys.argv[2],
            "slot": int(os.environ["SEMAPHORE_SLOT"]), "token": int(os.environ["SEMAPHORE_TOKEN"])}
    os.write(file, (json.dumps(line) + "\\n").encode())
def leave(*unused):
    note("out")
    os._exit(0)
deaf = sys.argv[4] == "deaf"
signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else leave)
note("in")
time.sleep(float(sys.argv[3]))
leave()
"""


def now_ns():
    return time.monotonic_ns()


def command(daemon, semaphore, record, kind, seconds, deaf="-"):
    return [SEMCTL, "--server", daemon.address, "run", semaphore, "--limit", str(LIMIT), "--ttl",
            TTL, "--holder", kind, "--", sys.executable, "-S", "-E", "-c", WORK, record, kind,
            str(seconds), deaf]


class Record:
    """The file of entries and exits. A thread watches those who are inside: who is killed cannot
    write that it left."""

    def __init__(self, path):
        self.path = path
        self.ended_ns = {}  # By process id: when it was killed, or seen to have ended.
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def lines(self):
        try:
            with open(self.path, encoding="ascii") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def close(self):
        self.stop.set()
        self.thread.join()

    def killed(self, pid, at_ns):
        self.ended_ns[pid] = min(at_ns, self.ended_ns.get(pid, at_ns))

    def inside(self):
        """The process ids of those that have not left, with their entry."""
        found = {}
        for line in self.lines():
            if line["event"] == "in":
                found[line["pid"]] = line
            else:
                found.pop(line["pid"], None)
        return {pid: line for pid, line in found.items() if pid not in self.ended_ns}

    def _watch(self):
        while not self.stop.wait(0.02):
            for pid in self.inside():
                try:
                    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
                        gone = stat.read().rpartition(")")[2].split()[0] in "ZX"
                except (FileNotFoundError, ProcessLookupError):
                    gone = True
                if gone:
                    self.killed(pid, now_ns())

    def stays(self):
        """(its entry, when it left) for each stay, in the order of entries."""
        stays, entered = [], {}
        for line in self.lines():
            if line["event"] == "in":
                entered[line["pid"]] = line
            elif line["pid"] in entered:
                stays.append((entered.pop(line["pid"]), line["at_ns"]))
        stays += [(line, self.ended_ns.get(pid, checker.NEVER)) for pid, line in entered.items()]
        return sorted(stays, key=lambda stay: stay[0]["at_ns"])


class Blog:
    """The workers of the blog, each of which is started again when it has been killed."""

    def __init__(self, server, semaphore, record):
        self.command = [sys.executable, "-B",
                        os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                     "blog_consumer.py"),
                        server.url(), token_queue(semaphore), record.path]
        self.record = record
        self.processes = [self._start() for _ in range(BLOG_WORKERS)]
        self.ended = []  # Of themselves, which they never should.

    def _start(self):
        return subprocess.Popen(self.command, stdin=subprocess.DEVNULL)

    def kill_one(self):
        index = random.randrange(len(self.processes))
        self._kill(self.processes[index])
        self.processes[index] = self._start()

    def _kill(self, process):
        if process.poll() is not None:
            self.ended.append(process.returncode)
        inside = process.pid in self.record.inside()
        at_ns = now_ns()
        process.kill()
        process.wait(BOUND_S)
        if inside:
            self.record.killed(process.pid, at_ns)

    def close(self):
        for process in self.processes:
            self._kill(process)


class Runners:
    """semctl run, again and again, at one daemon."""

    def __init__(self, daemon, semaphore, record, kind):
        self.daemon, self.semaphore, self.record, self.kind = daemon, semaphore, record, kind
        self.codes = collections.Counter()
        self.stopping = threading.Event()
        self.processes = [None] * RUNNERS
        self.threads = [threading.Thread(target=self._run, args=(index,), daemon=True)
                        for index in range(RUNNERS)]
        for thread in self.threads:
            thread.start()

    def _run(self, index):
        while not self.stopping.is_set():
            seconds = 3 if random.random() < 0.1 else random.uniform(0.02, 0.3)
            process = subprocess.Popen(
                command(self.daemon, self.semaphore, self.record.path, self.kind, seconds),
                stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.processes[index] = process
            self.codes[process.wait()] += 1
            self.stopping.wait(random.uniform(0, 0.1))

    def kill_one(self):
        process = random.choice(self.processes)
        if process is not None and process.poll() is None:
            process.kill()

    def close(self):
        self.stopping.set()
        for process in self.processes:
            if process is not None and process.poll() is None:
                process.terminate()
        for thread in self.threads:
            thread.join(BOUND_S)


class Interop(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = broker.start_broker(cls.addClassCleanup)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-e2e-")
        self.addCleanup(folder.cleanup)
        self.record = Record(os.path.join(folder.name, "record"))
        self.addCleanup(self.record.close)
        self.name = self.id().rsplit(".", 1)[1]
        self.daemons = {}
        for kind in "ab":
            daemon = broker.daemon_on(self.server, f"{kind}-{self.name}", options=OPTIONS)
            self.addCleanup(daemon.close)
            self.daemons[kind] = daemon.start()
        client = self.daemons["a"].client()
        lease = client.acquire(self.name, limit=LIMIT, ttl_ms=TTL_MS)
        client.release(lease.lease_id)

    def test_churn_and_kills_on_both_sides(self):
        self.kills_ns = {kind: [] for kind in self.daemons}
        self.down = {kind: [] for kind in self.daemons}  # From the kill until it serves again.
        blog = Blog(self.server, self.name, self.record)
        self.addCleanup(blog.close)
        runners = {kind: Runners(daemon, self.name, self.record, kind)
                   for kind, daemon in self.daemons.items()}
        for each in runners.values():
            self.addCleanup(each.close)
        begun = time.monotonic()
        rounds = 0
        while time.monotonic() < begun + CHURN_S:
            rounds += 1
            self.let_pass(0.4)
            blog.kill_one()
            if rounds % 4 == 0:
                random.choice(list(runners.values())).kill_one()
            if rounds % 15 == 8:
                self.kill_daemon("ab"[rounds // 15 % 2])
        self.let_pass(1)
        for each in runners.values():
            each.close()
        blog.close()
        wait_until(lambda: not self.record.inside(), "all have left")
        self.record.close()
        print(f"\nsemctl ended with {[dict(each.codes) for each in runners.values()]}", flush=True)
        self.assertEqual(blog.ended, [])
        self.judge()
        wait_until(lambda: free_tokens(self.server, self.name) == LIMIT,
                   "all permits have come back", BOUND_S)

    def let_pass(self, seconds):
        """The pace of the churn."""
        until = time.monotonic() + seconds
        wait_until(lambda: time.monotonic() >= until, "some time has passed")

    def kill_daemon(self, kind):
        """It is started again when nobody can be left who was let in by its earlier life."""
        daemon = self.daemons[kind]
        at_ns = now_ns()
        daemon.kill9()
        wait_until(lambda: now_ns() >= at_ns + WINDOW_S * 1e9, "the window has passed")
        served_ns = now_ns()
        daemon.start()
        self.down[kind].append((at_ns, served_ns))

    def judge(self):
        """A stay under a daemon that was killed counts until the kill; what lies after that is the
        window."""
        grants, windows, count = [], [], collections.Counter()
        for entry, left_ns in self.record.stays():
            kind, entered_ns = entry["kind"], entry["at_ns"]
            ended_ns = left_ns
            for killed_ns, served_ns in self.down.get(kind, ()):
                # Nobody else could have let it in than the life that was killed.
                if entered_ns < served_ns and left_ns > killed_ns:
                    ended_ns = min(ended_ns, max(killed_ns, entered_ns))
                    windows.append((left_ns - killed_ns) / 1e9)
            count[kind] += 1
            grants.append(checker.Grant(
                client=f"{kind} {entry['pid']}", slots=(entry.get("slot", 0),),
                token=entry.get("token", 0), asked_ns=entered_ns, granted_ns=entered_ns,
                ended_ns=ended_ns))
        kills = sum(len(each) for each in self.down.values())
        print(f"{checker.summary(grants)['peak']} inside at most, {dict(count)}, {kills} daemons "
              f"killed\nmeasured: still inside after the kill of their daemon: {len(windows)}, at "
              f"most for {max(windows, default=0):.2f} s", flush=True)
        self.assertEqual(checker.over_limit(grants, [checker.Limit(LIMIT)]), [])
        self.assertEqual(
            checker.slots_twice([each for each in grants if each.token]), [])
        self.assertEqual(checker.summary(grants)["peak"], LIMIT, "never full: this proved nothing")
        self.assertLess(max(windows, default=0), WINDOW_S)
        for kind in ("blog", *self.daemons):
            self.assertGreater(count[kind], CHURN_S / 2, f"{kind} made no progress")

    def test_how_long_commands_outlive_their_daemon(self):
        """The window, with commands that would go on for ever: those that heed SIGTERM, and those
        that do not."""
        daemon = self.daemons["a"]
        for deaf in ("-", "deaf"):
            processes = [subprocess.Popen(
                command(daemon, self.name, self.record.path, "a", 60, deaf),
                stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(LIMIT)]
            for process in processes:
                self.addCleanup(process.wait)
                self.addCleanup(process.kill)
            wait_until(lambda: len(self.record.inside()) == LIMIT, "all are inside")
            self.let_pass(random.uniform(1, 2))
            self.assertEqual(len(self.record.inside()), LIMIT, "ended while the daemon was well")
            killed_ns = now_ns()
            daemon.kill9()
            wait_until(lambda: free_tokens(self.server, self.name) == LIMIT, "all are free")
            freed_ns = now_ns()
            wait_until(lambda: not self.record.inside(), "all commands have ended", 30)
            left = sorted((left_ns - killed_ns) / 1e9
                          for _, left_ns in self.record.stays()[-LIMIT:])
            print(f"\nmeasured: from the kill of a daemon to the end of its commands"
                  f"{' that ignore SIGTERM' if deaf == 'deaf' else ''}: "
                  f"{left[0]:.2f} to {left[-1]:.2f} s; its permits were free within "
                  f"{(freed_ns - killed_ns) / 1e9:.2f} s", flush=True)
            with self.subTest(deaf=deaf):
                self.assertLess(left[-1], WINDOW_S)
            for process in processes:
                process.send_signal(signal.SIGTERM)
                process.wait(BOUND_S)
            daemon.start()


if __name__ == "__main__":
    unittest.main()
