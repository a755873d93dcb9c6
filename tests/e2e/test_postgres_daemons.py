"""Several daemons on one Postgres, a crowd that goes from one to the other, and everything that can
befall them. A checker that knows only the clients' records finds nothing wrong."""

import unittest

import cluster
from cluster import Cluster
from storm import Storm


class Daemons(Storm, unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls)

    def test_two_daemons_are_killed_in_turn(self):
        stores = {name: self.server.url("two") for name in "ab"}
        with Cluster(stores) as daemons, self.crowd(daemons) as crowd:
            self.let_work()
            for _ in range(2):
                for daemon in daemons.daemons.values():
                    self.kill(daemon)
            self.let_work_in_peace()
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
            self.let_work_in_peace()
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
            self.let_work_in_peace()
            grants, unexpected = crowd.finish()
            self.judge(daemons, [*grants, careless_grant], unexpected)
        self.judge_careless()


if __name__ == "__main__":
    unittest.main()
