"""Messages that are too long, or never end: a canonical code, and a daemon that goes on."""

import struct
import unittest

from daemon import BOUND_S, Daemon, Reader, grpc, wait_until
from http2 import RawConnection
from measure import memory_bytes, told

SERVICE = "/semaphore.v1.SemaphoreService/"
UNARY = ("Acquire", "Renew", "Release", "Verify", "Administer", "Enqueue",
         "DescribeDaemon")
STREAM_OUT = ("Hold", "Watch")
STREAM_BOTH = ("Session", "Work")
MIB = 1 << 20


class WireMessages(unittest.TestCase):

    def assert_serves(self, daemon):
        """At the bound of connections_bytes_max gRPC turns some calls away: they are tried again."""
        self.assertIsNone(daemon.process.poll(), "the daemon died:\n" + daemon.log())

        def serves():
            client = daemon.client()
            try:
                client.release(client.acquire("serves", limit=1, ttl_ms=1000).lease_id)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED, error)
                return False
            return True
        wait_until(serves, "the daemon serves another client")

    def error_of(self, channel, path, kind, payload, **options):
        """The error that ends a call, or None."""
        if kind == "unary":
            try:
                channel.unary_unary(path)(payload, timeout=BOUND_S, **options)
                return None
            except grpc.RpcError as error:
                return error
        make = channel.unary_stream if kind == "out" else channel.stream_stream
        request = payload if kind == "out" else iter([payload])
        return Reader(make(path)(request, timeout=BOUND_S, **options)).end()

    def calls(self):
        for kind, methods in (("unary", UNARY), ("out", STREAM_OUT), ("both", STREAM_BOTH)):
            for method in methods:
                yield SERVICE + method, kind
        yield "/grpc.health.v1.Health/Check", "unary"
        yield "/grpc.health.v1.Health/Watch", "out"
        yield "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "both"

    def test_too_long_a_message(self):
        with Daemon() as daemon:
            channel = daemon.channel(options=(("grpc.max_send_message_length", -1),))
            before = memory_bytes(daemon)
            for path, kind in self.calls():
                with self.subTest(path=path):
                    error = self.error_of(channel, path, kind, bytes(5 * MIB))
                    self.assertIsNotNone(error, "it was accepted")
                    self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED,
                                     error.details())
                    self.assertIn("4194304", error.details())
            # No room is made for 4 GiB that are only spoken of.
            with RawConnection(daemon.port) as raw:
                stream = raw.call("Acquire")
                self.assertTrue(raw.write(stream, struct.pack(">BI", 0, 0xffffffff)))
                self.assert_serves(daemon)
            grown = memory_bytes(daemon) - before
            told(f"13 messages of 5 MiB refused; the daemon has grown by {grown / MIB:.1f} MiB")
            self.assertLess(grown, 64 * MIB)
            self.assert_serves(daemon)

    def test_too_long_metadata(self):
        with Daemon() as daemon:
            for path, kind in self.calls():
                with self.subTest(path=path):
                    # The daemon may close the connection while the client still writes: then again.
                    for _ in range(5):
                        error = self.error_of(daemon.channel(), path, kind, b"",
                                              metadata=(("x-long", "x" * 32_000),))
                        self.assertIsNotNone(error, "it was accepted")
                        if error.code() != grpc.StatusCode.UNAVAILABLE:
                            break
                    self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED,
                                     error.details())
            self.assert_serves(daemon)

    def test_messages_that_never_end(self):
        """Many requests stop short of their end: what is kept of them is bounded."""
        bound = 64 * MIB
        with Daemon({"connections_bytes_max": bound, "keepalive_interval": "10m"}) as daemon:
            before = memory_bytes(daemon)
            connections = [RawConnection(daemon.port) for _ in range(4)]
            try:
                sent = sum(self.send_halves(raw) for raw in connections)
                most = memory_bytes(daemon) - before
                told(f"{sent / MIB:.0f} MiB of requests without an end sent: the daemon has grown "
                     f"by {most / MIB:.0f} MiB, connections_bytes_max being {bound / MIB:.0f} MiB")
                self.assertLess(most, 3 * bound)
                self.assert_serves(daemon)
            finally:
                for raw in connections:
                    raw.close()
            self.assert_serves(daemon)

    def send_halves(self, raw):
        """How much the daemon took."""
        sent = 0
        part = bytes(16 * 1024)
        for _ in range(25):
            stream = raw.call("Acquire")
            raw.write(stream, struct.pack(">BI", 0, 4 * MIB), bound_s=0.2)
            for _ in range(3 * MIB // len(part)):
                if not raw.write(stream, part, bound_s=0.2):
                    break
                sent += len(part)
        return sent


if __name__ == "__main__":
    unittest.main()
