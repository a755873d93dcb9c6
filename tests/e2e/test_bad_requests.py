"""Bad requests, chosen and random: canonical codes, the field is named, the daemon lives, no state
is harmed.

SEMAPHORED_FUZZ_SEED replays a run; SEMAPHORED_FUZZ_CALLS makes it longer.
"""

import os
import random
import unittest
import uuid

from daemon import (BOUND_S, Daemon, Reader, error_info, grpc, numbered, pb, ranges_of,
                    wrong_fields)

SEED = int(os.environ.get("SEMAPHORED_FUZZ_SEED", "20240607"))
CALLS = int(os.environ.get("SEMAPHORED_FUZZ_CALLS", "1500"))
SERVICE = "/semaphore.v1.SemaphoreService/"
UNARY = {"Acquire": pb.AcquireRequest, "Renew": pb.RenewRequest, "Release": pb.ReleaseRequest,
         "Verify": pb.VerifyRequest, "Administer": pb.AdministerRequest,
         "Enqueue": pb.EnqueueRequest, "DescribeDaemon": pb.DescribeDaemonRequest}
STREAMS = {"Hold": pb.HoldRequest, "Session": pb.SessionRequest, "Watch": pb.WatchRequest}
# What no bad request may be answered with: a crash in disguise, or nobody knows what.
FORBIDDEN = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS, grpc.StatusCode.UNAVAILABLE}

# Of no lease, in the right form.
LEASE_ID = "x#" + "1" * 32
PAGE_TOKEN = "page_token: must be the next_page_token of the page before, as it was given"

