"""The API by HTTP and JSON: every unary call, what is refused, and what a client that goes leaves behind."""

import json
import os
import re
import signal
import socket
import tempfile
import unittest

from daemon import BOUND_S, pb, wait_until
from http_client import SERVICE, HttpDaemon, error_info, later

ONE_SHOT = "5cb5cb3e-2f6f-4b52-9d4a-58bbd5a1f5a1"


class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = HttpDaemon().start()
        cls.addClassCleanup(cls.daemon.close)

    def test_takes_keeps_shows_and_gives_back(self):
        daemon = self.daemon
        lease = daemon.done("Acquire", {"semaphore": "web/a", "limit": 2, "ttl_ms": 20000,
                                        "holder": "me"})["lease"]
        self.assertEqual("web/a", lease["semaphore"])
        self.assertEqual([{"first": 1, "last": 1}], lease["slots"])
        held = daemon.client().describe("web/a")
        self.assertEqual(1, held.held)
        self.assertIn("validity", daemon.done("Renew", {"leaseId": lease["leaseId"]}))
        verdict = daemon.done("Verify", {"leaseId": lease["leaseId"]})
        self.assertTrue(verdict["held"])
        self.assertEqual(1, daemon.describe_http("web/a")["held"])
        self.assertEqual(1, daemon.done("Release", {"leaseId": lease["leaseId"]})["released"])
        self.assertIs(False, daemon.done("Verify", {"leaseId": lease["leaseId"]})["held"])
        self.assertEqual(0, daemon.client().describe("web/a").held)

    def test_administers_and_enqueues(self):
        daemon = self.daemon
        made = daemon.done("Administer", {"semaphore": "web/b", "create": {"limit": 3}})
        self.assertEqual(3, made["create"]["semaphore"]["limit"])
        daemon.done("Administer", {"semaphore": "web/b", "resize": {"limit": 5}})
        self.assertEqual(5, daemon.client().describe("web/b").limit)
        ticket = daemon.done("Enqueue", {"semaphore": "web/b", "payload": "aGVsbG8="})
        self.assertEqual("1", str(ticket["position"]))
        shown = daemon.client().administer("web/b", show_ticket=pb.ShowTicket(ticket_id=ticket["ticketId"]))
        self.assertEqual(b"hello", shown.payload)

    def test_the_same_id_twice_is_one_request(self):
        request = {"semaphore": "web/c", "limit": 2, "requestId": {"oneShot": ONE_SHOT}}
        first = self.daemon.done("Acquire", request)
        self.assertEqual(first["lease"]["leaseId"],
                         self.daemon.done("Acquire", request)["lease"]["leaseId"])
        self.assertEqual(1, self.daemon.client().describe("web/c").held)
        status, error = self.daemon.call("Acquire", {**request, "permits": 2})
        self.assertEqual((400, "REQUEST_ID_REUSED"), (status, error_info(error)["reason"]))

    def test_errors_are_those_of_grpc(self):
        self.daemon.done("Acquire", {"semaphore": "web/d", "limit": 1})
        status, error = self.daemon.call("Acquire", {"semaphore": "web/d"})
        self.assertEqual((429, "resource_exhausted"), (status, error["code"]))
        info = error_info(error)
        self.assertEqual(("FULL", "semaphored", "web/d"),
                         (info["reason"], info["domain"], info["metadata"]["semaphore"]))
        status, error = self.daemon.call("Acquire", {"semaphore": "web/d", "waitMs": 50})
        self.assertEqual((504, "WAIT_EXPIRED"), (status, error_info(error)["reason"]))
        status, error = self.daemon.call("Acquire", {"semaphore": "web/none"})
        self.assertEqual((404, "NO_SUCH_SEMAPHORE"), (status, error_info(error)["reason"]))
        status, error = self.daemon.call("Acquire", {"semaphore": "web/d", "permits": 2 ** 31})
        self.assertEqual((400, "INVALID_FIELD"), (status, error_info(error)["reason"]))
        self.assertIn("permits", error["message"])

    def test_bad_json_names_its_field(self):
        for body, named in [('{"semaphore": "x", "limt": 1}', "limt: "),
                            ('{"requestId": {"nmbered": 1}}', "request_id.nmbered: "),
                            ('{"semaphore": "x", "limit": "many"}', "limit"),
                            ('{"semaphore": "x", "limit": -1}', "limit"),
                            ('{"semaphore": 1.5, "requestId": {"numbered": {"sequence": []}}}',
                             "sequence"),
                            # What Protobuf's reader takes.
                            ('{"semaphore": "x", "limit": 1, "limit": 2}', "limit: "),
                            ('{"semaphore": "x", "ttlMs": 1000, "ttl_ms": 2000}', "ttl_ms: "),
                            ('{"requestId": {"numbered": {"sequence": 1, "sequence": 2}}}',
                             "requestId.numbered.sequence: "),
                            ('{semaphore: "x", "limit": 1}', "byte"),
                            ("{'semaphore': 'x', 'limit': 1}", "byte"),
                            ('{"semaphore": "x", "limit": 1,}', "byte"),
                            ('{"semaphore": "x"', ""), ("", "empty"), ("[]", ""), ("7", ""),
                            ("[" * 5000, ""), ('{"semaphore": "\ud800"}', ""),
                            (b'{"semaphore": "\xff"}', "")]:
            with self.subTest(body[:50]):
                body = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
                status, _, text = self.daemon.ask("POST", SERVICE + "Acquire", body,
                                                  {"Content-Type": "application/json"})
                error = json.loads(text)
                self.assertEqual((400, "invalid_argument"), (status, error["code"]), text)
                self.assertEqual("INVALID_FIELD", error_info(error)["reason"])
                self.assertIn(named, error["message"])

    def test_types_methods_and_paths(self):
        ask = self.daemon.ask
        self.assertEqual(415, ask("POST", SERVICE + "Acquire", "{}", {"Content-Type": "text/plain"})[0])
        self.assertEqual(415, ask("POST", SERVICE + "Acquire", "{}")[0])
        self.assertEqual(415, ask("POST", SERVICE + "Acquire", "semaphore=x", {
            "Content-Type": "application/x-www-form-urlencoded"})[0])
        self.assertEqual(415, ask("POST", SERVICE + "Acquire", "{}", {
            "Content-Type": "application/json", "Content-Encoding": "gzip"})[0])
        status, headers, _ = ask("GET", SERVICE + "Acquire")
        self.assertEqual((405, "POST"), (status, headers["Allow"]))
        self.assertEqual(405, ask("OPTIONS", SERVICE + "Acquire")[0])
        self.assertEqual(404, ask("POST", SERVICE + "Session", "{}")[0])
        self.assertEqual(404, ask("GET", "/../etc/passwd")[0])
        proto = pb.VerifyRequest(semaphore="web/a", slot=1, token=1).SerializeToString()
        self.assertEqual(200, ask("POST", SERVICE + "Verify", proto, {
            "Content-Type": "application/proto"})[0])

    def test_what_no_route_sees_is_an_error_too(self):
        def refused(*request):
            with socket.create_connection(("127.0.0.1", self.daemon.http_port), BOUND_S) as connection:
                connection.sendall(b"\r\n".join(request) + b"\r\n\r\n")
                head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
            self.assertIn(b"Content-Type: application/json\r\n", head)
            error = json.loads(body)
            return int(head.split()[1]), error["code"], error_info(error)["reason"]
        post = b"POST " + SERVICE.encode()
        typed = b"Content-Type: application/json"
        self.assertEqual((404, "unimplemented", "NOT_SUPPORTED"),
                         refused(post + b"Session HTTP/1.1", b"Host: localhost", b"Content-Length: 0"))
        self.assertEqual((405, "unimplemented", "NOT_SUPPORTED"),
                         refused(b"GET " + SERVICE.encode() + b"Acquire HTTP/1.1", b"Host: localhost"))
        self.assertEqual((413, "resource_exhausted", "LIMIT_REACHED"),
                         refused(post + b"Acquire HTTP/1.1", b"Host: localhost", typed, b"Content-Length: 999999999"))
        self.assertEqual((431, "resource_exhausted", "LIMIT_REACHED"),
                         refused(post + b"Acquire HTTP/1.1", b"X: " + b"x" * 9000))
        for framing in (b"Content-Length: x", b"Transfer-Encoding: gzip, chunked"):
            self.assertEqual((400, "invalid_argument", "INVALID_FIELD"),
                             refused(post + b"Acquire HTTP/1.1", b"Host: localhost", typed, framing))

    def test_head_is_get_without_the_body(self):
        for path, type_ in (("/", "text/html; charset=utf-8"), ("/openapi.json", "application/json"),
                            ("/session", "application/json"), ("/v1/watch?prefix=", "text/event-stream"),
                            ("/page/feed?view=list", "text/event-stream")):
            status, headers, text = self.daemon.ask("HEAD", path)
            self.assertEqual((200, type_, ""), (status, headers["Content-Type"], text), path)
        self.assertEqual(405, self.daemon.ask("HEAD", SERVICE + "Acquire")[0])

    def test_the_version_of_connect(self):
        verify = {"semaphore": "web/v", "slot": 1, "token": 1}
        self.daemon.done("Verify", verify, {"Connect-Protocol-Version": "1"})
        status, error = self.daemon.call("Verify", verify, {"Connect-Protocol-Version": "2"})
        self.assertEqual((400, "INVALID_FIELD"), (status, error_info(error)["reason"]))
        self.assertIn("Connect-Protocol-Version", error["message"])

    def test_a_client_that_waits_before_its_body(self):
        body = b'{"semaphore":"web/w","slot":1,"token":1}'

        def begin(*more):
            connection = socket.create_connection(("127.0.0.1", self.daemon.http_port), BOUND_S)
            self.addCleanup(connection.close)
            lines = [f"POST {SERVICE}Verify HTTP/1.1", "Host: localhost", "Content-Type: application/json",
                     "Connection: close", *more]
            connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
            return connection, connection.makefile("rb")
        length = f"Content-Length: {len(body)}"
        for expected, framed, sent in ((" 100-Continue", length, body),
                                       ("100-continue", "Transfer-Encoding: chunked",
                                        b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))):
            connection, answer = begin(framed, "Expect: " + expected)
            self.assertEqual(b"HTTP/1.1 100 Continue\r\n", answer.readline())
            self.assertEqual(b"\r\n", answer.readline())
            connection.sendall(sent)
            self.assertEqual(b"HTTP/1.1 200 OK\r\n", answer.readline())
            self.assertIn(b'"held":false', answer.read())
        # What is refused is refused before the body.
        for more, status in (([f"Content-Length: {1 << 30}"], b" 413 "),
                             ([length, "Origin: http://evil.example"], b" 403 ")):
            self.assertIn(status, begin("Expect: 100-continue", *more)[1].readline())

    def test_a_time_limit_of_connect(self):
        self.daemon.done("Acquire", {"semaphore": "web/e", "limit": 1})
        status, error = self.daemon.call("Acquire", {"semaphore": "web/e", "waitForever": True},
                                         {"Connect-Timeout-Ms": "100"})
        self.assertEqual((504, "deadline_exceeded"), (status, error["code"]))
        wait_until(lambda: self.daemon.client().describe("web/e").waiting == 0,
                   "the wait has left the queue")
        for wrong in ("soon", "-1", "12345678901", ""):
            status, error = self.daemon.call("Verify", {"leaseId": "x"},
                                             {"Connect-Timeout-Ms": wrong})
            self.assertEqual(400, status)
            self.assertIn("Connect-Timeout-Ms", error["message"])

    def test_a_client_that_goes_leaves_the_queue(self):
        client = self.daemon.client()
        self.daemon.done("Acquire", {"semaphore": "web/f", "limit": 1})
        with self.daemon.connect() as connection:
            connection.request("POST", SERVICE + "Acquire",
                               json.dumps({"semaphore": "web/f", "waitForever": True}),
                               {"Content-Type": "application/json"})
            client.wait_for_queue("web/f", 1)
        client.wait_for_queue("web/f", 0)

    def half_closed(self, method, request):
        """The daemon's end of a connection on which a request was sent, and no more will be."""
        body = json.dumps(request).encode()
        connection = socket.create_connection(("127.0.0.1", self.daemon.http_port), BOUND_S)
        self.addCleanup(connection.close)
        connection.sendall(f"POST {SERVICE}{method} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                           f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        connection.shutdown(socket.SHUT_WR)
        return connection

    def test_a_client_that_sends_no_more_is_answered(self):
        client = self.daemon.client()
        lease = self.daemon.done("Acquire", {"semaphore": "web/h", "limit": 1})["lease"]
        with self.half_closed("Verify", {"leaseId": lease["leaseId"]}).makefile("rb") as answer:
            self.assertIn(b'"held":true', answer.read())
        waits = self.half_closed("Acquire", {"semaphore": "web/h", "waitForever": True}).makefile("rb")
        self.assertEqual(b"HTTP/1.1 100 Continue\r\n", waits.readline())  # It waits, and is known to have ended.
        client.wait_for_queue("web/h", 1)
        goes = self.half_closed("Acquire", {"semaphore": "web/h", "waitForever": True})
        client.wait_for_queue("web/h", 2)
        goes.close()
        client.wait_for_queue("web/h", 1)
        self.daemon.done("Release", {"leaseId": lease["leaseId"]})
        rest = waits.read()
        self.assertIn(b"HTTP/1.1 200 OK\r\n", rest)
        self.assertIn(b'"semaphore":"web/h"', rest)

    def test_a_wait_ends_with_the_permit(self):
        client = self.daemon.client()
        lease = self.daemon.done("Acquire", {"semaphore": "web/g", "limit": 1})["lease"]
        waiting = later(self.daemon.done, "Acquire", {"semaphore": "web/g", "waitForever": True})
        client.wait_for_queue("web/g", 1)
        self.daemon.done("Release", {"leaseId": lease["leaseId"]})
        self.assertEqual("web/g", waiting()["lease"]["semaphore"])

    def test_what_is_embedded(self):
        status, headers, text = self.daemon.ask("GET", "/")
        self.assertEqual((200, "text/html; charset=utf-8"), (status, headers["Content-Type"]))
        policy = headers["Content-Security-Policy"]
        for part in ("default-src 'none'", "frame-ancestors 'none'", "connect-src 'self'",
                     "base-uri 'none'", "form-action 'none'"):
            self.assertIn(part, policy)
        self.assertNotIn("unsafe", policy)
        self.assertEqual("nosniff", headers["X-Content-Type-Options"])
        self.assertEqual("no-referrer", headers["Referrer-Policy"])
        self.assertIn("<html", text)
        self.assertLess(len(text.encode()), 100_000)
        # It loads nothing, and names no other server: the one URL in it is the name of SVG's elements.
        self.assertEqual({"http://www.w3.org/2000/svg"}, set(re.findall(r"\b(?:https?|wss?):[^\s\"'<>`)]*", text)))
        self.assertEqual([], re.findall(r"<link (?!rel=\"icon\" href=\"data:)|<iframe|<object|<embed|@import|\bsrc=|\burl\(|\bimport\b", text))
        tag = headers["ETag"]
        for known in (tag, f'W/"x", W/{tag}'):  # (A proxy that compresses makes a weak one of it.)
            again = self.daemon.ask("GET", "/", headers={"If-None-Match": known})
            self.assertEqual((304, ""), (again[0], again[2]))
        # The compressed form has other bytes, and so another tag.
        def packed(**more):
            with self.daemon.connect() as connection:
                connection.request("GET", "/", headers={"Accept-Encoding": "gzip", **more})
                answer = connection.getresponse()
                return answer.status, answer.headers, answer.read()
        status, headers, _ = packed(**{"If-None-Match": tag})
        self.assertEqual((200, "gzip"), (status, headers["Content-Encoding"]))
        self.assertNotEqual(tag, headers["ETag"])
        self.assertEqual(304, packed(**{"If-None-Match": headers["ETag"]})[0])
        status, _, text = self.daemon.ask("GET", "/openapi.json")
        with open(os.path.join(os.path.dirname(__file__), "..", "..", "proto", "openapi.json"),
                  encoding="utf-8") as file:
            self.assertEqual((200, file.read()), (status, text))


class Ends(unittest.TestCase):
    def test_the_daemon_stops_under_a_wait(self):
        with HttpDaemon() as daemon:
            client = daemon.client()
            daemon.done("Acquire", {"semaphore": "s", "limit": 1})
            waiting = later(daemon.call, "Acquire", {"semaphore": "s", "waitForever": True})
            client.wait_for_queue("s", 1)
            self.assertEqual(0, daemon.terminate())
            status, error = waiting()
            self.assertEqual((503, "unavailable"), (status, error["code"]))

    def test_leases_outlive_the_daemon(self):
        with HttpDaemon() as daemon:
            lease = daemon.done("Acquire", {"semaphore": "s", "limit": 1, "ttlMs": 60000})["lease"]
            daemon.kill9()
            daemon.start()
            self.assertTrue(daemon.done("Verify", {"leaseId": lease["leaseId"]})["held"])

    def test_an_address_that_is_taken(self):
        with HttpDaemon() as daemon:
            second = HttpDaemon({"http_listen": daemon.http_address})
            self.addCleanup(second.close)
            second.spawn()
            self.assertEqual(4, second.wait_exit())
            self.assertIn("http_listen: cannot listen on", second.log())

    def test_writes_are_reloaded(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('http_listen = "127.0.0.1:0"\nhttp_writes = "off"\n')
            file.flush()
            daemon = HttpDaemon({"config": file.name})
            self.addCleanup(daemon.close)
            for key in ("http_listen", "http_writes"):
                del daemon.settings[key]
            daemon.start()
            request = {"semaphore": "s", "limit": 1}
            status, error = daemon.call("Acquire", request)
            self.assertEqual((403, "permission_denied"), (status, error["code"]))
            self.assertIn("http_writes", error["message"])
            self.assertEqual(200, daemon.call("Verify", {"semaphore": "s", "slot": 1,
                                                         "token": 1})[0])
            file.seek(0)
            file.truncate()
            file.write('http_listen = "127.0.0.1:0"\nhttp_writes = "on"\n')
            file.flush()
            daemon.signal(signal.SIGHUP)
            daemon.wait_log("the configuration was read")
            self.assertEqual(200, daemon.call("Acquire", request)[0])

    def test_the_default_gives_way(self):
        # Whether another program has the default address, or this daemon: the API is served.
        daemons = [HttpDaemon({"http_listen": "auto"}) for _ in range(2)]
        for daemon in daemons:
            self.addCleanup(daemon.close)
            daemon.spawn()
            daemon.wait_healthy()
        wait_until(lambda: "there is no HTTP: http_listen: cannot listen on 127.0.0.1:7422"
                   in daemons[1].log(), "the second daemon goes without")

    def test_where_http_would_let_in_more_there_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            daemon = HttpDaemon({"http_listen": "auto"})
            daemon.address = "unix:" + os.path.join(folder, "s.sock")
            self.addCleanup(daemon.close)
            daemon.spawn()
            daemon.wait_log("semaphored 0.")
            daemon.wait_healthy()
            self.assertNotIn("http at", daemon.log())


if __name__ == "__main__":
    unittest.main()
