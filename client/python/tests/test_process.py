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
                     lambda: client.verify(permit), lambda: client.admin.pause("process/db"),
                     lambda: client.enqueue("process/db", b"work"), client.close):
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
FORK_OF_ASYNCIO = """
import asyncio, os, sys, traceback
import semaphored
from semaphored import aio
async def of_parent():
    client = aio.Client(sys.argv[1], ttl=float(sys.argv[2]))
    return client, await client.acquire("process/db", limit=1)
async def of_child(client, permit):
    assert not permit.held
    for call in (lambda: permit.release(), lambda: client.acquire("process/db"),
                 lambda: client.verify(permit), lambda: client.admin.pause("process/db"),
                 lambda: client.enqueue("process/db", b"work")):
        try:
            await call()
        except semaphored.FailedPreconditionError as error:
            assert error.reason == "FORKED", error
        else:
            assert False, "it was done"
    async with permit:
        pass
    await client.close()
    async with aio.Client(sys.argv[1]) as own:
        pass
loop = asyncio.new_event_loop()
client, permit = loop.run_until_complete(of_parent())
print("granted", flush=True)
child = os.fork()
if child == 0:
    try:
        asyncio.run(of_child(client, permit))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
permit.check()
loop.run_until_complete(permit.release())
loop.run_until_complete(client.close())
loop.close()
print("released", flush=True)
"""
# Both processes send requests of both kinds with the client that was made before. With an id of the
# client from before the fork, the daemon would take their requests for repeated ones.
UNUSED_FORK = """
import os, sys
import semaphored
client = semaphored.Client(sys.argv[1])
child = os.fork()
made = client.admin.create(f"process/{os.getpid()}", 1)
assert made.semaphore.semaphore == f"process/{os.getpid()}", made
with client.permit("process/db", limit=2) as permit:
    leases = client.admin.describe("process/db").leases
    holder, = [each.lease.holder for each in leases if each.lease.lease_id == permit.lease_id]
    assert holder.endswith(f":{os.getpid()}"), holder
if child != 0:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
UNUSED_FORK_OF_ASYNCIO = """
import asyncio, os, sys
from semaphored import aio
client = aio.Client(sys.argv[1])
child = os.fork()
async def use():
    made = await client.admin.create(f"process/{os.getpid()}", 1)
    assert made.semaphore.semaphore == f"process/{os.getpid()}", made
    async with client.permit("process/db", limit=2):
        pass
    await client.close()
asyncio.run(use())
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
        for program in (FORK, FORK_OF_ASYNCIO):
            process = self.start(program)
            self.line(process, "granted")
            self.line(process, "released")
            self.assertEqual(process.wait(BOUND_S), 0)

    def test_a_client_that_was_not_used_passes_a_fork(self):
        for program in (UNUSED_FORK, UNUSED_FORK_OF_ASYNCIO):
            self.assertEqual(self.start(program).wait(BOUND_S), 0)
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