# (method, request, the field that the message has to name, or more of the message)
BAD_FIELDS = (
    ("Acquire", pb.AcquireRequest(), "semaphore"),
    ("Acquire", pb.AcquireRequest(semaphore="/begins/with/a/slash", limit=1), "semaphore"),
    ("Acquire", pb.AcquireRequest(semaphore="ends/", limit=1), "semaphore"),
    ("Acquire", pb.AcquireRequest(semaphore=".hidden", limit=1), "semaphore"),
    ("Acquire", pb.AcquireRequest(semaphore="a b", limit=1), "semaphore"),
    ("Acquire", pb.AcquireRequest(semaphore="ä", limit=1), "semaphore"),
    ("Acquire", pb.AcquireRequest(semaphore="a" * 256, limit=1), "semaphore"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1000001), "limit"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, permits=1000001), "permits"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, limit_mismatch=99), "limit_mismatch"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, wait_ms=24 * 3600000 + 1), "wait_ms"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, wait_ms=1, wait_forever=True),
     "wait_forever"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, priority=1001), "priority"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, priority=-1001), "priority"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, ttl_ms=999), "ttl_ms"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, ttl_ms=24 * 3600000 + 1), "ttl_ms"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, holder="h" * 257), "holder"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, request_id=pb.RequestId()),
     "request_id: must have one of numbered and one_shot"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, request_id=numbered("", 1)),
     "request_id.numbered.client_id"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, request_id=numbered("c" * 129, 1)),
     "request_id.numbered.client_id"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, request_id=numbered("tab\t", 1)),
     "request_id.numbered.client_id"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, request_id=numbered("c", 0)),
     "request_id.numbered.sequence"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1,
                                  request_id=pb.RequestId(one_shot="no UUID")),
     "request_id.one_shot"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1,
                                  request_id=pb.RequestId(one_shot=str(uuid.UUID(int=0)))),
     "request_id.one_shot"),
    ("Renew", pb.RenewRequest(), "lease_id"),
    ("Renew", pb.RenewRequest(lease_id="not a lease"), "lease_id"),
    ("Release", pb.ReleaseRequest(), "lease_id"),
    ("Release", pb.ReleaseRequest(lease_id="not a lease"), "lease_id"),
    ("Release", pb.ReleaseRequest(lease_id=LEASE_ID, slots=ranges_of([0])), "slots"),
    ("Release", pb.ReleaseRequest(lease_id=LEASE_ID, slots=[pb.SlotRange(first=2, last=1)]),
     "slots"),
    ("Release", pb.ReleaseRequest(lease_id=LEASE_ID, slots=ranges_of([1, 1])), "slots"),
    ("Release", pb.ReleaseRequest(lease_id=LEASE_ID, slots=ranges_of(range(1, 1002))), "slots"),
    ("Verify", pb.VerifyRequest(), "lease_id"),
    ("Verify", pb.VerifyRequest(semaphore="x", token=1), "slot"),
    ("Verify", pb.VerifyRequest(semaphore="x", slot=1), "token"),
    ("Administer", pb.AdministerRequest(semaphore="x"), "act"),
    ("Administer", pb.AdministerRequest(describe=pb.DescribeSemaphore()), "semaphore"),
    ("Administer", pb.AdministerRequest(semaphore="x", create=pb.CreateSemaphore()), "limit"),
    ("Administer", pb.AdministerRequest(semaphore="x", create=pb.CreateSemaphore(limit=1000001)),
     "limit"),
    ("Administer", pb.AdministerRequest(semaphore="x", create=pb.CreateSemaphore(
        limit=1, settings=pb.SemaphoreSettings(longest_hold_ms=999))), "longest_hold_ms"),
    ("Administer", pb.AdministerRequest(semaphore="x", create=pb.CreateSemaphore(
        limit=1, settings=pb.SemaphoreSettings(recall_grace_ms=24 * 3600000 + 1))),
     "recall_grace_ms"),
    ("Administer", pb.AdministerRequest(semaphore="guarded", resize=pb.ResizeSemaphore()),
     "resize"),
    ("Administer", pb.AdministerRequest(semaphore="guarded",
                                        resize=pb.ResizeSemaphore(limit=1, policy=77)), "policy"),
    ("Administer", pb.AdministerRequest(semaphore="guarded",
                                        resize=pb.ResizeSemaphore(remove=100)), "limit"),
    ("Administer", pb.AdministerRequest(semaphore="guarded", revoke=pb.RevokeLeases()), "revoke"),
    ("Administer", pb.AdministerRequest(semaphore="guarded", revoke=pb.RevokeLeases(
        all=True, holder="somebody")), "revoke"),
    ("Administer", pb.AdministerRequest(semaphore="guarded",
                                        describe=pb.DescribeSemaphore(page_size=10001)),
     "page_size"),
    ("Administer", pb.AdministerRequest(list=pb.ListSemaphores(page_size=10001)), "page_size"),
    ("Administer", pb.AdministerRequest(semaphore="guarded",
                                        describe=pb.DescribeSemaphore(page_token="-")), PAGE_TOKEN),
    ("Administer", pb.AdministerRequest(list=pb.ListSemaphores(page_token="a b")), PAGE_TOKEN),
    ("Administer", pb.AdministerRequest(semaphore="guarded",
                                        history=pb.ListHistory(page_token="-1")), PAGE_TOKEN),
    ("Administer", pb.AdministerRequest(semaphore="guarded",
                                        list_tickets=pb.ListTickets(page_token="1x")), PAGE_TOKEN),
    ("Enqueue", pb.EnqueueRequest(semaphore="x", limit=1, max_attempts=1001), "max_attempts"),
    ("Enqueue", pb.EnqueueRequest(semaphore="x", limit=1, max_attempts=1, attempts_unbounded=True),
     "attempts_unbounded"),
    ("Enqueue", pb.EnqueueRequest(semaphore="x", limit=1,
                                  back_off=pb.TicketBackOff(multiplier_percent=99)),
     "back_off.multiplier_percent"),
    ("Hold", pb.HoldRequest(), "acquire"),
    ("Hold", pb.HoldRequest(acquire=pb.AcquireRequest(semaphore="x", limit=1),
                            beat_interval_ms=99), "beat_interval_ms"),
    ("Session", pb.SessionRequest(), "open"),
    ("Session", pb.SessionRequest(open=pb.OpenSession()), "client_id"),
    ("Session", pb.SessionRequest(open=pb.OpenSession(client_id="c", ttl_ms=1)), "ttl_ms"),
    ("Watch", pb.WatchRequest(prefix="a", semaphore="a"), "prefix"),
)


