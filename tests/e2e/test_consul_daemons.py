"""Two daemons on one Consul, a crowd that goes from one to the other, and everything that can
befall them. A checker that knows only the clients' records finds nothing wrong."""

import unittest

import cluster
from cluster import Cluster
from consul import ConsulServer
from storm import Storm


class Daemons(Storm, unittest.TestCase):

    # A commit waits for a disk, and for two HTTP servers: fewer than on Postgres get their turn.
    CLIENTS = 100

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls, ConsulServer)

    def daemons(self, prefix):
        """b reaches Consul through the proxy."""
        return Cluster({"a": self.server.url(prefix),
                        "b": self.server.url(prefix, port=self.proxy.port)})

    def test_daemons_are_killed_in_turn(self):
        with self.daemons("killed") as daemons, self.crowd(daemons) as crowd:
            self.let_work()
            for _ in range(2):
                for daemon in daemons.daemons.values():
                    self.kill(daemon)
            self.let_work_in_peace()
            self.judge(daemons, *crowd.finish())

    def test_connections_are_ended_again_and_again(self):
        """Answers to commits get lost: they are found out, and requests have one effect."""
        with self.daemons("ended") as daemons, self.crowd(daemons) as crowd:
            self.let_work()
            for _ in range(40):
                self.let_work(4)
                self.proxy.close_all()
            self.let_work_in_peace()
            self.judge(daemons, *crowd.finish(), failures=False)

    def test_a_storm(self):
        with self.daemons("storm") as daemons, self.crowd(daemons) as crowd, \
                self.careless(daemons) as careless:
            a, b = daemons.daemons.values()
            self.let_work()
            careless_grant = self.overtake(careless)
            self.kill(b)
            self.pause_until_dead(a, (b,))
            self.let_work()
            self.server.kill()
            self.server.start()
            self.let_work()
            self.cut_until_dead(b, (a,))
            self.let_work_in_peace()
            grants, unexpected = crowd.finish()
            self.judge(daemons, [*grants, careless_grant], unexpected)
        self.judge_careless()


if __name__ == "__main__":
    unittest.main()
