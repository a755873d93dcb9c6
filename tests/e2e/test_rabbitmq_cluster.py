"""Three nodes of RabbitMQ, and a daemon on each of them. The node that leads the queue of the permits is killed, again
and again, each time after all nodes are in step again, while clients go from daemon to daemon.

SEMAPHORED_TEST_KILLS: how often.
"""

import dataclasses
import os
import re
import shutil
import tempfile
import time
import unittest

import checker
from broker import SETTINGS, free_tokens, token_queue
from cluster import Cluster
from crowd import Crowd, Detached, InSession
from daemon import wait_until
from rabbitmq import RabbitCluster
from storm import LIMIT, SEMAPHORE, Storm

KILLS = int(os.environ.get("SEMAPHORED_TEST_KILLS", "1"))
# A Hold that is sent again to another daemon is another request there, and gets another lease.
KINDS = (Detached, InSession)
# A daemon that gets no processor for a while keeps its connection: what is lost here is lost by kills.
OPTIONS = "?layout=tokens&heartbeat_s=10&timeout_ms=5000"
TAKEN = re.compile(r"lost: semaphore 'crowd', 1 permit\(s\), token (\d+), .* the engine took it back")


def cut_at_kills(grants, kills, taken):
    """The grants as the broker has them, which takes back what a killed node's daemon held at once; and for how many
    seconds each client believed in it for longer; and the tokens of `taken`, which daemons say that the broker took
    back, that are none of these. A kill: the daemon's address, when it began, when its node was started again."""
    cut, believed, others = [], [], set(taken)
    for grant in grants:
        for where, begun_ns, started_ns in kills:
            if grant.where == where and grant.granted_ns < started_ns and grant.ended_ns > begun_ns:
                believed.append((grant.ended_ns - begun_ns) / 1e9)
                grant = dataclasses.replace(grant, ended_ns=min(grant.ended_ns, begun_ns))
                others.discard(grant.token)
        cut.append(grant)
    others &= {grant.token for grant in grants}
    # When, the broker alone knows: of these no stay is judged.
    return [dataclasses.replace(grant, ended_ns=0) if grant.token in others else grant
            for grant in cut], believed, others


class Nodes(Storm, unittest.TestCase):

    CLIENTS = 30
    TTL_MS = 3000

    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="semaphored-e2e-")
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.nodes = RabbitCluster(folder)
        cls.addClassCleanup(cls.nodes.remove)
        cls.nodes.start()
        cls.server = cls.nodes.all[0]

    def kill_leader(self, by_node):
        """Clients work meanwhile. Returns the address of its daemon, and when it was."""
        leader = self.nodes.in_step(token_queue(SEMAPHORE))
        begun_ns = time.monotonic_ns()
        leader.stop(kill=True)
        self.let_work(20)
        killed = (by_node[leader].address, begun_ns, time.monotonic_ns())
        leader.start()
        self.wait_in_touch(by_node[leader])
        self.let_work(20)
        return killed

    def test_leaders_are_killed(self):
        stores = {name: node.url(options=OPTIONS) for name, node in zip("abc", self.nodes.all)}
        with Cluster(stores, SETTINGS) as daemons, \
                Crowd(daemons.addresses, SEMAPHORE, LIMIT, self.resource.folder, self.CLIENTS,
                      ttl_ms=self.TTL_MS, kinds=KINDS) as crowd:
            by_node = dict(zip(self.nodes.all, daemons.daemons.values()))
            self.let_work()
            kills = []
            for _ in range(KILLS):
                kills.append(self.kill_leader(by_node))
            self.nodes.in_step(token_queue(SEMAPHORE))
            self.let_work_in_peace()
            grants, unexpected = crowd.finish()
            self.judge_kills(daemons, grants, kills)
            self.assertEqual(unexpected, [])
            self.wait_until_all_is_free(daemons)
            self.judge_end(daemons, crowd.refused)

    def judge_kills(self, daemons, grants, kills):
        """Of the order between daemons, and of when a lease ends, nothing is promised."""
        taken = {int(token) for daemon in daemons.daemons.values() for token in TAKEN.findall(daemon.log())}
        cut, believed, others = cut_at_kills(grants, kills, taken)
        touches = self.resource.touches()
        limits = [checker.Limit(LIMIT)]
        print(f"\n{len(kills)} kills: {checker.summary(cut, touches)}; believed in {len(believed)} leases for at most "
              f"{max(believed, default=0):.3f} s, entries above the limit meanwhile "
              f"{len(checker.over_limit(grants, limits))}, taken back besides {len(others)}", flush=True)
        self.assertEqual(checker.over_limit(cut, limits), [])
        self.assertEqual(checker.slots_twice(cut), [])
        self.assertEqual(checker.updates_lost(touches), [])
        self.assertEqual(checker.summary(cut)["peak"], LIMIT, "never full: this proved nothing")
        # What is believed for longer than the broker has it: no longer than the lease was good for.
        self.assertLess(max(believed, default=0), self.TTL_MS / 1000)

    def wait_until_all_is_free(self, daemons):
        for daemon in daemons.daemons.values():
            wait_until(lambda client=daemon.client(): client.describe(SEMAPHORE).held == 0,
                       "all permits of those who left have come back", 4 * self.TTL_MS / 1000)
        self.assertEqual(free_tokens(self.server, SEMAPHORE), LIMIT)


if __name__ == "__main__":
    unittest.main()
