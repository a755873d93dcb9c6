"""deploy/systemd in a Debian of its own that systemd has booted, by systemd-nspawn: the unit is installed as its first
lines say, serves, keeps leases over a kill, and answers in time while others take all of the processors.

Needs root, and Debian's mirror, as installing the tests' packages does."""

import os
import re
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from booted_root import BootedRoot  # noqa: E402
from daemon import BIN_DIR, BOUND_S, Client, free_port, grpc, wait_until  # noqa: E402
import test_image  # noqa: E402

LOOPS = 3  # On two processors.
CYCLES = 400
SLOWER_MOST = 3.0


def measure(address):
    """Prints what an acquire and its release take, each from its request to its answer: the median and the mean, in ms.
    Run with a real-time policy, it does not wait for a processor itself."""
    client = Client(grpc.insecure_channel(address))
    times = []
    for _ in range(CYCLES):
        begun = time.monotonic()
        client.release(client.acquire("pressure", limit=1, ttl_ms=60000).lease_id)
        times.append(1000 * (time.monotonic() - begun))
        time.sleep(0.005)  # A pace, which nothing waits for: each cycle finds the daemon asleep, as a rare client does.
    print(sorted(times)[CYCLES // 2], sum(times) / CYCLES)


class Booted(BootedRoot):

    @classmethod
    def setUpClass(cls):
        cls.make_root()
        for program in test_image.PROGRAMS:
            subprocess.run(["strip", "--strip-unneeded", "-o", f"{cls.root}/usr/local/bin/{program}",
                            os.path.join(BIN_DIR, program)], check=True, timeout=BOUND_S)
        cls.port = free_port()
        cls.address = f"127.0.0.1:{cls.port}"
        cls.install_unit()
        cls.boot()
        wait_until(lambda: cls.inside("systemctl", "is-active", "semaphored").returncode == 0,
                   "the unit is active")

    @classmethod
    def install_unit(cls):
        """As its first lines say."""
        shutil.copytree(os.path.join(test_image.ROOT, "deploy"), f"{cls.root}/tmp/deploy",
                        ignore=shutil.ignore_patterns("demo", "cmake"))
        with open(f"{cls.root}/tmp/deploy/systemd/semaphored.service", encoding="utf-8") as file:
            commands = re.findall(r"^#   (.*)$", file.read(), re.MULTILINE)
        assert len(commands) == 4 and commands[3].startswith("systemctl daemon-reload"), commands
        for command in [*commands[:3], "systemctl enable semaphored"]:
            subprocess.run(["chroot", cls.root, "sh", "-ec", f"cd /tmp; {command}"], check=True,
                           capture_output=True, timeout=BOUND_S)
        cls.set_store("sqlite:///var/lib/semaphored/state.db")

    @classmethod
    def set_store(cls, store):
        with open(f"{cls.root}/etc/semaphored/semaphored.toml", "r+", encoding="utf-8") as file:
            file.truncate()
            file.write(f'listen = "{cls.address}"\nstore = "{store}"\n')

    def client(self):
        # On a connection of its own: not on that of an earlier client, to a process that was killed.
        channel = grpc.insecure_channel(self.address, [("grpc.use_local_subchannel_pool", 1)])
        self.addCleanup(channel.close)
        return Client(channel)

    def test_it_serves_and_keeps_leases_over_a_kill(self):
        self.set_store("sqlite:///var/lib/semaphored/state.db")
        self.done("systemctl", "restart", "semaphored")
        held = self.client().acquire("booted", limit=1, ttl_ms=60000)
        before = self.done("systemctl", "show", "semaphored", "-p", "MainPID", "--value")
        self.done("systemctl", "kill", "--signal=KILL", "semaphored")
        wait_until(lambda: self.done("systemctl", "show", "semaphored", "-p", "MainPID", "--value") not in
                   ("0", before) and self.inside("systemctl", "is-active", "semaphored").returncode == 0,
                   "systemd has started it again")
        self.assertTrue(self.client().verify(held.lease_id).held)
        bounds = self.done("systemctl", "show", "semaphored", "-p", "MemoryHigh,MemoryMax,OOMScoreAdjust")
        self.assertEqual(sorted(bounds.split()),
                         [f"MemoryHigh={3584 << 20}", f"MemoryMax={4 << 30}", "OOMScoreAdjust=-250"])
        self.done("systemctl", "reload", "semaphored")
        self.assertEqual(self.client().release(held.lease_id).released, 1)
        said = self.done("semctl", "--server", self.address, "run", "booted", "--", "echo", "inside")
        self.assertEqual(said, "inside")
        status = self.done("systemctl", "show", "semaphored", "-p", "StatusText", "--value")
        self.assertEqual(status, f"serving on {self.address}")

    def measured(self):
        """(median, mean), in ms."""
        done = subprocess.run(["chrt", "-f", "50", sys.executable, "-B", __file__, "--measure", self.address],
                              capture_output=True, text=True, check=True, timeout=BOUND_S)
        return tuple(map(float, done.stdout.split()))

    def test_it_answers_in_time_beside_busy_loops(self):
        """Without the time of a disk, which is not its own: on an engine in memory."""
        self.set_store("sqlite::memory:")
        self.done("systemctl", "restart", "semaphored")
        pid = int(self.done("systemctl", "show", "semaphored", "-p", "MainPID", "--value"))
        stat = self.done("cat", f"/proc/{pid}/stat").rpartition(")")[2].split()
        self.assertEqual((stat[16], stat[38]), ("-10", str(os.SCHED_OTHER)))  # Never a real-time policy.
        self.assertEqual(self.done("systemctl", "show", "semaphored", "-p", "CPUWeight", "--value"), "1000")
        self.measured()  # What is used for the first time is used here.
        quiet = self.measured()
        for number in range(LOOPS):
            self.done("systemd-run", f"--unit=busy-{number}", "sh", "-c", "while :; do :; done")
        try:
            busy = self.measured()
        finally:
            self.done("systemctl", "stop", *(f"busy-{number}" for number in range(LOOPS)))
        print(f"\nmeasured: an acquire and its release: median and mean {quiet} ms, beside {LOOPS} busy loops {busy} ms")
        for name, before, after in zip(("median", "mean"), quiet, busy):
            self.assertLessEqual(after, SLOWER_MOST * before, name)


if __name__ == "__main__":
    if "--measure" in sys.argv:
        measure(sys.argv[-1])
    else:
        unittest.main()
