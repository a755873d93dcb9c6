"""SIGTERM and SIGINT: the streams are told, what is written is finished, exit 0 within a bound. And
one file, one daemon."""

import os
import signal
import subprocess
import threading
import time
import unittest

from daemon import (BIN_DIR, BOUND_S, Client, Daemon, Reader, Session, error_info, free_port, grpc,
                    pb, wait_until)


class Shutdown(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon({"shutdown_grace": "5s"})
        self.addCleanup(self.daemon.close)
        self.daemon.start()

    def assert_told(self, error):
        self.assertIsNotNone(error)
        self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE, error.details())

    def test_sigterm_tells_the_streams_and_exits_0(self):
        client = self.daemon.client()
        lease = client.acquire("busy", limit=1)
        hold = Reader(client.stub.Hold(pb.HoldRequest(
            acquire=client.acquire_request("held", limit=1))))
        hold.until(lambda m: m.HasField("granted"), "granted")
        session = Session(client)
        session.opened()
        watch = Reader(client.stub.Watch(pb.WatchRequest()))
        watch.until(lambda m: m.kind == pb.WATCH_EVENT_KIND_SNAPSHOT, "a snapshot")
        waiting = client.acquire_later("busy")
        client.wait_for_queue("busy", 1)
        begun = time.monotonic()
        self.assertEqual(self.daemon.terminate(bound_s=8), 0, self.daemon.log())
        self.assertLess(time.monotonic() - begun, 8)
        self.assert_told(waiting.exception(BOUND_S))
        self.assertEqual(error_info(waiting.exception()).reason, "SHUTTING_DOWN")
        self.assert_told(hold.end())
        self.assert_told(session.reader.end())
        self.assert_told(watch.end())
        self.daemon.start()
        self.assertTrue(self.daemon.client().verify(lease.lease_id).held)

    def test_clients_with_nothing_under_way_do_not_hold_it_up(self):
        self.daemon.client().acquire("busy", limit=1)
        begun = time.monotonic()
        self.assertEqual(self.daemon.terminate(), 0)
        self.assertLess(time.monotonic() - begun, 3)

    def test_sigint_is_a_clean_end_too(self):
        self.daemon.signal(signal.SIGINT)
        self.assertEqual(self.daemon.wait_exit(8), 0)

    def test_a_second_sigterm_ends_it_at_once(self):
        client = self.daemon.client()
        lease = client.acquire("busy", limit=1)
        # A client that does not read what it has asked for: the daemon waits as long as it may.
        over = threading.Event()
        self.addCleanup(over.set)
        asked = []
        def requests():
            yield pb.SessionRequest(open=pb.OpenSession(client_id="deaf"))
            unknown = pb.SessionAcquire(semaphore="a" * 200)
            for _ in range(50):
                yield pb.SessionRequest(commands=[
                    pb.SessionCommand(sequence=n, acquire=unknown) for n in range(1, 1001)])
                asked.append(time.monotonic())
            over.wait()
        narrow = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65536))
        deaf = Client(self.daemon.channel(options=narrow)).stub.Session(requests())
        self.addCleanup(deaf.cancel)
        wait_until(lambda: len(asked) > 3 and time.monotonic() - asked[-1] > 0.5,
                   "nothing moves any more")
        self.assertLess(len(asked), 50)
        self.daemon.signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in self.daemon.log(), "it is stopping")
        with self.assertRaises(subprocess.TimeoutExpired):
            self.daemon.wait_exit(0.5)
        self.daemon.signal(signal.SIGTERM)
        self.daemon.wait_exit(3)
        self.daemon.start()
        self.assertTrue(self.daemon.client().verify(lease.lease_id).held)

    def test_a_second_daemon_on_the_same_file_is_refused(self):
        refused = subprocess.run(
            [os.path.join(BIN_DIR, "semaphored"), "--store", f"sqlite://{self.daemon.store_path}",
             "--listen", f"127.0.0.1:{free_port()}"],
            capture_output=True, text=True, timeout=BOUND_S, check=False)
        self.assertNotEqual(refused.returncode, 0)
        said = refused.stdout + refused.stderr
        self.assertIn(self.daemon.store_path, said)
        self.assertRegex(said, r"(?i)another|in use|locked|already")
        self.assertTrue(self.daemon.is_serving())
        self.daemon.client().acquire("still", limit=1)

    def test_a_port_that_is_taken_is_a_clear_error(self):
        refused = subprocess.run(
            [os.path.join(BIN_DIR, "semaphored"), "--store", "sqlite::memory:",
             "--listen", self.daemon.address],
            capture_output=True, text=True, timeout=BOUND_S, check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(self.daemon.address, refused.stdout + refused.stderr)


if __name__ == "__main__":
    unittest.main()
