"""Several daemons on one Postgres, a crowd that goes from one to the other, and everything that can
befall them. A checker that knows only the clients' records finds nothing wrong."""

import signal
import tempfile
import unittest

import checker
import cluster
from cluster import Cluster, NODE_TTL_S
from crowd import CarelessHolder, Crowd
from daemon import wait_until
from fenced import Resource
from proxy import TcpProxy

LIMIT = 5
CLIENTS = 200
TTL_MS = 4000
SEMAPHORE = "crowd"
# Writes in which all who had to connect again get their turn, and others after them.
PEACE = CLIENTS + 60
BOUND_S = 40


class Daemons(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-e2e-")
        self.addCleanup(folder.cleanup)
        self.resource = Resource(folder.name)
        self.proxy = TcpProxy(self.server.port)
        self.addCleanup(self.proxy.close)

    def crowd(self, daemons):
        return Crowd(daemons.addresses, SEMAPHORE, LIMIT, self.resource.folder, CLIENTS,
                     ttl_ms=TTL_MS)

    def careless(self, daemons):
        return CarelessHolder(daemons.addresses[0], SEMAPHORE, LIMIT, self.resource.folder, TTL_MS)

    def let_work(self, writes=40):
        """Until so many more permits have been worked under."""
        before = self.resource.writes()
        wait_until(lambda: self.resource.writes() >= before + writes,
                   f"{writes} more writes under permits", BOUND_S)

    def kill(self, daemon):
        daemon.kill9()
        self.let_work(10)
        daemon.start()

    def pause_until_dead(self, daemon, others):
        """Others take over from it; when it wakes it finds out, ends, and is started again."""
        seen = [other.log().count("dead node") for other in others]
        daemon.signal(signal.SIGSTOP)
        wait_until(lambda: [other.log().count("dead node") for other in others] != seen,
                   "the paused daemon is declared dead", 4 * NODE_TTL_S)
        self.let_work(10)
        daemon.signal(signal.SIGCONT)
        self.assertEqual(daemon.wait_exit(), 1, daemon.log()[-2000:])
        daemon.start()

    def cut_until_dead(self, daemon, others):
        """Its clients still reach it, it no longer reaches the database."""
        seen = [other.log().count("dead node") for other in others]
        self.proxy.cut()
        wait_until(lambda: [other.log().count("dead node") for other in others] != seen,
                   "the daemon that is cut off is declared dead", 4 * NODE_TTL_S)
        self.let_work(10)
        self.assertIsNone(daemon.process.poll(), "it ended although it could not know")
        self.proxy.heal()
        self.assertEqual(daemon.wait_exit(), 1, daemon.log()[-2000:])
        daemon.start()

    def overtake(self, careless):
        """A holder that was stopped wakes when its slot has gone on to another, and writes."""
        grant = careless.granted()
        wait_until(lambda: self.resource.highest_token(grant.slots[0]) > grant.token,
                   "the slot of the stopped holder goes on to another", BOUND_S)
        careless.wake()
        return grant

    def judge(self, daemons, grants, unexpected, failures=True):
        touches = self.resource.touches()
        summary = checker.summary(grants, touches)
        print(f"\n{self.id().rsplit('.', 1)[1]}: {summary}", flush=True)
        self.assertEqual(unexpected, [])
        self.assertEqual(checker.findings(grants, [checker.Limit(LIMIT)], touches), [])
        self.assertEqual(summary["peak"], LIMIT, "never full: this proved nothing")
        self.assertGreater(summary["waited"], 50, "too few waited in peace to prove their order")
        if failures:
            self.assertGreater(summary["connected_again"], 0, "nobody went on elsewhere")
        self.assertEqual({grant.where for grant in grants} - {""}, set(daemons.addresses))
        for daemon in daemons.daemons.values():
            wait_until(lambda client=daemon.client(): (
                client.describe(SEMAPHORE).held, client.describe(SEMAPHORE).waiting) == (0, 0),
                "all permits and places of those who left have come back", 4 * TTL_MS / 1000)

    def test_two_daemons_are_killed_in_turn(self):
        stores = {name: self.server.url("two") for name in "ab"}
        with Cluster(stores) as daemons, self.crowd(daemons) as crowd:
            self.let_work()
            for _ in range(2):
                for daemon in daemons.daemons.values():
                    self.kill(daemon)
            self.let_work(PEACE)
            self.judge(daemons, *crowd.finish())

    def test_connections_are_ended_again_and_again(self):
        """Answers to commits get lost: they are found out, and requests have one effect."""
        stores = {name: self.server.url("ended") for name in "ab"}
        with Cluster(stores) as daemons, self.crowd(daemons) as crowd:
            self.let_work()
            ended = 0
            for _ in range(40):
                self.let_work(4)
                ended += len(self.server.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'semaphored' AND random() < 0.3"))
            self.assertGreater(ended, 20, "hardly a connection was ended: this proved nothing")
            self.let_work(PEACE)
            self.judge(daemons, *crowd.finish(), failures=False)

    def test_three_daemons_in_a_storm(self):
        stores = {"a": self.server.url("three"), "b": self.server.url("three"),
                  "c": self.server.url("three", port=self.proxy.port)}
        with Cluster(stores) as daemons, self.crowd(daemons) as crowd, \
                self.careless(daemons) as careless:
            a, b, c = daemons.daemons.values()
            self.let_work()
            careless_grant = self.overtake(careless)
            self.kill(a)
            self.pause_until_dead(b, (a, c))
            self.let_work()
            self.server.restart("immediate")
            self.let_work()
            self.cut_until_dead(c, (a, b))
            self.let_work(PEACE)
            grants, unexpected = crowd.finish()
            self.judge(daemons, [*grants, careless_grant], unexpected)
        touches = self.resource.touches()
        self.assertGreater(checker.summary([], touches)["refused"], 0)
        self.assertGreater(checker.lost_without_tokens(touches), 0,
                           "nothing would have been lost without tokens: this proved nothing")


if __name__ == "__main__":
    unittest.main()
