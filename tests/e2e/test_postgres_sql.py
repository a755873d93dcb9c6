"""Those who stay in SQL: claim() and release() beside two daemons on the same semaphores."""

import contextlib
import os
import random
import socket
import threading
import time
import unittest

import psycopg2

import checker
import cluster
from checker import Grant, Limit
from cluster import Cluster, NODE_TTL_S
from daemon import BOUND_S, Client, Reader, error_info, grpc, pb, slots_of, wait_until

SCHEMA = "sql"
REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
# Far above what a push may take, so that what comes sooner has come by push.
SWEEP_S = 60
PUSH_S = 3.0
# Of a call for a semaphore that nobody holds up, beside one that somebody does.
SERVED_S = 4.0


class SqlClient:
    """One connection of a user who may call the functions and nothing else."""

    def __init__(self, server, user):
        self.connection = server.connect(user=user, password=user)
        self.cursor = self.connection.cursor()

    def claim(self, semaphore, holder="sql", time_out="90 seconds"):
        """(slot, token, claim), or None if there is no room."""
        self.cursor.execute(f"SELECT slot, token, claim FROM {SCHEMA}.claim(%s, %s, %s)",
                            (semaphore, holder, time_out))
        rows = self.cursor.fetchall()
        assert len(rows) <= 1, rows
        return rows[0] if rows else None

    def release(self, semaphore, claim):
        self.cursor.execute(f"SELECT {SCHEMA}.release(%s, %s)", (semaphore, claim))
        return self.cursor.fetchone()[0]

    def die(self):
        """As a process that is killed: the server sees the end of the connection, no more."""
        with socket.socket(fileno=self.connection.fileno()) as one:
            one.shutdown(socket.SHUT_RDWR)
            one.detach()
        with contextlib.suppress(psycopg2.Error):
            self.connection.close()


