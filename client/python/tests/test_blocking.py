"""Programs that block: what they hold stays held for as long as they do, since the client's own threads
keep it alive. With a TTL of two seconds, a block of five stands for any longer one."""

import asyncio
import concurrent.futures
import ctypes
import logging
import os
import tempfile
import threading
import time
import unittest

import semaphored
from semaphored import aio

from real import BOUND_S, Daemon, wait_until

TTL_S = 2.0
BLOCK_S = 5.0


def compute(_=None):
    """A loop in pure Python, which never gives the interpreter's lock away by itself."""
    end = time.monotonic() + BLOCK_S
    while time.monotonic() < end:
        sum(range(100))


class Blocking(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()
        cls.addClassCleanup(cls.daemon.close)

    def setUp(self):
        self.name = "blocking/" + self.id().rsplit(".", 1)[1][:60]
        self.client = semaphored.Client(self.daemon.address, ttl=TTL_S)
        self.addCleanup(self.client.close)

    def assert_kept(self, permit):
        permit.check()
        verdict = self.client.verify(permit)
        self.assertEqual((verdict.held, verdict.token), (True, permit.token))

    def test_a_loop_in_pure_python(self):
        with self.client.permit(self.name, limit=1) as permit:
            compute()
            self.assert_kept(permit)

    def test_all_threads_of_a_pool(self):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            with self.client.permit(self.name, limit=1) as permit:
                list(pool.map(time.sleep, [BLOCK_S] * 4))
                self.assert_kept(permit)

    def test_callbacks_that_do_not_return(self):
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        with self.client.permit(self.name, limit=1) as permit:
            entered = threading.Event()

            def block(_):
                entered.set()
                go_on.wait()
            waiting = threading.Thread(target=lambda: self.client.acquire(
                self.name, on_queued=block).release())
            waiting.start()
            self.addCleanup(waiting.join)
            self.assertTrue(entered.wait(BOUND_S))
            time.sleep(BLOCK_S)
            self.assert_kept(permit)
            go_on.set()

    def test_a_handler_of_the_log_that_does_not_return(self):
        entered, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        class Blocking(logging.Handler):

            def emit(self, record):
                entered.set()
                go_on.wait()
        handler = Blocking()
        logging.getLogger("semaphored").addHandler(handler)
        self.addCleanup(logging.getLogger("semaphored").removeHandler, handler)
        with tempfile.TemporaryDirectory() as folder, Daemon() as daemon:
            token_file = os.path.join(folder, "token")
            with open(token_file, "w", encoding="ascii") as file:
                file.write("smt_token")
            client = semaphored.Client(daemon.address, ttl=10, token_file=token_file)
            self.addCleanup(client.close)
            permit = client.acquire(self.name, limit=1)
            end = time.monotonic() + permit.valid_for
            os.unlink(token_file)  # Each stream warns of it from now on.
            daemon.kill9()
            daemon.start()
            wait_until(lambda: time.monotonic() + permit.valid_for > end + 1, "it is kept alive")
            self.assertTrue(entered.is_set())
            go_on.set()
            permit.release()

    def test_c_code_that_keeps_the_interpreters_lock_loses_it_and_knows_at_once(self):
        permit = self.client.acquire(self.name, limit=1)
        ctypes.PyDLL(None).usleep(int(2 * TTL_S * 1e6))
        self.assertFalse(permit.held)
        with self.assertRaises(semaphored.LostError):
            permit.release()


class BlockingLoop(unittest.IsolatedAsyncioTestCase):

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()
        cls.addClassCleanup(cls.daemon.close)

    async def asyncSetUp(self):
        self.name = "blocking/" + self.id().rsplit(".", 1)[1][:60]
        self.client = aio.Client(self.daemon.address, ttl=TTL_S)
        self.addAsyncCleanup(self.client.close)

    async def assert_kept(self, permit):
        permit.check()
        verdict = await self.client.verify(permit)
        self.assertEqual((verdict.held, verdict.token), (True, permit.token))

    async def test_sleep_and_a_loop_in_pure_python(self):
        async with self.client.permit(self.name, limit=1) as permit:
            time.sleep(BLOCK_S)
            await self.assert_kept(permit)
            compute()
            await self.assert_kept(permit)

    async def test_a_full_executor_also_at_the_end(self):
        pool = concurrent.futures.ThreadPoolExecutor(2)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(pool)
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        async with self.client.permit(self.name, limit=1) as permit:
            full = [loop.run_in_executor(None, go_on.wait) for _ in range(4)]
            await asyncio.sleep(BLOCK_S)
            await self.assert_kept(permit)
        await asyncio.wait_for(self.client.close(), BOUND_S)
        go_on.set()
        await asyncio.gather(*full)


if __name__ == "__main__":
    unittest.main()
