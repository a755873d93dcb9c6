"""Consul as it is run in earnest: servers that elect a leader, and an agent on the daemon's
machine. Either is killed and started again. Leases and the sessions that stand for them in Consul
survive, no more are let in than the limit, and daemons go on by themselves.

SEMAPHORED_TEST_KILLS: how often the leader is killed, each time after all servers are in step again.
"""

import os
import shutil
import tempfile
import unittest

import cluster
from cluster import Cluster, NODE_TTL_S, PATIENT_NODE_TTL_S
from consul import ConsulAgent, ConsulServer, ConsulServers
from daemon import BOUND_S, grpc, wait_until
from foreign import ConsulLock
from outage import ENGINE_TIMEOUT_S, Holder, Outages, SETTINGS, TTL_MS
from storm import Storm

PREFIX = "team"
LIMIT = 2
KILLS = int(os.environ.get("SEMAPHORED_TEST_KILLS", "2"))
ELECTION_S = 60  # Several rounds, on a machine that gives the servers little of its time.
OPTIONS = f"?timeout_ms={1000 * ENGINE_TIMEOUT_S}"


def folder_of(test_case):
    folder = tempfile.mkdtemp(prefix="semaphored-e2e-")
    clean_up = (test_case.addClassCleanup if isinstance(test_case, type) else test_case.addCleanup)
    clean_up(shutil.rmtree, folder, ignore_errors=True)
    return folder


class Agent(unittest.TestCase):
    """a reaches Consul through an agent that is no server, b does not need it."""

    def setUp(self):
        self.server = cluster.start_server(self, ConsulServer)
        self.agent = ConsulAgent(folder_of(self), [self.server])
        self.addCleanup(self.agent.remove)
        self.agent.start()

    def daemons(self, **settings):
        return Cluster({"a": self.agent.url(PREFIX) + OPTIONS,
                        "b": self.server.url(PREFIX) + OPTIONS}, {**SETTINGS, **settings})

    def sessions(self):
        """Of our places."""
        status, sessions = self.server.request("GET", f"session/node/semaphored-{PREFIX}")
        self.assertEqual(status, 200)
        return {session["ID"] for session in sessions}

    def holders(self):
        return set(self.server.request("GET", f"kv/{PREFIX}/held/.lock?raw")[1]["Holders"])

    def held(self, client, lease):
        """It stands, as soon as the daemon can say so."""
        def verified():
            try:
                return client.verify(lease.lease_id)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE, error)
                return None
        answer = wait_until(verified, "the daemon can say whether the lease stands")
        self.assertTrue(answer.held, answer)
        self.assertEqual(answer.lease.token, lease.token)

    def test_the_agent_is_restarted_and_killed(self):
        """A restart takes the agent's node out of the catalogue, and ends what stands on it."""
        with self.daemons() as daemons:
            client, other = daemons["a"].client(), daemons["b"].client()
            leases = [client.acquire("held", limit=LIMIT, ttl_ms=TTL_MS),
                      other.acquire("held", limit=LIMIT, ttl_ms=TTL_MS)]
            holders, sessions = self.holders(), self.sessions()
            self.assertEqual(len(holders), LIMIT)
            with ConsulLock(self.server, f"{PREFIX}/held", LIMIT) as foreign:
                wait_until(lambda: client.waiting("held") == 1, "consul lock contends")
                for again in (self.agent.restart, lambda: (self.agent.kill(), self.agent.start())):
                    again()
                    for daemon in daemons.daemons.values():
                        for lease in leases:
                            self.held(daemon.client(), lease)
                    self.assertEqual(self.holders(), holders)
                    self.assertLessEqual(sessions, self.sessions())
                    self.assertFalse(foreign.is_inside(), "let in over the limit")
                # It was there all along, and ours goes behind it.
                waiter = client.acquire_later("held", ttl_ms=TTL_MS)
                client.wait_for_queue("held", 2)
                client.release(leases[0].lease_id)
                wait_until(foreign.is_inside, "consul lock has the permit")
                self.assertFalse(waiter.done(), waiter)
                client.release(leases[1].lease_id)
                self.assertGreater(waiter.result(BOUND_S).lease.token, leases[1].token)
            self.assertIsNone(daemons["a"].process.poll(), "a daemon ended")

    def test_a_killed_agent_that_comes_back_soon_is_not_even_noticed(self):
        with self.daemons(node_ttl=f"{PATIENT_NODE_TTL_S}s") as daemons:
            holder = Holder(daemons["a"].client(), "held")
            for _ in range(3):
                holder.beat()
                self.agent.kill()
                self.agent.start()
                daemons["a"].client().acquire("free", limit=100, ttl_ms=TTL_MS)
            holder.beat()

    def test_an_agent_that_stays_away(self):
        """The daemon behind it is declared dead; its clients find their leases at the other."""
        with self.daemons() as daemons:
            client, other = daemons["a"].client(), daemons["b"].client()
            leases = [client.acquire("held", limit=LIMIT, ttl_ms=TTL_MS) for _ in range(LIMIT)]
            with ConsulLock(self.server, f"{PREFIX}/held", LIMIT) as foreign:
                wait_until(lambda: other.waiting("held") == 1, "consul lock contends")
                self.agent.kill()
                wait_until(lambda: "dead node" in daemons["b"].log(), "a is declared dead",
                           4 * NODE_TTL_S)
                with self.assertRaises(grpc.RpcError) as refused:
                    client.verify(leases[0].lease_id)
                self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)
                for lease in leases:
                    self.held(other, lease)
                self.assertFalse(foreign.is_inside(), "let in over the limit")
                self.agent.start()
                self.assertEqual(daemons["a"].wait_exit(), 1, daemons["a"].log()[-2000:])
                daemons["a"].start()
                for lease in leases:
                    self.held(client, lease)
                self.assertFalse(foreign.is_inside(), "let in over the limit")
                other.release(leases[0].lease_id)
                wait_until(foreign.is_inside, "consul lock has the permit")


