"""Ctrl-C, sys.exit() and closed coroutines leave nothing behind. Without a daemon."""

import asyncio
import gc
import sys
import threading
import unittest

from semaphored import _client, aio
from semaphored._driver import _Notifier
from semaphored._lease import LeaseState, SharedDeadline
from semaphored._time import NEVER_NS, SECOND_NS

BOUND_S = 20


class Driver:
    """Notes what it is asked for. `interrupted`: the next release is broken off."""

    def __init__(self, interrupted=False):
        self.interrupted = interrupted
        self.acquired, self.cancelled, self.released, self.dropped = [], [], [], []

    def in_own_process(self):
        return True

    def now_ns(self):
        return 0

    def acquire(self, call):
        self.acquired.append(call)

    def cancel(self, call):
        self.cancelled.append(call)

    def release(self, lease, done):
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt
        self.released.append(lease)
        if done is not None:
            done(None)

    def drop(self, lease):
        self.dropped.append(lease)


def lease():
    return LeaseState("db", "L1", (1,), 7, SECOND_NS, SharedDeadline(NEVER_NS))


class Interrupts(unittest.TestCase):

    def test_a_callback_that_exits_ends_no_others(self):
        notifier, called = _Notifier(), threading.Event()
        notifier.thread.start()
        with self.assertLogs("semaphored"):
            notifier.post(lambda: sys.exit(1))
            notifier.post(called.set)
            self.assertTrue(called.wait(BOUND_S))
        notifier.post(None)
        notifier.thread.join(BOUND_S)

    def test_a_release_that_is_broken_off_is_made_by_the_garbage_collector(self):
        driver, held = Driver(interrupted=True), lease()
        permit = _client.Permit(None, driver, held, 1.0)
        with self.assertRaises(KeyboardInterrupt):
            permit.release()
        with self.assertWarns(ResourceWarning):
            del permit
            gc.collect()
        self.assertEqual(driver.dropped, [held])

    def test_a_release_that_was_broken_off_may_be_repeated_once(self):
        driver, held = Driver(interrupted=True), lease()
        permit = _client.Permit(None, driver, held, 1.0)
        with self.assertRaises(KeyboardInterrupt):
            permit.release()
        self.assertTrue(permit.held)
        permit.release()
        permit.release()
        self.assertFalse(permit.held)
        self.assertEqual(driver.released, [held])

    def test_a_release_in_a_loop_that_is_broken_off_is_made_by_the_garbage_collector(self):
        driver, held = Driver(interrupted=True), lease()

        async def release():
            permit = aio.Permit(None, driver, held, 1.0)
            with self.assertRaises(KeyboardInterrupt):
                await permit.release()
            with self.assertWarns(ResourceWarning):
                del permit
                gc.collect()
        asyncio.run(release())
        self.assertEqual(driver.dropped, [held])

    def test_a_coroutine_that_is_closed_gives_up_its_wait(self):
        client, driver, held = aio.Client("127.0.0.1:1"), Driver(), lease()
        client._driver = driver  # pylint: disable=protected-access

        async def begin_and_close():
            acquire = client.acquire("db")
            acquire.send(None)
            acquire.close()
        asyncio.run(begin_and_close())
        self.assertEqual(driver.cancelled, driver.acquired)
        driver.acquired[0].done(held)  # It was granted meanwhile.
        self.assertEqual(driver.released, [held])


if __name__ == "__main__":
    unittest.main()
