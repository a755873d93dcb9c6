"""A log that cannot be written stops no permit, and no end: a pipe that is not read, a full disk."""

import fcntl
import os
import re
import subprocess
import tempfile
import threading
import time
import unittest

from daemon import BIN_DIR, BOUND_S, Daemon, Session, free_port, pb, wait_until
from scraping import Scrape

USUAL_END_S = 8  # As in test_shutdown.py.
LOG_BYTES_MAX = 4 << 20  # log_writer.h
PIPE_BYTES = 4096


class PipeDaemon(Daemon):
    """Its stdout and stderr are one pipe, which nothing reads until `read` is called."""

    def __init__(self, settings=None):
        self.metrics = f"127.0.0.1:{free_port()}"
        super().__init__({"log_level": "debug", "metrics_listen": self.metrics,
                          **(settings or {})})
        self.pipe = None
        self.lines = []

    def spawn(self):
        self.pipe, end = os.pipe()
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.write(end, b"\n" * PIPE_BYTES)  # It is full before the daemon begins.
        environment = dict(self.environment)
        for key, value in self.settings.items():
            environment["SEMAPHORED_" + key.upper()] = str(value)
        self.process = subprocess.Popen(
            [os.path.join(BIN_DIR, "semaphored"), "--store", self.store, "--listen", self.address],
            stdout=end, stderr=end, env=environment, stdin=subprocess.DEVNULL)
        os.close(end)

    def read(self):
        """From now on `lines` grows."""
        def run():
            with os.fdopen(self.pipe, "r", encoding="utf-8", errors="replace") as lines:
                self.pipe = None
                self.lines.extend(iter(lines.readline, ""))
        threading.Thread(target=run, daemon=True).start()

    def log(self):
        return "".join(self.lines)

    def lost(self):
        return Scrape(self.metrics).value("semaphored_log_lines_lost_total")

    def close(self):
        super().close()
        if self.pipe is not None:
            os.close(self.pipe)


class Log(unittest.TestCase):

    def daemon(self, **settings):
        daemon = PipeDaemon(settings)
        self.addCleanup(daemon.close)
        return daemon.start()

    def log_much(self, daemon):
        """More lines than may wait: a grant is a line, and its holder has 256 bytes."""
        session = Session(daemon.client())
        session.opened()
        sequence = 0
        while daemon.lost() == 0:
            commands = []
            for _ in range(500):
                sequence += 1
                commands.append(pb.SessionCommand(sequence=sequence, acquire=pb.SessionAcquire(
                    semaphore="much", limit=1_000_000, holder="h" * 256)))
            session.send(commands=commands)
            self.assertTrue(session.result(sequence).HasField("granted"))
            self.assertLess(sequence, 3 * LOG_BYTES_MAX / 256, "nothing was lost")
        session.half_close()

    def assert_permits_go_on(self, daemon):
        client = daemon.client()
        for _ in range(20):
            client.release(client.acquire("go/on", limit=1).lease_id)

    def test_a_pipe_that_is_not_read(self):
        daemon = self.daemon()
        self.assert_permits_go_on(daemon)
        self.log_much(daemon)
        self.assert_permits_go_on(daemon)
        missing = daemon.lost()
        self.assertGreater(missing, 0)

        daemon.read()
        said = r"(\d+) line\(s\) are missing here\n"
        wait_until(lambda: sum(map(int, re.findall(said, daemon.log()))) >= missing,
                   "the log says what is missing")
        daemon.client().acquire("after/it", limit=1)
        wait_until(lambda: "'after/it'" in daemon.log(), "lines come again")
        self.assertEqual(daemon.terminate(USUAL_END_S), 0)
        wait_until(lambda: daemon.log().endswith(" stopped\n"), "the last line is there")
        self.assertEqual(sum(map(int, re.findall(said, daemon.log()))), missing)

    def test_sigterm_ends_it_though_the_log_is_stuck(self):
        daemon = self.daemon()
        self.log_much(daemon)
        begun = time.monotonic()
        self.assertEqual(daemon.terminate(USUAL_END_S), 0)
        self.assertLess(time.monotonic() - begun, USUAL_END_S)

    def test_acts_whose_audit_waits_for_the_log_go_on_and_so_does_the_end(self):
        daemon = self.daemon()
        self.log_much(daemon)
        for limit in range(1, 50):
            daemon.client().administer("much", resize=pb.ResizeSemaphore(limit=500_000 + limit))
        self.assertEqual(daemon.terminate(USUAL_END_S), 0)

    def test_a_reader_that_is_gone(self):
        daemon = self.daemon()
        os.close(daemon.pipe)
        daemon.pipe = None
        self.log_much(daemon)
        self.assert_permits_go_on(daemon)
        begun = time.monotonic()
        self.assertEqual(daemon.terminate(USUAL_END_S), 0)
        self.assertLess(time.monotonic() - begun, USUAL_END_S)

    def test_a_full_disk(self):
        daemon = self.daemon(log_file="/dev/full")
        self.log_much(daemon)
        self.assert_permits_go_on(daemon)
        self.assertEqual(daemon.terminate(USUAL_END_S), 0)


class Ends(unittest.TestCase):
    """What is said last is read, whatever the end."""

    def run_to_end(self, store, **fields):
        return subprocess.run(
            [os.path.join(BIN_DIR, "semaphored"), "--store", store,
             "--listen", f"127.0.0.1:{free_port()}"],
            stderr=subprocess.PIPE, text=True, timeout=BOUND_S, check=False, **fields)

    def test_a_folder_that_is_missing_is_not_made(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "missing", "log")
            ended = self.run_to_end("sqlite::memory:", stdout=subprocess.DEVNULL,
                                    env={**os.environ, "SEMAPHORED_LOG_FILE": path})
            self.assertEqual((ended.returncode, ended.stderr),
                             (2, f"semaphored: log_file: {path}: cannot be opened: No such file or directory\n"))
            self.assertEqual(os.listdir(folder), [])

    def test_a_start_that_fails_says_why(self):
        for _ in range(10):
            ended = self.run_to_end("sqlite:///nowhere/at/all/state.db", stdout=subprocess.DEVNULL)
            self.assertEqual(ended.returncode, 3)
            self.assertIn("/nowhere/at/all", ended.stderr)

    def test_a_start_that_fails_ends_though_the_log_is_stuck(self):
        pipe, end = os.pipe()
        self.addCleanup(os.close, pipe)
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.write(end, b"\n" * PIPE_BYTES)
        ended = subprocess.run(
            [os.path.join(BIN_DIR, "semaphored"), "--store", "sqlite:///nowhere/at/all/state.db"],
            stdout=end, stderr=end, timeout=BOUND_S, check=False)
        os.close(end)
        self.assertEqual(ended.returncode, 3)


if __name__ == "__main__":
    unittest.main()
