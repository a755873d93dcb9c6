"""Recalls across a partition: no second holder works while the first one may, whatever the act was."""

import os
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from daemon import BOUND_S, pb, wait_until  # noqa: E402
from proxy import TcpProxy  # noqa: E402
from test_semctl import LOST, SEMCTL, SemctlTest, boot_time, is_alive  # noqa: E402

TTL_S = 6.0


class RecallTest(SemctlTest):
    """A command that ignores SIGTERM, behind a network that can be cut."""

    def setUp(self):
        super().setUp()
        self.proxy = TcpProxy(int(self.daemon.address.rpartition(":")[2]))
        self.addCleanup(self.proxy.close)

    def start(self, *arguments):
        """The holder goes through the proxy; the administrator does not."""
        process = subprocess.Popen([SEMCTL, *arguments], text=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   env={**os.environ, "SEMCTL_SERVER": f"127.0.0.1:{self.proxy.port}"})

        def end():
            if process.poll() is None:
                process.kill()
            process.wait(BOUND_S)
            process.stderr.close()
        self.addCleanup(end)
        return process

    def hold(self, deaf=True):
        return self.start_beater(deaf=deaf, ttl=f"{TTL_S:.0f}s")

    def check_cut_off(self, *act):
        """The act ends the lease of a holder that is cut off; others wait until it has stopped."""
        process, child = self.hold()
        self.proxy.cut()
        cut = boot_time()
        self.assertEqual(self.semctl(*act).returncode, 0)
        granted = self.grant_after()
        self.assertLess(self.last_beat(), granted)
        self.assertLess(granted, cut + TTL_S + 2)
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.assertFalse(is_alive(child))

    def test_revoked_with_a_grace(self):
        self.check_cut_off("revoke", "job", "--all", "--grace", "1s")

    def test_revoked_without_a_grace(self):
        self.check_cut_off("revoke", "job", "--all", "--grace", "0")

    def test_resized(self):
        self.semctl("create", "job", "--limit", "1")
        process, child = self.hold()
        self.proxy.cut()
        for limit in ("0", "1"):
            resized = self.semctl("resize", "job", "--limit", limit, "--policy", "recall", "--grace", "1s")
            self.assertEqual(resized.returncode, 0, resized.stderr)
        granted = self.grant_after()
        self.assertLess(self.last_beat(), granted)
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.assertFalse(is_alive(child))

    def test_destroyed(self):
        process, child = self.hold()
        self.proxy.cut()
        destroyed = self.semctl("destroy", "job", "--force", "--grace", "1s", "--wait", "20s")
        gone = boot_time()
        self.assertEqual(destroyed.returncode, 0, destroyed.stderr)
        self.assertLess(self.last_beat(), gone)
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.assertFalse(is_alive(child))

    def test_the_longest_hold(self):
        self.semctl("create", "job", "--limit", "1", "--longest-hold", "2s", "--recall-grace", "1s")
        process, child = self.hold()
        self.proxy.cut()
        granted = self.grant_after()
        self.assertLess(self.last_beat(), granted)
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.assertFalse(is_alive(child))

    def test_a_plain_revoke_is_a_sigterm(self):
        process, child = self.hold(deaf=False)
        begun = boot_time()
        self.assertEqual(self.semctl("revoke", "job", "--all").returncode, 0)
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.assertLess(boot_time() - begun, TTL_S)
        self.assertFalse(is_alive(child))
        self.assertRegex(process.stderr.read(), "recalled.*an administrator.*ending the command")

    def test_an_acknowledged_recall_ends_with_its_grace(self):
        process, child = self.start_beater("--kill-after", "1h", deaf=True, ttl="1m")
        begun = boot_time()
        self.assertEqual(self.semctl("revoke", "job", "--all", "--grace", "2s").returncode, 0)
        granted = self.grant_after()
        self.assertLess(self.last_beat(), granted)
        self.assertLess(granted - begun, 10)
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.assertFalse(is_alive(child))

    def test_now_does_not_wait(self):
        self.hold()
        self.proxy.cut()
        self.assertEqual(self.semctl("revoke", "job", "--all", "--now").returncode, 0)
        wait_until(lambda: not self.describe_rows().leases, "the lease has ended", bound_s=2)

    def test_now_and_a_grace_exclude_each_other(self):
        for act in (("revoke", "job", "--all"), ("destroy", "job", "--force"),
                    ("resize", "job", "--limit", "1", "--policy", "recall")):
            with self.subTest(act=act[0]):
                refused = self.semctl(*act, "--now", "--grace", "1s")
                self.assertEqual(refused.returncode, 2)
                self.assertIn("--now", refused.stderr)

    def test_work_ends_with_the_recall(self):
        """A command of `semctl work` that ignores SIGTERM does not outlive its recalled lease."""
        self.semctl("create", "job", "--limit", "1")
        self.semctl("enqueue", "job", "--limit", "1")
        self.start("work", "job", "--ttl", f"{TTL_S:.0f}s", "--kill-after", "1h", "--", sys.executable, "-c",
                   self.beater(), self.path, "deaf")
        wait_until(lambda: os.path.exists(self.path + ".started"), "the command runs")
        for cut in (False, True):
            with self.subTest(cut=cut):
                if cut:
                    os.remove(self.path + ".started")
                    wait_until(lambda: os.path.exists(self.path + ".started"), "the next attempt")
                    self.proxy.cut()
                first = self.describe_rows().leases[0].lease.lease_id
                self.assertEqual(self.semctl("revoke", "job", "--all", "--grace", "1s").returncode, 0)

                def next_one():
                    leases = self.describe_rows().leases
                    return not leases or leases[0].lease.lease_id != first
                wait_until(next_one, "the lease has ended")
                ended = boot_time()
                if cut:
                    self.assertLess(self.last_beat(), ended)

    @staticmethod
    def beater():
        from test_semctl import BEATER  # pylint: disable=import-outside-toplevel
        return BEATER


