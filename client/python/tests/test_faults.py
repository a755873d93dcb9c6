"""The client against daemons and networks that fail: what is kept, what is lost, and when."""

import signal
import threading
import time
import unittest

import semaphored

from real import BOUND_S, Daemon, free_port, wait_until
from proxy import TcpProxy  # of tests/e2e

NAME = "faults/db"
TTL_S = 2.0


class Other:
    """Another client, which waits for a permit and writes down when it got it."""

    def __init__(self, address):
        self.client = semaphored.Client(address)
        self.queued = threading.Event()
        self.granted = threading.Event()
        self.granted_ns = None
        self.token = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        with self.client.permit(NAME, on_queued=lambda _: self.queued.set()) as permit:
            self.granted_ns = time.monotonic_ns()
            self.token = permit.token
        self.granted.set()


class Faults(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.start()

    def client(self, *endpoints, **options):
        options.setdefault("ttl", TTL_S)
        client = semaphored.Client(endpoints or self.daemon.address, **options)
        self.addCleanup(client.close)
        return client

    def proxy(self):
        proxy = TcpProxy(self.daemon.port)
        self.addCleanup(proxy.close)
        return proxy, f"127.0.0.1:{proxy.port}"

    def other(self):
        other = Other(self.daemon.address)
        self.addCleanup(other.client.close)
        self.assertTrue(other.queued.wait(BOUND_S))
        return other

    def test_a_killed_daemon_loses_nothing(self):
        client = self.client(ttl=20.0)
        with client.permit(NAME, limit=1) as permit:
            other = self.other()
            before = client.verify(permit)
            self.daemon.kill9()
            self.daemon.start()
            after = client.verify(permit)
            self.assertTrue(after.held)
            self.assertEqual((after.slots, after.token), (before.slots, before.token))
            with client.permit(NAME + "/more", limit=1):  # over the session's new stream
                self.assertIsNone(permit.loss)
            self.assertFalse(other.granted.is_set())
        self.assertTrue(other.granted.wait(BOUND_S))
        self.assertGreater(other.token, permit.token)

    def test_a_stopped_daemon_loses_the_permit_here_first(self):
        client = self.client()
        with self.assertRaises(semaphored.LostError) as lost:
            with client.permit(NAME, limit=1) as permit:
                other = self.other()
                self.daemon.signal(signal.SIGSTOP)
                self.addCleanup(self.daemon.signal, signal.SIGCONT)
                self.assertTrue(permit.lost.wait(BOUND_S))
                self.assertFalse(permit.held)
                self.assertFalse(other.granted.is_set())
                self.daemon.signal(signal.SIGCONT)
        self.assertIs(lost.exception.loss.cause, semaphored.LossCause.NO_CONTACT)
        self.assertTrue(other.granted.wait(BOUND_S))
        with client.permit(NAME, wait=BOUND_S) as again:
            self.assertGreater(again.token, permit.token)

    def test_who_is_cut_off_knows_before_another_gets_it(self):
        proxy, address = self.proxy()
        client = self.client(address)
        lost_ns = []
        with self.assertRaises(semaphored.LostError):
            with client.permit(NAME, limit=1,
                               on_lost=lambda _: lost_ns.append(time.monotonic_ns())) as permit:
                other = self.other()
                self.assertTrue(permit.held)
                proxy.cut()
                self.assertTrue(other.granted.wait(BOUND_S))
                self.assertFalse(permit.held, "two hold it")
                wait_until(lambda: lost_ns, "the callback")
                proxy.heal()
        self.assertLess(lost_ns[0], other.granted_ns)
        with client.permit(NAME, wait=BOUND_S) as again:
            self.assertGreater(again.token, other.token)

    def test_a_broken_connection_is_resumed_at_the_next_endpoint(self):
        first, first_address = self.proxy()
        _, second_address = self.proxy()
        client = self.client(first_address, second_address, ttl=20.0)
        with client.permit(NAME, limit=1) as permit:
            first.refuse()
            first.close_all()
            with client.permit(NAME + "/more", limit=1):  # over the session's new stream
                self.assertIsNone(permit.loss)
            verdict = client.verify(permit)
            self.assertEqual((verdict.held, verdict.token), (True, permit.token))
        self.assertIsNone(permit.loss)

    def test_an_endpoint_that_is_dead_from_the_beginning_is_passed_over(self):
        client = self.client(f"127.0.0.1:{free_port()}", self.daemon.address)
        with client.permit(NAME, limit=1) as permit:
            self.assertTrue(client.verify(permit).held)

    def test_no_daemon_answers(self):
        dead = f"127.0.0.1:{free_port()}"
        client = self.client(dead, connect_timeout=0.3)
        with self.assertRaises(semaphored.Unreachable):
            client.acquire(NAME, limit=1)
        with self.assertRaises(semaphored.Unreachable) as unreachable:
            client.admin.describe(NAME)
        self.assertIn(dead, unreachable.exception.message)
        with self.client(dead, connect_timeout=0.3, fail_open=True).permit(NAME) as permit:
            self.assertTrue(permit.fail_open and permit.held)
            self.assertEqual((permit.slots, permit.slot, permit.token), ((), 0, 0))
            self.assertEqual(permit.valid_for, float("inf"))
            permit.check()

    def test_a_release_that_no_daemon_answers_is_bounded(self):
        client = self.client(ttl=20.0, release_timeout=0.3)
        permit = client.acquire(NAME, limit=1)
        self.daemon.kill9()
        with self.assertRaises(semaphored.Unreachable):
            permit.release()
        self.daemon.start()
        stub = self.daemon.client()
        wait_until(lambda: stub.describe(NAME).held == 0, "it was tried again")


if __name__ == "__main__":
    unittest.main()
