"""A back-up of the embedded store, made while the daemon is at work, and restored: what was granted
after it counts for nothing any more, and no token comes twice."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import unittest

from daemon import BIN_DIR, BOUND_S, Daemon, wait_until

SEMAPHORED = os.path.join(BIN_DIR, "semaphored")


class Restore(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        self.client = self.daemon.client()
        self.copy = os.path.join(self.daemon.folder, "copy.db")

    def back_up(self):
        """As docs/operations.md says: the daemon stands still while its files are copied."""
        self.daemon.signal(signal.SIGSTOP)
        try:
            wait_until(self.stands_still, "the daemon stands still")
            shutil.copy(self.daemon.store_path, self.copy)
            shutil.copy(self.daemon.store_path + "-wal", self.copy + "-wal")
        finally:
            self.daemon.signal(signal.SIGCONT)

    def stands_still(self):
        threads = f"/proc/{self.daemon.process.pid}/task"
        states = []
        for thread in os.listdir(threads):
            with open(f"{threads}/{thread}/stat", encoding="utf-8") as stat:
                states.append(stat.read().rsplit(")", 1)[1].split()[0])
        return set(states) == {"T"}

    def restore(self, *more, ttl="1500ms", code=0):
        longest = ["--longest-ttl", ttl] if ttl else []
        done = subprocess.run(
            [SEMAPHORED, "restore", "--from", self.copy, "--store", self.daemon.store,
             *longest, *more], capture_output=True, text=True, timeout=2 * BOUND_S,
            check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout + done.stderr

    @staticmethod
    def epoch_in(said):
        return int(re.search(r"the store's epoch is (\d+)", said)[1])

    def test_the_whole_round_under_load(self):
        before = self.client.acquire("kept", limit=2, ttl_ms=60_000)
        stop = threading.Event()
        cycles = []

        def work():
            client = self.daemon.client()
            while not stop.is_set():
                cycles.append(client.release(client.acquire("work", limit=1).lease_id))
        worker = threading.Thread(target=work)
        worker.start()
        try:
            wait_until(lambda: len(cycles) > 50, "work is done")
            self.back_up()
            done = len(cycles)
            wait_until(lambda: len(cycles) > done + 50, "work goes on")
        finally:
            stop.set()
            worker.join()
        after = self.client.acquire("kept", ttl_ms=1500)
        self.assertIn("is in use", self.restore(code=3))
        self.daemon.terminate()
        with open(self.daemon.store_path, "r+b") as store:
            store.write(b"\0" * 4096)
        said = self.restore()
        self.assertIn("waiting for 1.5s, as asked, until all holders have stopped", said)
        epoch = self.epoch_in(said)
        self.daemon.start()
        client = self.daemon.client()
        self.assertTrue(client.verify(before.lease_id).held)
        self.assertFalse(client.verify(after.lease_id).held)
        fresh = client.acquire("kept")
        self.assertEqual(fresh.slots, after.slots)
        self.assertGreater(fresh.token, after.token)
        self.assertGreater(fresh.token >> 48, after.token >> 48)
        # Again from the same copy: what was noted beside the store counts, not the copy's epoch.
        self.daemon.terminate()
        self.assertIn("before-restore is there", self.restore(ttl="0s", code=3))
        shutil.move(self.daemon.store_path + ".before-restore", self.copy + ".damaged")
        os.truncate(self.daemon.store_path, 100)
        self.assertGreater(self.epoch_in(self.restore(ttl="0s")), epoch)
        self.daemon.start()
        again = self.daemon.client().acquire("kept")
        self.assertGreater(again.token, fresh.token)

    def test_root_leaves_the_store_to_the_daemons_user(self):
        self.client.acquire("kept", limit=1)
        self.back_up()
        self.daemon.terminate()
        folder, user = self.daemon.folder, 65534
        for name in ("", *os.listdir(folder)):
            os.chown(os.path.join(folder, name), user, user)
        os.chown(self.copy, 0, 0)

        def owners():
            made = [self.daemon.store_path + suffix for suffix in ("", ".lock", ".epoch")]
            return [(os.stat(path).st_uid, os.stat(path).st_gid) for path in made]
        self.restore(ttl="0s")
        self.assertEqual(owners(), [(user, user)] * 3)
        # Where there is none to be replaced, the folder says whose it is.
        for suffix in ("", ".lock", ".epoch", ".before-restore", ".before-restore-wal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.daemon.store_path + suffix)
        self.restore(ttl="0s")
        self.assertEqual(owners(), [(user, user)] * 3)

    def test_what_is_wrong_changes_nothing(self):
        lease = self.client.acquire("kept", limit=1, ttl_ms=60_000)
        self.back_up()
        self.daemon.terminate()
        with open(self.copy, "r+b") as copy:
            copy.write(b"\0" * 8192)
        os.unlink(self.copy + "-wal")
        self.restore(code=3)
        os.unlink(self.copy)
        self.restore(code=3)
        for bad in (["--epoch", "x"], ["--colour"], ["--longest-ttl", "long"]):
            self.restore(*bad, code=2)
        self.assertEqual(sorted(os.listdir(self.daemon.folder)),
                         sorted(set(os.listdir(self.daemon.folder)) -
                                {"state.db.restoring", "state.db.before-restore"}))
        self.daemon.start()
        self.assertTrue(self.daemon.client().verify(lease.lease_id).held)

    def test_the_store_has_not_the_copys_mode(self):
        for mode in (0o400, 0o444, 0o666):
            self.back_up()
            self.daemon.terminate()
            os.chmod(self.copy, mode)
            self.restore(ttl="0s")
            self.assertEqual(os.stat(self.daemon.store_path).st_mode & 0o777, 0o640)
            for leftover in (self.copy, self.daemon.store_path + ".before-restore"):
                os.unlink(leftover)
            self.daemon.start()

    def test_the_back_up_knows_its_longest_ttl(self):
        self.client.acquire("kept", limit=2, ttl_ms=1_000)
        self.client.acquire("kept", limit=2, ttl_ms=2_500)
        self.back_up()
        self.daemon.terminate()
        begun = time.monotonic()
        self.assertIn("waiting for 2.5s, the longest TTL in it", self.restore(ttl=None))
        self.assertGreaterEqual(time.monotonic() - begun, 2.5)

    def test_two_restores_of_one_back_up_have_two_epochs(self):
        self.client.acquire("kept", limit=1, ttl_ms=60_000)
        self.back_up()
        self.daemon.terminate()
        epochs = set()
        for again in range(5):
            if again > 0:  # As on another machine: of the restores before only the back-up knows.
                for suffix in ("", ".epoch", ".before-restore"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(self.daemon.store_path + suffix)
            said = self.restore(ttl="0s")
            epochs.add(self.epoch_in(said))
        self.assertEqual(len(epochs), 5, epochs)

    def test_another_engine_is_told(self):
        done = subprocess.run(
            [SEMAPHORED, "restore", "--from", "x", "--store", "postgres:///", "--longest-ttl", "1s"],
            capture_output=True, text=True, timeout=BOUND_S, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("only the embedded store", done.stderr)


if __name__ == "__main__":
    unittest.main()
