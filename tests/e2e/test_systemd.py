"""deploy/systemd without systemd as the first process: the unit is verified, its exposure is what the
documentation says, and what its sandbox forbids the daemon does not do. (The sandbox itself is
systemd's, and is not tried.)"""

import os
import re
import subprocess
import tempfile
import unittest

from daemon import BIN_DIR, BOUND_S, Client, grpc, pb, wait_until

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))
FOLDER = os.path.join(ROOT, "deploy/systemd")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)


def of_set(name):
    """The system calls of one of systemd's sets."""
    calls = set()
    for line in run("systemd-analyze", "syscall-filter", name).stdout.splitlines()[1:]:
        word = line.strip()
        if word.startswith("@"):
            calls |= of_set(word)
        elif word and not word.startswith("#"):
            calls.add(word)
    return calls


class Unit(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-systemd-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.text = read(FOLDER, "semaphored.service")
        cls.unit = os.path.join(cls.folder, "semaphored.service")
        daemon = os.path.abspath(os.path.join(BIN_DIR, "semaphored"))
        with open(cls.unit, "w", encoding="utf-8") as file:
            file.write(cls.text.replace("/usr/local/bin/semaphored", daemon))

    def values(self, key):
        return re.findall(rf"^{key}=(.*)$", self.text, re.MULTILINE)

    def test_it_is_verified(self):
        done = run("systemd-analyze", "verify", "--man=no", self.unit)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_its_exposure_is_as_the_documentation_says(self):
        said = re.search(r"exposure of (\d+\.\d)", read(ROOT, "docs/operations.md")).group(1)
        done = run("systemd-analyze", "security", "--offline=true",
                   f"--threshold={said.replace('.', '')}", self.unit)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn(f"Overall exposure level for semaphored.service: {said}", done.stdout)

    def test_the_user_is_made(self):
        done = run("systemd-sysusers", "--dry-run", os.path.join(FOLDER, "semaphored.sysusers"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.values("User"), ["semaphored"])

    def test_what_the_daemon_does_is_allowed(self):
        """From its start to its end, with calls, streams, a reload and notifications."""
        allowed = set()
        for line in self.values("SystemCallFilter"):
            calls = set().union(*(of_set(name) for name in line.lstrip("~").split()))
            allowed = allowed - calls if line.startswith("~") else allowed | calls
        self.assertGreater(len(allowed), 200)
        used, families, writable = self.traced()
        self.assertGreater(len(used), 30)
        self.assertEqual(used - allowed, set())
        self.assertLessEqual(families, set(self.values("RestrictAddressFamilies")[0].split()))
        self.assertEqual(writable, 0, "memory that is written and executed")

    def traced(self):
        trace = os.path.join(self.folder, "trace")
        state = os.path.join(self.folder, "state")
        os.mkdir(state)
        with open(os.path.join(self.folder, "out"), "wb") as out:
            process = subprocess.Popen(
                ["strace", "-f", "-o", trace, "-e", "signal=none",
                 os.path.join(BIN_DIR, "semaphored"), "--listen", "127.0.0.1:0",
                 "--store", f"sqlite://{state}/state.db"], stdout=out, stderr=out,
                env={**os.environ, "NOTIFY_SOCKET": "@semaphored-e2e-nobody"})
        self.addCleanup(process.kill)
        address = wait_until(lambda: re.search(r"serving on (\S+)", read(self.folder, "out")),
                             "the daemon serves").group(1)
        with grpc.insecure_channel(address) as channel:
            client = Client(channel)
            lease = client.acquire("s", limit=1)
            client.acquire_later("s", wait_ms=100).exception(BOUND_S)
            client.release(lease.lease_id)
            hold = client.stub.Hold(pb.HoldRequest(acquire=client.acquire_request("s")))
            next(hold)
            hold.cancel()
        daemon = int(read("/proc", str(process.pid), "task", str(process.pid), "children").split()[0])
        run("kill", "-HUP", str(daemon))
        wait_until(lambda: "SIGHUP" in read(self.folder, "out"), "it has read its settings again")
        run("kill", "-TERM", str(daemon))
        self.assertEqual(process.wait(BOUND_S), 0, read(self.folder, "out"))
        text = read(trace)
        # Without the execve that begins it, which is systemd's.
        used = set(re.findall(r"^\d+ +(?:<\.\.\. )?(\w+)(?:\(| resumed)", text, re.MULTILINE))
        families = set(re.findall(r"\bsocket\((AF_\w+)", text))
        writable = len(re.findall(r"PROT_[A-Z_|]*WRITE[A-Z_|]*\|PROT_EXEC", text))
        # SQLite gives files to their folder's owner if it is root, which the unit's user is not.
        return used - {"execve", "fchown"}, families, writable


if __name__ == "__main__":
    unittest.main()
