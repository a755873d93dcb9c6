"""kill -9 with leases held and waiters queued, and a restart: nothing that was promised is lost."""

import contextlib
import sqlite3
import unittest

from daemon import BOUND_S, Daemon, Reader, Session, error_info, grpc, pb, slots_of


def same_lease(lease):
    """What of a lease must survive."""
    return lease.lease_id, slots_of(lease.slots), lease.token, lease.holder


class Restart(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.start()

    def kill_and_restart(self):
        self.daemon.kill9()
        self.daemon.start()

    def test_leases_slots_and_tokens_survive(self):
        client = self.daemon.client()
        leases = [client.acquire("team/db", limit=3, holder=f"job {i}") for i in range(3)]
        before = client.describe_rows("team/db")
        self.kill_and_restart()
        client = self.daemon.client()
        after = client.describe_rows("team/db")
        self.assertEqual([same_lease(row.lease) for row in after.leases],
                         [same_lease(row.lease) for row in before.leases])
        self.assertEqual([same_lease(row.lease) for row in after.leases],
                         [same_lease(lease) for lease in leases])
        for lease in leases:
            self.assertTrue(client.verify(lease.lease_id).held)
            renewed = client.stub.Renew(pb.RenewRequest(lease_id=lease.lease_id), timeout=BOUND_S)
            self.assertEqual(same_lease(renewed.lease), same_lease(lease))
        with self.assertRaises(grpc.RpcError) as caught:
            client.acquire("team/db")
        self.assertEqual(error_info(caught.exception).reason, "FULL")
        client.release(leases[1].lease_id)
        fresh = client.acquire("team/db")
        self.assertEqual(slots_of(fresh.slots), [2])
        self.assertGreater(fresh.token, max(lease.token for lease in leases))

    def test_a_store_that_cannot_be_used_has_an_exit_code_of_its_own(self):
        """Another start would end alike: the unit's RestartPreventExitStatus has it."""
        self.daemon.terminate()
        with contextlib.closing(sqlite3.connect(self.daemon.store_path)) as database:
            database.execute("PRAGMA user_version=1000")
            database.commit()
        self.daemon.spawn()
        self.assertEqual(self.daemon.wait_exit(), 5, self.daemon.log())
        self.daemon.wait_log("made by a newer semaphored")
        # A damaged file, too.
        with open(self.daemon.store_path, "r+b") as store:
            store.write(b"x" * 4096)
        self.daemon.spawn()
        self.assertEqual(self.daemon.wait_exit(), 5, self.daemon.log())
        # One that another daemon has is free as soon as that one ends.
        with Daemon() as other:
            self.daemon.store = other.store
            self.daemon.spawn()
            self.assertEqual(self.daemon.wait_exit(), 3, self.daemon.log())

    def test_retried_request_ids_get_the_same_answer(self):
        client = self.daemon.client()
        acquire = client.acquire_request("retry", limit=2)
        lease = client.stub.Acquire(acquire, timeout=BOUND_S).lease
        other = client.acquire("retry")
        release = pb.ReleaseRequest(request_id=client.next_id(), lease_id=other.lease_id)
        self.assertEqual(client.stub.Release(release, timeout=BOUND_S).released, 1)
        self.kill_and_restart()
        client = self.daemon.client()
        again = client.stub.Acquire(acquire, timeout=BOUND_S).lease
        self.assertEqual(same_lease(again), same_lease(lease))
        self.assertEqual(client.stub.Release(release, timeout=BOUND_S).released, 1)
        self.assertEqual(client.describe("retry").held, 1)

    def test_waiters_keep_their_order(self):
        """Three Acquires wait; after the restart they are sent again, last first, by id."""
        client = self.daemon.client()
        held = client.acquire("queue", limit=1)
        requests = []
        calls = []  # a call that nobody keeps is cancelled
        for position, priority in enumerate((0, 0, 5), start=1):
            request = client.acquire_request("queue", wait_forever=True, priority=priority,
                                             holder=f"waiter {position}")
            requests.append(request)
            calls.append(client.stub.Acquire.future(request, timeout=60))
            client.wait_for_queue("queue", position)
        expected = ["waiter 3", "waiter 1", "waiter 2"]
        self.assertEqual([row.holder for row in client.describe_rows("queue").waiters],
                         expected)
        self.kill_and_restart()
        client = self.daemon.client()
        calls = {}
        for request in reversed(requests):
            calls[request.holder] = client.stub.Acquire.future(request, timeout=60)
        client.wait_for_queue("queue", 3)
        self.assertEqual([row.holder for row in client.describe_rows("queue").waiters],
                         expected)
        token = held.token
        client.release(held.lease_id)
        for holder in expected:
            lease = calls[holder].result(BOUND_S).lease
            self.assertEqual(lease.holder, holder)
            self.assertGreater(lease.token, token)
            token = lease.token
            client.release(lease.lease_id)

    def test_a_session_goes_on(self):
        client = self.daemon.client()
        session = Session(client, ttl_ms=20000)
        session_id = session.opened().session_id
        session.command(1, acquire=pb.SessionAcquire(semaphore="session", limit=1))
        lease = session.result(1).granted
        session.command(2, acquire=pb.SessionAcquire(semaphore="session", wait_forever=True,
                                                     report_queued=True))
        self.assertTrue(session.result(2).HasField("queued"))
        other = self.daemon.client().acquire_later("session")
        client.wait_for_queue("session", 2)
        self.daemon.kill9()
        self.assertEqual(session.reader.end().code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIsNotNone(other.exception(BOUND_S))
        self.daemon.start()
        again = Session(self.daemon.client(), client_id=client.client_id,
                        resume_session_id=session_id)
        opened = again.opened()
        self.assertTrue(opened.resumed)
        self.assertEqual([same_lease(one) for one in opened.leases], [same_lease(lease)])
        again.command(2, acquire=pb.SessionAcquire(semaphore="session", wait_forever=True,
                                                   report_queued=True))
        again.command(3, release=pb.SessionRelease(lease_id=lease.lease_id))
        granted = None
        while granted is None:
            message = again.reader.until(lambda m: m.results, "results")
            for result in message.results:
                self.assertFalse(result.HasField("error"), result)
                if result.sequence == 2 and result.HasField("granted"):
                    granted = result.granted
        self.assertGreater(granted.token, lease.token)
        again.send(close=True)
        self.assertIsNone(again.reader.end())

    def test_hold_goes_on_with_the_same_id(self):
        client = self.daemon.client()
        request = pb.HoldRequest(acquire=client.acquire_request("hold", limit=1, ttl_ms=20000))
        stream = Reader(client.stub.Hold(request))
        lease = stream.until(lambda m: m.HasField("granted"), "granted").granted.lease
        self.daemon.kill9()
        self.assertEqual(stream.end().code(), grpc.StatusCode.UNAVAILABLE)
        self.daemon.start()
        again = Reader(self.daemon.client().stub.Hold(request))
        same = again.until(lambda m: m.HasField("granted"), "granted").granted.lease
        self.assertEqual(same_lease(same), same_lease(lease))

    def test_a_semaphore_that_was_destroyed_keeps_its_tokens_rising(self):
        client = self.daemon.client()
        lease = client.acquire("reborn", limit=1)
        client.release(lease.lease_id)
        self.assertTrue(client.administer("reborn", destroy=pb.DestroySemaphore()).gone)
        self.kill_and_restart()
        fresh = self.daemon.client().acquire("reborn", limit=1)
        self.assertGreater(fresh.token, lease.token)

    def test_killed_again_and_again(self):
        """Every grant that was told is there after each of several kills amid traffic."""
        told = []
        for _ in range(4):
            client = self.daemon.client()
            calls = [client.stub.Acquire.future(
                client.acquire_request("storm", limit=10000, ttl_ms=600000), timeout=60)
                for _ in range(300)]
            calls[100].result(BOUND_S)
            self.daemon.kill9()
            for call in calls:
                if call.exception(BOUND_S) is None:
                    told.append(same_lease(call.result().lease))
            self.daemon.start()
        rows = self.daemon.client().describe_rows("storm", page_size=10000)
        kept = [same_lease(row.lease) for row in rows.leases]
        self.assertEqual([lease for lease in told if lease not in kept], [])
        slots = [slot for lease in kept for slot in lease[1]]
        self.assertEqual(len(slots), len(set(slots)))


if __name__ == "__main__":
    unittest.main()