class BadRequests(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon({"log_level": "info"}).start()
        cls.addClassCleanup(cls.daemon.close)

    def setUp(self):
        self.client = self.daemon.client()
        self.channel = self.client.channel
        self.client.stub.Administer(pb.AdministerRequest(
            semaphore="guarded", create=pb.CreateSemaphore(limit=3)), timeout=BOUND_S)
        self.guard = self.client.acquire("guarded", ttl_ms=600000)
        self.before = self.client.describe_rows("guarded")
        self.pid = self.daemon.process.pid
        self.addCleanup(self.assert_unharmed)

    def assert_unharmed(self):
        self.assertIsNone(self.daemon.process.poll(), "the daemon died:\n" + self.daemon.log())
        self.assertTrue(self.daemon.is_serving())
        self.assertTrue(self.client.verify(self.guard.lease_id).held)
        rows = self.client.describe_rows("guarded")
        self.assertEqual([row.lease for row in rows.leases],
                         [row.lease for row in self.before.leases])
        after, before = rows.semaphore, self.before.semaphore
        self.assertEqual((after.limit, after.waiting, after.paused, after.settings),
                         (before.limit, before.waiting, before.paused, before.settings))
        self.client.release(self.guard.lease_id)

    def raw_call(self, method, payload, timeout=BOUND_S):
        """Sends bytes; returns the error of the call, or None."""
        if method in UNARY:
            call = self.channel.unary_unary(SERVICE + method)
            try:
                call(payload, timeout=timeout)
            except grpc.RpcError as error:
                return error
            return None
        if method == "Session":
            call = self.channel.stream_stream(SERVICE + method)(iter([payload]), timeout=timeout)
        else:
            call = self.channel.unary_stream(SERVICE + method)(payload, timeout=timeout)
        reader = Reader(call)
        first = reader.next()
        if not isinstance(first, tuple):
            call.cancel()  # it was fine after all
            return None
        return first[1]

    def test_wrong_fields_are_named(self):
        for method, request, field in BAD_FIELDS:
            with self.subTest(method=method, field=field, request=str(request)[:200]):
                error = self.raw_call(method, request.SerializeToString())
                self.assertIsNotNone(error, "it was accepted")
                self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT, error.details())
                self.assertIn(field, error.details())
                self.assertEqual(error_info(error).reason, "INVALID_FIELD")
                (path,) = wrong_fields(error)
                self.assertIn(f"{path}: ", error.details())

    def test_bytes_that_are_no_message(self):
        for method in (*UNARY, *STREAMS):
            for payload in (b"\xff" * 20, b"\x0a\xff\xff\xff\xff\x0f", b"\x07", bytes(1)):
                with self.subTest(method=method, payload=payload):
                    error = self.raw_call(method, payload)
                    self.assertIsNotNone(error, "it was accepted")
                    self.assertIn(error.code(), (grpc.StatusCode.INVALID_ARGUMENT,
                                                 grpc.StatusCode.INTERNAL))

    def test_too_large_a_message(self):
        request = pb.AcquireRequest(semaphore="x", holder="h" * (8 << 20))
        error = self.raw_call("Acquire", request.SerializeToString())
        self.assertIsNotNone(error)
        self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)

    def test_too_many_commands(self):
        opening = pb.SessionRequest(open=pb.OpenSession(client_id="many", ttl_ms=1000))
        commands = pb.SessionRequest(commands=[
            pb.SessionCommand(sequence=i + 1, acquire=pb.SessionAcquire(semaphore="x"))
            for i in range(1001)])
        error = Reader(self.client.stub.Session(iter([opening, commands]))).end()
        self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("commands", error.details())

    def test_a_second_open(self):
        opening = pb.SessionRequest(open=pb.OpenSession(client_id="twice", ttl_ms=1000))
        error = Reader(self.client.stub.Session(iter([opening, opening]))).end()
        self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("open", error.details())

    def test_an_unknown_method(self):
        call = self.channel.unary_unary(SERVICE + "Steal")
        with self.assertRaises(grpc.RpcError) as caught:
            call(b"", timeout=BOUND_S)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def random_payload(self, dice, kind):
        """Random bytes; or a sound message with some of its bytes changed, cut off or doubled."""
        if dice.random() < 0.3:
            return dice.randbytes(dice.randrange(0, 200))
        samples = [request for _, request, _ in BAD_FIELDS if isinstance(request, kind)]
        payload = bytearray(dice.choice(samples or [kind()]).SerializeToString())
        for _ in range(dice.randrange(1, 6)):
            choice = dice.randrange(3)
            if choice == 0 and payload:
                payload[dice.randrange(len(payload))] = dice.randrange(256)
            elif choice == 1:
                del payload[dice.randrange(len(payload) + 1):]
            else:
                at = dice.randrange(len(payload) + 1)
                payload[at:at] = dice.randbytes(dice.randrange(1, 10))
        # The state that is watched must not be asked for by chance.
        return bytes(payload).replace(b"guarded", b"changed")

    def test_random_requests(self):
        dice = random.Random(SEED)
        print(f"seed {SEED}, {CALLS} calls")
        for number in range(CALLS):
            method = dice.choice((*UNARY, *UNARY, *STREAMS))
            payload = self.random_payload(dice, {**UNARY, **STREAMS}[method])
            # A random request may be a sound one that waits; its own deadline ends it.
            error = self.raw_call(method, payload, timeout=0.5)
            if error is not None and error.code() in FORBIDDEN:
                self.fail(f"call {number} of seed {SEED}, {method} {payload!r}: "
                          f"{error.code()}: {error.details()}")


if __name__ == "__main__":
    unittest.main()
