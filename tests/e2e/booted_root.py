"""A Debian of its own that systemd has booted, by systemd-nspawn.

Needs root, and Debian's mirror, as installing the tests' packages does."""

import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from daemon import BOUND_S, wait_until
import test_image


def libraries():
    """The packages of deploy/image.sh."""
    with open(os.path.join(test_image.ROOT, "deploy/image.sh"), encoding="utf-8") as file:
        packages = re.search(r"--no-install-recommends \\\n(.*?)\nrm ", file.read(), re.DOTALL)
    return packages.group(1).replace("\\\n", " ").split()


class BootedRoot(unittest.TestCase):
    """The root folder has the libraries of deploy/image.sh, and nothing of this project."""

    options = ()  # Of systemd-nspawn.

    @classmethod
    def make_root(cls):
        cls.root = tempfile.mkdtemp(prefix="semaphored-booted-")
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        os.chmod(cls.root, 0o755)
        packages = ["systemd", "systemd-sysv", "dbus", *libraries()]
        test_image.Image.install("debootstrap", "--variant=minbase", "--include=" + ",".join(packages),
                                 "bookworm", cls.root, test_image.mirror())

    @classmethod
    def boot(cls):
        log = open(f"{cls.root}.log", "wb")
        cls.addClassCleanup(os.unlink, f"{cls.root}.log")
        cls.addClassCleanup(log.close)
        cls.container = subprocess.Popen(
            ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--link-journal=no", "--boot",
             *cls.options, "--directory", cls.root], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        cls.addClassCleanup(cls.shut_down)
        cls.leader = wait_until(cls.find_leader, "systemd has begun in the container")

    @classmethod
    def find_leader(cls):
        """The container's first process; the root folder is that of no other systemd."""
        for path in glob.glob("/proc/[0-9]*/comm"):
            folder = os.path.dirname(path)
            try:
                with open(path, encoding="utf-8") as file:
                    if file.read() == "systemd\n" and os.path.samefile(f"{folder}/root", cls.root):
                        return int(os.path.basename(folder))
            except OSError:
                pass
        return None

    @classmethod
    def shut_down(cls):
        cls.container.send_signal(signal.SIGTERM)
        try:
            cls.container.wait(BOUND_S)
        except subprocess.TimeoutExpired:
            cls.container.kill()
            cls.container.wait(BOUND_S)

    @classmethod
    def inside(cls, *command):
        return subprocess.run(
            ["nsenter", f"--target={cls.leader}", "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wdns=/",
             "--", *command], capture_output=True, text=True, timeout=BOUND_S, check=False)

    def done(self, *command):
        done = self.inside(*command)
        self.assertEqual(done.returncode, 0, (command, done.stdout, done.stderr))
        return done.stdout.strip()
