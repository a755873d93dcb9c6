"""Connections: half-open, half-made, idle by the thousand, too many; and a flood of waiters."""

import os
import resource
import socket
import time
import unittest

from daemon import BOUND_S, Client, Daemon, Session, free_port, grpc, pb, reason_of, wait_until
from http2 import RawConnection, opening
from measure import latency_ms, memory_bytes, sockets, told
from proxy import TcpProxy

IDLE = 10_000
# What one idle connection may take of the daemon's memory. Measured: see docs/operations.md.
IDLE_BYTES_MAX = 100_000


def is_open(connection):
    """Whether the other end has not closed it, as far as is known; what came is thrown away."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False


class WireConnections(unittest.TestCase):

    def connect(self, port, data=b""):
        connection = socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)
        self.addCleanup(connection.close)
        if data:
            connection.sendall(data)
        return connection

    def assert_serves(self, daemon):
        self.assertIsNone(daemon.process.poll(), "the daemon died:\n" + daemon.log())
        def serves():
            try:
                client = daemon.client()
                client.release(client.acquire("serves", limit=1).lease_id)
                return True
            except grpc.RpcError:
                return False
        wait_until(serves, "another client is served")

    def test_half_open(self):
        """The client vanishes without a word: keepalive finds it and closes the connection; its
        session goes on for its TTL, and can be resumed."""
        settings = {"keepalive_interval": "1s", "keepalive_timeout": "1s"}
        with Daemon(settings) as daemon, TcpProxy(daemon.port) as proxy:
            alone = sockets(daemon)
            session = Session(daemon.client(f"127.0.0.1:{proxy.port}"), ttl_ms=60_000)
            session_id = session.opened().session_id
            session.command(1, acquire=pb.SessionAcquire(semaphore="kept", limit=1))
            lease = session.result(1).granted
            held = daemon.client(f"127.0.0.1:{proxy.port}").stub.Hold(pb.HoldRequest(
                acquire=pb.AcquireRequest(semaphore="given-back", limit=1, ttl_ms=1000)))
            next(held)
            self.assertGreater(sockets(daemon), alone)
            proxy.cut()
            wait_until(lambda: sockets(daemon) <= alone, "both connections are closed")
            direct = daemon.client()
            self.assertTrue(direct.verify(lease.lease_id).held)
            # A lease whose TTL is over goes to the next.
            direct.acquire("given-back", wait_ms=int(BOUND_S * 1000))
            again = Session(direct, client_id=session.client.client_id,
                            resume_session_id=session_id).opened()
            self.assertTrue(again.resumed)
            self.assertEqual([each.lease_id for each in again.leases], [lease.lease_id])
            held.cancel()

    def test_half_made(self):
        """Who connects and says nothing, or not enough, is sent away."""
        with Daemon({"handshake_timeout": "1s"}) as daemon:
            connections = [self.connect(daemon.port, (b"", opening()[:10], opening()[:30])[i % 3])
                           for i in range(300)]
            self.assert_serves(daemon)
            wait_until(lambda: not any(map(is_open, connections)), "they are closed")
            for each in connections:
                each.close()

    def test_too_many(self):
        with Daemon({"connections_max": 64, "keepalive_interval": "10m"}) as daemon:
            connections = [self.connect(daemon.port, opening()) for _ in range(400)]
            wait_until(lambda: 64 <= sum(map(is_open, connections)) <= 100, "most are closed")
            daemon.wait_log("connections_max (64) is reached")
            for each in connections:
                each.close()
            self.assert_serves(daemon)

    def test_no_descriptors_left(self):
        """It cannot accept for a while, and does again when it can. (gRPC's own would not.)"""
        with Daemon({"keepalive_interval": "10m"}) as daemon:
            pid = daemon.process.pid
            limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            used = max(map(int, os.listdir(f"/proc/{pid}/fd"))) + 1
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 20, limits[1]))
            connections = [self.connect(daemon.port, opening()) for _ in range(100)]
            wait_until(lambda: "cannot accept connections for the moment" in daemon.log(),
                       "it says why")
            for each in connections:
                each.close()
            self.assert_serves(daemon)

    def test_descriptors_for_what_is_no_client(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        for settings, others in (({}, 256), ({"metrics_listen": f"127.0.0.1:{free_port()}"}, 512)):
            with Daemon({"connections_max": 2000, **settings}) as daemon:
                allowed, _ = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
                self.assertEqual(allowed, 2000 + others)

    def test_many_idle(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self.assertGreater(hard, IDLE + 500, "too few files may be open here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        # Raw connections answer no pings, so that they are not asked to.
        with Daemon({"keepalive_interval": "10m"}) as daemon:
            client = daemon.client()
            latency_ms(client, "busy")
            alone_ms = latency_ms(client, "busy")
            before = memory_bytes(daemon)
            begun = time.monotonic()
            connections = [self.connect(daemon.port, opening()) for _ in range(IDLE)]
            wait_until(lambda: sockets(daemon) >= IDLE, "all are accepted", 60)
            took_s = time.monotonic() - begun
            each_bytes = (memory_bytes(daemon) - before) / IDLE
            among_ms = latency_ms(client, "busy")
            told(f"{IDLE} idle connections within {took_s:.1f} s, {each_bytes / 1000:.1f} kB each; "
                 f"acquire and release of another client {among_ms:.2f} ms, "
                 f"{among_ms / alone_ms:.2f} times as long as alone")
            self.assertLess(each_bytes, IDLE_BYTES_MAX)
            self.assertTrue(is_open(connections[0]) and is_open(connections[-1]))
            for each in connections:
                each.close()
            wait_until(lambda: sockets(daemon) < 100, "all are closed", 60)
            self.assert_serves(daemon)

    def test_flood_of_waiters(self):
        most = 2_000
        with Daemon({"waiters_max": most}) as daemon:
            other = Client(daemon.channel())
            latency_ms(other, "quiet")
            alone_ms = latency_ms(other, "quiet")
            other.acquire("wanted", limit=1, ttl_ms=600_000)
            session = Session(daemon.client(), ttl_ms=60_000)
            session.opened()
            before = memory_bytes(daemon)
            count = 5_000
            wish = pb.SessionAcquire(semaphore="wanted", wait_forever=True)
            for first in range(1, count, 1000):
                session.send(commands=[pb.SessionCommand(sequence=i, acquire=wish)
                                       for i in range(first, first + 1000)])
            refused = 0
            while refused < count - most:
                message = session.reader.next()
                self.assertNotIsInstance(message, tuple, "the stream ended")
                for result in message.results:
                    if result.HasField("error"):
                        self.assertEqual((result.error.code, reason_of(result.error)),
                                         (grpc.StatusCode.RESOURCE_EXHAUSTED.value[0],
                                          "LIMIT_REACHED"), result.error.message)
                        refused += 1
            self.assertEqual(other.waiting("wanted"), most)
            among_ms = latency_ms(other, "quiet")
            told(f"{most} waiters, {refused} refused, "
                 f"{(memory_bytes(daemon) - before) / most / 1000:.1f} kB each; acquire and release "
                 f"of another client {among_ms / alone_ms:.2f} times as long as alone")
            session.half_close()

    def test_flood_of_calls_on_one_connection(self):
        """Beyond connection_calls_max they wait at the client, and others are served."""
        with Daemon({"connection_calls_max": 100, "keepalive_interval": "10m"}) as daemon:
            daemon.client().acquire("wanted", limit=1, ttl_ms=600_000)
            with RawConnection(daemon.port) as raw:
                for _ in range(100):
                    raw.call("Acquire", pb.AcquireRequest(semaphore="wanted", wait_forever=True))
                daemon.client().wait_for_queue("wanted", 100)
                # Who does not keep to it loses the connection, and what waits on it.
                raw.call("Acquire", pb.AcquireRequest(semaphore="wanted", wait_forever=True))
                self.assert_serves(daemon)
                daemon.client().wait_for_queue("wanted", 0)


if __name__ == "__main__":
    unittest.main()