class Sql(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls)
        url = cls.server.url(SCHEMA)
        cls.daemons = Cluster({"a": url, "b": url}, {"sweep_interval": f"{SWEEP_S}s"})
        cls.daemons.__enter__()
        cls.addClassCleanup(cls.daemons.__exit__, None, None, None)
        cls.owner = cls.server.connect()
        cls.addClassCleanup(cls.owner.close)
        cls.server.execute("CREATE ROLE app LOGIN PASSWORD 'app'")
        for right in (f"USAGE ON SCHEMA {SCHEMA}", f"EXECUTE ON FUNCTION {SCHEMA}.claim",
                      f"EXECUTE ON FUNCTION {SCHEMA}.release"):
            cls.as_owner(f"GRANT {right} TO app")

    @classmethod
    def as_owner(cls, statement, parameters=None):
        with cls.owner.cursor() as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def setUp(self):
        self.name = "sql/" + self.id().rsplit(".", 1)[1]
        self.clients = [daemon.client() for daemon in self.daemons.daemons.values()]

    def sql_client(self):
        client = SqlClient(self.server, "app")
        self.addCleanup(client.connection.close)
        return client

    def create(self, limit):
        self.administer(create=pb.CreateSemaphore(limit=limit))

    def administer(self, **act):
        return self.clients[0].administer(self.name, **act)

    def test_a_claim_and_a_lease_see_each_other(self):
        self.create(2)
        sql = self.sql_client()
        slot, token, claim = sql.claim(self.name, "nightly report")
        lease = self.clients[1].acquire(self.name)
        self.assertEqual((slot, slots_of(lease.slots)), (1, [2]))
        self.assertGreater(lease.token, token)
        self.assertIsNone(sql.claim(self.name))
        with self.assertRaises(grpc.RpcError) as caught:
            self.clients[0].acquire(self.name)
        self.assertEqual(error_info(caught.exception).reason, "FULL")
        for client in self.clients:
            rows = client.describe_rows(self.name).leases
            self.assertEqual([(slots_of(row.lease.slots), row.lease.holder) for row in rows],
                             [([1], "nightly report"), ([2], lease.holder)])
        self.assertTrue(sql.release(self.name, claim))
        self.assertFalse(sql.release(self.name, claim), "a second release of the same claim")
        fresh = self.clients[0].acquire(self.name)
        self.assertEqual(slots_of(fresh.slots), [1])
        self.assertGreater(fresh.token, token)

    def test_the_first_claim_with_a_limit_makes_the_semaphore(self):
        sql = self.sql_client()

        def claim(limit, name=self.name):
            sql.cursor.execute(f'SELECT token FROM {SCHEMA}.claim(%s, "limit" => %s)', (name, limit))
            return sql.cursor.fetchall()
        self.assertEqual(len(claim(2)), 1)
        # A daemon has the same semaphore, and holds others to its limit.
        lease = self.clients[0].acquire(self.name, limit=2)
        self.assertEqual(claim(2), [])
        self.clients[0].release(lease.lease_id)
        for error, limit, name in (("55000", 3, self.name), ("22023", 0, "new"), ("22023", 1_000_001, "new"),
                                   ("22023", 1, "a//b"), ("22023", 1, "a/../b"), ("22023", 1, "."), ("22023", 1, "a/"),
                                   ("22023", 1, ""), ("22023", 1, "a\nb"), ("22023", 1, "a b"), ("22023", 1, "é"), ("22023", 1, ".x"),
                                   ("22023", 1, "x" * 256)):
            with self.subTest(limit=limit, name=name):
                with self.assertRaises(psycopg2.Error) as caught:
                    claim(limit, name)
                self.assertEqual(caught.exception.pgcode, error)
        self.assertEqual(len(claim(1, self.name + "/..x:@+-_")), 1)

    def test_many_make_the_same_semaphore_at_once(self):
        """From SQL and at daemons: all of them have one semaphore of three permits."""
        got = []

        def from_sql():
            client = self.sql_client()
            client.cursor.execute(f'SELECT token FROM {SCHEMA}.claim(%s, "limit" => 3)', (self.name,))
            got.extend(client.cursor.fetchall())

        def from_daemon(client):
            with contextlib.suppress(grpc.RpcError):
                got.append(client.acquire(self.name, limit=3).token)
        threads = [threading.Thread(target=from_sql) for _ in range(8)]
        threads += [threading.Thread(target=from_daemon, args=(client,)) for client in self.clients * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_S)
        self.assertEqual(len(got), 3)

    def test_the_recipes_table_is_moved_by_the_statement_of_the_docs(self):
        with open(os.path.join(REPOSITORY, "docs", "postgres.md"), encoding="utf-8") as file:
            statement = file.read().split("**From the recipe's table.**")[1].split("```sql\n")[1].split("```")[0]
        self.as_owner("CREATE TEMPORARY TABLE service_request (created_at timestamptz, completed_at timestamptz,"
                      " timed_out_at timestamptz, slot smallint)")
        self.as_owner("INSERT INTO service_request VALUES"
                      " (now() - interval '10 seconds', NULL, NULL, 0), (now() - interval '88 seconds', NULL, NULL, 2),"
                      " (now() - interval '10 seconds', now(), NULL, 1), (now() - interval '1 hour', NULL, NULL, 3),"
                      " (now() - interval '2 hours', NULL, now(), 3)")
        moved = self.as_owner(statement.replace("semaphored.claim", f"{SCHEMA}.claim"))
        self.assertEqual(sorted(row[0] for row in moved), [0, 2])
        self.assertEqual(len(self.clients[0].describe_rows("service").leases), 2)
        # One of them had two seconds left.
        wait_until(lambda: self.sql_client().claim("service") and
                   len(self.clients[0].describe_rows("service").leases) >= 2, "what was moved runs out as before")

    def test_a_release_reaches_a_daemons_waiter_by_push(self):
        self.create(1)
        sql = self.sql_client()
        for client in self.clients * 3:
            _, token, claim = sql.claim(self.name)
            call = client.acquire_later(self.name)
            client.wait_for_queue(self.name, 1)
            begun = time.monotonic()
            self.assertTrue(sql.release(self.name, claim))
            lease = call.result(BOUND_S).lease
            self.assertLess(time.monotonic() - begun, PUSH_S)
            self.assertGreater(lease.token, token)
            client.release(lease.lease_id)

    def test_who_waits_is_not_overtaken_by_a_claim(self):
        self.create(1)
        held = self.clients[0].acquire(self.name)
        call = self.clients[1].acquire_later(self.name)
        self.clients[0].wait_for_queue(self.name, 1)
        sql = self.sql_client()
        self.assertIsNone(sql.claim(self.name))
        self.clients[0].release(held.lease_id)
        self.clients[1].release(call.result(BOUND_S).lease.lease_id)
        self.assertIsNotNone(sql.claim(self.name))

    def test_a_time_out_gives_the_slot_to_a_daemons_waiter(self):
        """Found in a sweep, by a daemon that makes one often."""
        self.create(1)
        sql = self.sql_client()
        with Cluster({"c": self.server.url(SCHEMA)}, {"sweep_interval": "500ms"}) as daemons:
            client = daemons["c"].client()
            asked = time.monotonic()
            _, token, claim = sql.claim(self.name, time_out="1 second")
            lease = client.acquire_later(self.name).result(BOUND_S).lease
            self.assertGreaterEqual(time.monotonic() - asked, 1.0)
            self.assertGreater(lease.token, token)
            self.assertFalse(sql.release(self.name, claim), "it gave back another's permit")
            self.assertTrue(client.verify(lease.lease_id).held)

    def test_a_time_out_gives_the_slot_to_the_next_claim(self):
        self.create(1)
        sql = self.sql_client()
        _, token, _ = sql.claim(self.name, time_out="200 milliseconds")
        deadline = time.monotonic() + BOUND_S
        while (fresh := sql.claim(self.name)) is None:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assertEqual(fresh[0], 1)
        self.assertGreater(fresh[1], token)
        rows = self.as_owner(f"SELECT token, end_cause FROM {SCHEMA}.leases WHERE semaphore = %s "
                             "AND timed_out_at IS NOT NULL", (self.name,))
        self.assertEqual(rows, [(token, pb.END_CAUSE_EXPIRED)])

    def test_a_time_out_never_ends_a_daemons_lease(self):
        """Kept alive by its Hold for longer than its TTL, as its row alone cannot show."""
        self.create(2)
        stream = Reader(self.clients[0].stub.Hold(pb.HoldRequest(
            acquire=self.clients[0].acquire_request(self.name, ttl_ms=1000))))
        lease = stream.until(lambda m: m.HasField("granted"), "granted").granted.lease
        self.sql_client().claim(self.name, time_out="1 second")
        ended = 0
        deadline = time.monotonic() + BOUND_S
        while ended == 0 and time.monotonic() < deadline:
            stream.until(lambda m: m.HasField("beat"), "a beat")
            ended += self.as_owner(f"SELECT {SCHEMA}.time_out(%s)", (self.name,))[0][0]
        self.assertEqual(ended, 1, "only the claim of SQL")
        stream.until(lambda m: m.HasField("beat"), "a beat after it")
        self.assertTrue(self.clients[1].verify(lease.lease_id).held)

    def test_a_client_killed_in_the_middle_has_done_nothing(self):
        self.create(1)
        dying = self.sql_client()
        dying.connection.autocommit = False
        self.assertIsNotNone(dying.claim(self.name))
        dying.die()
        sql = self.sql_client()
        _, token, claim = sql.claim(self.name)
        releasing = self.sql_client()
        releasing.connection.autocommit = False
        self.assertTrue(releasing.release(self.name, claim))
        releasing.die()
        with self.assertRaises(grpc.RpcError) as caught:
            self.clients[0].acquire(self.name)
        self.assertEqual(error_info(caught.exception).reason, "FULL")
        self.assertTrue(sql.release(self.name, claim))
        self.assertGreater(self.clients[0].acquire(self.name).token, token)

    def test_a_long_transaction_holds_up_only_its_semaphore(self):
        """For longer than a daemon may be silent; somebody waits for its semaphore meanwhile."""
        self.create(2)
        slow = self.sql_client()
        slow.connection.autocommit = False
        self.assertIsNotNone(slow.claim(self.name))
        until = time.monotonic() + NODE_TTL_S + 2
        with Cluster({"c": self.server.url(SCHEMA)}) as daemons:
            client, daemon = daemons["c"].client(), daemons["c"]
            stream = Reader(Client(daemon.channel()).stub.Hold(pb.HoldRequest(
                acquire=client.acquire_request(self.name + "/held", limit=1, ttl_ms=30000),
                beat_interval_ms=500)))
            stream.until(lambda m: m.HasField("granted"), "granted")
            request = client.acquire_request(self.name, wait_forever=True)
            call = client.stub.Acquire.future(request, timeout=60)
            # As many names as it takes for one to share a lane with the one that is held up.
            number = 0
            while time.monotonic() < until:
                number += 1
                other = client.acquire_request(f"{self.name}/{number % 16}", limit=1)
                wait_until(lambda request=other: self.served(client, request),
                           "another semaphore is served", SERVED_S)
                stream.until(lambda m: m.HasField("beat"), "a beat")
                if call.done():  # Told to ask again.
                    self.assertEqual(call.code(), grpc.StatusCode.UNAVAILABLE)
                    call = client.stub.Acquire.future(request, timeout=60)
            self.assertIsNone(daemon.process.poll(), "the daemon ended")
            slow.connection.rollback()
            wait_until(lambda: self.served(client, request), "it goes on")

    @staticmethod
    def served(client, request):
        try:
            lease = client.stub.Acquire(request, timeout=BOUND_S).lease
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                return False
            raise
        client.release(lease.lease_id)
        return True

    def test_pause_and_destroy_bind_sql_too(self):
        self.create(1)
        sql = self.sql_client()
        self.administer(pause=pb.PauseSemaphore())
        self.assertIsNone(sql.claim(self.name))
        self.administer(resume=pb.ResumeSemaphore())
        _, token, claim = sql.claim(self.name)
        # No daemon ends what others have taken: the semaphore goes with the claim.
        self.assertFalse(
            self.administer(destroy=pb.DestroySemaphore(policy=pb.DESTROY_POLICY_FORCE)).gone)
        self.assertIsNone(self.sql_client().claim(self.name))
        self.assertTrue(sql.release(self.name, claim))
        wait_until(self.is_gone, "it goes with the last claim")
        with self.assertRaises(psycopg2.errors.UndefinedObject):
            sql.claim(self.name)
        self.create(1)
        self.assertGreater(sql.claim(self.name)[1], token)

    def is_gone(self):
        try:
            self.clients[1].describe(self.name)
            return False
        except grpc.RpcError as error:
            self.assertEqual(error_info(error).reason, "NO_SUCH_SEMAPHORE")
            return True

    def test_the_functions_refuse_what_is_wrong(self):
        self.create(1)
        sql = self.sql_client()
        for arguments in (("x", "0 seconds"), ("x", "8 days"), ("x", None), (None, "1 second"),
                          ("x" * 257, "1 second")):
            with self.subTest(arguments=arguments), \
                    self.assertRaises(psycopg2.errors.InvalidParameterValue):
                sql.claim(self.name, *arguments)
        for statement in ("SELECT 1 FROM {}.leases", "SELECT {}.time_out('x')",
                          "DELETE FROM {}.leases"):
            with self.subTest(statement=statement), \
                    self.assertRaises(psycopg2.errors.InsufficientPrivilege):
                sql.cursor.execute(statement.format(SCHEMA))

    def test_the_recipes_own_statements_are_refused(self):
        """By the database itself, also for the owner of the tables."""
        self.create(2)
        lease = self.clients[0].acquire(self.name)
        sql = self.sql_client()
        _, _, claim = sql.claim(self.name)
        unended = "completed_at IS NULL AND timed_out_at IS NULL"
        columns = ", ".join(name for name, in self.as_owner(
            "SELECT column_name FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = 'leases' ORDER BY ordinal_position",
            (SCHEMA,)))
        for statement, error in (
                # timeout(): would end the leases of daemons.
                (f"UPDATE {SCHEMA}.leases SET timed_out_at = now() WHERE {unended}",
                 psycopg2.errors.CheckViolation),
                # release()
                (f"UPDATE {SCHEMA}.leases SET completed_at = now() WHERE slot = 1 AND {unended}",
                 psycopg2.errors.CheckViolation),
                # claim()
                (f"INSERT INTO {SCHEMA}.leases (created_at, slot) SELECT now(), "
                 "coalesce(min(slot), 0) FROM generate_series(0, 9) slot WHERE NOT EXISTS (SELECT "
                 f"* FROM {SCHEMA}.leases l WHERE l.slot = slot.slot AND {unended}) ON CONFLICT DO "
                 "NOTHING RETURNING *", psycopg2.errors.NotNullViolation),
                # A slot twice.
                (f"INSERT INTO {SCHEMA}.leases ({columns}) SELECT {columns} FROM {SCHEMA}.leases "
                 f"WHERE semaphore = '{self.name}' AND {unended}",
                 psycopg2.errors.UniqueViolation)):
            with self.subTest(statement=statement), self.assertRaises(error):
                self.as_owner(statement)
        self.assertTrue(self.clients[0].verify(lease.lease_id).held)
        self.assertTrue(sql.release(self.name, claim))

    # ---- Both kinds at once ----

    def note(self, **fields):
        with self.lock:
            self.grants.append(Grant(**fields))

    def sql_worker(self, number):
        """Claims, works, gives back. Sometimes forgets to, or dies in a transaction."""
        chance = random.Random(number)
        sql = self.sql_client()
        while not self.stopping.is_set():
            fate = chance.random()
            if fate < 0.1:
                sql.connection.autocommit = False
                sql.claim(self.name, "dying")
                sql.die()
                sql = self.sql_client()
                continue
            time_out_s = 0.5 if fate < 0.2 else 60
            asked_ns = time.monotonic_ns()
            claimed = sql.claim(self.name, f"sql {number}", f"{time_out_s} seconds")
            granted_ns = time.monotonic_ns()
            if claimed is not None:
                time.sleep(chance.uniform(0, 0.04))
                # Less one per cent, as any deadline: the database counts on another clock.
                until_ns = asked_ns + int(time_out_s * 0.99e9)
                ended_ns = min(time.monotonic_ns(), until_ns) if time_out_s > 1 else until_ns
                self.note(client=f"sql {number}", slots=(claimed[0],), token=claimed[1],
                          asked_ns=asked_ns, granted_ns=granted_ns, ended_ns=ended_ns, where="sql")
                if time_out_s > 1:
                    sql.release(self.name, claimed[2])
            time.sleep(chance.uniform(0, 0.06))

    def daemon_worker(self, number):
        """Waits for its turn, works, gives back."""
        chance = random.Random(number)
        name = "ab"[number % 2]
        client = Client(self.daemons[name].channel())
        while not self.stopping.is_set():
            asked_ns = time.monotonic_ns()
            try:
                lease = client.acquire(self.name, wait_forever=True)
            except grpc.RpcError as error:
                self.unexpected.append(error)
                return
            granted_ns = time.monotonic_ns()
            time.sleep(chance.uniform(0, 0.04))
            self.note(client=f"daemon {number}", slots=tuple(slots_of(lease.slots)),
                      token=lease.token, asked_ns=asked_ns, granted_ns=granted_ns,
                      ended_ns=time.monotonic_ns(), where=name)
            client.release(lease.lease_id)
            time.sleep(chance.uniform(0, 0.08))

    def resize(self, limits, to):
        asked_ns = time.monotonic_ns()
        self.administer(resize=pb.ResizeSemaphore(limit=to, policy=pb.SHRINK_POLICY_WAIT))
        limits.append(Limit(to, asked_ns, time.monotonic_ns()))

    def let_work(self, grants=60):
        enough = len(self.grants) + grants
        deadline = time.monotonic() + BOUND_S
        while len(self.grants) < enough:
            self.assertLess(time.monotonic(), deadline, "too few grants")
            self.assertEqual(self.unexpected, [])
            time.sleep(0.02)

    def test_together_never_over_the_limit(self):
        self.create(4)
        self.grants, self.unexpected = [], []
        self.lock, self.stopping = threading.Lock(), threading.Event()
        limits = [Limit(4)]
        workers = [threading.Thread(target=worker, args=(number,))
                   for worker in (self.sql_worker, self.daemon_worker) for number in range(6)]
        for worker in workers:
            worker.start()
        try:
            self.let_work()
            for to in (1, 4, 2, 5):
                self.resize(limits, to)
                self.let_work()
        finally:
            self.stopping.set()
            for worker in workers:
                worker.join(BOUND_S)
        self.assertEqual(self.unexpected, [])
        self.assertEqual(checker.findings(self.grants, limits), [])
        by_kind = [sum(1 for grant in self.grants if grant.where == where)
                   for where in ("sql", "a", "b")]
        print(f"\n{by_kind} by SQL and by the daemons: {checker.summary(self.grants)}", flush=True)
        self.assertGreaterEqual(min(by_kind), 20, "one kind hardly got a permit")
        self.assertGreaterEqual(checker.summary(self.grants)["peak"], 4)


if __name__ == "__main__":
    unittest.main()
