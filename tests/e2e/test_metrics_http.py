"""The HTTP server of the metrics, and clients that are not polite: a scrape is answered all the same."""

import gzip
import http.client
import os
import resource
import socket
import time
import unittest

from daemon import BOUND_S, wait_until
from scraping import Scrape, with_metrics

# More than a scrape of this small daemon takes on a loaded machine, less than any of the server's patience.
PROMPT_S = 4.0


class Impolite(unittest.TestCase):

    def setUp(self):
        self.daemon = self.enterContext(with_metrics())
        host, port = self.daemon.metrics.split(":")
        self.address = (host, int(port))

    def connect(self, **options):
        connection = socket.create_connection(self.address, timeout=BOUND_S, **options)
        self.addCleanup(connection.close)
        return connection

    def get(self, path="/metrics", method="GET", **headers):
        client = http.client.HTTPConnection(*self.address, timeout=BOUND_S)
        self.addCleanup(client.close)
        client.request(method, path, headers=headers)
        answer = client.getresponse()
        return answer, answer.read()

    def expect_prompt_scrape(self):
        begun = time.monotonic()
        scrape = Scrape(self.daemon.metrics)
        self.assertEqual(scrape.value("semaphored_scrape_complete"), 1)
        self.assertLess(time.monotonic() - begun, PROMPT_S)
        return scrape

    def test_50_silent_connections(self):
        for _ in range(50):
            self.connect()
        scrape = self.expect_prompt_scrape()
        self.assertGreaterEqual(scrape.value("semaphored_http_connections"), 51)
        self.assertEqual(scrape.value("semaphored_http_closed_total", reason="crowded"), 0)

    def test_300_connections_with_half_a_request(self):
        for number in range(300):
            self.connect().sendall(b"GET /metr" if number % 2 else b"GET /metrics HTTP/1.1\r\nA: b")
        scrape = self.expect_prompt_scrape()
        self.assertGreaterEqual(scrape.sum("semaphored_http_closed_total"), 45)
        self.assertLessEqual(scrape.value("semaphored_http_connections"), 256)

    def test_clients_that_do_not_read(self):
        for _ in range(100):
            connection = socket.socket()
            self.addCleanup(connection.close)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(self.address)
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n" * 20)
        self.expect_prompt_scrape()

    def test_huge_heads(self):
        for _ in range(20):
            connection = self.connect()
            try:
                for _ in range(64):
                    connection.sendall(b"GET /" + b"a" * 65536)
            except OSError:
                pass  # It is refused before it has sent all.
        scrape = self.expect_prompt_scrape()
        self.assertEqual(scrape.value("semaphored_http_answers_total", code="431"), 20)

    def test_silent_connections_are_closed(self):
        silent = self.connect()
        half = self.connect()
        half.sendall(b"GET /metrics HTTP/1.1\r\n")
        self.assertEqual(silent.recv(1), b"")
        self.assertIn(b"HTTP/1.1 408 ", half.recv(1024))
        wait_until(lambda: Scrape(self.daemon.metrics).value(
            "semaphored_http_closed_total", reason="slow") == 2, "both are counted")

    def test_requests_one_behind_the_other(self):
        connection = self.connect()
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 3 + b"GET /other HTTP/1.1\r\n\r\n")
        answers = b""
        while part := connection.recv(65536):
            answers += part
        self.assertEqual(answers.count(b"HTTP/1.1 200 OK\r\n"), 3)
        self.assertTrue(answers.endswith(b"Not Found\n"))

    def test_methods_and_paths(self):
        answer, page = self.get()
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.getheader("Content-Type"),
                         "text/plain; version=0.0.4; charset=utf-8")
        self.assertIn(b"semaphored_build_info", page)
        answer, page = self.get(method="HEAD")
        self.assertEqual((answer.status, page), (200, b""))
        self.assertEqual(self.get("/")[0].status, 404)
        self.assertEqual(self.get("/metrics/..")[0].status, 404)
        answer, _ = self.get(method="POST")
        self.assertEqual((answer.status, answer.getheader("Allow")), (405, "GET, HEAD"))
        self.assertEqual(self.get("/metrics?name=x")[0].status, 200)

    def test_gzip(self):
        answer, packed = self.get(**{"Accept-Encoding": "gzip"})
        self.assertEqual(answer.getheader("Content-Encoding"), "gzip")
        page = gzip.decompress(packed)
        self.assertIn(b"semaphored_build_info", page)
        self.assertLess(len(packed), len(page) / 4)

    def test_no_connection_delays_the_daemons_end(self):
        for number in range(60):
            connection = self.connect()
            if number % 3 == 1:
                connection.sendall(b"GET /metr")
            elif number % 3 == 2:
                connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 10)
        begun = time.monotonic()
        self.assertEqual(self.daemon.terminate(), 0)
        self.assertLess(time.monotonic() - begun, PROMPT_S)

    def test_without_descriptors_it_does_not_spin(self):
        pid = self.daemon.process.pid
        client = http.client.HTTPConnection(*self.address, timeout=BOUND_S)
        self.addCleanup(client.close)
        client.request("GET", "/metrics")
        client.getresponse().read()
        silent = client.sock  # It has a descriptor of the daemon's, and is idle now.
        open_files = len(os.listdir(f"/proc/{pid}/fd"))
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_files, hard))
        late = self.connect()
        self.daemon.wait_log("cannot accept connections for the moment")
        self.assertEqual(silent.recv(1), b"")
        late.sendall(b"GET /other HTTP/1.1\r\n\r\n")
        self.assertIn(b"404", late.recv(1024))


if __name__ == "__main__":
    unittest.main()