class Servers(Storm, Outages, unittest.TestCase):
    """Three servers, and an agent that the daemons ask."""

    CLIENTS = 60

    @classmethod
    def setUpClass(cls):
        cls.servers = ConsulServers(folder_of(cls))
        cls.addClassCleanup(cls.servers.remove)
        cls.servers.start()
        cls.server = ConsulAgent(folder_of(cls), cls.servers.all)
        cls.addClassCleanup(cls.server.remove)
        cls.server.start()

    def setUp(self):
        super().setUp()
        self.servers.start()  # Those that a case which failed left killed.

    def daemons(self):
        url = self.server.url(self.id().rsplit(".", 1)[1]) + OPTIONS
        return Cluster({"a": url, "b": url}, SETTINGS)

    def kill_leader(self):
        """Returns it when another leads."""
        leader = wait_until(self.servers.leader, "the servers agree upon a leader")
        leader.kill()
        wait_until(self.servers.leader, "another leads", ELECTION_S)
        return leader

    def hold_again(self, daemon, holder):
        client = daemon.client()
        self.await_hold(client, holder.request)

        def held():
            try:
                return Holder(client, "held", holder.request)
            except AssertionError:  # UNAVAILABLE once more, on a busy machine.
                return None
        return wait_until(held, "the holder has its stream again")

    def test_leaders_are_killed(self):
        with self.daemons() as daemons, self.crowd(daemons) as crowd:
            holder = Holder(daemons["a"].client(), "held")
            lease = holder.lease
            self.let_work()
            for _ in range(KILLS):
                wait_until(self.servers.are_in_step, "all servers are in step", ELECTION_S)
                # Its stream has ended if nothing was vouched for; the lease stands.
                holder = self.hold_again(daemons["a"], holder)
                self.assertEqual(holder.lease, lease)
                leader = self.kill_leader()
                self.let_work(20)
                leader.start()
                self.let_work(20)
            self.assertEqual(self.hold_again(daemons["a"], holder).lease, lease)
            self.let_work_in_peace()
            self.judge(daemons, *crowd.finish(), failures=False)
            self.judge_end(daemons, crowd.refused)

    def test_no_quorum(self):
        down = self.servers.followers()
        self.check_long_outage(lambda: [server.kill() for server in down],
                               lambda: [server.launch() for server in down])
        self.servers.start()

    def test_commits_under_way_when_the_leader_is_killed_have_one_effect(self):
        self.check_commits_under_way(self.kill_leader)
        self.servers.start()


if __name__ == "__main__":
    unittest.main()
