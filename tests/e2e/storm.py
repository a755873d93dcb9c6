"""What can befall daemons on one engine while a crowd works under their permits, and how it is
judged afterwards: for the tests of each engine."""

import re
import signal
import tempfile

import checker
from cluster import NODE_TTL_S
from crowd import CarelessHolder, Crowd
from daemon import error_info, grpc, wait_until
from fenced import Resource
from proxy import TcpProxy

LIMIT = 5
SEMAPHORE = "crowd"
BOUND_S = 40
TOUCH = re.compile("(in|out of) touch with the engine")
# While the engine has no leader, and what has ended meanwhile. Without a reason: the client's own time is over, or its
# connection.
REFUSALS = {"UNAVAILABLE ENGINE_UNAVAILABLE", "UNAVAILABLE NOT_VOUCHED", "DEADLINE_EXCEEDED",
            "UNAVAILABLE", "CANCELLED", "NOT_FOUND NOT_HELD", "NOT_FOUND SESSION_LOST"}


class Storm:
    """Of a TestCase that has a `server` with a `port`."""

    CLIENTS = 200
    NODE_TTL_S = NODE_TTL_S  # Of the daemons.
    TTL_MS = 4000

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-e2e-")
        self.addCleanup(folder.cleanup)
        self.resource = Resource(folder.name)
        self.proxy = TcpProxy(self.server.port)
        self.addCleanup(self.proxy.close)

    def crowd(self, daemons):
        return Crowd(daemons.addresses, SEMAPHORE, LIMIT, self.resource.folder, self.CLIENTS,
                     ttl_ms=self.TTL_MS)

    def careless(self, daemons):
        return CarelessHolder(daemons.addresses[0], SEMAPHORE, LIMIT, self.resource.folder,
                              self.TTL_MS)

    def let_work(self, writes=40):
        """Until so many more permits have been worked under."""
        before = self.resource.writes()
        wait_until(lambda: self.resource.writes() >= before + writes,
                   f"{writes} more writes under permits", BOUND_S)

    def let_work_in_peace(self):
        """Until all who had to connect again have got their turn, and others after them."""
        self.let_work(self.CLIENTS + 60)

    def kill(self, daemon):
        daemon.kill9()
        self.let_work(10)
        daemon.start()

    def pause_until_dead(self, daemon, others):
        """Others take over from it; when it wakes it finds out, ends, and is started again."""
        seen = [other.log().count("dead node") for other in others]
        daemon.signal(signal.SIGSTOP)
        wait_until(lambda: [other.log().count("dead node") for other in others] != seen,
                   "the paused daemon is declared dead", 4 * self.NODE_TTL_S)
        self.let_work(10)
        daemon.signal(signal.SIGCONT)
        self.assertEqual(daemon.wait_exit(), 1, daemon.log()[-2000:])
        daemon.start()

    def cut_until_dead(self, daemon, others):
        """Its clients still reach it, it no longer reaches the engine."""
        seen = [other.log().count("dead node") for other in others]
        self.proxy.cut()
        wait_until(lambda: [other.log().count("dead node") for other in others] != seen,
                   "the daemon that is cut off is declared dead", 4 * self.NODE_TTL_S)
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
        self.assertGreater(summary["waited"], self.CLIENTS / 4,
                           "too few waited in peace to prove their order")
        if failures:
            self.assertGreater(summary["connected_again"], 0, "nobody went on elsewhere")
        self.assertEqual({grant.where for grant in grants} - {""}, set(daemons.addresses))
        for daemon in daemons.daemons.values():
            wait_until(lambda client=daemon.client(): (
                client.describe(SEMAPHORE).held, client.describe(SEMAPHORE).waiting) == (0, 0),
                "all permits and places of those who left have come back", 4 * self.TTL_MS / 1000)

    def judge_end(self, daemons, refused):
        """After judge(): how calls were refused, that no permit is lost, and that no daemon ended or
        stayed out of touch."""
        print(f"\n{self.id().rsplit('.', 1)[1]}: refused: {dict(refused)}", flush=True)
        self.assertLessEqual(set(refused), REFUSALS)
        for daemon in daemons.daemons.values():
            self.assertIsNone(daemon.process.poll(), "a daemon ended")
            self.wait_in_touch(daemon)
            client = daemon.client()
            leases = [client.acquire(SEMAPHORE, wait_ms=5000, ttl_ms=1000 * BOUND_S) for _ in range(LIMIT)]
            with self.assertRaises(grpc.RpcError) as full:
                client.acquire(SEMAPHORE)
            self.assertEqual(error_info(full.exception).reason, "FULL")
            for lease in leases:
                client.release(lease.lease_id)

    @staticmethod
    def wait_in_touch(daemon):
        wait_until(lambda: TOUCH.findall(daemon.log())[-1] == "in", "in touch with the engine again", BOUND_S)

    def judge_careless(self):
        """After overtake(): the resource has turned it away, and there was something to lose."""
        touches = self.resource.touches()
        self.assertGreater(checker.summary([], touches)["refused"], 0)
        self.assertGreater(checker.lost_without_tokens(touches), 0,
                           "nothing would have been lost without tokens: this proved nothing")
