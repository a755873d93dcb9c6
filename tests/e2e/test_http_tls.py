"""HTTP by TLS: tokens and client certificates, other sites' requests, and connections that end."""

import http.client
import json
import os
import socket
import ssl
import subprocess
import tempfile
import unittest

from certificates import Authority
from daemon import BOUND_S, pb, pb_grpc, wait_until
from http_client import SERVICE, Events, HttpDaemon, error_info
from test_security import TlsDaemon, new_token, replace

JSON = {"Content-Type": "application/json"}
OWN = {"X-Semaphored": "1"}
APP = "spiffe://test/app"
OPS = "spiffe://test/ops"


class HttpsDaemon(HttpDaemon, TlsDaemon):
    """Its HTTP is by TLS; it is asked by `pair`, a client certificate, or by none."""

    def __init__(self, settings, authority):
        super().__init__({"http_tls": "on", "http_writes": "token", **settings})
        self.authority = authority
        self.pair = None

    def context(self, protocols=("http/1.1",)):
        context = ssl.create_default_context(cafile=self.authority.cert_file)
        context.set_alpn_protocols(list(protocols))
        if self.pair is not None:
            context.load_cert_chain(self.pair.cert_file, self.pair.key_file)
        return context

    def channel(self, address=None, options=()):
        return self.secure_channel(self.authority, self.pair)

    def open_http(self):
        return http.client.HTTPSConnection("127.0.0.1", self.http_port, timeout=BOUND_S,
                                           context=self.context())

    def raw(self, *sent, source="127.0.0.1", **options):
        """A connection by TLS on which the bytes were sent."""
        plain = socket.create_connection(("127.0.0.1", self.http_port), BOUND_S, (source, 0))
        connection = self.context(**options).wrap_socket(plain, server_hostname="127.0.0.1")
        for each in sent:
            connection.sendall(each)
        return connection


class HttpsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-https-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.authority = Authority(cls.folder, "ca")
        cls.foreign = Authority(cls.folder, "foreign-ca")
        cls.server = cls.authority.sign("server")
        cls.app = cls.authority.sign("app", f"URI:{APP}")
        cls.ops = cls.authority.sign("ops", f"URI:{OPS}")
        cls.unknown = cls.authority.sign("unknown", "URI:spiffe://test/unknown")
        cls.stranger = cls.foreign.sign("app", f"URI:{APP}")

    def settings(self, **more):
        return {"tls_cert_file": self.server.cert_file, "tls_key_file": self.server.key_file,
                "tls_client_ca_file": self.authority.cert_file,
                "tls_client_certificates": "optional", **more}

    def write_access(self, app=APP, more=""):
        self.token, digest = new_token()
        replace(self.access, (
            f'[identities.app]\ncertificates = ["uri:{app}"]\n'
            'rules = [{ prefixes = ["app/"], verbs = ["acquire"] }]\nquotas = { permits = 2 }\n'
            f'[identities.ops]\ncertificates = ["uri:{OPS}"]\ntokens = ["{digest}"]\n'
            'rules = [{ prefixes = [""], verbs = ["administer", "verify", "acquire"] }]\n' + more).encode())

    def start(self, more="", **settings):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-https-")
        self.addCleanup(folder.cleanup)
        self.access, self.audit = (os.path.join(folder.name, name) for name in ("access.toml", "audit.log"))
        self.write_access(more=more)
        daemon = HttpsDaemon(self.settings(access_file=self.access, audit_file=self.audit, **settings),
                             self.authority)
        self.addCleanup(daemon.close)
        return daemon.start()

    def bearer(self):
        return {"Authorization": "Bearer " + self.token}


