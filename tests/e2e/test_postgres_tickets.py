"""Tickets of two daemons on one Postgres: what is enqueued through one is carried out by whoever
works at the other, whoever is killed."""

import os
import unittest

import cluster
from cluster import Cluster
from daemon import BOUND_S, wait_until
from test_semctl import is_alive
from test_tickets import TicketsTest

# Far above what a push may take, so that what comes sooner has come by push.
SWEEP_S = 60


class PostgresTickets(TicketsTest):

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls)

    def setUp(self):
        super().setUp()  # A daemon of its own, which is of no use here.
        self.daemon.close()
        self.schema = self.id().rsplit(".", 1)[1][:40]
        url = self.server.url(self.schema)
        self.daemons = Cluster({"a": url, "b": url}, {"sweep_interval": f"{SWEEP_S}s"})
        self.daemons.__enter__()
        self.addCleanup(self.daemons.__exit__, None, None, None)
        self.at("a")

    def at(self, *names):
        """From here on semctl goes to these daemons, the first one first."""
        self.servers = ",".join(self.daemons[name].address for name in names)
        self.stub = self.daemons[names[0]].client().stub

    def environment(self):
        return {**os.environ, "SEMCTL_SERVER": self.servers}

    def rows(self, columns):
        return self.server.execute(f"SELECT {columns} FROM {self.schema}.work ORDER BY queue_order")

    def test_a_ticket_of_one_daemon_goes_to_a_worker_at_the_other(self):
        self.at("b")
        worker = self.start_worker("job")
        self.at("a")
        # The worker's offer is told of it by push, also when it has waited for a while.
        ticket = self.enqueue("job", "first", "--content-type", "text/plain")
        begun = self.wait_begun(1)
        self.assertEqual([begun[0], begun[4]], [ticket, "first"])
        self.assertEqual(self.rows("ticket::text, state, attempt, convert_from(payload, 'UTF8')"),
                         [(self.as_uuid(ticket), "assigned", 1, "first")])
        self.enqueue("job", "second")
        self.assertEqual(self.counts("job"), (1, 0, 1, 0))
        self.let_exit(0)
        self.wait_counts("job", (0, 0, 0, 0))
        worker.terminate()
        self.assertEqual(worker.wait(BOUND_S), 0)
        self.assertEqual(self.rows("1"), [])

    def test_a_worker_of_a_prefix_finds_what_came_through_the_other_daemon(self):
        self.at("b")
        out = os.path.join(self.folder, "out")
        self.start("work", "many/*", "--tickets", "3", "--",
                   "sh", "-c", f"echo \"$(cat)\" >> {out}")
        self.at("a")
        for number in range(5):
            self.enqueue(f"many/{number}", str(number))

        def found():
            with open(out) as file:
                return sorted(file.read().split())
        wait_until(lambda: os.path.exists(out) and found() == list("01234"), "all were found")

    def test_a_worker_whose_daemon_is_killed_goes_on_at_the_other(self):
        self.enqueue("job", "x")
        self.at("b", "a")
        worker = self.start_worker("job", "--once")
        self.wait_begun(1)
        self.daemons["b"].kill9()
        self.let_exit(0)
        self.assertEqual(worker.wait(BOUND_S), 0)
        self.at("a")
        self.assertEqual(self.counts("job"), (0, 0, 0, 0))

    def test_a_ticket_whose_worker_and_daemon_are_killed_comes_back(self):
        ticket = self.enqueue("job", "x")
        self.at("b")
        killed = self.start_worker("job")
        first = self.wait_begun(1)
        self.daemons["b"].kill9()
        killed.kill()
        killed.wait(BOUND_S)
        wait_until(lambda: not is_alive(int(first[3])), "its command is ended")
        self.at("a")
        self.start_worker("job")
        second = self.wait_begun(2)
        self.assertEqual(second[0], ticket)
        self.assertGreater(int(second[2]), int(first[2]))
        self.let_exit(0)
        self.wait_counts("job", (0, 0, 0, 0))

    def test_a_delay_outlives_the_daemon_that_counts_it(self):
        self.at("b")
        self.enqueue("job", "later", "--delay", "1s")
        self.daemons["b"].kill9()
        self.at("a")
        self.assertEqual(self.counts("job"), (0, 1, 0, 0))
        done = self.semctl("work", "job", "--once", "--", "cat")
        self.assertEqual((done.returncode, done.stdout), (0, "later"), done.stderr)

    def test_a_dead_letter_is_requeued_through_the_other_daemon(self):
        ticket = self.enqueue("job", "x", "--max-attempts", "2", "--back-off", "50ms")
        for name in "ab":
            self.at(name)
            done = self.semctl("work", "job", "--once", "--", "sh", "-c", "exit 75")
            self.assertEqual(done.returncode, 75, done.stderr)
        self.at("a")
        (dead,) = self.tickets("job", "--state", "dead")
        self.assertEqual((dead["ticket_id"], len(dead["reasons"])), (ticket, 2))
        self.assertEqual(self.rows("state, last_reason"), [("dead", "exit code 75")])
        self.assertEqual(self.semctl("dead-letters", "job", "requeue", "--all").returncode, 0)
        self.at("b")
        done = self.semctl("work", "job", "--once", "--", "cat")
        self.assertEqual((done.returncode, done.stdout), (0, "x"), done.stderr)
        self.assertEqual(self.counts("job"), (0, 0, 0, 0))

    @staticmethod
    def as_uuid(text):
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


if __name__ == "__main__":
    unittest.main()
