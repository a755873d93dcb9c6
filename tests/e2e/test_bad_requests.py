"""Bad requests, chosen and random: canonical codes, the field is named, the daemon lives, no state
is harmed.

SEMAPHORED_FUZZ_SEED replays a run; SEMAPHORED_FUZZ_CALLS makes it longer.
"""

import os
import random
import unittest

from daemon import BOUND_S, Daemon, Reader, error_info, grpc, pb

SEED = int(os.environ.get("SEMAPHORED_FUZZ_SEED", "20240607"))
CALLS = int(os.environ.get("SEMAPHORED_FUZZ_CALLS", "1500"))
SERVICE = "/semaphore.v1.SemaphoreService/"
UNARY = {"Acquire": pb.AcquireRequest, "Renew": pb.RenewRequest, "Release": pb.ReleaseRequest,
         "Verify": pb.VerifyRequest, "Administer": pb.AdministerRequest}
STREAMS = {"Hold": pb.HoldRequest, "Session": pb.SessionRequest, "Watch": pb.WatchRequest}
# What no bad request may be answered with: a crash in disguise, or nobody knows what.
FORBIDDEN = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS, grpc.StatusCode.UNAVAILABLE}

# (method, request, the field that the message has to name)
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
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, priority=1001), "priority"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, priority=-1001), "priority"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, ttl_ms=999), "ttl_ms"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, ttl_ms=-1), "ttl_ms"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, ttl_ms=24 * 3600000 + 1), "ttl_ms"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, holder="h" * 257), "holder"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, request_id=pb.RequestId(sequence=1)),
     "client_id"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1,
                                  request_id=pb.RequestId(client_id="c" * 129, sequence=1)),
     "client_id"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1,
                                  request_id=pb.RequestId(client_id="tab\t", sequence=1)),
     "client_id"),
    ("Acquire", pb.AcquireRequest(semaphore="x", limit=1, request_id=pb.RequestId(client_id="c")),
     "sequence"),
    ("Renew", pb.RenewRequest(), "lease_id"),
    ("Renew", pb.RenewRequest(lease_id="not a lease"), "lease_id"),
    ("Release", pb.ReleaseRequest(), "lease_id"),
    ("Release", pb.ReleaseRequest(lease_id="not a lease"), "lease_id"),
    ("Verify", pb.VerifyRequest(), "lease_id"),
    ("Verify", pb.VerifyRequest(semaphore="x", token=1), "slot"),
    ("Verify", pb.VerifyRequest(semaphore="x", slot=1), "token"),
    ("Administer", pb.AdministerRequest(semaphore="x"), "act"),
    ("Administer", pb.AdministerRequest(describe=pb.Describe()), "semaphore"),
    ("Administer", pb.AdministerRequest(semaphore="x", create=pb.Create()), "limit"),
    ("Administer", pb.AdministerRequest(semaphore="x", create=pb.Create(limit=1000001)), "limit"),
    ("Administer", pb.AdministerRequest(semaphore="x", create=pb.Create(
        limit=1, settings=pb.Settings(longest_hold_ms=999))), "longest_hold_ms"),
    ("Administer", pb.AdministerRequest(semaphore="guarded", resize=pb.Resize()), "resize"),
    ("Administer", pb.AdministerRequest(semaphore="guarded", resize=pb.Resize(limit=1, policy=77)),
     "policy"),
    ("Administer", pb.AdministerRequest(semaphore="guarded", resize=pb.Resize(remove=100)),
     "limit"),
    ("Administer", pb.AdministerRequest(semaphore="guarded", revoke=pb.Revoke()), "revoke"),
    ("Administer", pb.AdministerRequest(semaphore="guarded", revoke=pb.Revoke(
        all=True, holder="somebody")), "revoke"),
    ("Administer", pb.AdministerRequest(semaphore="guarded", describe=pb.Describe(rows_max=10001)),
     "rows_max"),
    ("Administer", pb.AdministerRequest(list=pb.List(rows_max=10001)), "rows_max"),
    ("Hold", pb.HoldRequest(), "acquire"),
    ("Hold", pb.HoldRequest(acquire=pb.AcquireRequest(semaphore="x", limit=1),
                            beat_interval_ms=-5), "beat_interval_ms"),
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
            semaphore="guarded", create=pb.Create(limit=3)), timeout=BOUND_S)
        self.guard = self.client.acquire("guarded", ttl_ms=600000)
        self.before = self.client.describe("guarded")
        self.pid = self.daemon.process.pid
        self.addCleanup(self.assert_unharmed)

    def assert_unharmed(self):
        self.assertIsNone(self.daemon.process.poll(), "the daemon died:\n" + self.daemon.log())
        self.assertTrue(self.daemon.is_serving())
        self.assertTrue(self.client.verify(self.guard.lease_id).held)
        after = self.client.describe("guarded")
        self.assertEqual([row.lease for row in after.leases],
                         [row.lease for row in self.before.leases])
        self.assertEqual((after.limit, after.waiting, after.paused, after.settings),
                         (self.before.limit, self.before.waiting, self.before.paused,
                          self.before.settings))
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