class Identities(HttpsTest):
    def test_a_certificate_is_the_identity_that_it_is_by_grpc(self):
        daemon = self.start()
        acquire = {"semaphore": "app/a", "limit": 9}
        daemon.pair = self.app
        lease = daemon.done("Acquire", acquire)["lease"]
        self.assertEqual({"accessControl": True, "identity": "app", "writes": True},
                         json.loads(daemon.ask("GET", "/session")[2]))
        status, error = daemon.call("Acquire", {"semaphore": "ops/a", "limit": 1})
        self.assertEqual((403, "PERMISSION_DENIED"), (status, error_info(error)["reason"]))
        # One quota for both ways.
        stub = pb_grpc.SemaphoreServiceStub(daemon.secure_channel(self.authority, self.app))
        stub.Acquire(pb.AcquireRequest(**acquire), timeout=BOUND_S)
        status, error = daemon.call("Acquire", acquire)
        self.assertEqual((429, "QUOTA"), (status, error_info(error)["reason"]))
        # One owner, too.
        stub.Release(pb.ReleaseRequest(lease_id=lease["leaseId"]), timeout=BOUND_S)
        # A token counts, and the certificate does not help a wrong one.
        self.assertEqual("ops", json.loads(daemon.ask("GET", "/session", None, self.bearer())[2])["identity"])
        self.assertEqual(401, daemon.call("Acquire", acquire, {"Authorization": "Bearer x"})[0])
        self.assertEqual(401, daemon.call("Acquire", acquire, {"Authorization": ""})[0])

    def test_acts_are_in_the_audit_log(self):
        daemon = self.start()
        daemon.pair = self.ops
        daemon.done("Administer", {"semaphore": "x", "create": {"limit": 1}})
        daemon.pair = self.app
        self.assertEqual(403, daemon.call("Administer", {"semaphore": "app/x", "pause": {}})[0])
        self.assertEqual(0, daemon.terminate())
        with open(self.audit, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual([("ops", "create", "OK"), ("app", "pause", "PERMISSION_DENIED")],
                         [(line["identity"], line["act"], line["outcome"]) for line in lines])
        for line in lines:
            self.assertRegex(line["peer"], r"^ipv4:127\.0\.0\.1:\d+$")

    def test_without_a_certificate_and_with_one_that_stands_nowhere(self):
        verify, acquire = {"semaphore": "s", "slot": 1, "token": 1}, {"semaphore": "s", "limit": 1}
        daemon = self.start()
        for pair in (None, self.unknown):
            daemon.pair = pair
            self.assertEqual(401, daemon.call("Verify", verify)[0])
            self.assertEqual(401, daemon.call("Acquire", acquire)[0])
            self.assertEqual("", json.loads(daemon.ask("GET", "/session")[2])["identity"])
            with Events(daemon, "GET", "/page/feed?view=list") as events:
                self.assertEqual(401, events.answer.status)
            # A token does.
            lease = daemon.done("Acquire", acquire, self.bearer())["lease"]
            daemon.done("Release", {"leaseId": lease["leaseId"]}, self.bearer())

    def test_the_anonymous_identity_only_reads(self):
        daemon = self.start('[identities.anonymous]\nrules = [{ prefixes = [""], verbs = ["acquire", "verify"] }]\n')
        for pair in (None, self.unknown):
            daemon.pair = pair
            self.assertEqual(200, daemon.call("Verify", {"semaphore": "s", "slot": 1, "token": 1})[0])
            status, error = daemon.call("Acquire", {"semaphore": "s", "limit": 1})
            self.assertEqual(403, status)
            self.assertIn("http_writes", error["message"])
            shown = json.loads(daemon.ask("GET", "/session")[2])
            self.assertEqual(("", False), (shown["identity"], shown["writes"]))
        daemon.pair = self.app
        self.assertEqual(200, daemon.call("Acquire", {"semaphore": "app/s", "limit": 1})[0])

    def test_a_certificate_with_very_many_names(self):
        names = ",".join(f"DNS:{number}.{'n' * 40}.example" for number in range(500))
        daemon = self.start()
        daemon.pair = self.authority.sign("many", f"{names},URI:{APP}")
        daemon.done("Acquire", {"semaphore": "app/s", "limit": 1})

    def test_one_of_another_authority_or_that_has_expired_cannot_connect(self):
        daemon = self.start()
        for pair in (self.stranger, self.authority.sign("late", f"URI:{OPS}", days=-1)):
            daemon.pair = pair
            with self.assertRaises((ssl.SSLError, OSError, http.client.HTTPException)):
                daemon.ask("GET", "/session")
        daemon.pair = self.app
        daemon.done("Acquire", {"semaphore": "app/s", "limit": 1})

    def test_where_certificates_are_required(self):
        daemon = self.start(tls_client_certificates="require")
        with self.assertRaises((ssl.SSLError, OSError, http.client.HTTPException)):
            daemon.ask("GET", "/session", None, self.bearer())
        daemon.pair = self.unknown
        self.assertEqual(200, daemon.call("Verify", {"semaphore": "s", "slot": 1, "token": 1}, self.bearer())[0])
        self.assertEqual(401, daemon.call("Verify", {"semaphore": "s", "slot": 1, "token": 1})[0])

    def test_without_an_access_file_all_that_are_let_in_may_do_what_http_writes_lets_them(self):
        for writes, status in (("on", 200), ("token", 403), ("off", 403)):
            with HttpsDaemon(self.settings(http_writes=writes), self.authority) as daemon:
                daemon.pair = self.app
                self.assertEqual(status, daemon.call("Acquire", {"semaphore": "s", "limit": 1})[0])
                self.assertEqual(200, daemon.call("Verify", {"semaphore": "s", "slot": 1, "token": 1})[0])

    def test_an_identity_that_is_taken_away(self):
        daemon = self.start()
        daemon.pair = self.app
        acquire = {"semaphore": "app/a", "limit": 9, "ttlMs": 60_000}
        hold = Events(daemon, "POST", "/v1/hold", {"acquire": acquire, "beatIntervalMs": 1000})
        self.addCleanup(hold.close)
        hold.until("granted")
        feed = Events(daemon, "GET", "/page/feed?view=list")
        self.addCleanup(feed.close)
        hello = feed.until("hello")
        self.assertEqual(("app", True, True), (hello["user"], hello["certified"], hello["writes"]))
        standing = daemon.open_http()
        self.addCleanup(standing.close)

        def status():
            standing.request("POST", SERVICE + "Acquire", json.dumps(acquire), JSON)
            answer = standing.getresponse()
            answer.read()
            return answer.status
        self.assertEqual(200, status())
        self.write_access(app="spiffe://test/another")
        daemon.wait_log("a new access file is in force")
        self.assertEqual(401, status())  # The connection stands, and is known no more.
        self.assertEqual("unauthenticated", hold.until("error")["code"])
        while feed.next() is not None:
            pass

    def test_curl(self):
        daemon = self.start()
        url = f"https://127.0.0.1:{daemon.http_port}{SERVICE}Acquire"

        def curl(*arguments):
            return subprocess.run(
                ["curl", "-s", "-w", "%{http_code}", "--cacert", self.authority.cert_file, *arguments,
                 "-H", "Content-Type: application/json", "-d", '{"semaphore":"app/c","limit":1}', url],
                check=False, capture_output=True, text=True, timeout=60).stdout
        self.assertTrue(curl("--cert", self.app.cert_file, "--key", self.app.key_file).endswith("200"))
        self.assertTrue(curl().endswith("401"))
        self.assertTrue(curl("-H", "Authorization: Bearer " + self.token).endswith("429"))  # The limit is reached.
        self.assertEqual("000", curl("--cert", self.stranger.cert_file, "--key", self.stranger.key_file))
        self.assertEqual("000", curl("--cacert", self.foreign.cert_file))


class OtherSites(HttpsTest):
    """A browser shows a certificate by itself, whatever site has caused the request."""

    def test_requests_of_a_browser(self):
        daemon = self.start()
        daemon.pair = self.ops
        own = {"Origin": f"https://127.0.0.1:{daemon.http_port}", "Sec-Fetch-Site": "same-origin"}

        def status(headers, method="POST", path=SERVICE + "Acquire"):
            body = '{"semaphore":"s","limit":9}' if method == "POST" else None
            return daemon.ask(method, path, body, {**JSON, **headers} if method == "POST" else headers)[0]
        self.assertEqual(200, status({**own, **OWN}))
        for headers in ({**own, "Origin": "https://evil.example"}, {**own, "Origin": "null"},
                        {**own, "Origin": f"https://127.0.0.1:{daemon.http_port + 1}"},
                        # A machine on the way can make up this site.
                        {**own, "Origin": f"http://127.0.0.1:{daemon.http_port}"},
                        {**own, "Sec-Fetch-Site": "same-site"}, {**own, "Sec-Fetch-Site": "cross-site"},
                        {"Sec-Fetch-Site": "cross-site"}, {**own, "Host": "evil.example"}):
            self.assertEqual(403, status({**headers, **OWN}), headers)
            for path in ("/v1/watch?prefix=", "/page/feed?view=list", "/session"):
                self.assertEqual(403, status(headers, "GET", path), (headers, path))
        # What no form can send, and no script of another site without leave.
        for headers in (own, {"Origin": own["Origin"]}, {"Sec-Fetch-Site": "same-origin"}):
            self.assertEqual(403, status(headers), headers)
            self.assertEqual(403, status(headers, path="/v1/hold"), headers)
        for content in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", ""):
            self.assertEqual(415, status({**own, **OWN, "Content-Type": content}), content)
        self.assertEqual(405, status({**own, "Access-Control-Request-Method": "POST"}, "OPTIONS"))
        self.assertEqual(1, daemon.describe_http("s")["held"])
        # A program is no browser; and with a token no browser adds anything by itself.
        self.assertEqual(200, status({}))
        self.assertEqual(200, status({**own, **self.bearer()}))

    def test_a_cookie_is_for_tls_alone(self):
        daemon = self.start()
        status, headers, _ = daemon.ask("POST", "/session", json.dumps({"token": self.token}), {**JSON, **OWN})
        self.assertEqual(200, status)
        cookie = headers["Set-Cookie"]
        self.assertTrue(cookie.startswith("__Host-semaphored_"), cookie)
        for part in ("Secure", "HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="):
            self.assertIn("; " + part, cookie)
        known = {"Cookie": cookie.split(";")[0]}
        # It is the identity, whatever certificate is shown.
        for pair in (None, self.app, self.unknown):
            daemon.pair = pair
            self.assertEqual("ops", json.loads(daemon.ask("GET", "/session", None, known)[2])["identity"])
            self.assertEqual(403, daemon.call("Acquire", {"semaphore": "s", "limit": 9}, known)[0])
            daemon.done("Acquire", {"semaphore": "s", "limit": 9}, {**known, **OWN})
            with Events(daemon, "GET", "/page/feed?view=list", None, known) as events:
                hello = events.until("hello")
            self.assertEqual(("ops", False), (hello["user"], hello["certified"]))
        daemon.pair = self.app
        status, headers, _ = daemon.ask("DELETE", "/session", None, {**known, **OWN})
        self.assertEqual(204, status)
        self.assertIn("; Secure", headers["Set-Cookie"])
        self.assertEqual("app", json.loads(daemon.ask("GET", "/session", None, known)[2])["identity"])
        # A certificate gets none.
        self.assertIsNone(daemon.ask("GET", "/session")[1]["Set-Cookie"])


class Connections(HttpsTest):
    def test_new_certificates_without_a_restart(self):
        server = self.authority.sign("renewed-server")
        daemon = self.start(tls_cert_file=server.cert_file, tls_key_file=server.key_file)
        daemon.pair = self.app

        def serial():
            with daemon.raw() as connection:
                return connection.getpeercert()["serialNumber"]
        acquire = {"semaphore": "app/a", "limit": 2}
        daemon.done("Acquire", acquire)
        first = serial()
        standing = daemon.open_http()
        self.addCleanup(standing.close)
        stream = Events(daemon, "GET", "/v1/watch?semaphore=app/a", None, self.bearer())
        self.addCleanup(stream.close)
        stream.until("snapshot")
        standing.connect()
        new = self.authority.sign("newer-server")
        replace(server.key_file, new.key())
        replace(server.cert_file, new.cert())
        wait_until(lambda: serial() != first, "the new certificate")
        standing.request("GET", "/session")
        self.assertEqual(200, standing.getresponse().status)
        self.assertEqual(first, standing.sock.getpeercert()["serialNumber"])
        daemon.done("Acquire", acquire)
        stream.until("granted")

    def test_what_is_spoken_within(self):
        daemon = self.start()
        daemon.pair = self.app
        with daemon.raw(protocols=("h2", "http/1.1")) as connection:
            self.assertEqual("http/1.1", connection.selected_alpn_protocol())
            self.assertFalse(connection.session_reused)
        # Nothing is answered that is asked without TLS; the log says so at once, and of what follows now and then.
        with socket.create_connection(("127.0.0.1", daemon.http_port), BOUND_S) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                self.assertNotIn(b"HTTP", plain.recv(4096))
            except ConnectionResetError:
                pass
        daemon.wait_log("its TLS handshake failed: http request")
        with self.assertRaises(ssl.SSLError):
            daemon.raw(protocols=("h2",))

    def test_a_client_that_goes_while_it_waits(self):
        daemon = self.start()
        daemon.pair = self.ops
        held = daemon.done("Acquire", {"semaphore": "q", "limit": 1, "ttlMs": 60_000})["lease"]
        body = b'{"semaphore":"q","limit":1,"waitMs":"600000"}'
        request = (f"POST {SERVICE}Acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   f"Content-Length: {len(body)}\r\n\r\n").encode() + body

        def waiting(count):
            wait_until(lambda: int(daemon.describe_http("q")["waiting"]) == count, f"{count} wait")
        # In order, cut off, and one that is still there.
        for ends in (lambda each: each.unwrap(), lambda each: None):
            client = daemon.raw(request)
            waiting(1)
            client.settimeout(0.2)
            try:
                ends(client)
            except (OSError, ValueError):
                pass
            client.close()
            waiting(0)
        with daemon.raw(request) as client:
            waiting(1)
            daemon.done("Release", {"leaseId": held["leaseId"]})
            self.assertIn(b" 200 ", client.recv(4096))

    def test_an_address_that_others_can_reach_needs_nothing_else(self):
        with HttpsDaemon(self.settings(http_tls="auto", http_listen="0.0.0.0:0"), self.authority) as daemon:
            self.assertIn("http at https://0.0.0.0:", daemon.log())
            self.assertEqual(200, daemon.ask("GET", "/")[0])

    def test_loopback_stays_as_it_was(self):
        with HttpsDaemon(self.settings(http_tls="auto"), self.authority) as daemon:
            self.assertIn("http at http://127.0.0.1:", daemon.log())


if __name__ == "__main__":
    unittest.main()
