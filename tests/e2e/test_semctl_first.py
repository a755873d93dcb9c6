"""semctl as the first process of a container: what is left to it by others is reaped, and signals
reach the command. Needs root, for a name space of processes."""

import os
import signal
import subprocess
import unittest

from daemon import BIN_DIR, BOUND_S, Daemon, wait_until

SEMCTL = os.path.join(BIN_DIR, "semctl")

# The command leaves an orphan behind that ends later than its parent, and stays.
COMMAND = "(sleep 0.2 & exec true); (setsid sleep 0.2 & exec true); echo begun; exec sleep 600"


def state_and_parent(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
            return fields[0], int(fields[1])
    except (FileNotFoundError, ProcessLookupError):
        return "", 0


def below(root):
    """All processes below one, as {pid: state}."""
    all_of_them = {int(entry): state_and_parent(entry)
                   for entry in os.listdir("/proc") if entry.isdigit()}
    found, news = {}, [root]
    while news:
        parents = set(news)
        news = [pid for pid, (_, parent) in all_of_them.items()
                if parent in parents and pid not in found]
        found.update({pid: all_of_them[pid][0] for pid in news})
    return found


class First(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.start()

    def start(self, *arguments):
        process = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", SEMCTL, "--server",
             self.daemon.address, *arguments], text=True, stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def first_of(self, process):
        return wait_until(lambda: next((pid for pid in below(process.pid)
                                        if state_and_parent(pid)[1] == process.pid), None),
                          "semctl has begun")

    def assert_reaps_what_comes_from_outside(self, process):
        """As `docker exec` leaves it: a process whose parent, outside, is gone."""
        first = self.first_of(process)
        for _ in range(3):
            subprocess.run(["nsenter", "--target", str(first), "--pid", "--mount",
                            "sh", "-c", "sleep 0.1 & exec true"], check=True, timeout=BOUND_S)
        wait_until(lambda: "sleep 0.1" not in self.commands(process) and
                   "Z" not in below(process.pid).values(), "all orphans are reaped")

    @staticmethod
    def commands(process):
        lines = []
        for pid in below(process.pid):
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8") as line:
                    lines.append(line.read().replace("\0", " ").strip())
            except (FileNotFoundError, ProcessLookupError):
                pass
        return lines

    def test_run(self):
        process = self.start("run", "busy", "--limit", "1", "--", "sh", "-c", COMMAND)
        self.assertEqual(process.stdout.readline(), "begun\n")
        self.assert_reaps_what_comes_from_outside(process)
        self.assertIn("sleep 600", self.commands(process))
        os.kill(self.first_of(process), signal.SIGTERM)
        self.assertEqual(process.wait(BOUND_S), 128 + signal.SIGTERM)
        self.assertEqual(self.daemon.client().describe("busy").held, 0)

    def test_run_while_it_waits(self):
        self.daemon.client().acquire("busy", limit=1)
        process = self.start("run", "busy", "--", "true")
        self.daemon.client().wait_for_queue("busy", 1)
        self.assert_reaps_what_comes_from_outside(process)

    def test_work(self):
        process = self.start("work", "jobs", "--", "cat")
        self.assert_reaps_what_comes_from_outside(process)


if __name__ == "__main__":
    unittest.main()
