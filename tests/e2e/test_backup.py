"""`semaphored backup`: a copy of the embedded store of a daemon that runs."""

import contextlib
import os
import shutil
import subprocess
import threading
import time
import unittest

from daemon import BIN_DIR, BOUND_S, Daemon, pb, wait_until
from small_disk import SmallDisk

SEMAPHORED = os.path.join(BIN_DIR, "semaphored")
PAYLOAD = bytes(60_000)


class BackUpCase(unittest.TestCase):

    def start(self, **arguments):
        self.daemon = Daemon(**arguments)
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        self.client = self.daemon.client()
        self.copy = os.path.join(self.daemon.folder, "copy.db")

    def spawn(self, *more, file=None, store=None):
        process = subprocess.Popen(
            [SEMAPHORED, "backup", file or self.copy, "--store", store or self.daemon.store, *more],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        def end():
            process.kill()
            process.wait()
            process.stdout.close()
        self.addCleanup(end)
        return process

    def back_up(self, *more, file=None, store=None, code=0):
        process = self.spawn(*more, file=file, store=store)
        said, _ = process.communicate(timeout=2 * BOUND_S)
        self.assertEqual(process.returncode, code, said)
        return said

    def run_on(self, *words, code=2):
        done = subprocess.run([SEMAPHORED, "backup", *words], capture_output=True, text=True, timeout=BOUND_S, check=False)
        self.assertEqual(done.returncode, code, done)
        return done.stdout + done.stderr

    def fill(self, mebibytes):
        for _ in range(mebibytes * (1 << 20) // len(PAYLOAD)):
            self.client.stub.Enqueue(self.ticket(), timeout=BOUND_S)

    def ticket(self):
        return pb.EnqueueRequest(request_id=self.client.next_id(), semaphore="work", limit=1,
                                 payload=PAYLOAD)

    def restore(self, copy=None):
        return subprocess.run(
            [SEMAPHORED, "restore", "--from", copy or self.copy, "--store", self.daemon.store,
             "--longest-ttl", "0s"], capture_output=True, text=True, timeout=BOUND_S, check=False)

    def copy_has_no_name(self):
        """A kill before that leaves an empty file, which the next back-up replaces."""
        folder = f"/proc/{self.daemon.process.pid}/fd"
        for each in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # Closed since it was listed.
                if os.readlink(os.path.join(folder, each)).endswith(".backup (deleted)"):
                    return True
        return False

    def names(self):
        return sorted(os.listdir(self.daemon.folder))


class BackUp(BackUpCase):

    def test_every_lease_that_was_answered_before_is_in_it(self):
        self.start()
        answered = []
        stop = threading.Event()

        def work():
            client = self.daemon.client()
            while not stop.is_set():
                answered.append(client.acquire("many", limit=100_000, ttl_ms=60_000).lease_id)
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        try:
            wait_until(lambda: len(answered) > 300, "leases are granted")
            before = list(answered)
            self.assertIn("backed up", self.back_up())
            after = len(answered)
            wait_until(lambda: len(answered) > after + 100, "leases are granted")
        finally:
            stop.set()
            for worker in workers:
                worker.join()
        self.assertEqual(os.stat(self.copy).st_mode & 0o777, 0o600)
        last = self.client.acquire("many")
        self.assertIn("is in use", self.restore().stderr)
        self.daemon.terminate()
        done = self.restore()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.daemon.start()
        client = self.daemon.client()
        for lease in before:
            self.assertTrue(client.verify(lease).held)
        self.assertFalse(client.verify(last.lease_id).held)
        # As after any restore: no token comes twice.
        self.assertGreater(client.acquire("many").token >> 48, last.token >> 48)

    def test_commits_go_on_while_it_is_made(self):
        self.start()
        self.fill(40)
        process = self.spawn("--rate", "8")
        longest = 0.0
        cycles = 0
        while process.poll() is None:
            begun = time.monotonic()
            self.client.release(self.client.acquire("other", limit=1).lease_id)
            longest = max(longest, time.monotonic() - begun)
            cycles += 1
        said, _ = process.communicate()
        self.assertEqual(process.returncode, 0, said)
        self.assertRegex(said, r"copied \d+ of \d+ MB")
        self.assertGreater(cycles, 100)
        # Its steps take two milliseconds; a loaded machine takes the rest.
        self.assertLess(longest, 1.0)

    def test_two_at_once(self):
        self.start()
        self.fill(20)
        first = self.spawn("--rate", "4")
        self.daemon.wait_log("a back-up begins")
        other = self.copy + ".other"
        self.assertIn("another back-up is under way", self.back_up(file=other, code=3))
        self.assertFalse(os.path.exists(other))
        self.assertEqual(first.wait(BOUND_S), 0)

    def test_a_daemon_that_is_killed_midway_leaves_no_file(self):
        self.start()
        self.fill(20)
        before = self.names()
        process = self.spawn("--rate", "1")
        self.daemon.wait_log("a back-up begins")
        wait_until(self.copy_has_no_name, "the copy is open, and its name is gone")
        self.daemon.kill9()
        said, _ = process.communicate(timeout=BOUND_S)
        self.assertEqual(process.returncode, 3)
        self.assertIn("the daemon has ended", said)
        self.assertEqual(self.names(), before)
        self.daemon.start()
        self.client = self.daemon.client()
        self.back_up("--rate", "1000")

    def test_a_client_that_is_killed_midway_leaves_no_file(self):
        self.start()
        self.fill(20)
        before = self.names()
        process = self.spawn("--rate", "1")
        self.daemon.wait_log("a back-up begins")
        process.kill()
        process.wait(BOUND_S)
        self.daemon.wait_log("the back-up was not made")
        self.assertEqual(self.names(), before)

    def test_a_daemon_that_stops_gives_it_up(self):
        self.start()
        self.fill(20)
        process = self.spawn("--rate", "1")
        self.daemon.wait_log("a back-up begins")
        self.assertEqual(self.daemon.terminate(), 0)
        said, _ = process.communicate(timeout=BOUND_S)
        self.assertEqual(process.returncode, 3)
        self.assertIn("the daemon stops", said)
        self.assertFalse(os.path.exists(self.daemon.store_path + ".backup-socket"))

    def test_what_is_refused(self):
        self.start()
        for there in (self.daemon.store_path, self.copy):
            with open(self.copy, "a", encoding="utf-8"):
                pass
            self.assertIn("is there", self.back_up(file=there, code=3))
        os.unlink(self.copy)
        with open(self.copy + "-wal", "w", encoding="utf-8"):
            pass
        self.assertIn("-wal is there", self.back_up(code=3))
        os.unlink(self.copy + "-wal")
        self.back_up(file=os.path.join(self.daemon.folder, "none", "copy.db"), code=3)
        # Before the daemon copies.
        long = os.path.join(self.daemon.folder, "n" * 256)
        self.assertIn(f"cannot make {long}: File name too long", self.back_up(file=long, code=3))
        self.assertIn("needs one FILE", self.run_on("", "--store", self.daemon.store))
        self.assertNotIn("a back-up begins", self.daemon.log())
        self.back_up("--rate", "0", code=2)
        for words in (["--colour", "red", self.copy], ["--colour", self.copy], [self.copy, "--colour"]):
            self.assertIn("--colour is not known", self.run_on(*words))
        # A switch has no value behind it.
        other = self.copy + ".other"
        self.assertIn("backed up", self.run_on("--reflection", other, "--store", self.daemon.store, code=0))
        self.back_up(store="sqlite::memory:", code=2)
        self.back_up(store="postgres://a@127.0.0.1:1/b", code=2)
        self.daemon.terminate()
        self.assertIn("no daemon that runs has", self.back_up(code=3))
        self.assertFalse(os.path.exists(self.copy))
        self.daemon.start()

    def test_another_user_may_not(self):
        self.start()
        os.chmod(self.daemon.folder, 0o777)
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", SEMAPHORED, "backup", self.copy, "--store",
             self.daemon.store],
            capture_output=True, text=True, timeout=BOUND_S, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("Permission denied", done.stderr)
        self.assertFalse(os.path.exists(self.copy))

    def test_a_file_that_is_no_back_up_is_not_restored(self):
        self.start()
        lease = self.client.acquire("kept", limit=1, ttl_ms=60_000)
        self.back_up()
        self.daemon.terminate()
        half = self.copy + ".half"
        shutil.copy(self.copy, half)
        os.truncate(half, os.path.getsize(half) // 2)
        text = self.copy + ".text"
        with open(text, "w", encoding="utf-8") as file:
            file.write("not a store\n" * 1000)
        for wrong in (half, text, self.daemon.folder):
            done = self.restore(wrong)
            self.assertEqual(done.returncode, 3, wrong)
            self.assertIn(f"sqlite: {wrong}", done.stderr)
            self.assertNotIn(".restoring", done.stderr)
        self.daemon.start()
        self.assertTrue(self.daemon.client().verify(lease.lease_id).held)

    def test_a_folder_whose_path_is_too_long_for_a_socket(self):
        self.start()
        folder = os.path.join(self.daemon.folder, "long" * 40)
        os.mkdir(folder)
        with Daemon(folder=folder) as daemon:
            self.assertIn("backed up", self.back_up(store=daemon.store))


class FullDisks(BackUpCase):

    def test_a_disk_without_room_for_the_copy(self):
        disk = SmallDisk("96m")
        self.addCleanup(disk.close)
        self.start(store=f"sqlite://{disk.folder}/state.db")
        self.fill(20)
        self.assertIn("MiB free", self.back_up(code=3))
        self.client.acquire("other", limit=1)

    def test_a_full_disk_where_the_file_is_to_be(self):
        disk = SmallDisk("4m")
        self.addCleanup(disk.close)
        self.start()
        self.fill(10)
        said = self.back_up(file=os.path.join(disk.folder, "copy.db"), code=3)
        self.assertIn("No space left", said)
        self.assertEqual(os.listdir(disk.folder), [])


if __name__ == "__main__":
    unittest.main()
