"""A full disk, a read-only file and a corrupt file: a clear error, and nothing promised is lost."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import tempfile
import unittest

from daemon import BIN_DIR, BOUND_S, Daemon, error_info, free_port, grpc, wait_until
from small_disk import SmallDisk


def run_refused(store_path):
    """Starts a daemon that should not come up; returns (exit code, all that it said)."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.run(
            [os.path.join(BIN_DIR, "semaphored"), "--store", f"sqlite://{store_path}",
             "--listen", f"127.0.0.1:{free_port()}"],
            stdout=said, stderr=said, timeout=BOUND_S, check=False)
        said.seek(0)
        return process.returncode, said.read()


class Disk(unittest.TestCase):

    def small_disk(self):
        disk = SmallDisk()
        self.addCleanup(disk.close)
        return disk

    def acquire_until_refused(self, client):
        """Takes permits until the disk refuses one; returns (the leases told, the error)."""
        told = []
        for _ in range(20000):
            try:
                told.append(client.acquire("disk", limit=1000000, ttl_ms=600000,
                                           holder="a holder with some text " * 8))
            except grpc.RpcError as error:
                return told, error
        raise AssertionError("the disk never became full")

    def test_a_full_disk(self):
        disk = self.small_disk()
        daemon = Daemon(folder=disk.folder)
        self.addCleanup(daemon.close)
        daemon.start()
        client = daemon.client()
        first = client.acquire("disk", limit=1000000, ttl_ms=600000)
        disk.fill()
        told, error = self.acquire_until_refused(client)
        self.assertIn(error.code(), (grpc.StatusCode.RESOURCE_EXHAUSTED,
                                     grpc.StatusCode.UNAVAILABLE), error.details())
        self.assertEqual(error_info(error).reason, "ENGINE_FULL", error.details())
        self.assertRegex(error.details(), r"(?i)full|space")
        disk.make_room()

        def goes_on():
            with contextlib.suppress(grpc.RpcError):
                return client.acquire("disk", ttl_ms=600000)
            return None
        fresh = wait_until(goes_on, "the daemon goes on after room was made")
        told = [first, *told, fresh]
        for lease in told:
            self.assertTrue(client.verify(lease.lease_id).held)
        self.assertGreater(fresh.token, max(lease.token for lease in told[:-1]))
        daemon.kill9()
        daemon.start()
        client = daemon.client()
        for lease in told:
            verdict = client.verify(lease.lease_id)
            self.assertTrue(verdict.held)
            self.assertEqual((verdict.lease.slots, verdict.lease.token),
                             (lease.slots, lease.token))

    def test_a_full_disk_at_the_start(self):
        disk = self.small_disk()
        disk.fill()
        code, said = run_refused(os.path.join(disk.folder, "state.db"))
        self.assertNotEqual(code, 0)
        self.assertRegex(said, r"(?i)full|space")
        self.assertIn(disk.folder, said)

    def test_a_read_only_file(self):
        disk = self.small_disk()
        daemon = Daemon(folder=disk.folder)
        self.addCleanup(daemon.close)
        daemon.start()
        lease = daemon.client().acquire("disk", limit=1, ttl_ms=600000)
        self.assertEqual(daemon.terminate(), 0)
        disk.remount("ro")
        code, said = run_refused(daemon.store_path)
        self.assertNotEqual(code, 0)
        self.assertRegex(said, r"(?i)read-?only")
        self.assertIn(daemon.store_path, said)
        disk.remount("rw")
        daemon.start()
        self.assertTrue(daemon.client().verify(lease.lease_id).held)

    def stopped_store(self):
        daemon = Daemon()
        self.addCleanup(daemon.close)
        daemon.start()
        client = daemon.client()
        for number in range(50):
            client.acquire(f"disk/{number}", limit=1, ttl_ms=600000)
        self.assertEqual(daemon.terminate(), 0)
        # What stands in the log too would be read from there, and be sound.
        with contextlib.closing(sqlite3.connect(daemon.store_path)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return daemon

    def assert_refused(self, path):
        for _ in range(2):  # the first refusal must not make the file look sound to the second
            code, said = run_refused(path)
            self.assertNotEqual(code, 0)
            self.assertIn(path, said)
            self.assertRegex(said, r"(?i)corrupt|not a database|malformed")

    def test_a_file_that_is_no_database(self):
        folder = tempfile.mkdtemp(prefix="semaphored-e2e-")
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, "state.db")
        notes = b"these are somebody's notes, not a database\n" * 300
        with open(path, "wb") as file:
            file.write(notes)
        self.assert_refused(path)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), notes, "a file that is not ours was changed")

    def test_a_corrupt_file(self):
        daemon = self.stopped_store()
        with open(daemon.store_path, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            # All pages but the first: the header is sound, what it leads to is not.
            file.seek(4096)
            file.write(b"\xa5" * (size - 4096))
        self.assert_refused(daemon.store_path)

    def test_a_file_cut_short(self):
        daemon = self.stopped_store()
        os.truncate(daemon.store_path, 4096 * 2)
        self.assert_refused(daemon.store_path)


if __name__ == "__main__":
    unittest.main()
