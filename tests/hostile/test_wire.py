"""Attacks on the wire: raw HTTP/2 against a daemon that has an access file. The attacker has no token unless a case
says so; beside it, an honest client goes on."""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

import wire  # noqa: E402
from certificates import Authority  # noqa: E402
from daemon import BIN_DIR, BOUND_S, Daemon, free_port, grpc, pb, pb_grpc, wait_until  # noqa: E402

MIB = 1 << 20


def new_token():
    return subprocess.run([os.path.join(BIN_DIR, "semaphored"), "token"], check=True, capture_output=True,
                          text=True, timeout=60).stdout.split()


class Guarded(Daemon):
    """With an access file: `token` may do all."""

    def __init__(self, **settings):
        self.token, digest = new_token()
        self.metrics = f"127.0.0.1:{free_port()}"
        self._access = tempfile.NamedTemporaryFile("w", prefix="access-", suffix=".toml")
        self._access.write(f'[identities.honest]\ntokens = ["{digest}"]\n'
                           'rules = [{ prefixes = [""], verbs = ["acquire", "administer", "verify"] }]\n')
        self._access.flush()
        super().__init__({"access_file": self._access.name, "metrics_listen": self.metrics, **settings})

    def memory(self, what="VmHWM"):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return int(re.search(rf"{what}:\s+(\d+) kB", file.read())[1]) * 1024

    def figure(self, series):
        text = urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=BOUND_S).read().decode()
        return float(re.search(rf"^{series} (\S+)$", text, re.MULTILINE)[1])

    def closed(self, reason):
        return self.figure(f'semaphored_guard_closed_total{{reason="{reason}"}}')

    def close(self):
        super().close()
        self._access.close()


class Honest(threading.Thread):
    """Acquires and releases until it is stopped, and notes how long each cycle takes. A context manager."""

    def __init__(self, daemon, channel=None):
        super().__init__(daemon=True)
        self._stub = pb_grpc.SemaphoreServiceStub(channel or daemon.channel())
        self._metadata = (("authorization", "Bearer " + daemon.token),)
        self._ending = threading.Event()
        self.times = []
        self.error = None

    def cycle(self):
        one_shot = str(uuid.uuid4())
        lease = self._stub.Acquire(pb.AcquireRequest(
            semaphore="honest", limit=1, ttl_ms=60_000, request_id=pb.RequestId(one_shot=one_shot)),
            metadata=self._metadata, timeout=BOUND_S).lease
        self._stub.Release(pb.ReleaseRequest(lease_id=lease.lease_id), metadata=self._metadata, timeout=BOUND_S)

    def run(self):
        try:
            while not self._ending.is_set():
                begun = time.monotonic()
                self.cycle()
                self.times.append(time.monotonic() - begun)
        except grpc.RpcError as error:
            self.error = error

    def __enter__(self):
        self.start()
        wait_until(lambda: self.times or self.error, "the honest client goes on")
        return self

    def __exit__(self, *unused):
        self._ending.set()
        self.join(BOUND_S)


class WireTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="semaphored-hostile-")
        cls.authority = Authority(cls.folder.name, "ca")
        cls.server = cls.authority.sign("server")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def start(self, tls=False, **settings):
        if tls:
            settings |= {"tls_cert_file": self.server.cert_file, "tls_key_file": self.server.key_file}
        daemon = Guarded(**settings)
        if tls:
            credentials = grpc.ssl_channel_credentials(self.authority.cert())
            daemon.is_serving = lambda: grpc_serves(daemon.address, credentials)
        self.addCleanup(daemon.close)
        daemon.start()
        return daemon

    def check_closed(self, daemon, reason, count=1):
        wait_until(lambda: daemon.closed(reason) >= count, f"a connection was closed for {reason}")
        daemon.wait_log("a connection from ipv4:127.0.0.1:")

    def check_flood(self, daemon, reason, part, bytes_max=24 * MIB):
        """The same part over and over. (What counts as sent may still be in the buffers of the two sockets.)"""
        def is_closed_for_it():
            with wire.Attacker(daemon.address) as attacker:
                attacker.flood(part for _ in range(64 * MIB // len(part)))
                self.assertLess(attacker.sent, bytes_max)
                # None: it was cut off before it could read why.
                self.assertIn(attacker.end(), (wire.ENHANCE_YOUR_CALM, wire.PROTOCOL_ERROR, None))
            return daemon.closed(reason) >= 1
        # On a busy machine gRPC, which counts pings too, may be the first to end a connection.
        wait_until(is_closed_for_it, f"a connection was closed for {reason}")
        self.check_closed(daemon, reason)

    def test_300000_resets(self):
        for with_token in (False, True):
            with self.subTest(with_token=with_token):
                daemon = self.start()
                with Honest(daemon) as honest:
                    before = daemon.memory()
                    sent = 0
                    # It comes again when it is thrown out.
                    for part in wire.resets(300_000, daemon.token if with_token else None):
                        if sent == 0 or not attacker.send(part):
                            attacker = wire.Attacker(daemon.address)
                            self.addCleanup(attacker.socket.close)
                            attacker.send(part)
                        sent += 1
                    self.assertLess(daemon.memory() - before, 200 * MIB)
                    if os.environ.get("SEMAPHORED_TEST_FIGURES"):
                        print(f"\nmemory {before / MIB:.0f} to {daemon.memory() / MIB:.0f} MiB")
                self.assertIsNone(honest.error)
                self.check_closed(daemon, "resets")

    def test_it_is_told_why(self):
        daemon = self.start()
        with wire.Attacker(daemon.address) as attacker:
            attacker.flood(wire.resets(10_000))
            self.assertEqual(attacker.end(), wire.ENHANCE_YOUR_CALM)

    def test_endless_headers(self):
        for tls in (False, True):
            daemon = self.start(tls=tls)
            for count, how in enumerate(("frame", "continuations", "padding")):
                with self.subTest(tls=tls, how=how):
                    with wire.Attacker(daemon.address, self.authority.cert_file if tls else None) as attacker:
                        attacker.flood(wire.endless_header(32 * MIB, how))
                        self.assertLess(attacker.sent, 16 * MIB, "it is not listened to for long")
                    self.check_closed(daemon, "header_block", count + 1)
            self.assertLess(daemon.memory(), 200 * MIB)

    def test_floods_of_control_frames(self):
        daemon = self.start()
        for reason, part in (("pings", wire.frame(wire.PING, b"12345678") * 100),
                             ("settings", wire.settings() * 100),
                             ("window_updates", wire.frame(wire.WINDOW_UPDATE, b"\0\0\0\1") * 1000),
                             ("other_frames", wire.frame(wire.PRIORITY, b"\0\0\0\0\1", 0, 1) * 100),
                             ("empty_data", wire.frame(wire.DATA, b"", 0, 1) * 100),
                             ("frame_size", wire.frame(0x42, b"x" * (17 << 10))),
                             ("frame_order", wire.frame(wire.CONTINUATION, b"", 0, 1))):
            with self.subTest(reason=reason):
                self.check_flood(daemon, reason, part)

    def test_what_is_no_http2(self):
        daemon = self.start()
        for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + b"x" * 100,
                         wire.PREFACE + wire.frame(wire.PING, b"12345678")):
            with wire.Attacker(daemon.address, greeting=greeting) as attacker:
                attacker.end()
        self.check_closed(daemon, "not_http2", 3)

    def test_metadata_is_bounded_without_an_acknowledgement(self):
        """The client never acknowledges the daemon's settings; 60 KB of metadata are refused all the same."""
        daemon = self.start()
        more = [(b"x-%d" % i, b"v" * 5_000) for i in range(12)]
        with wire.Attacker(daemon.address) as attacker:
            attacker.send(wire.call(1, b"Administer", b"", daemon.token, more))
            answer = next(each for each in attacker.frames() if each[0] in (wire.HEADERS, wire.RESET, wire.GOAWAY))
            self.assertNotIn(b"grpc-status\x010", answer[3])
            # RESOURCE_EXHAUSTED, or a reset.
            self.assertTrue(answer[0] == wire.RESET or b"grpc-status" in answer[3] and b"8" in answer[3], answer)

    def test_answers_that_are_not_read(self):
        """With a token: lists by the thousand, whose answers the attacker has no window for."""
        count, rows = 6_000, 200
        daemon = self.start(answers_bytes_max=8 * MIB, calls_max=8_000)
        stub = pb_grpc.SemaphoreServiceStub(daemon.channel())
        metadata = (("authorization", "Bearer " + daemon.token),)
        for i in range(rows):
            stub.Administer(pb.AdministerRequest(
                semaphore=f"some/semaphore/{i}", create=pb.CreateSemaphore(limit=1)), metadata=metadata)
        body = pb.AdministerRequest(list=pb.ListSemaphores(page_size=rows)).SerializeToString()
        with Honest(daemon) as honest:
            before = daemon.memory()
            with wire.Attacker(daemon.address, greeting=wire.PREFACE + wire.settings(
                    [(wire.INITIAL_WINDOW_SIZE, 0)])) as attacker:
                attacker.flood(wire.call(stream, b"Administer", body, daemon.token)
                               for stream in range(1, 2 * count, 2))
                daemon.wait_log("do not read the answers are cut off")
                # 20 KB for each call, and the answers; all of them would be 50 MiB more.
                self.assertLess(daemon.memory() - before, 300 * MIB)
                if os.environ.get("SEMAPHORED_TEST_FIGURES"):
                    print(f"\nmemory {before / MIB:.0f} to {daemon.memory() / MIB:.0f} MiB")
                cycles = len(honest.times)
                wait_until(lambda: honest.error or len(honest.times) > cycles + 20, "the honest client goes on")
        self.assertIsNone(honest.error)

    def test_refused_calls_that_are_not_read(self):
        """Without a token, by a client that reads nothing: its calls stay, and are not counted as everyone's."""
        count = 80_000
        daemon = self.start(calls_max=100, streams_max=100)
        for method in (b"Acquire", b"Session", b"Nothing"):
            with self.subTest(method=method), Honest(daemon) as honest:
                with wire.Attacker(daemon.address) as attacker:
                    attacker.socket.settimeout(2)
                    attacker.flood(b"".join(wire.call(stream, method, b"") for stream in range(first, first + 200, 2))
                                   for first in range(1, 2 * count, 200))
                    cycles = len(honest.times)
                    wait_until(lambda: honest.error or len(honest.times) > cycles + 20, "the honest client goes on")
                    self.assertLess(daemon.figure('semaphored_limit_used{limit="calls_max"}'), 100)
                    self.assertLess(daemon.figure('semaphored_limit_used{limit="streams_max"}'), 100)
                self.assertIsNone(honest.error)
        self.assertLess(daemon.memory(), 200 * MIB)

    def test_health_watches_take_no_streams(self):
        """Without a token: more than all streams that the daemon has."""
        daemon = self.start(streams_max=100)
        watch = b"\x83\x86" + b"".join(wire.literal(name, value) for name, value in (
            (b":path", b"/grpc.health.v1.Health/Watch"), (b":authority", b"localhost"), (b"te", b"trailers"),
            (b"content-type", b"application/grpc")))
        with wire.Attacker(daemon.address) as attacker:
            for stream in range(1, 1001, 2):
                attacker.send(wire.frame(wire.HEADERS, watch, wire.END_HEADERS, stream) +
                              wire.frame(wire.DATA, wire.grpc_message(b""), wire.END_STREAM, stream))
            wait_until(lambda: daemon.figure('semaphored_limit_used{limit="standard_calls_max"}') >= 500,
                       "all are watching")
            stub = pb_grpc.SemaphoreServiceStub(daemon.channel())
            session = stub.Session(iter([pb.SessionRequest(open=pb.OpenSession(client_id="one"))]),
                                   metadata=(("authorization", "Bearer " + daemon.token),), timeout=BOUND_S)
            self.assertTrue(next(session).opened.session_id)

    def test_a_handshake_that_never_ends(self):
        daemon = self.start(tls=True, handshake_timeout="1s")
        with wire.socket.create_connection(("127.0.0.1", daemon.port), timeout=BOUND_S) as silent:
            self.assertEqual(silent.recv(100), b"")
        self.check_closed(daemon, "tls")
        expires = daemon.figure("semaphored_certificate_expiry_timestamp_seconds")
        self.assertAlmostEqual(expires, time.time() + 2 * 86_400, delta=3_600)

    def test_a_connection_takes_three_descriptors(self):
        """connections_max is kept as well as without a guard."""
        daemon = self.start(connections_max=64, keepalive_interval="10m")
        attackers = [wire.Attacker(daemon.address, source=f"127.0.0.{2 + i % 5}") for i in range(200)]
        for attacker in attackers:
            self.addCleanup(attacker.socket.close)
        daemon.wait_log("connections_max (64) is reached")
        wait_until(lambda: 64 <= daemon.figure("semaphored_guarded_connections") <= 80, "most are closed")

    def test_one_address_does_not_have_all_connections(self):
        daemon = self.start(connections_max=64, keepalive_interval="10m")
        attackers = [wire.Attacker(daemon.address, source="127.0.0.2") for _ in range(100)]
        for attacker in attackers:
            self.addCleanup(attacker.socket.close)
        wait_until(lambda: daemon.closed("connections_share") >= 100 - 48, "the others are closed")
        with Honest(daemon) as honest:
            wait_until(lambda: honest.error or len(honest.times) > 20, "another address is served")
        self.assertIsNone(honest.error)

    def test_plain_loopback_is_not_guarded(self):
        with Daemon({"metrics_listen": f"127.0.0.1:{free_port()}"}) as daemon:
            daemon.client().acquire("plain", limit=1)  # On a connection that stands.
            text = urllib.request.urlopen(f"http://{daemon.settings['metrics_listen']}/metrics").read()
            self.assertIn(b"semaphored_guarded_connections 0\n", text)


def grpc_serves(address, credentials):
    with grpc.secure_channel(address, credentials) as channel:
        try:
            channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=1.0)
            return True
        except grpc.RpcError as error:
            return error.code() == grpc.StatusCode.UNAUTHENTICATED


if __name__ == "__main__":
    unittest.main()
