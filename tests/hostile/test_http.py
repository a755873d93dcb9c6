"""Attacks by HTTP, byte by byte: bodies, slow clients, floods. Beside them an honest client goes on."""

import json
import os
import re
import select
import socket
import ssl
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

from daemon import BOUND_S, grpc, wait_until  # noqa: E402
from http_client import SERVICE, HttpDaemon, error_info  # noqa: E402

MIB = 1 << 20
CONNECTIONS_MAX = 1024
OF_ONE_ADDRESS = 768


def head(path=SERVICE + "Verify", *more):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


class Attacks(unittest.TestCase):
    def setUp(self):
        self.daemon = self.start({"message_bytes_max": MIB, "payload_bytes_max": MIB // 4})

    def start(self, settings):
        daemon = HttpDaemon(settings)
        self.addCleanup(daemon.close)
        return daemon.start()

    def dial(self, source):
        return socket.create_connection(("127.0.0.1", self.daemon.http_port), BOUND_S, (source, 0))

    def connect(self, *sent, source="127.0.0.1"):
        connection = self.dial(source)
        self.addCleanup(connection.close)
        for each in sent:
            connection.sendall(each)
        return connection

    def answer(self, connection):
        """All that comes until the daemon closes the connection, or resets it."""
        got = b""
        try:
            while True:
                part = connection.recv(65536)
                if not part:
                    return got.decode()
                got += part
        except (ConnectionResetError, ssl.SSLError):
            return got.decode()

    def assert_serves(self):
        self.assertEqual(200, self.daemon.call("Verify", {"semaphore": "s", "slot": 1, "token": 1})[0])
        self.daemon.client().acquire("honest", limit=1000)

    def memory(self):
        with open(f"/proc/{self.daemon.process.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1]) * 1024

    def test_bodies_that_are_too_large(self):
        self.assertIn("413 ", self.answer(self.connect(
            head(SERVICE + "Verify", f"Content-Length: {MIB + 1}"))))
        self.assertIn("413 ", self.answer(self.connect(
            head(SERVICE + "Verify", "Content-Length: 18446744073709551615"))))
        chunked = self.connect(head(SERVICE + "Verify", "Transfer-Encoding: chunked"))
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        try:
            for _ in range(40):
                chunked.sendall(chunk)
        except OSError:
            pass  # It has been refused meanwhile.
        self.assertIn("413 ", self.answer(chunked))
        self.assert_serves()

    def test_bodies_that_are_no_bodies(self):
        for framing in (["Content-Length: x"], ["Content-Length: -1"],
                        ["Content-Length: 2", "Content-Length: 3"],
                        ["Content-Length: 2", "Transfer-Encoding: chunked"],
                        ["Transfer-Encoding: chunked, gzip"]):
            self.assertIn("HTTP/1.1 4", self.answer(self.connect(
                head(SERVICE + "Verify", *framing) + b"{}")), framing)
        for body in (b"zz\r\n", b"-1\r\n", b"ffffffffffffffffffff\r\n", b"5;" + b"x" * 9000,
                     b"2\r\n{}{}\r\n"):
            self.assertIn("HTTP/1.1 4", self.answer(self.connect(
                head(SERVICE + "Verify", "Transfer-Encoding: chunked") + body)), body[:20])
        self.assertIn("431 ", self.answer(self.connect(
            head(SERVICE + "Verify", "X: " + "x" * 9000))))
        self.assert_serves()

    def test_no_request_hides_in_a_body(self):
        hidden = head(SERVICE + "Acquire", "Content-Length: 30") + b'{"semaphore":"hid","limit":1}'
        body = b"[" + hidden + b"]"
        got = self.answer(self.connect(
            head(SERVICE + "Verify", f"Content-Length: {len(body)}", "Connection: close") + body))
        self.assertEqual(1, got.count("HTTP/1.1 "))
        self.assertEqual(404, self.daemon.call("Administer", {"semaphore": "hid", "describe": {}})[0])

    def test_slow_clients_are_closed(self):
        slow = [self.connect(b"POST"), self.connect(head(SERVICE + "Verify", "Content-Length: 9")),
                self.connect(head(SERVICE + "Verify", "Content-Length: 9") + b"{"),
                self.connect(head(SERVICE + "Verify", "Transfer-Encoding: chunked") + b"1")]
        begun = time.monotonic()
        for connection in slow:
            self.assertIn("HTTP/1.1 408 ", self.answer(connection))
        self.assertLess(time.monotonic() - begun, 20)
        self.assert_serves()

    def test_many_large_bodies_at_once(self):
        before = self.memory()
        request = head(SERVICE + "Verify", f"Content-Length: {MIB}") + b" " * (MIB - 1)
        connections = [self.connect() for _ in range(150)]
        for connection in connections:
            connection.setblocking(False)
        left = {connection: request for connection in connections}
        deadline = time.monotonic() + 8
        while left and time.monotonic() < deadline:
            for connection, rest in list(left.items()):
                try:
                    left[connection] = rest[connection.send(rest[:65536]):]
                except (BlockingIOError, ssl.SSLWantWriteError):
                    continue
                except OSError:
                    del left[connection]
                    continue
                if not left[connection]:
                    del left[connection]
        self.assert_serves()
        self.assertLess(self.memory() - before, 150 * MIB)

    def test_bodies_of_streams_are_not_kept(self):
        before = self.memory()
        watch = b'{"prefix":""}'
        request = head("/v1/watch", f"Content-Length: {MIB}") + b" " * (MIB - len(watch)) + watch
        for _ in range(10):
            streams = [self.connect(request) for _ in range(40)]
            for stream in streams:
                self.assertIn(b"HTTP/1.1 200 ", stream.recv(65536))
            for stream in streams:
                stream.close()
        self.assert_serves()
        self.assertLess(self.memory() - before, 200 * MIB)

    def test_more_connections_than_there_may_be(self):
        silent = [self.connect() for _ in range(CONNECTIONS_MAX + 50)]
        self.assert_serves()  # The oldest have gone for it.
        del silent
        self.assert_serves()

    def test_waits_are_not_closed_for_others(self):
        client = self.daemon.client()
        self.daemon.done("Acquire", {"semaphore": "s", "limit": 1})
        request = json.dumps({"semaphore": "s", "waitForever": True}).encode()
        wait = head(SERVICE + "Acquire", f"Content-Length: {len(request)}") + request
        waits = [self.connect(wait) for _ in range(OF_ONE_ADDRESS)]
        client.wait_for_queue("s", OF_ONE_ADDRESS)
        self.assertIn("503 ", self.answer(self.connect()))
        # Another address is served, up to the bound of all.
        waits += [self.connect(wait, source="127.0.0.2") for _ in range(CONNECTIONS_MAX - OF_ONE_ADDRESS)]
        client.wait_for_queue("s", CONNECTIONS_MAX)
        self.assertIn("503 ", self.answer(self.connect(source="127.0.0.3")))
        self.assertEqual(CONNECTIONS_MAX, client.waiting("s"))
        waits.pop(0).close()
        client.wait_for_queue("s", CONNECTIONS_MAX - 1)
        wait_until(lambda: self.daemon.ask("GET", "/")[0] == 200, "there is room again")

    def test_answers_that_are_not_read(self):
        before = self.memory()
        for number in range(200):
            self.daemon.client().acquire(f"list/{number:0100}", limit=1)
        request = json.dumps({"list": {"pageSize": 200}}).encode()
        one = head(SERVICE + "Administer", f"Content-Length: {len(request)}") + request
        connections = []
        for _ in range(100):
            connection = self.connect()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(one * 5)
            connections.append(connection)
        self.assert_serves()
        self.assertLess(self.memory() - before, 200 * MIB)

    def test_calls_and_streams_count_as_by_grpc(self):
        """More of both than the daemon may have: they are refused with the limit's name, and those that are served stand."""
        most = 40
        self.daemon = daemon = self.start({"calls_max": most, "streams_max": most})
        daemon.done("Acquire", {"semaphore": "s", "limit": 1})

        def posts(path, request, count):
            body = json.dumps(request).encode()
            return [self.connect(head(path, f"Content-Length: {len(body)}") + body) for _ in range(count)]

        def refusal(connection):
            answer = connection.makefile("rb")
            status = answer.readline()
            length = next(int(line.split()[1]) for line in answer if line.lower().startswith(b"content-length:"))
            while answer.readline() != b"\r\n":
                pass
            error = json.loads(answer.read(length))
            return status, error["code"], error["message"].split(":")[0], error_info(error)["reason"]
        waits = posts(SERVICE + "Acquire", {"semaphore": "s", "waitForever": True}, most + 10)
        refused = []

        def ten_are_answered():
            refused.extend(select.select([wait for wait in waits if wait not in refused], [], [], 0.1)[0])
            return len(refused) >= 10
        wait_until(ten_are_answered, "ten are refused")
        for connection in refused:
            self.assertEqual((b"HTTP/1.1 429 Too Many Requests\r\n", "resource_exhausted", "calls_max", "LIMIT_REACHED"),
                             refusal(connection))
        with self.assertRaises(grpc.RpcError) as raised:
            daemon.client().describe("s")
        self.assertIn("calls_max", raised.exception.details())
        waits = [wait for wait in waits if wait not in refused]
        self.assertEqual(most, len(waits))
        streams = posts("/v1/watch", {"semaphore": "s"}, most)
        for stream in streams:
            self.assertIn(b"HTTP/1.1 200 ", stream.recv(65536))
        more, = posts("/v1/hold", {"acquire": {"semaphore": "s", "waitForever": True}}, 1)
        self.assertEqual("streams_max", refusal(more)[2])
        for connection in waits[:20] + streams[:20]:
            connection.close()
        wait_until(lambda: daemon.call("Verify", {"semaphore": "s", "slot": 1, "token": 1})[0] == 200, "there is room again")
        daemon.client().wait_for_queue("s", most - 20)

    def test_a_flood_of_requests(self):
        bad = head("/nowhere", "Content-Length: 0") * 20
        connections = [self.connect(bad) for _ in range(100)]
        self.assert_serves()
        for connection in connections:
            self.assertIn("404 ", self.answer(connection))
        self.assert_serves()

    def test_a_stop_amid_a_flood_of_calls(self):
        call = head(SERVICE + "DescribeDaemon", "Content-Length: 2") + b"{}"
        for _ in range(4):
            connections = [self.connect(call * 300) for _ in range(40)]
            self.assertTrue(all(connection.recv(1) == b"H" for connection in connections[:4]))
            self.assertEqual(0, self.daemon.terminate())
            self.daemon.start()


if __name__ == "__main__":
    unittest.main()
