"""`semaphored health`: whether a daemon serves, for container engines and people."""

import os
import signal
import subprocess
import tempfile
import time
import unittest

from daemon import BIN_DIR, BOUND_S, Daemon, free_port


def health(*arguments, **settings):
    """What `semaphored health` says with these arguments, and these settings in the environment."""
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith("SEMAPHORED_")}
    environment |= {"SEMAPHORED_" + key.upper(): value for key, value in settings.items()}
    return subprocess.run([os.path.join(BIN_DIR, "semaphored"), "health", *arguments],
                          capture_output=True, text=True, timeout=BOUND_S, check=False,
                          env=environment)


class Health(unittest.TestCase):

    def test_a_daemon_that_serves(self):
        with Daemon() as daemon, tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
            config.write(f'listen = "{daemon.address}"\n')
            config.flush()
            everywhere = f"0.0.0.0:{daemon.port}"
            for arguments, settings in (
                    (["--address", daemon.address], {}),
                    (["--address=" + daemon.address, "--timeout=5s"], {}),
                    (["--listen", daemon.address], {}),
                    (["--config", config.name], {}),
                    ([], {"listen": daemon.address}),
                    ([], {"listen": everywhere, "allow_insecure_remote": "true"})):
                with self.subTest(arguments=arguments, settings=settings):
                    said = health(*arguments, **settings)
                    self.assertEqual((said.returncode, said.stderr), (0, ""))
                    self.assertEqual(said.stdout, f"serving on {daemon.address}\n")

    def test_a_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            address = f"unix:{folder}/socket"
            with open(f"{folder}/log", "w", encoding="utf-8") as log:
                process = subprocess.Popen(
                    [os.path.join(BIN_DIR, "semaphored"), "--store", "sqlite::memory:",
                     "--listen", address], stdout=log, stderr=log)
            try:
                deadline = time.monotonic() + BOUND_S
                while (said := health("--address", address)).returncode != 0:
                    self.assertLess(time.monotonic(), deadline, said.stderr)
                self.assertEqual(said.stdout, f"serving on {address}\n")
            finally:
                process.terminate()
                process.wait(BOUND_S)

    def test_nobody_is_there(self):
        address = f"127.0.0.1:{free_port()}"
        said = health("--address", address)
        self.assertEqual((said.returncode, said.stdout), (1, ""))
        self.assertIn(address, said.stderr)

    def test_a_daemon_that_does_not_answer(self):
        with Daemon() as daemon:
            daemon.signal(signal.SIGSTOP)
            begun = time.monotonic()
            said = health("--address", daemon.address, "--timeout", "300ms")
            took_s = time.monotonic() - begun
            daemon.signal(signal.SIGCONT)
            self.assertEqual((said.returncode, said.stdout), (1, ""))
            self.assertGreaterEqual(took_s, 0.3)

    def test_wrong_arguments(self):
        for arguments, right in ((["--timeout", "soon"], "duration such as"),
                                 (["--timeout", "0"], "duration such as"),
                                 (["--address", "nowhere"], "HOST:PORT"),
                                 (["--listen", "127.0.0.1:0"], "port above 0"),
                                 (["--address"], "--address"),
                                 (["--lisen", "127.0.0.1:1"], "lisen")):
            with self.subTest(arguments):
                said = health(*arguments)
                self.assertEqual((said.returncode, said.stdout), (2, ""))
                self.assertIn(right, said.stderr)

    def test_help(self):
        said = health("--help")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        self.assertIn("Examples:", said.stdout)


if __name__ == "__main__":
    unittest.main()
