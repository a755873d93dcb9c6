"""The client of threads against a daemon that is well."""

import gc
import threading
import unittest
import warnings

import grpc
import semaphored
from semaphored.v1 import semaphore_pb2

from real import BOUND_S, Daemon, wait_until


class WithADaemon(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()
        cls.addClassCleanup(cls.daemon.close)
        cls.stub = cls.daemon.client()

    def setUp(self):
        self.name = "python/" + self.id().rsplit(".", 1)[1][:60]
        self.client = self.new_client()

    def new_client(self, **options):
        client = semaphored.Client(self.daemon.address, **options)
        self.addCleanup(client.close)
        return client

    def held(self):
        return self.stub.describe(self.name).held


class Permits(WithADaemon):

    def test_a_block_holds_and_gives_back(self):
        with self.client.permit(self.name, limit=2, permits=2, holder="a person") as permit:
            self.assertEqual((permit.semaphore, permit.slots, permit.slot), (self.name, (1, 2), 1))
            self.assertGreater(permit.token, 0)
            self.assertTrue(permit.held)
            permit.check()
            self.assertGreater(permit.valid_for, 0)
            self.assertLess(permit.valid_for, permit.ttl)
            self.assertFalse(permit.lost.is_set())
            self.assertIn("slots=[1, 2]", repr(permit))
            described = self.client.admin.describe(self.name)
            self.assertEqual((described.semaphore.held, described.leases[0].lease.holder),
                             (2, "a person"))
        self.assertEqual(self.held(), 0)
        self.assertFalse(permit.held)
        self.assertEqual(permit.valid_for, 0)
        with self.assertRaises(semaphored.LostError):
            permit.check()
        permit.release()  # nothing happens the second time

    def test_what_the_body_raises_goes_on_and_the_permit_goes_back(self):
        with self.assertRaises(KeyError):
            with self.client.permit(self.name, limit=1):
                raise KeyError("the body's own")
        self.assertEqual(self.held(), 0)

    def test_tokens_rise(self):
        tokens = []
        for _ in range(3):
            with self.client.permit(self.name, limit=1) as permit:
                tokens.append(permit.token)
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_a_context_may_be_used_again_and_by_several_threads(self):
        context = self.client.permit(self.name, limit=2)
        together = threading.Barrier(2, timeout=BOUND_S)
        slots = []

        def work():
            with context as permit:
                together.wait()
                slots.append(permit.slot)
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_S)
        self.assertEqual(sorted(slots), [1, 2])
        with context, context:
            self.assertEqual(self.held(), 2)
        self.assertEqual(self.held(), 0)

    def test_a_full_semaphore(self):
        with self.client.permit(self.name, limit=1):
            with self.assertRaises(semaphored.Full) as full:
                self.client.acquire(self.name, wait=0)
            self.assertEqual((full.exception.code, full.exception.reason),
                             (grpc.StatusCode.RESOURCE_EXHAUSTED, "FULL"))
            with self.assertRaises(semaphored.WaitExpired):
                self.client.acquire(self.name, wait=0.05)
        self.client.acquire(self.name, wait=0).release()

    def test_a_waiter_is_told_its_place_and_gets_its_turn(self):
        places, granted = [], []
        first = self.client.acquire(self.name, limit=1)

        def wait():
            with self.client.permit(self.name, on_queued=places.append) as permit:
                granted.append(permit.token)
        waiter = threading.Thread(target=wait)
        waiter.start()
        wait_until(lambda: places, "the waiter is queued")
        self.assertEqual((places[0].position, places[0].reason), (1, "FULL"))
        first.release()
        waiter.join(BOUND_S)
        self.assertGreater(granted[0], first.token)

    def test_errors_have_classes_reasons_and_messages(self):
        for kind, reason, call in (
                (semaphored.NotFoundError, "NO_SUCH_SEMAPHORE",
                 lambda: self.client.acquire(self.name + "/none")),
                (semaphored.InvalidArgumentError, "INVALID_FIELD",
                 lambda: self.client.acquire("no blanks")),
                (semaphored.FailedPreconditionError, "EXCEEDS_LIMIT",
                 lambda: self.client.acquire(self.name, limit=1, permits=2)),
                (semaphored.NotFoundError, "NO_SUCH_SEMAPHORE",
                 lambda: self.client.admin.describe(self.name + "/none"))):
            with self.assertRaises(semaphored.Error) as caught:
                call()
            self.assertIs(type(caught.exception), kind)
            self.assertEqual(caught.exception.reason, reason)
            self.assertTrue(caught.exception.message)
        self.assertEqual(caught.exception.details["semaphore"], self.name + "/none")

    def test_what_the_daemon_refuses_is_named_as_an_option(self):
        with self.assertRaisesRegex(semaphored.InvalidArgumentError,
                                    "wait: must be 0 s to 86400 s, not 1e[+]06 s"):
            self.client.acquire(self.name, limit=1, wait=1_000_000)
        with self.assertRaisesRegex(semaphored.InvalidArgumentError,
                                    "ttl: must be 1 s to .* s, not 0.5 s"):
            self.new_client(ttl=0.5).acquire(self.name, limit=1)
        with self.assertRaisesRegex(semaphored.InvalidArgumentError, "grace: must be 0 s to"):
            self.client.admin.set_limit(self.name, 1, policy=semaphore_pb2.SHRINK_POLICY_RECALL,
                                        grace=4_000_000)
        with self.client.permit(self.name, limit=1), self.assertRaises(semaphored.Full) as failed:
            self.client.acquire(self.name, wait=0)
        self.assertEqual(failed.exception.details["advice"], "wait (wait), or try again later")

    def test_options_that_are_wrong_are_named(self):
        for name, value in (("ttl", -1), ("ttl", float("nan")), ("ttl", 1 << 32), ("margin", -1),
                            ("connect_timeout", 0), ("reconnect_timeout", 0), ("release_timeout", 0),
                            ("operations_max", 0), ("endpoints", "http://a:1"),
                            ("endpoints", "a"), ("endpoints", "a:99999"), ("endpoints", "::1:7420"),
                            ("holder", "x" * 257), ("endpoints", []),
                            ("endpoints", ["a:1", ""])):
            options = {"endpoints": self.daemon.address, name: value}
            with self.assertRaises(ValueError) as caught:
                semaphored.Client(**options)
            self.assertTrue(caught.exception.message.startswith(name), caught.exception)
        for name, value in (("wait", -1), ("wait", 1 << 32), ("limit", -1), ("permits", 1 << 32),
                            ("priority", 1 << 31)):
            with self.assertRaises(semaphored.InvalidArgumentError) as caught:
                self.client.acquire(self.name, **{name: value})
            self.assertTrue(caught.exception.message.startswith(name), caught.exception)

    def test_many_threads_never_hold_more_than_the_limit(self):
        inside, most = [], []

        def work():
            for _ in range(20):
                with self.client.permit(self.name, limit=3) as permit:
                    inside.append(permit.slot)
                    most.append(len(inside))
                    inside.remove(permit.slot)
        threads = [threading.Thread(target=work) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_S)
        self.assertEqual(len(most), 200)
        self.assertLessEqual(max(most), 3)
        self.assertEqual(self.held(), 0)


