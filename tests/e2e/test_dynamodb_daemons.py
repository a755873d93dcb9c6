"""Several daemons on one DynamoDB table, a crowd that goes from one to the other, and everything
that can befall them. A checker that knows only the clients' records finds nothing wrong."""

import unittest

from dynamodb_case import DynamoCase
from storm import Storm


class Daemons(Storm, DynamoCase):

    # A commit waits for two HTTP servers, and a hand-off for the next question.
    CLIENTS = 40
    # DynamoDB Local on two busy cores now and then answers nothing for the default of these tests.
    NODE_TTL_S = 10
    TTL_MS = 2500  # Much of the time of this test is waiting for some to run out.

    def setUp(self):
        DynamoCase.setUp(self)
        Storm.setUp(self)

    def daemons(self):
        """c reaches DynamoDB through the proxy."""
        self.make_table()
        return self.cluster({"a": self.url(), "b": self.url(),
                             "c": self.server.url(self.table, port=self.proxy.port)},
                            {"node_ttl": f"{self.NODE_TTL_S}s"})

    def end_connections(self):
        """Answers to commits get lost: they are found out, and requests have one effect."""
        for _ in range(20):
            self.let_work(3)
            self.proxy.close_all()

    def test_three_daemons_in_a_storm(self):
        with self.daemons() as daemons, self.crowd(daemons) as crowd, \
                self.careless(daemons) as careless:
            a, b, c = daemons.daemons.values()
            self.let_work()
            careless_grant = self.overtake(careless)
            self.end_connections()
            self.kill(a)
            self.pause_until_dead(b, (a, c))
            self.cut_until_dead(c, (a, b))
            self.let_work_in_peace()
            grants, unexpected = crowd.finish()
            self.judge(daemons, [*grants, careless_grant], unexpected)
        self.judge_careless()


if __name__ == "__main__":
    unittest.main()
