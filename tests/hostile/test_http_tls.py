"""Attacks by HTTP with TLS: all those without it, and those that only TLS makes possible."""

import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

import test_http  # noqa: E402
from certificates import Authority  # noqa: E402
from daemon import BOUND_S, wait_until  # noqa: E402
from test_http_tls import HttpsDaemon  # noqa: E402


def https(case, settings):
    """A daemon that asks for certificates, and does not require them."""
    folder = tempfile.TemporaryDirectory(prefix="semaphored-https-")
    case.addCleanup(folder.cleanup)
    authority = Authority(folder.name, "ca")
    server = authority.sign("server")
    daemon = HttpsDaemon({"tls_cert_file": server.cert_file, "tls_key_file": server.key_file,
                          "tls_client_ca_file": authority.cert_file, "tls_client_certificates": "optional",
                          "http_writes": "on", **settings}, authority)
    case.addCleanup(daemon.close)
    return daemon.start()


class ByTls(test_http.Attacks):
    """Those of test_http.py, within TLS."""

    def start(self, settings):
        return https(self, settings)

    def dial(self, source):
        return self.daemon.raw(source=source)


class Handshakes(unittest.TestCase):
    def setUp(self):
        self.daemon = https(self, {"handshake_timeout": "2s"})

    def plain(self, source="127.0.0.1"):
        connection = socket.create_connection(("127.0.0.1", self.daemon.http_port), BOUND_S, (source, 0))
        self.addCleanup(connection.close)
        return connection

    def assert_serves(self, source="127.0.0.1"):
        with self.daemon.raw(b"GET /session HTTP/1.1\r\nHost: localhost\r\n\r\n", source=source) as connection:
            self.assertIn(b"HTTP/1.1 200 ", connection.recv(4096))

    def ended_within(self, connections, bound_s):
        begun = time.monotonic()
        for connection in connections:
            try:
                while connection.recv(65536):
                    pass
            except OSError:
                pass
        self.assertLess(time.monotonic() - begun, bound_s)

    def test_handshakes_that_do_not_end(self):
        hello = self.hello()
        silent = [self.plain() for _ in range(20)]
        for size in (1, 5, 6, len(hello) // 2, len(hello) - 1):
            connection = self.plain()
            connection.sendall(hello[:size])
            silent.append(connection)
        answered = self.plain()
        answered.sendall(hello)  # And nothing of what has to follow the daemon's answer.
        self.assert_serves()
        self.ended_within([*silent, answered], 10)
        self.assert_serves()

    def hello(self):
        """What a client of TLS begins with."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self.daemon.context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            pass
        return outgoing.read()

    def test_a_hello_byte_by_byte(self):
        connection = self.plain()
        hello = self.hello()
        begun = time.monotonic()
        with self.assertRaises(OSError):
            for byte in hello * 10:
                connection.sendall(bytes([byte]))
                time.sleep(0.05)
        self.assertLess(time.monotonic() - begun, 10)

    def test_what_is_no_handshake(self):
        for sent in (b"\0" * 65536, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 70_000,
                     b"\x15\x03\x01\x00\x02\x02\x28", b"\x17\x03\x03\x40\x00" + b"x" * 16384, os.urandom(5000)):
            connection = self.plain()
            try:
                connection.sendall(sent)
            except OSError:
                pass  # It was refused meanwhile.
            self.ended_within([connection], 10)
        self.assert_serves()

    def test_more_that_wait_than_there_may_be(self):
        """An address that takes all of the door leaves a part of it to others."""
        silent = [self.plain() for _ in range(1100)]
        self.assert_serves(source="127.0.0.2")
        self.ended_within(silent, 30)
        wait_until(lambda: self.serves_again(), "its own address is served again")

    def serves_again(self):
        try:
            self.assert_serves()
            return True
        except OSError:
            return False

    def test_renegotiation_is_refused(self):
        for version, letter in (("-tls1_2", b"R\n"), ("-tls1_3", b"K\n" * 5)):
            asking = subprocess.Popen(
                ["openssl", "s_client", "-connect", f"127.0.0.1:{self.daemon.http_port}", version, "-alpn", "http/1.1"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.addCleanup(asking.stdout.close)
            try:
                asking.stdin.write(letter)
                asking.stdin.flush()
                output, _ = asking.communicate(timeout=BOUND_S)
            except subprocess.TimeoutExpired:
                asking.kill()
                output, _ = asking.communicate()
            self.assertIn(b"BEGIN CERTIFICATE", output)
            if version == "-tls1_2":
                self.assertIn(b"no renegotiation", output)
        self.assert_serves()

    def test_a_client_that_stands_beside_a_flood_of_handshakes(self):
        """A connection that is served waits for no handshake of others."""
        ends = threading.Event()
        made = []

        def flood(source):
            while not ends.is_set():
                try:
                    self.daemon.raw(source=source).close()
                    made.append(1)
                except OSError:
                    pass
        attackers = [threading.Thread(target=flood, args=(f"127.0.0.{number}",)) for number in range(2, 10)]
        took = []
        with self.daemon.raw() as honest:
            for attacker in attackers:
                attacker.start()
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                begun = time.monotonic()
                honest.sendall(b"GET /session HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answer = b""
                while not answer.endswith(b"}"):
                    answer += honest.recv(65536)
                self.assertIn(b"HTTP/1.1 200 ", answer)
                took.append(time.monotonic() - begun)
            ends.set()
            for attacker in attackers:
                attacker.join(BOUND_S)
        self.assertGreater(len(made), 100)
        self.assertLess(sorted(took)[len(took) * 99 // 100], 0.5)

    def test_what_a_connection_costs(self):
        def memory():
            with open(f"/proc/{self.daemon.process.pid}/status", encoding="ascii") as file:
                return int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1]) * 1024
        count = 600
        request = b"GET /session HTTP/1.1\r\nHost: localhost\r\n\r\n"
        self.daemon.raw(request).close()
        before = memory()
        standing = []
        for _ in range(count):
            standing.append(self.daemon.raw(request))
            self.addCleanup(standing[-1].close)
            standing[-1].recv(4096)
        self.assertLess((memory() - before) / count, 100_000)


if __name__ == "__main__":
    unittest.main()
