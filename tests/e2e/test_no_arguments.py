"""semaphored without arguments: where it serves, and where it keeps its state."""

import os
import shutil
import subprocess
import tempfile
import unittest

import own_machine

if __name__ == "__main__":
    own_machine.enter()

from daemon import BIN_DIR, BOUND_S, wait_until  # noqa: E402

SEMAPHORED = os.path.join(BIN_DIR, "semaphored")
SEMCTL = os.path.join(BIN_DIR, "semctl")
A_USER = 65534
OF_SYSTEM = "/var/lib/semaphored"


class NoArguments(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="semaphored-e2e-", dir="/var/lib")
        self.addCleanup(shutil.rmtree, self.folder)
        os.chmod(self.folder, 0o777)
        shutil.rmtree(OF_SYSTEM, ignore_errors=True)

    def begin(self, user=None, environment=None):
        """Its log, once it serves; semctl finds it without being given an address."""
        log_path = os.path.join(self.folder, "log")
        with open(log_path, "wb") as log:
            process = subprocess.Popen([SEMAPHORED], stdout=log, stderr=log, user=user, cwd="/",
                                       env={"PATH": os.environ["PATH"], **(environment or {})})

        def end():
            process.terminate()
            process.wait(BOUND_S)
        self.addCleanup(end)

        def said():
            with open(log_path, encoding="utf-8") as log:
                text = log.read()
            self.assertIsNone(process.poll(), text)
            return text if "serving on 127.0.0.1:7420" in text else None
        text = wait_until(said, "it serves")
        done = subprocess.run([SEMCTL, "run", "x", "--limit", "1", "--", "true"], check=False,
                              text=True, capture_output=True, timeout=BOUND_S,
                              env={"PATH": os.environ["PATH"]})
        self.assertEqual(done.returncode, 0, done.stderr)
        return text

    def assert_kept_in(self, path, said):
        self.assertTrue(os.path.exists(os.path.join(path, "state.db")), said)
        self.assertIn(f"no store is set: the state is kept in {path} (", said)

    def test_the_folder_of_the_system(self):
        self.assert_kept_in(OF_SYSTEM, self.begin(environment={"HOME": self.folder}))
        self.assertEqual(os.stat(OF_SYSTEM).st_mode & 0o777, 0o700)

    def test_the_folder_that_systemd_names(self):
        state = os.path.join(self.folder, "of-systemd")
        os.mkdir(state)
        self.assert_kept_in(state, self.begin(environment={"STATE_DIRECTORY": state}))
        self.assertFalse(os.path.exists(OF_SYSTEM))

    def test_the_folder_of_a_user(self):
        home = {"HOME": self.folder}
        self.assert_kept_in(os.path.join(self.folder, ".local/state/semaphored"),
                            self.begin(A_USER, home))

    def test_the_folder_that_a_user_has_chosen(self):
        chosen = os.path.join(self.folder, "chosen")
        self.assert_kept_in(os.path.join(chosen, "semaphored"),
                            self.begin(A_USER, {"HOME": self.folder, "XDG_STATE_HOME": chosen}))

    def test_a_user_without_any(self):
        done = subprocess.run([SEMAPHORED], user=A_USER, env={"PATH": os.environ["PATH"]}, cwd="/",
                              capture_output=True, text=True, timeout=BOUND_S, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("sqlite:///PATH", done.stderr)

    def test_help_says_where(self):
        said = subprocess.run([SEMAPHORED, "--help"], capture_output=True, text=True,
                              timeout=BOUND_S, check=True).stdout
        for words in ("127.0.0.1:7420", "$STATE_DIRECTORY", OF_SYSTEM, "$XDG_STATE_HOME/semaphored",
                      "~/.local/state/semaphored"):
            self.assertIn(words, " ".join(said.split()))


if __name__ == "__main__":
    unittest.main()
