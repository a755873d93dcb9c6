"""A second start of a daemon by mistake does no harm to the first; a start after its end takes the
node id over."""

import fcntl
import json
import os
import signal
import time
import unittest

import cluster
from cluster import NODE_TTL_S
from daemon import Daemon, Reader, Session, error_info, free_port, grpc, pb, wait_until
from second_start import AT_ONCE_S, CANNOT_LISTEN, SecondStartCase, timed_start


class SecondStart(SecondStartCase, unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls)

    def setUp(self):
        self.schema = self._testMethodName.removeprefix("test_")[:40]
        self.here = self.folder_of_locks()

    def daemon(self, here=None, port=None, schema=None, **settings):
        """Not started yet. `here`: the folder of its machine's lock files."""
        daemon = Daemon({"node_ttl": f"{NODE_TTL_S}s", "node_id": "a", **settings},
                        port=port or free_port(),
                        store=self.server.url(schema or self.schema))
        daemon.environment["RUNTIME_DIRECTORY"] = here or self.here
        self.addCleanup(daemon.close)
        return daemon

    def row(self, node_id="a"):
        """(incarnation, dead, stopped, card) of the node."""
        found = self.server.execute(
            f"SELECT incarnation, dead, stopped, daemon FROM {self.schema}.nodes "
            f"WHERE node_id = '{node_id}'")
        self.assertEqual(len(found), 1)
        return (*found[0][:3], json.loads(found[0][3]))

    def lock_file(self):
        [name] = [name for name in os.listdir(self.here) if name.startswith("node-")]
        return name

    def assert_unharmed(self, first, lease, row):
        self.assertTrue(first.is_serving(), first.log()[-2000:])
        self.assertTrue(first.client().verify(lease.lease_id).held)
        self.assertEqual(self.row(), row)
        self.assertNotIn("cannot go on", first.log())

    def newcomer(self, here):
        return self.daemon(here)

    # ---- the first one is alive ----

    def test_with_the_same_node_id_and_another_port(self):
        first = self.daemon().start()
        client = first.client()
        lease = client.acquire("held", limit=2)
        session = Session(client, ttl_ms=30_000)
        session.opened()
        row = self.row()
        self.assertEqual(row[3]["pid"], first.process.pid)
        # On this machine, where the first has the lock; and on another.
        for here in (self.here, self.folder_of_locks()):
            second = self.daemon(here)
            second.spawn()
            self.assert_refused(second, first)
            self.assert_unharmed(first, lease, row)
        session.command(2, acquire=pb.SessionAcquire(semaphore="held", limit=2))
        self.assertTrue(session.result(2).HasField("granted"))

    def test_with_the_same_port_changes_nothing_in_the_engine(self):
        first = self.daemon().start()
        lease = first.client().acquire("held", limit=1)
        row = self.row()
        for here in (self.here, self.folder_of_locks()):
            second = self.daemon(here, port=first.port, schema="never_made")
            begun = time.monotonic()
            second.spawn()
            self.assertEqual(second.wait_exit(), CANNOT_LISTEN, second.log())
            self.assertLess(time.monotonic() - begun, AT_ONCE_S)
            self.assertIn(f"cannot listen on {first.address}", second.log())
        self.assert_unharmed(first, lease, row)
        self.assertEqual(
            self.server.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'never_made'"), [])

    def test_with_the_same_address_for_metrics(self):
        metrics = f"127.0.0.1:{free_port()}"
        first = self.daemon(metrics_listen=metrics).start()
        lease = first.client().acquire("held", limit=1)
        row = self.row()
        second = self.daemon(metrics_listen=metrics, schema="never_made_either")
        second.spawn()
        self.assertEqual(second.wait_exit(), CANNOT_LISTEN, second.log())
        self.assertIn(f"metrics_listen: cannot listen on {metrics}", second.log())
        self.assert_unharmed(first, lease, row)

    def test_with_the_same_unix_socket(self):
        path = f"unix:{self.here}/socket"
        first = self.daemon()
        first.address = path
        first.start()
        lease = first.client().acquire("held", limit=1)
        second = self.daemon(node_id="b")
        second.address = path
        second.spawn()
        self.assertEqual(second.wait_exit(), CANNOT_LISTEN, second.log())
        self.assertTrue(first.client().verify(lease.lease_id).held)
        first.kill9()
        # The file that it left there is not in the way.
        first.start()
        self.assertTrue(first.client().verify(lease.lease_id).held)
        self.assertEqual(first.terminate(), 0)
        self.assertFalse(os.path.exists(f"{self.here}/socket"))

    # ---- the first one has ended ----

    def test_after_a_kill_on_the_same_machine(self):
        daemon = self.daemon().start()
        lease = daemon.client().acquire("held", limit=1)
        for _ in range(3):
            daemon.kill9()
            self.assertLess(timed_start(daemon), AT_ONCE_S, daemon.log()[-2000:])
        self.assertTrue(daemon.client().verify(lease.lease_id).held)
        self.assertNotIn("waiting for", daemon.log())

    def test_after_a_kill_on_another_machine(self):
        daemon = self.daemon().start()
        daemon.kill9()
        daemon.environment["RUNTIME_DIRECTORY"] = self.folder_of_locks()
        self.assertGreater(timed_start(daemon), NODE_TTL_S * 0.95)
        self.assertGreaterEqual(daemon.log().count("waiting for"), 2, daemon.log())
        self.assertIn(f"node id 'a' belongs to the daemon at {daemon.address}", daemon.log())

    def test_after_a_kill_where_the_lock_file_is_gone(self):
        daemon = self.daemon().start()
        daemon.kill9()
        os.unlink(os.path.join(self.here, self.lock_file()))
        self.assertGreater(timed_start(daemon), NODE_TTL_S * 0.95)

    def test_without_a_lock(self):
        daemon = self.daemon().start()
        self.assertEqual(daemon.terminate(), 0)
        with open(os.path.join(self.here, self.lock_file()), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.assertLess(timed_start(daemon), AT_ONCE_S, daemon.log()[-2000:])
            daemon.wait_log("no lock file")
        self.assertEqual(self.row()[3]["lock"]["inode"], 0)
        daemon.kill9()
        self.assertGreater(timed_start(daemon), NODE_TTL_S * 0.95)

    def test_after_a_clean_stop_anywhere(self):
        daemon = self.daemon().start()
        lease = daemon.client().acquire("held", limit=1)
        self.assertEqual(daemon.terminate(), 0)
        self.assertEqual(self.row()[1:3], (False, True))
        daemon.environment["RUNTIME_DIRECTORY"] = self.folder_of_locks()
        self.assertLess(timed_start(daemon), AT_ONCE_S, daemon.log()[-2000:])
        self.assertEqual(self.row()[:3], (2, False, False))
        self.assertTrue(daemon.client().verify(lease.lease_id).held)

    def test_a_signal_ends_the_wait(self):
        first = self.daemon().start()
        first.signal(signal.SIGSTOP)
        self.addCleanup(first.signal, signal.SIGCONT)
        second = self.daemon()
        second.spawn()
        second.wait_log("waiting for")
        # Its clients do not wait with it.
        begun = time.monotonic()
        with self.assertRaises(grpc.RpcError) as failed:
            second.client().stub.Verify(pb.VerifyRequest(lease_id="x"), timeout=20)
        self.assertEqual(failed.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertLess(time.monotonic() - begun, NODE_TTL_S / 2)
        self.assertEqual(second.terminate(NODE_TTL_S / 2), 0)
        self.assertEqual(self.row()[0], 1)

    # ---- the first one hangs ----

    def test_while_the_first_stands_still(self):
        first = self.daemon().start()
        client = first.client()
        hold = Reader(client.stub.Hold(pb.HoldRequest(
            acquire=client.acquire_request("held", limit=1, ttl_ms=60_000))))
        hold.until(lambda message: message.HasField("granted"), "granted")
        first.signal(signal.SIGSTOP)
        second = self.daemon()
        begun = time.monotonic()
        second.start()
        self.assertGreater(time.monotonic() - begun, NODE_TTL_S * 0.95)
        self.assertEqual(second.client().describe("held").held, 1)
        first.signal(signal.SIGCONT)
        self.assertEqual(first.wait_exit(), 1, first.log()[-2000:])
        error = hold.end()
        self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertNotEqual(hold_reason(error), "SHUTTING_DOWN")
        self.assertIn("nothing is vouched for", first.log())
        self.assertTrue(second.is_serving())
        self.assertEqual(self.row()[3]["pid"], second.process.pid)
        self.assertEqual(self.row()[2], False, "the one that was replaced says that it has stopped")

    # ---- two newcomers ----

    def test_two_newcomers_at_the_same_moment(self):
        first = self.daemon().start()
        lease = first.client().acquire("held", limit=1, ttl_ms=60_000)
        first.kill9()
        # On the machine of the first, and on two others.
        for places in ((self.here, self.here), (self.folder_of_locks(), self.folder_of_locks())):
            both = [self.daemon(here) for here in places]
            for daemon in both:
                daemon.spawn()
            ended = wait_until(
                lambda both=both: [each for each in both if each.process.poll() is not None],
                "one of the two is refused", NODE_TTL_S * 3)
            self.assertEqual(len(ended), 1)
            winner = next(each for each in both if each is not ended[0])
            self.assert_refused(ended[0], winner)
            winner.wait_healthy()
            self.assertTrue(winner.client().verify(lease.lease_id).held)
            winner.kill9()


def hold_reason(error):
    info = error_info(error)
    return info.reason if info is not None else ""


if __name__ == "__main__":
    unittest.main()
