"""The client of asyncio against a real daemon."""

import asyncio
import unittest

import semaphored
from semaphored import aio

from real import BOUND_S, Daemon


class Asyncio(unittest.IsolatedAsyncioTestCase):

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()
        cls.addClassCleanup(cls.daemon.close)
        cls.stub = cls.daemon.client()

    async def asyncSetUp(self):
        self.name = "aio/" + self.id().rsplit(".", 1)[1][:60]
        self.client = aio.Client(self.daemon.address)
        self.addAsyncCleanup(self.client.close)

    def held(self):
        return self.stub.describe(self.name).held

    async def test_a_block_holds_and_gives_back(self):
        async with self.client.permit(self.name, limit=1) as permit:
            self.assertEqual(permit.slots, (1,))
            self.assertTrue(permit.held)
            permit.check()
            self.assertEqual(self.held(), 1)
        self.assertEqual(self.held(), 0)
        with self.assertRaises(KeyError):
            async with self.client.permit(self.name):
                raise KeyError("the body's own")
        self.assertEqual(self.held(), 0)

    async def test_many_tasks_never_hold_more_than_the_limit(self):
        inside, most = set(), []

        async def work(number):
            async with self.client.permit(self.name, limit=3):
                inside.add(number)
                most.append(len(inside))
                await asyncio.sleep(0)
                inside.remove(number)
        await asyncio.wait_for(asyncio.gather(*map(work, range(60))), BOUND_S)
        self.assertEqual((len(most), max(most)), (60, 3))

    async def test_full_and_wait_expired(self):
        async with self.client.permit(self.name, limit=1):
            with self.assertRaises(semaphored.Full):
                await self.client.acquire(self.name, wait=0)
            with self.assertRaises(semaphored.WaitExpired):
                await self.client.acquire(self.name, wait=0.05)

    async def test_a_loss_cancels_the_body_and_the_block_ends_with_it(self):
        seen = []
        with self.assertRaises(semaphored.LostError) as lost:
            async with self.client.permit(self.name, limit=1, on_lost=seen.append) as permit:
                try:
                    # The loss may come before this call's own answer.
                    await self.client.admin.revoke_lease(self.name, permit.lease_id, now=True)
                    await asyncio.wait_for(asyncio.Event().wait(), BOUND_S)
                except asyncio.CancelledError:
                    seen.append("cancelled")
                    raise
        self.assertIs(lost.exception.loss.cause, semaphored.LossCause.REVOKED)
        self.assertTrue(permit.lost.is_set())
        self.assertCountEqual(seen, ["cancelled", lost.exception.loss])
        await asyncio.sleep(0)  # and the task itself is not cancelled

    async def test_a_body_may_choose_to_look_itself(self):
        with self.assertRaises(semaphored.LostError):
            async with self.client.permit(self.name, limit=1, cancel_on_loss=False) as permit:
                await self.client.admin.revoke_lease(self.name, permit.lease_id, now=True)
                await asyncio.wait_for(permit.lost.wait(), BOUND_S)
                self.assertFalse(permit.held)

    async def test_a_task_that_is_cancelled_gives_its_permit_back(self):
        entered = asyncio.Event()

        async def work():
            async with self.client.permit(self.name, limit=1):
                entered.set()
                await asyncio.Event().wait()
        task = asyncio.create_task(work())
        await asyncio.wait_for(entered.wait(), BOUND_S)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual(self.held(), 0)

    async def test_a_wait_that_is_cancelled_leaves_the_queue(self):
        queued = asyncio.Event()
        permit = await self.client.acquire(self.name, limit=1)
        waiter = asyncio.create_task(
            self.client.acquire(self.name, on_queued=lambda _: queued.set()))
        await asyncio.wait_for(queued.wait(), BOUND_S)
        self.assertEqual(self.stub.waiting(self.name), 1)
        waiter.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiter
        self.stub.wait_for_queue(self.name, 0)
        await permit.release()

    async def test_a_wait_that_is_cancelled_as_it_is_granted_holds_nothing(self):
        # The first makes the semaphore and the session: without it all the others could be
        # cancelled before anything is sent, and then there would be no semaphore at the end.
        async with self.client.permit(self.name, limit=1):
            pass
        for number in range(50):  # from before it is sent to after it is granted
            acquiring = asyncio.create_task(self.client.acquire(self.name, limit=1))
            await asyncio.sleep(number * 50e-6)
            acquiring.cancel()
            try:
                permit = await acquiring
            except asyncio.CancelledError:
                continue
            await permit.release()
        async with self.client.permit(self.name, wait=BOUND_S):
            self.assertEqual(self.held(), 1)

    async def test_questions_and_administration(self):
        async with self.client.permit(self.name, limit=1) as permit:
            self.assertTrue((await self.client.verify(permit)).held)
            verdict = await self.client.verify_token(self.name, 1, permit.token)
            self.assertTrue(verdict.held)
            answer = await self.client.admin.describe(self.name)
            self.assertEqual((answer.semaphore.held, len(answer.leases)), (1, 1))
        with self.assertRaises(semaphored.NotFoundError):
            await self.client.admin.describe(self.name + "/none")
        self.assertEqual(len(await self.client.enqueue(self.name, b"work")), 32)

    async def test_closing_ends_what_is_under_way(self):
        permit = await self.client.acquire(self.name, limit=1)
        waiter = asyncio.create_task(self.client.acquire(self.name))
        await asyncio.sleep(0)
        await self.client.close()
        with self.assertRaises(semaphored.CancelledError):
            await waiter
        self.assertIs(permit.loss.cause, semaphored.LossCause.CLOSED)
        self.assertEqual(self.held(), 0)


if __name__ == "__main__":
    unittest.main()
