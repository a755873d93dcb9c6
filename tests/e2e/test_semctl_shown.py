"""What other clients have written does nothing to a terminal; and lease ids that no list of processes shows."""

import json
import os
import pty
import re
import subprocess
import tempfile
import threading
import unittest

from daemon import BIN_DIR, BOUND_S, Daemon, Reader, pb

SEMCTL = os.path.join(BIN_DIR, "semctl")
# A title of the window, a cleared screen, another line, a C1 code, text that runs backwards, a rubout.
HOSTILE = "x\x1b]0;owned\x07\x1b[2J\nfake line\x9b31m\u202eend\x7f"
SHOWN = r"x\u001b]0;owned\u0007\u001b[2J\nfake line\u009b31m\u202eend\u007f"
ACTING = re.compile("[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class ShownTest(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon()
        self.daemon.__enter__()
        self.addCleanup(self.daemon.__exit__, None, None, None)
        self.client = self.daemon.client()

    def on_a_terminal(self, *arguments, ends=True):
        """All that semctl writes to a terminal; without `ends` until the hostile text has come."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen([SEMCTL, "--server", self.daemon.address, *arguments],
                                   stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        os.close(theirs)
        output = b""
        try:
            while ends or SHOWN.rsplit("fake", 1)[1].encode() not in output:
                output += os.read(ours, 65536)
        except OSError:
            pass  # The other side is closed.
        os.close(ours)
        return output.decode()

    def piped(self, *arguments, **options):
        return subprocess.run([SEMCTL, "--server", self.daemon.address, *arguments], check=False,
                              capture_output=True, text=True, timeout=BOUND_S, **options)

    def check(self, output, lines_within=False):
        self.assertEqual(ACTING.findall(output), [], repr(output))
        if lines_within:
            self.assertIn(SHOWN.replace(r"\n", "\r\n"), output)
        else:
            self.assertIn(SHOWN, output)
            self.assertNotIn("\nfake line", output)

    def test_holders(self):
        lease = self.client.acquire("s", limit=1, ttl_ms=600_000, holder=HOSTILE)
        waits = self.client.acquire_later("s", holder=HOSTILE)
        self.client.wait_for_queue("s", 1)
        for arguments in (["describe", "s"], ["verify", lease.lease_id], ["renew", lease.lease_id],
                          ["-o", "json", "describe", "s"]):
            self.check(self.on_a_terminal(*arguments))
        # A program receives the very bytes.
        found = json.loads(self.piped("-o", "json", "describe", "s").stdout)
        self.assertIn(HOSTILE, [each["holder"] for each in found["leases"]])
        self.assertIn(HOSTILE.encode(), self.piped("verify", lease.lease_id).stdout.encode())
        self.client.release(lease.lease_id)
        waits.result(timeout=BOUND_S)
        self.check(self.on_a_terminal("history", "s"))

    def test_watch(self):
        self.client.administer("w", create=pb.CreateSemaphore(limit=1))
        over = threading.Event()

        def take_and_give_back():
            while not over.is_set():
                self.client.release(self.client.acquire("w", ttl_ms=600_000, holder=HOSTILE).lease_id)

        thread = threading.Thread(target=take_and_give_back)
        thread.start()
        try:
            output = self.on_a_terminal("watch", "w", ends=False)
        finally:
            over.set()
            thread.join()
        self.check(output)

    def test_tickets(self):
        request = pb.EnqueueRequest(semaphore="t", limit=1, payload=HOSTILE.encode() + b"\x9b", max_attempts=1)
        ticket = self.client.stub.Enqueue(request, timeout=BOUND_S).ticket_id
        shown = self.on_a_terminal("tickets", "t", "show", ticket, "--payload")
        self.check(shown, lines_within=True)
        self.assertIn(r"\x9b", shown)
        raw = subprocess.run([SEMCTL, "--server", self.daemon.address, "tickets", "t", "show", ticket, "--payload"],
                             check=True, capture_output=True, timeout=BOUND_S).stdout
        self.assertEqual(raw, HOSTILE.encode() + b"\x9b")

        done = threading.Event()
        self.addCleanup(done.set)
        assigned = []

        def work():
            yield pb.WorkRequest(open=pb.OpenWork(client_id="w", semaphores=["t"], tickets_max=1, holder=HOSTILE))
            while not assigned and not done.wait(0.05):
                pass
            self.check(self.on_a_terminal("tickets", "t"))
            finished = pb.FinishTicket(sequence=1, lease_id=assigned[0].lease.lease_id)
            finished.failed.reason = HOSTILE
            yield pb.WorkRequest(finished=[finished])
            done.wait()

        reader = Reader(self.client.stub.Work(work()))
        assigned.append(reader.until(lambda message: message.assignments, "a ticket").assignments[0])
        reader.until(lambda message: message.results, "its end")
        self.check(self.on_a_terminal("dead-letters", "t"))
        self.check(self.on_a_terminal("tickets", "t", "show", ticket))

    def test_errors(self):
        # The message has the name that was typed.
        output = self.on_a_terminal("describe", HOSTILE)
        self.assertEqual(ACTING.findall(output), [], repr(output))

    def test_lease_ids_from_files(self):
        with tempfile.NamedTemporaryFile("w+", encoding="utf-8") as file:
            subprocess.run([SEMCTL, "--server", self.daemon.address, "acquire", "f", "--limit", "1", "-q"],
                           check=True, stdout=file, timeout=BOUND_S)
            for command in ("renew", "verify", "release"):
                done = self.piped(command, "--lease-file", file.name)
                self.assertEqual(done.returncode, 0, done)
            again = self.client.acquire("f", ttl_ms=600_000).lease_id
            done = self.piped("release", "--lease-file", "-", input=f" {again} \n")
            self.assertEqual(done.returncode, 0, done)
            again = self.client.acquire("f", ttl_ms=600_000).lease_id
            done = self.piped("revoke", "f", "--now", "--lease-file", "-", input=again)
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(self.client.describe("f").held, 0)
        for arguments in (["renew"], ["release", "--lease-file", "/nowhere"], ["verify"],
                          ["release", again, "--lease-file", "-"], ["revoke", "f", "--lease-file", "/dev/null"]):
            done = self.piped(*arguments, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 2, f"{arguments}: {done}")
            self.assertIn("lease", done.stderr.lower())


if __name__ == "__main__":
    unittest.main()
