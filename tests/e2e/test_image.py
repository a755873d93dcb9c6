"""deploy/Dockerfile without an engine for containers: the same commands, in a root folder of its own. There the
daemon runs as the image's user, as process 1, on a file system that cannot be written but for its volume.

Needs root, and Debian's mirror, as installing the tests' packages does."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from daemon import BIN_DIR, BOUND_S, free_port, wait_until
from root import mirror

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))
INSTALL_BOUND_S = 200.0
PROGRAMS = ("semaphored", "semctl")

# In namespaces of its own: {root} can only be read, but for the volume and /proc.
START = """
set -e
mount --bind "$root" "$root"
mount -t tmpfs -o uid=7420,gid=7420,mode=0750,size=64m tmpfs "$root/var/lib/semaphored"
mount -t proc proc "$root/proc"
mount -o remount,ro,bind "$root"
exec chroot --userspec=7420:7420 "$root" "$@"
"""


def dockerfile():
    with open(os.path.join(ROOT, "deploy/Dockerfile"), encoding="utf-8") as file:
        return file.read()


class Image(unittest.TestCase):
    """The tests' order is theirs alone; the root folder is made once."""

    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix="semaphored-image-")
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        os.chmod(cls.root, 0o755)
        # Debian slim is the smallest variant, without documents and translations.
        cls.install("debootstrap", "--variant=minbase", "bookworm", cls.root, mirror())
        with open(os.path.join(cls.root, "etc/apt/apt.conf.d/80retries"), "w", encoding="ascii") as file:
            file.write('Acquire::Retries "3";\n')
        shutil.copy("/etc/resolv.conf", os.path.join(cls.root, "etc/resolv.conf"))
        shutil.copy(os.path.join(ROOT, "deploy/image.sh"), os.path.join(cls.root, "tmp"))
        cls.before = cls.bytes()
        cls.install("chroot", cls.root, "sh", "/tmp/image.sh")
        for program in PROGRAMS:
            subprocess.run(["strip", "--strip-unneeded", "-o", f"{cls.root}/usr/local/bin/{program}",
                            os.path.join(BIN_DIR, program)], check=True, timeout=BOUND_S)

    @staticmethod
    def install(*command):
        # Twice: both go on with what they have, and a mirror may fail for a moment.
        for _ in range(2):
            done = subprocess.run(command, capture_output=True, text=True, check=False,
                                  timeout=INSTALL_BOUND_S)
            if done.returncode == 0:
                return
        raise AssertionError(f"{command}: {done.stdout[-3000:]}{done.stderr[-1000:]}")

    @classmethod
    def bytes(cls):
        said = subprocess.run(["du", "-sb", "--one-file-system", "--exclude=var/lib/apt/*",
                               "--exclude=var/cache/*", cls.root], capture_output=True,
                              text=True, check=True, timeout=BOUND_S).stdout
        return int(said.split()[0])

    def setUp(self):
        self.address = f"127.0.0.1:{free_port()}"
        image = dict(re.findall(r"^ENV (\w+)=(\S+)$", dockerfile(), re.MULTILINE))
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "root": self.root, **image,
                            "SEMAPHORED_LISTEN": self.address, "SEMCTL_SERVER": self.address}

    def start(self, *command, **pipes):
        # chroot itself stands outside.
        return subprocess.Popen(
            ["/usr/bin/unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", START, "sh",
             *command], env={**self.environment, "PATH": self.environment["PATH"] + ":/usr/sbin:/sbin"},
            text=True, **pipes)

    def run_there(self, *command):
        process = self.start(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, _ = process.communicate(timeout=BOUND_S)
        return process.returncode, said

    def daemon(self):
        """Serves; its process 1 as seen from here."""
        process = self.start("semaphored", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_until(lambda: self.run_there("semaphored", "health")[0] == 0, "the daemon serves")
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
            return process, int(file.read().split()[0])

    def test_the_stage_is_made_by_what_is_tested_here(self):
        runtime = dockerfile().split(" AS runtime\n")[1].split("\nFROM ")[0]
        self.assertIn("RUN sh /tmp/image.sh", runtime)
        self.assertIn("USER 7420:7420\n", runtime)
        self.assertIn("VOLUME /var/lib/semaphored\n", runtime)
        self.assertIn('CMD ["semaphored", "health"]\n', runtime)
        self.assertIn('ENTRYPOINT ["semaphored"]\n', runtime)

    def test_it_serves_and_ends_as_process_1(self):
        process, daemon = self.daemon()
        with open(f"/proc/{daemon}/status", encoding="ascii") as file:
            status = file.read()
        self.assertRegex(status, r"(?m)^Uid:\s+7420\s")
        self.assertRegex(status, r"(?m)^NSpid:\s+\d+\s+1$")
        code, said = self.run_there("semctl", "run", "image", "--limit", "1", "--", "sh", "-c",
                                    "echo slot $SEMAPHORE_SLOT; exit 7")
        self.assertEqual((code, said), (7, "slot 1\n"))
        os.kill(daemon, signal.SIGTERM)
        self.assertEqual(process.wait(BOUND_S), 0)

    def test_nothing_but_the_volume_can_be_written(self):
        for path, ends in (("/var/lib/semaphored/x", 0), ("/x", 1), ("/tmp/x", 1), ("/usr/x", 1)):
            with self.subTest(path):
                code, said = self.run_there("touch", path)
                self.assertEqual(code, ends, said)

    def test_it_is_small(self):
        added = self.bytes() - self.before
        print(f"measured: {added / 1e6:.0f} MB beside Debian's own {self.before / 1e6:.0f} MB")
        self.assertLess(added, 80e6)


if __name__ == "__main__":
    unittest.main()
