"""A rule or an identity that is taken out of the access file: its waits end at once, and its leases within their TTL."""

import os
import signal
import tempfile
import threading
import time
import unittest

from daemon import BOUND_S, Daemon, Reader, grpc, pb, wait_until
from test_security import Bearer, new_token, replace

TTL_MS = 5000
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


class RulesRemovedTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-rules-")
        self.addCleanup(folder.cleanup)
        self.access = os.path.join(folder.name, "access.toml")
        self.tokens, self.hashes = {}, {}
        for name in ("root", "worker"):
            self.tokens[name], self.hashes[name] = new_token()
        self.write_access('"a/", "b/"')
        self.daemon = Daemon({"access_file": self.access})
        self.daemon.__enter__()
        self.addCleanup(self.daemon.__exit__, None, None, None)
        self.over = threading.Event()
        self.addCleanup(self.over.set)
        self.root = Bearer(self.daemon.channel(), self.tokens["root"])
        self.worker = Bearer(self.daemon.channel(), self.tokens["worker"])

    def write_access(self, prefixes):
        """`prefixes` of the worker; empty: there is no worker any more."""
        worker = (f'[identities.worker]\ntokens = ["{self.hashes["worker"]}"]\n'
                  f'rules = [{{ prefixes = [{prefixes}], verbs = ["acquire", "work"] }}]\n') if prefixes else ""
        replace(self.access, (
            f'[identities.root]\ntokens = ["{self.hashes["root"]}"]\n'
            'rules = [{ prefixes = [""], verbs = ["administer", "acquire"] }]\n' + worker).encode())

    def change_access(self, prefixes):
        before = self.daemon.log().count("SIGHUP: certificates and rules were read")
        self.write_access(prefixes)
        os.kill(self.daemon.process.pid, signal.SIGHUP)
        wait_until(lambda: self.daemon.log().count("SIGHUP: certificates and rules were read") > before,
                   "the daemon reads the rules")

    def held(self, semaphore):
        return self.root.administer(semaphore, describe=pb.DescribeSemaphore()).semaphore.held

    def waiting(self, semaphore):
        return self.root.administer(semaphore, describe=pb.DescribeSemaphore()).semaphore.waiting

    def session(self, session_id="", acquire=(), ping=True):
        """A Reader of a Session that pings, and what it was opened with."""
        def requests():
            yield pb.SessionRequest(open=pb.OpenSession(client_id="c", ttl_ms=TTL_MS, resume_session_id=session_id))
            if acquire:
                yield pb.SessionRequest(commands=[
                    pb.SessionCommand(sequence=number, acquire=pb.SessionAcquire(
                        semaphore=name, limit=1, wait_forever=True)) for number, name in enumerate(acquire, 1)])
            while not self.over.wait(TTL_MS / 8000):
                if ping:
                    yield pb.SessionRequest(ping=pb.SessionPing(ping_id=1))
        reader = Reader(self.worker.stub.Session(requests()))
        opened = reader.next().opened
        self.assertEqual(opened.resumed, bool(session_id))
        return reader, opened

    def results(self, reader, count):
        found = {}
        while len(found) < count:
            message = reader.next()
            self.assertNotIsInstance(message, tuple, message)
            for result in message.results:
                if not result.HasField("queued"):
                    found[result.sequence] = result
        return found

    def runs_out(self, *semaphores):
        begun = time.monotonic()
        wait_until(lambda: all(self.held(name) == 0 for name in semaphores), "the leases run out")
        # At the most: the TTL that was vouched for before, and the one that the recall leaves.
        self.assertLess(time.monotonic() - begun, 2 * TTL_MS / 1000 + BOUND_S / 10)

    def test_waits_end_at_once(self):
        for name in ("a/x", "b/x"):
            self.root.acquire(name, limit=1, ttl_ms=600_000)
        unary = self.worker.acquire_later("a/x", limit=1)
        stays = self.worker.acquire_later("b/x", limit=1)
        hold = Reader(self.worker.stub.Hold(pb.HoldRequest(
            acquire=pb.AcquireRequest(semaphore="a/x", limit=1, wait_forever=True))))
        reader, _ = self.session(acquire=["a/x"])
        wait_until(lambda: self.waiting("a/x") == 3 and self.waiting("b/x") == 1, "all wait")
        self.change_access('"b/"')
        with self.assertRaises(grpc.RpcError) as caught:
            unary.result(timeout=BOUND_S)
        self.assertEqual(caught.exception.code(), PERMISSION_DENIED)
        self.assertIn("a/x", str(caught.exception))
        while not isinstance(message := hold.next(), tuple):
            self.assertTrue(message.HasField("queued"), message)
        self.assertEqual(message[1].code(), PERMISSION_DENIED)
        self.assertEqual(self.results(reader, 1)[1].error.code, PERMISSION_DENIED.value[0])
        wait_until(lambda: self.waiting("a/x") == 0, "no one waits")
        self.assertFalse(stays.done())
        self.change_access("")
        with self.assertRaises(grpc.RpcError) as caught:
            stays.result(timeout=BOUND_S)
        self.assertEqual(caught.exception.code(), PERMISSION_DENIED)

    def test_a_lease_that_a_session_pings_runs_out_and_the_rest_stays(self):
        reader, _ = self.session(acquire=["a/x", "b/x"])
        self.assertTrue(all(result.HasField("granted") for result in self.results(reader, 2).values()))
        self.change_access('"b/"')
        self.runs_out("a/x")
        time.sleep(1.5 * TTL_MS / 1000)
        self.assertEqual(self.held("b/x"), 1)

    def test_an_identity_that_has_gone_is_cut_off_and_keeps_nothing(self):
        reader, _ = self.session(acquire=["a/x"], ping=False)
        self.results(reader, 1)

        def work():
            yield pb.WorkRequest(open=pb.OpenWork(client_id="w", ttl_ms=TTL_MS, prefixes=["b/"], tickets_max=1))
            self.over.wait()

        worker = Reader(self.worker.stub.Work(work()))
        self.assertTrue(worker.next().HasField("opened"))
        self.change_access("")
        # Neither has said anything.
        for stream in (reader, worker):
            while not isinstance(message := stream.next(), tuple):
                pass
            self.assertEqual(message[1].code(), UNAUTHENTICATED)
        self.runs_out("a/x")

    def test_rules_that_changed_while_the_daemon_was_down(self):
        reader, opened = self.session(acquire=["a/x", "b/x"])
        self.results(reader, 2)
        self.daemon.kill9()
        self.write_access('"b/"')
        self.daemon.start()
        reader, again = self.session(session_id=opened.session_id)
        self.assertEqual(len(again.leases), 2)
        self.runs_out("a/x")
        time.sleep(1.5 * TTL_MS / 1000)
        self.assertEqual(self.held("b/x"), 1)

    def works(self):
        self.worker.release(self.worker.acquire("b/works", limit=1, wait_ms=1000).lease_id)

    def test_a_file_without_an_identity_or_cut_off_changes_nothing(self):
        replace(self.access, b"# nothing\n")
        os.kill(self.daemon.process.pid, signal.SIGHUP)
        wait_until(lambda: "it names no identity" in self.daemon.log(), "the daemon refuses the file")
        self.works()
        self.write_access('"b/"')
        wait_until(lambda: "a new access file is in force, with 2 identities" in self.daemon.log(), "the good one")
        with open(self.access, "rb") as file:
            whole = file.read()
        # An editor that writes in place; what stands there first is a good file without the worker.
        judged = 0
        for _ in range(20):
            whole += b"# again\n"
            before = self.daemon.log()
            with open(self.access, "wb") as file:
                begun = time.monotonic()
                file.write(whole[:whole.index(b"[identities.worker]")])
                file.flush()
                os.kill(self.daemon.process.pid, signal.SIGHUP)
                time.sleep(0.1)  # The writer's pace.
                file.write(whole[whole.index(b"[identities.worker]"):])
            took_s = time.monotonic() - begun
            in_force = "a new access file is in force, with 2 identities"
            wait_until(lambda: self.daemon.log().count(in_force) > before.count(in_force), "the whole file")
            self.works()
            # A writer that the machine held up for as long as the daemon waits is another case.
            if took_s < 0.2:
                judged += 1
                self.assertEqual(self.daemon.log().count("with 1 identities"), before.count("with 1 identities"))
            if judged == 3:
                return
        self.fail("the machine is too slow to write a file within 0.2 s")


if __name__ == "__main__":
    unittest.main()