class Losses(WithADaemon):

    def test_a_revoked_permit_is_told_and_the_block_ends_with_it(self):
        told = []
        with self.assertRaises(semaphored.LostError) as lost:
            with self.client.permit(self.name, limit=1, on_lost=told.append) as permit:
                self.client.admin.revoke_lease(self.name, permit.lease_id, now=True)
                self.assertTrue(permit.lost.wait(BOUND_S))
                self.assertFalse(permit.held)
                with self.assertRaises(semaphored.LostError):
                    permit.check()
        self.assertIs(lost.exception.loss.cause, semaphored.LossCause.REVOKED)
        wait_until(lambda: told, "the callback")
        self.assertIs(told[0].cause, semaphored.LossCause.REVOKED)
        late = []
        permit.add_lost_callback(late.append)
        wait_until(lambda: late, "a callback that came late")

    def test_the_bodys_own_error_goes_before_the_loss(self):
        with self.assertRaises(KeyError):
            with self.client.permit(self.name, limit=1) as permit:
                self.client.admin.revoke_lease(self.name, permit.lease_id, now=True)
                self.assertTrue(permit.lost.wait(BOUND_S))
                raise KeyError("the body's own")

    def test_a_recalled_permit_is_asked_back(self):
        told = []
        with self.client.permit(self.name, limit=1, on_recall=told.append) as permit:
            self.client.admin.revoke_lease(self.name, permit.lease_id, grace=30)
            wait_until(lambda: told, "the recall")
            self.assertEqual(permit.recall, told[0])
            self.assertLess(permit.valid_for, 31)
            self.assertFalse(permit.lost.is_set())
        self.assertEqual(self.held(), 0)

    def test_a_callback_that_fails_or_blocks_holds_no_loss_up(self):
        blocked, go_on = threading.Event(), threading.Event()

        def block(_):
            blocked.set()
            go_on.wait(BOUND_S)
        self.addCleanup(go_on.set)
        first = self.client.acquire(self.name, limit=2, on_lost=block)
        second = self.client.acquire(self.name)
        self.client.admin.revoke_all(self.name, now=True)
        self.assertTrue(first.lost.wait(BOUND_S))
        self.assertTrue(second.lost.wait(BOUND_S))
        self.assertTrue(blocked.wait(BOUND_S))
        for permit in (first, second):
            with self.assertRaises(semaphored.LostError):
                permit.release()

    def test_closing_gives_back_and_ends_waits(self):
        permit = self.client.acquire(self.name, limit=1)
        queued, errors = threading.Event(), []

        def wait():
            try:
                self.client.acquire(self.name, on_queued=lambda _: queued.set())
            except semaphored.CancelledError as error:
                errors.append(error)
        waiter = threading.Thread(target=wait)
        waiter.start()
        self.assertTrue(queued.wait(BOUND_S))
        self.client.close()
        waiter.join(BOUND_S)
        self.assertEqual(len(errors), 1)
        self.assertIs(permit.loss.cause, semaphored.LossCause.CLOSED)
        self.assertTrue(permit.lost.is_set())
        self.assertEqual(self.held(), 0)
        with self.assertRaises(semaphored.CancelledError):
            self.client.acquire(self.name)
        self.client.close()

    def test_a_permit_that_is_forgotten_goes_back_with_a_warning(self):
        client = self.new_client(ttl=3.0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            client.acquire(self.name, limit=1)
            gc.collect()
        self.assertTrue(any(warning.category is ResourceWarning for warning in caught))
        wait_until(lambda: self.held() == 0, "it went back")

    def test_a_client_that_is_forgotten_ends_its_session(self):
        client = semaphored.Client(self.daemon.address, ttl=3.0)
        driver = client._driver
        with client.permit(self.name, limit=1):
            pass
        del client
        gc.collect()
        wait_until(lambda: driver._machine.closed, "its session ended")


class Questions(WithADaemon):

    def test_verify(self):
        with self.client.permit(self.name, limit=1) as permit:
            verdict = self.client.verify(permit)
            self.assertEqual((verdict.held, verdict.slots, verdict.token),
                             (True, (1,), permit.token))
            self.assertGreater(verdict.valid_for, 0)
            self.assertTrue(self.client.verify_token(self.name, 1, permit.token).held)
            verdict = self.client.verify_token(self.name, 1, permit.token + 1)
            self.assertEqual((verdict.held, verdict.slot_token), (False, permit.token))
        verdict = self.client.verify(permit)
        self.assertEqual((verdict.held, verdict.ended, verdict.valid_for), (False, "RELEASED", 0))

    def test_administration(self):
        admin = self.client.admin
        self.assertTrue(admin.create(self.name, 2).created)
        self.assertFalse(admin.create(self.name, 2).created)
        self.assertEqual(admin.set_limit(self.name, 3).semaphore.limit, 3)
        settings = semaphore_pb2.SemaphoreSettings(permits_per_holder=2)
        configured = admin.configure(self.name, settings).semaphore.settings
        self.assertEqual(configured.permits_per_holder, 2)
        self.assertTrue(admin.pause(self.name).semaphore.paused)
        self.assertFalse(admin.resume(self.name).semaphore.paused)
        with self.client.permit(self.name) as permit:
            drained = admin.drain(self.name, wait=0)
            self.assertFalse(drained.drained)
            self.assertEqual([lease.lease.token for lease in drained.leases], [permit.token])
            admin.resume(self.name)
            recalled = admin.set_limit(self.name, 0, grace=0,
                                       policy=semaphore_pb2.SHRINK_POLICY_RECALL)
            self.assertEqual(recalled.recalled, 1)
            self.assertTrue(permit.lost.wait(BOUND_S))
            self.assertEqual(admin.set_limit(self.name, 3).recalled, 0)
            with self.assertRaises(semaphored.LostError):
                permit.release()
        self.assertEqual([one.semaphore for one in admin.list(self.name).semaphores], [self.name])
        # The client gives the lease up before the daemon ends it.
        wait_until(lambda: len(admin.history(self.name).rows) == 1, "the lease has ended")
        with self.assertRaises(semaphored.AbortedError):
            admin.set_limit(self.name, 4, expected_revision=1 << 40)
        with self.assertRaises(semaphored.InvalidArgumentError) as refused:
            admin.revoke_all(self.name, grace=-1)
        self.assertTrue(refused.exception.message.startswith("grace"), refused.exception)
        self.assertTrue(admin.destroy(self.name).gone)

    def test_pages(self):
        admin = self.client.admin
        names = [f"{self.name}/{number}" for number in range(3)]
        for name in names:
            self.client.acquire(name, limit=1).release()
        first = admin.list(self.name, page_size=2)
        self.assertEqual([one.semaphore for one in first.semaphores], names[:2])
        rest = admin.list(self.name, page_token=first.next_page_token)
        self.assertEqual(([one.semaphore for one in rest.semaphores], rest.next_page_token),
                         (names[2:], ""))
        self.assertEqual([one.semaphore for one in admin.list_all(self.name, page_size=2)], names)
        held = [self.client.acquire(self.name, limit=3) for _ in range(3)]
        pages = list(admin.describe_pages(self.name, page_size=2))
        self.assertEqual([[lease.lease.token for lease in page.leases] for page in pages],
                         [[permit.token for permit in held[:2]], [held[2].token]])
        for permit in held:
            permit.release()
        self.assertEqual([row.token for row in admin.history_all(self.name, page_size=1)],
                         [permit.token for permit in reversed(held)])
        with self.assertRaises(semaphored.InvalidArgumentError) as refused:
            admin.describe(self.name, page_token="none of ours")
        self.assertIn("page_token", refused.exception.message)

    def test_a_ticket(self):
        ticket_id = self.client.enqueue(self.name, b"work", limit=1)
        self.assertEqual(len(ticket_id), 32)
        self.assertEqual(self.stub.describe(self.name).tickets.queued, 1)
        self.client.enqueue(self.name, b"work", max_attempts=None)
        shown = self.client.admin.administer(semaphore_pb2.AdministerRequest(
            semaphore=self.name, list_tickets=semaphore_pb2.ListTickets())).list_tickets.tickets
        self.assertEqual([(each.max_attempts, each.attempts_unbounded) for each in shown],
                         [(5, False), (0, True)])
        with self.assertRaises(semaphored.InvalidArgumentError) as refused:
            self.client.enqueue(self.name, delay=-1)
        self.assertTrue(refused.exception.message.startswith("delay"), refused.exception)


if __name__ == "__main__":
    unittest.main()
