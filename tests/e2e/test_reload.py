"""SIGHUP reads the configuration again; and what the service manager is told (systemd's notification
protocol), by a test that is its socket."""

import os
import signal
import socket
import tempfile
import time
import unittest

from daemon import BOUND_S, Daemon, error_info, grpc, pb, wait_until


class Manager:
    """The socket of a service manager."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.told = []

    def until(self, field):
        """The next message with this field (NAME=VALUE, or NAME), as a dictionary."""
        deadline = time.monotonic() + BOUND_S
        while True:
            self.socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                lines = self.socket.recv(4096).decode().splitlines()
            except socket.timeout:
                raise AssertionError(f"no {field}; told were {self.told}") from None
            self.told.append(lines)
            fields = dict(line.split("=", 1) for line in lines)
            if field in lines or field in fields:
                return fields


class Reload(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-reload-")
        self.addCleanup(folder.cleanup)
        self.manager = Manager(folder.name)
        self.addCleanup(self.manager.socket.close)
        self.file = os.path.join(folder.name, "semaphored.toml")
        self.write("")
        self.daemon = Daemon({"config": self.file})
        self.daemon.environment["NOTIFY_SOCKET"] = self.manager.path
        self.daemon.environment["WATCHDOG_USEC"] = "400000"
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        self.client = self.daemon.client()

    def write(self, text):
        with open(self.file, "w", encoding="utf-8") as file:
            file.write("# settings\n" + text)

    def reload(self, text):
        self.write(text)
        self.daemon.signal(signal.SIGHUP)
        self.assertGreater(int(self.manager.until("RELOADING=1")["MONOTONIC_USEC"]), 0)
        self.manager.until("READY=1")

    def refusal(self, semaphore, **fields):
        with self.assertRaises(grpc.RpcError) as caught:
            self.client.acquire(semaphore, **fields)
        return caught.exception

    def test_the_manager_is_told(self):
        self.assertEqual(self.manager.until("READY=1")["STATUS"],
                         f"serving on {self.daemon.address}")
        # Twice: the first only asks the threads.
        self.manager.until("WATCHDOG=1")
        self.manager.until("WATCHDOG=1")
        self.daemon.terminate()
        self.assertIn("Terminated", self.manager.until("STOPPING=1")["STATUS"])

    def test_limits_change_and_leases_stay(self):
        lease = self.client.acquire("busy", limit=1)
        self.reload('permits_per_request_max = 2\nttl_max = "1m"\nsemaphores_max = 9\n'
                    'log_level = "warn"\n')
        error = self.refusal("other", limit=5, permits=3)
        self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("permits", error.details())
        self.assertIn("ttl_ms", self.refusal("other", limit=5, ttl_ms=61_000).details())
        self.assertTrue(self.client.verify(lease.lease_id).held)
        self.daemon.wait_log("SIGHUP: permits_per_request_max: 1000000 -> 2\n")
        self.daemon.wait_log("SIGHUP: semaphores_max: 100000 -> 9 needs a restart")
        self.daemon.wait_log('SIGHUP: log_level: "info" -> "warn"')
        self.reload("")
        self.client.acquire("other", limit=5, permits=3)
        self.daemon.wait_log("SIGHUP: permits_per_request_max: 2 -> 1000000\n")

    def test_a_bad_file_changes_nothing(self):
        self.reload("permits_per_request_max = 2\n")
        for bad in ("permits_per_request_max = 5\nstreams_max = 0\n", "permits_per_request_max = [",
                    'permits_per_request_max = 5\nttl_min = "2m"\n'):
            self.reload(bad)
            self.refusal("other", limit=5, permits=3)
        os.unlink(self.file)
        self.daemon.signal(signal.SIGHUP)
        wait_until(lambda: self.daemon.log().count("all settings stay as they were") == 4,
                   "the log says why")
        self.daemon.wait_log("streams_max")
        self.refusal("other", limit=5, permits=3)
        self.client.acquire("other", limit=5, permits=2)

    def test_streams_under_way_stay(self):
        hold = self.client.stub.Hold(pb.HoldRequest(
            acquire=self.client.acquire_request("held", limit=2)))
        next(hold)
        self.reload("streams_max = 1\n")
        with self.assertRaises(grpc.RpcError) as caught:
            for _ in self.client.stub.Watch(pb.WatchRequest(), timeout=BOUND_S):
                pass
        self.assertEqual(error_info(caught.exception).reason, "LIMIT_REACHED")
        self.assertTrue(hold.is_active())
        hold.cancel()


if __name__ == "__main__":
    unittest.main()
