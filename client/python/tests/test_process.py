"""Programs that end, fork, or are interrupted while they hold or wait."""

import os
import signal
import subprocess
import sys
import time
import unittest

from real import BOUND_S, Daemon, wait_until

HOLD = """
import os, sys, time
import semaphored
client = semaphored.Client(sys.argv[1], ttl=float(sys.argv[2]))
permit = client.acquire("process/db", limit=1)
print("granted", flush=True)
"""
UNTIL_KILLED = HOLD + """
time.sleep(3600)
"""
FORK = HOLD + """
child = os.fork()
if child == 0:
    try:
        assert not permit.held
        for call in (permit.check, permit.release, lambda: client.acquire("process/db"),
                     lambda: client.verify(permit), client.close):
            try:
                call()
            except semaphored.LostError:
                assert call == permit.check
            except semaphored.FailedPreconditionError as error:
                assert error.reason == "FORKED", error
            else:
                assert call == client.close
        with permit:
            pass
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
    sys.exit(0)  # through the handlers of the interpreter's exit
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
permit.check()
assert client.verify(permit).held
permit.release()
print("released", flush=True)
"""
UNUSED_FORK = """
import os, sys
import semaphored
client = semaphored.Client(sys.argv[1])
child = os.fork()
with client.permit("process/db", limit=2):
    pass
if child != 0:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
WAIT = """
import sys
import semaphored
client = semaphored.Client(sys.argv[1])
try:
    client.acquire("process/db", limit=1, on_queued=lambda _: print("queued", flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.read()
"""


class Processes(unittest.TestCase):

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        self.stub = self.daemon.client()

    def start(self, program, ttl_s=30.0):
        process = subprocess.Popen(
            [sys.executable, "-B", "-c", program, self.daemon.address, str(ttl_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait, BOUND_S)
        self.addCleanup(process.kill)
        return process

    def line(self, process, expected):
        self.assertEqual(process.stdout.readline().strip(), expected)

    def held(self):
        return self.stub.describe("process/db").held

    def test_a_program_that_ends_gives_back(self):
        process = self.start(HOLD)
        self.line(process, "granted")
        self.assertEqual(process.wait(BOUND_S), 0)
        self.assertEqual(self.held(), 0)

    def test_one_that_is_killed_gives_back_after_its_ttl(self):
        process = self.start(UNTIL_KILLED, ttl_s=1.0)
        self.line(process, "granted")
        killed = time.monotonic()
        process.kill()
        wait_until(lambda: self.held() == 0, "its ttl")
        self.assertGreater(time.monotonic() - killed, 0.5)

    def test_a_child_has_nothing_of_its_parents(self):
        process = self.start(FORK)
        self.line(process, "granted")
        self.line(process, "released")
        self.assertEqual(process.wait(BOUND_S), 0)

    def test_a_client_that_was_not_used_passes_a_fork(self):
        self.assertEqual(self.start(UNUSED_FORK).wait(BOUND_S), 0)
        self.assertEqual(self.held(), 0)

    def test_an_interrupted_wait_leaves_the_queue(self):
        lease = self.stub.acquire("process/db", limit=1)
        process = self.start(WAIT)
        self.line(process, "queued")
        process.send_signal(signal.SIGINT)
        self.line(process, "interrupted")
        self.stub.wait_for_queue("process/db", 0)
        self.stub.release(lease.lease_id)
        self.assertEqual(self.held(), 0)


if __name__ == "__main__":
    unittest.main()