class RawSessionTest(SemctlTest):
    """The wire, as a thin client sees it."""

    def test_recall_names_its_ping_and_is_acknowledged(self):
        requests = []
        ready = threading.Condition()

        def stream():
            while True:
                with ready:
                    ready.wait_for(lambda: requests)
                    request = requests.pop(0)
                if request is None:
                    return
                yield request

        def say(**fields):
            with ready:
                requests.append(pb.SessionRequest(**fields))
                ready.notify()
        call = self.stub.Session(stream())
        say(open=pb.OpenSession(ttl_ms=10_000, client_id="thin"))
        self.assertTrue(next(call).HasField("opened"))
        say(commands=[pb.SessionCommand(sequence=1, acquire=pb.SessionAcquire(semaphore="job", limit=1))])
        lease = next(call).results[0].granted
        pinged = boot_time()
        say(ping=pb.SessionPing(ping_id=5))
        self.assertEqual(next(call).pong.ping_id, 5)
        ponged = boot_time()
        self.semctl("list")  # Takes its time.
        waited_ms = int((boot_time() - ponged) * 1000)
        self.semctl("revoke", "job", "--all", "--grace", "3s")
        recall = next(call).events[0].recalled.recall
        self.assertEqual(recall.after_ping_id, 5)
        self.assertIn(recall.grace_ms, range(2_500, 3_001))
        self.assertIn(recall.elapsed_ms, range(waited_ms, int((boot_time() - pinged) * 1000) + 1))
        self.assertNotEqual(recall.recall_id, 0)
        # Nothing reaches beyond what was vouched for before.
        say(ping=pb.SessionPing(ping_id=6))
        self.assertLess(next(call).pong.validity.valid_for_ms, 10_000)
        say(acknowledged_recalls=[pb.RecallAcknowledgement(lease_id=lease.lease_id, recall_id=recall.recall_id)],
            ping=pb.SessionPing(ping_id=7))
        self.assertLessEqual(next(call).pong.validity.valid_for_ms, 3_000)
        begun = boot_time()
        self.assertEqual(next(call).events[0].lost.lease_id, lease.lease_id)
        self.assertLess(boot_time() - begun, 5)
        with ready:
            requests.append(None)
            ready.notify()
        call.cancel()


if __name__ == "__main__":
    unittest.main()
