"""deploy/quickstart.sh with packages and a build that are there already: what it shows, on a terminal and in a log.

tests/deep.sh debian-13 runs it from a bare Debian."""

import os
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time
import unittest

import packages
from packages import ROOT

QUICKSTART_BOUND_S = 120.0
BUILDS_S = 5
# Stands for cmake: a build that says something at its beginning and at its end only.
CMAKE = f"""#!/bin/sh
case "$*" in
  *--build*) echo "[1/2] Building"; sleep {BUILDS_S}; for line in $(seq 1000); do echo "[2/2] Linking"; done ;;
esac
"""


class Quickstart(unittest.TestCase):

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="semaphored-quickstart-"))
        shutil.copytree(os.path.join(ROOT, "deploy"), f"{self.folder}/deploy")
        self.put("deploy/install.sh", "#!/bin/sh\n")
        self.put("bin/cmake", CMAKE)
        os.makedirs(f"{self.folder}/build/release")
        os.symlink(packages.BIN_DIR, f"{self.folder}/build/release/bin")
        self.environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"}

    def put(self, name, text):
        os.makedirs(os.path.dirname(f"{self.folder}/{name}"), exist_ok=True)
        with open(f"{self.folder}/{name}", "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(f"{self.folder}/{name}", 0o755)

    def run_it(self):
        return subprocess.run(["sh", "deploy/quickstart.sh"], cwd=self.folder, env=self.environment, text=True,
                              capture_output=True, check=False, timeout=QUICKSTART_BOUND_S)

    def test_a_log_has_few_lines_and_the_page_that_the_daemon_serves(self):
        done = self.run_it()
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertLess(len(done.stdout.splitlines()), 60, done.stdout)
        with open(f"{self.folder}/build/quickstart/build.log", encoding="ascii") as file:
            self.assertGreater(len(file.readlines()), 1000)
        with open(f"{self.folder}/build/quickstart/daemon.log", encoding="utf-8") as file:
            served = re.findall(r"http at (http://\S+)", file.read())
        shown = re.findall(r"The daemon's page was at (http://[^;\s]+)", done.stdout)
        self.assertEqual(shown, served)
        has_page = "\nhttp_listen = " in subprocess.run(
            [os.path.join(packages.BIN_DIR, "semaphored"), "--print-config"], capture_output=True, text=True,
            check=True, timeout=packages.BOUND_S).stdout
        self.assertEqual(len(shown), 1 if has_page else 0)

    def test_a_build_that_fails_is_shown(self):
        self.put("bin/cmake", "#!/bin/sh\necho what is wrong\nexit 3\n")
        done = self.run_it()
        self.assertEqual(done.returncode, 3)
        self.assertIn("what is wrong", done.stderr)

    def test_a_terminal_shows_something_every_two_seconds(self):
        terminal, other_end = pty.openpty()
        self.addCleanup(os.close, terminal)
        process = subprocess.Popen(["sh", "deploy/quickstart.sh"], cwd=self.folder, env=self.environment,
                                   stdin=other_end, stdout=other_end, stderr=other_end)
        os.close(other_end)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        said, before, longest = "", time.monotonic(), 0.0
        while True:
            ready, _, _ = select.select([terminal], [], [], QUICKSTART_BOUND_S)
            self.assertTrue(ready)
            try:
                said += os.read(terminal, 65536).decode()
            except OSError:  # The other end is closed.
                break
            now = time.monotonic()
            if "2/4 Build" in said and "3/4 Start" not in said:
                longest = max(longest, now - before)
            before = now
        self.assertEqual(process.wait(packages.BOUND_S), 0, said)
        # A second each; the rest is for a busy machine.
        self.assertLess(longest, BUILDS_S - 1)
        self.assertRegex(said, r"\r\x1b\[K +2 s  \[1/2\] Building")


if __name__ == "__main__":
    unittest.main()
