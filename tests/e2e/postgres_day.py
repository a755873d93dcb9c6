"""All that daemons do with a Postgres, in half a minute."""

import contextlib
import threading

from daemon import BOUND_S, Session, grpc, pb, wait_until
from work_stream import WorkStream, enqueue

HISTORY_ROWS = 5
TTL_MS = 1500
SETTINGS = {"client_retention": "1s", "request_retention": "1s", "sweep_interval": "500ms",
            "lanes": "1"}


class PostgresDay:
    """Of a TestCase with owner(statement), which runs a statement as the owner of the schema and returns its rows."""

    schema = None
    history_rows = None

    def day(self, schema, daemons, history_rows=HISTORY_ROWS):
        """`daemons`: a Cluster of "a" and "b", with the SETTINGS, on the schema; `history_rows` as their URL says."""
        self.schema, self.history_rows = schema, history_rows
        with self.churn(daemons["a"]):
            self.leases_and_waiters(daemons["a"])
            self.tickets(daemons["a"])
            self.foreign(daemons["a"])
            self.take_over(daemons)
            self.upkeep()

    def count(self, table, where="true"):
        return self.owner(f"SELECT count(*) FROM {table} WHERE {where}")[0][0]

    def churn(self, daemon):
        """Leases that end, one after the other: history is pruned again and again."""
        case = self

        class Churn:
            def __enter__(self):
                self.end = threading.Event()
                self.thread = threading.Thread(target=self.run)
                self.thread.start()

            def run(self):
                client = daemon.client()
                while not self.end.wait(0.02):
                    with contextlib.suppress(grpc.RpcError):  # The daemon is killed meanwhile.
                        lease = client.acquire("churn", limit=100, ttl_ms=TTL_MS, wait_ms=20_000)
                        client.release(lease.lease_id)

            def __exit__(self, *exception):
                self.end.set()
                self.thread.join(BOUND_S)
                case.assertFalse(self.thread.is_alive())
        return Churn()

    def leases_and_waiters(self, daemon):
        client = daemon.client()
        held = client.acquire("s", limit=4, permits=3, ttl_ms=TTL_MS, wait_ms=20_000)
        client.release(held.lease_id, slots=[held.slots[0].first])
        later = client.acquire_later("s", permits=4, ttl_ms=TTL_MS)
        client.wait_for_queue("s", 1)
        client.administer("s", resize=pb.ResizeSemaphore(limit=5))
        # Not renewed: it expires, and the waiter is granted.
        lease = later.result().lease
        client.administer("s", resize=pb.ResizeSemaphore(
            limit=1, policy=pb.SHRINK_POLICY_RECALL, grace_ms=100))
        wait_until(lambda: client.describe("s").held == 0, "the recalled lease has ended")
        self.assertFalse(client.verify(lease.lease_id).held)
        one_shot = pb.RequestId(one_shot="6f0f1d1e-4a0b-4b55-9a3d-0f6f3c1e2d3c")
        lease = client.acquire("s", ttl_ms=TTL_MS, request_id=one_shot)
        client.administer("s", revoke=pb.RevokeLeases(lease_id=lease.lease_id, now=True))
        client.administer("s", pause=pb.PauseSemaphore())
        client.administer("s", resume=pb.ResumeSemaphore())
        client.administer("s", history=pb.ListHistory())
        client.administer("s", destroy=pb.DestroySemaphore(
            policy=pb.DESTROY_POLICY_FORCE, now=True))

    def tickets(self, daemon):
        client = daemon.client()
        for delay_ms in (0, 200):
            enqueue(client, "work", b"payload", delay_ms=delay_ms)
        worker = WorkStream(daemon.client(), semaphores=["work"])
        worker.finish(worker.assignment(), failed=pb.TicketFailed(reason="once more", retry_after_ms=50))
        for _ in range(2):
            worker.finish(worker.assignment())
        worker.send(close=True)
        wait_until(lambda: self.count(f"{self.schema}.payloads", "payload = 'payload'") == 0,
                   "no payload is left")

    def foreign(self, daemon):
        """A permit that SQL took and did not give back is ended for a waiter at a daemon."""
        client = daemon.client()
        client.administer("sql", create=pb.CreateSemaphore(limit=1))
        self.assertEqual(len(self.owner(f"SELECT * FROM {self.schema}.claim('sql', 'psql', interval '300 ms')")), 1)
        client.acquire("sql", wait_ms=20_000)

    def take_over(self, daemons):
        a, b = daemons["a"], daemons["b"]
        session = Session(b.client(), client_id="moves", ttl_ms=60_000)
        session_id = session.opened().session_id
        session.command(1, acquire=pb.SessionAcquire(semaphore="moved", permits=1, limit=1))
        self.assertTrue(session.result(1).HasField("granted"))
        detached = b.client().acquire("left", limit=1, ttl_ms=TTL_MS)
        enqueue(b.client(), "late", b"x", delay_ms=1000)
        waiting = a.client().acquire_later("left")
        a.client().wait_for_queue("left", 1)
        b.kill9()
        wait_until(lambda: "dead node" in a.log(), "b is seen to be dead")
        again = Session(a.client(), client_id="moves", resume_session_id=session_id)
        self.assertEqual(len(again.opened().leases), 1)
        self.assertGreater(waiting.result().lease.token, detached.token)
        worker = WorkStream(a.client(), semaphores=["late"])
        worker.finish(worker.assignment())
        a.kill9()
        a.start()
        again = Session(a.client(), client_id="moves", resume_session_id=session_id)
        self.assertEqual(len(again.opened().leases), 1)
        again.send(close=True)

    def upkeep(self):
        """What is not kept for ever goes: history, requests, and what lives of daemons left."""
        wait_until(lambda: self.count(f"{self.schema}.leases", "history_number IS NOT NULL") < self.history_rows + 10,
                   "history is pruned")
        wait_until(lambda: self.count(f"{self.schema}.requests", "client_id = 'moves'") == 0,
                   "requests are forgotten")
        wait_until(lambda: self.count(f"{self.schema}.nodes") == 1 and self.count(f"{self.schema}.lanes") == 1,
                   "lives of daemons that have ended leave nothing")
