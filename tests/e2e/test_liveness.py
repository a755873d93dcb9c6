"""Clients that die, stop or are cut off, while they wait and while they hold."""

import signal
import time
import unittest

from daemon import BOUND_S, Daemon, Reader, TTL_MIN_MS, error_info, grpc, pb, slots_of
from processes import Holder, Proxy

# What a daemon under load may take beyond the TTL.
SLACK_S = 10.0
LONG_TTL_MS = 60000


class Liveness(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        # A half-open connection is found within two seconds.
        cls.daemon = Daemon({"keepalive_interval": "1s", "keepalive_timeout": "500ms"})
        cls.daemon.start()
        cls.addClassCleanup(cls.daemon.close)

    def setUp(self):
        self.client = self.daemon.client()
        self.name = "liveness/" + self.id().rsplit(".", 1)[1]

    def holder(self, mode, ttl_ms, *flags, address=None):
        holder = Holder(address or self.daemon.address, self.name, mode, ttl_ms, *flags)
        self.addCleanup(holder.__exit__)
        return holder

    def assert_passes_on(self, old, begun, ttl_ms, call):
        """The permit comes to `call` after the TTL, not before; the old holder is fenced off."""
        lease = call.result(ttl_ms / 1000 + SLACK_S).lease
        # The last sign of life lies up to a third of the TTL before the end of the client.
        self.assertGreaterEqual(time.monotonic() - begun, ttl_ms / 1000 * 0.6)
        self.assertEqual(slots_of(lease.slots), old["slots"])
        self.assertGreater(lease.token, old["token"])
        verdict = self.client.verify(old["lease_id"])
        self.assertEqual((verdict.held, verdict.ended), (False, pb.END_CAUSE_EXPIRED))
        late = self.client.release(old["lease_id"])
        self.assertEqual((late.released, late.ended), (0, pb.END_CAUSE_EXPIRED))
        self.assertTrue(self.client.verify(lease.lease_id).held, "the late release took it away")
        return lease

    def test_killed_while_it_waits(self):
        held = self.client.acquire(self.name, limit=1, ttl_ms=LONG_TTL_MS)
        for mode in ("renew", "hold", "session"):
            with self.subTest(mode=mode):
                waiter = self.holder(mode, LONG_TTL_MS)
                self.client.wait_for_queue(self.name, 1)
                behind = self.client.acquire_later(self.name)
                self.client.wait_for_queue(self.name, 2)
                waiter.kill9()
                self.client.wait_for_queue(self.name, 1, bound_s=5)
                self.client.release(held.lease_id)
                held = behind.result(BOUND_S).lease

    def test_killed_while_it_holds_by_renew(self):
        self.killed_while_it_holds("renew")

    def test_killed_while_it_holds_by_hold(self):
        self.killed_while_it_holds("hold")

    def test_killed_while_it_holds_by_session(self):
        self.killed_while_it_holds("session")

    def killed_while_it_holds(self, mode):
        ttl_ms = 2000
        holder = self.holder(mode, ttl_ms)
        old = holder.expect("granted")
        call = self.client.acquire_later(self.name)
        self.client.wait_for_queue(self.name, 1)
        begun = time.monotonic()
        holder.kill9()
        self.assertTrue(self.client.verify(old["lease_id"]).held, "gone before its TTL")
        self.assert_passes_on(old, begun, ttl_ms, call)

    def test_release_on_disconnect(self):
        for mode in ("hold", "session"):
            with self.subTest(mode=mode):
                holder = self.holder(mode, LONG_TTL_MS, "release_on_disconnect")
                old = holder.expect("granted")
                call = self.client.acquire_later(self.name)
                self.client.wait_for_queue(self.name, 1)
                holder.kill9()
                lease = call.result(SLACK_S).lease
                self.assertGreater(lease.token, old["token"])
                verdict = self.client.verify(old["lease_id"])
                self.assertEqual((verdict.held, verdict.ended),
                                 (False, pb.END_CAUSE_DISCONNECTED))
                self.client.release(lease.lease_id)

    def stopped_beyond_its_ttl(self, mode):
        holder = self.holder(mode, TTL_MIN_MS)
        old = holder.expect("granted")
        call = self.client.acquire_later(self.name)
        self.client.wait_for_queue(self.name, 1)
        begun = time.monotonic()
        holder.signal(signal.SIGSTOP)
        self.assert_passes_on(old, begun, TTL_MIN_MS, call)
        holder.signal(signal.SIGCONT)
        return holder

    def test_stopped_beyond_its_ttl_renew(self):
        told = self.stopped_beyond_its_ttl("renew").expect("error")
        self.assertEqual(told["code"], "NOT_FOUND")

    def test_stopped_beyond_its_ttl_hold(self):
        self.stopped_beyond_its_ttl("hold").expect("lost", "error")

    def test_stopped_beyond_its_ttl_session(self):
        self.stopped_beyond_its_ttl("session").expect("lost", "error")

    def test_a_half_open_connection(self):
        """The holder's network goes silent without a word; nobody closes anything."""
        proxy = Proxy(self.daemon.port)
        self.addCleanup(proxy.__exit__)
        holder = self.holder("hold", TTL_MIN_MS, address=proxy.address)
        old = holder.expect("granted")
        call = self.client.acquire_later(self.name)
        self.client.wait_for_queue(self.name, 1)
        begun = time.monotonic()
        proxy.go_silent()
        self.assert_passes_on(old, begun, TTL_MIN_MS, call)

    def test_a_half_open_waiter_leaves_the_queue(self):
        self.client.acquire(self.name, limit=1, ttl_ms=LONG_TTL_MS)
        proxy = Proxy(self.daemon.port)
        self.addCleanup(proxy.__exit__)
        self.holder("hold", LONG_TTL_MS, address=proxy.address)
        self.client.wait_for_queue(self.name, 1)
        proxy.go_silent()
        self.client.wait_for_queue(self.name, 0, bound_s=10)

    def test_a_cancelled_wait_leaves_the_queue(self):
        self.client.acquire(self.name, limit=1, ttl_ms=LONG_TTL_MS)
        unary = self.client.acquire_later(self.name)
        hold = self.client.stub.Hold(pb.HoldRequest(
            acquire=self.client.acquire_request(self.name, wait_forever=True)))
        Reader(hold).until(lambda m: m.HasField("queued"), "queued")
        self.client.wait_for_queue(self.name, 2)
        unary.cancel()
        self.client.wait_for_queue(self.name, 1, bound_s=5)
        hold.cancel()
        self.client.wait_for_queue(self.name, 0, bound_s=5)

    def test_the_calls_deadline_ends_the_wait(self):
        self.client.acquire(self.name, limit=1, ttl_ms=LONG_TTL_MS)
        request = self.client.acquire_request(self.name, wait_forever=True)
        with self.assertRaises(grpc.RpcError) as caught:
            self.client.stub.Acquire(request, timeout=0.3)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.client.wait_for_queue(self.name, 0, bound_s=5)

    def test_a_session_that_expired_cannot_be_resumed(self):
        holder = self.holder("session", TTL_MIN_MS)
        holder.expect("granted")
        session_id = self.client.describe_rows(self.name).leases[0].lease.session_id
        self.assertTrue(session_id)
        call = self.client.acquire_later(self.name)
        holder.kill9()
        call.result(TTL_MIN_MS / 1000 + SLACK_S)
        requests = iter([pb.SessionRequest(open=pb.OpenSession(
            client_id=self.client.client_id, resume_session_id=session_id))])
        error = Reader(self.client.stub.Session(requests)).end()
        self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND)
        self.assertEqual(error_info(error).reason, "SESSION_LOST")


if __name__ == "__main__":
    unittest.main()
