"""Who may do what by HTTP: other sites, tokens, cookies, rules and the audit log."""

import json
import os
import subprocess
import tempfile
import time
import unittest

from certificates import Authority
from daemon import BIN_DIR, pb, wait_until
from http_client import SERVICE, Events, HttpDaemon, error_info
from test_security import TlsDaemon

JSON = {"Content-Type": "application/json"}
OWN = {"X-Semaphored": "1"}


def new_token():
    return subprocess.run([os.path.join(BIN_DIR, "semaphored"), "token"], check=True,
                          capture_output=True, text=True, timeout=60).stdout.split()


class OtherSites(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = HttpDaemon({"http_hosts": "sem.example, Other.Example"}).start()
        cls.addClassCleanup(cls.daemon.close)

    def status(self, headers, method="POST", path=SERVICE + "Verify"):
        body = '{"semaphore":"s","slot":1,"token":1}' if method == "POST" else None
        if method == "POST":
            headers = {**JSON, **headers}
        return self.daemon.ask(method, path, body, headers)[0]

    def test_names_of_the_daemon(self):
        port = self.daemon.http_port
        for host in (f"127.0.0.1:{port}", "localhost", "[::1]:1", "10.1.2.3", "sem.example",
                     "SEM.example:80", "other.example"):
            self.assertEqual(200, self.status({"Host": host}), host)
        for host in ("evil.example", f"evil.example:{port}", "", "localhost.evil.example",
                     "127.0.0.1.evil.example", "sem.example@evil.example", "[::1].evil.example",
                     "127.0.0.1:80.evil.example"):
            self.assertEqual(403, self.status({"Host": host}), host)
            self.assertEqual(403, self.status({"Host": host}, "GET", "/"), host)

    def test_pages_of_other_sites(self):
        own = f"127.0.0.1:{self.daemon.http_port}"
        self.assertEqual(200, self.status({"Origin": "http://" + own}))
        self.assertEqual(200, self.status({"Sec-Fetch-Site": "same-origin"}))
        self.assertEqual(200, self.status({"Host": "sem.example", "Origin": "https://sem.example"}))
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": ""},
                        {"Origin": "http://127.0.0.1:1"}, {"Sec-Fetch-Site": "cross-site"},
                        {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": ""},
                        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}):
            self.assertEqual(403, self.status(headers), headers)
            self.assertEqual(403, self.status(headers, "GET", "/v1/watch"), headers)
        # A link may lead to the page, which shows nothing by itself.
        self.assertEqual(200, self.status({"Sec-Fetch-Site": "cross-site",
                                           "Sec-Fetch-Mode": "navigate"}, "GET", "/"))
        self.assertEqual(403, self.status({"Sec-Fetch-Site": "cross-site",
                                           "Sec-Fetch-Mode": "no-cors"}, "GET", "/"))

    def test_no_leave_for_scripts_of_other_sites(self):
        status, headers, _ = self.daemon.ask("OPTIONS", SERVICE + "Acquire", None, {
            "Origin": "http://evil.example", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type"})
        self.assertEqual(405, status)
        self.assertFalse([name for name in headers if name.lower().startswith("access-control")])


class Anonymous(unittest.TestCase):
    """Callers without a token are an identity of the access file."""

    def test_reads_alone_without_a_token(self):
        token, digest = new_token()
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(f'[identities.ops]\ntokens = ["{digest}"]\nrules = [{{ prefixes = [""], verbs = ["acquire"] }}]\n'
                       '[identities.anonymous]\nrules = [{ prefixes = [""], verbs = ["acquire", "verify"] }]\n')
            file.flush()
            with HttpDaemon({"access_file": file.name, "http_writes": "token"}) as daemon:
                verify = {"semaphore": "s", "slot": 1, "token": 1}
                acquire = {"semaphore": "s", "limit": 1}
                self.assertEqual(200, daemon.call("Verify", verify)[0])
                self.assertEqual(403, daemon.call("Acquire", acquire)[0])
                # A wrong token is not turned into none.
                self.assertEqual(401, daemon.call("Verify", verify, {"Authorization": "Bearer x"})[0])
                daemon.done("Acquire", acquire, {"Authorization": "Bearer " + token})

    def test_a_cookie_that_ends_before_the_body(self):
        token, digest = new_token()
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(f'[identities.ops]\ntokens = ["{digest}"]\nrules = [{{ prefixes = [""], verbs = ["acquire", "verify"] }}]\n'
                       '[identities.anonymous]\nrules = [{ prefixes = [""], verbs = ["acquire", "verify"] }]\n')
            file.flush()
            with HttpDaemon({"access_file": file.name, "http_writes": "token"}) as daemon:
                _, headers, _ = daemon.ask("POST", "/session", json.dumps({"token": token}),
                                           {**JSON, **OWN})
                known = {"Cookie": headers["Set-Cookie"].split(";")[0], **OWN}
                body = b'{"semaphore":"s","limit":1}'
                with daemon.connect() as connection:
                    connection.putrequest("POST", SERVICE + "Acquire")
                    for name, value in {**JSON, **known, "Content-Length": str(len(body))}.items():
                        connection.putheader(name, value)
                    connection.endheaders(body[:-1])
                    self.assertEqual(204, daemon.ask("DELETE", "/session", None, known)[0])
                    connection.send(body[-1:])
                    # It is not taken for one of the anonymous caller, who may only read.
                    self.assertEqual(403, connection.getresponse().status)


class Certified(HttpDaemon, TlsDaemon):
    """Its gRPC clients must show a certificate."""


class Certificates(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-http-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        authority = Authority(self.folder, "ca")
        pair = authority.sign("daemon")
        self.settings = {"tls_cert_file": pair.cert_file, "tls_key_file": pair.key_file,
                         "tls_client_ca_file": authority.cert_file, "http_writes": "on"}

    def statuses(self, daemon, headers):
        """Of all kinds of requests but the page's own text, which shows nothing."""
        def opened(method, path, request=None):
            with Events(daemon, method, path, request, headers) as events:
                return events.answer.status
        acquire = {"semaphore": "s", "limit": 9}
        return {daemon.call("Administer", {"list": {}}, headers)[0],
                daemon.call("Acquire", acquire, headers)[0], daemon.call("DescribeDaemon", {}, headers)[0],
                opened("GET", "/v1/watch"), opened("GET", "/page/feed?view=list"),
                opened("POST", "/v1/hold", {"acquire": acquire}), daemon.ask("GET", "/session", None, headers)[0]}

    def test_without_an_access_file_no_caller_is_known(self):
        with Certified(self.settings) as daemon:
            for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": ""}, {"Authorization": "Basic x"},
                            {"Cookie": f"semaphored_{daemon.http_port}=x", **OWN}):
                self.assertEqual({401}, self.statuses(daemon, headers), headers)
            self.assertIn(daemon.ask("POST", "/session", '{"token":"x"}', {**JSON, **OWN})[0], (400, 401))

    def test_with_one_a_token_stands_for_the_certificate(self):
        token, digest = new_token()
        access = os.path.join(self.folder, "access.toml")
        with open(access, "w", encoding="ascii") as file:
            file.write(f'[identities.ops]\ntokens = ["{digest}"]\n'
                       'rules = [{ prefixes = [""], verbs = ["acquire", "verify", "administer"] }]\n'
                       '[identities.anonymous]\nrules = [{ prefixes = [""], verbs = ["verify", "administer"] }]\n')
        with Certified({**self.settings, "access_file": access}) as daemon:
            self.assertEqual({401}, self.statuses(daemon, {}))
            self.assertEqual({200}, self.statuses(daemon, {"Authorization": "Bearer " + token}))
            self.assertEqual(401, daemon.call("Administer", {"list": {}}, {"Authorization": "Bearer x"})[0])
            status, headers, _ = daemon.ask("POST", "/session", json.dumps({"token": token}), {**JSON, **OWN})
            self.assertEqual(200, status)
            self.assertEqual({200}, self.statuses(daemon, {"Cookie": headers["Set-Cookie"].split(";")[0], **OWN}))

    def test_by_default_there_is_no_http(self):
        with TlsDaemon({**self.settings, "http_listen": "auto"}) as daemon:
            self.assertNotIn("http at", daemon.log())


class Refused(unittest.TestCase):
    def test_acts_that_http_writes_refuses_are_in_the_audit_log(self):
        calls = 20
        with tempfile.TemporaryDirectory(prefix="semaphored-http-") as folder:
            audit = os.path.join(folder, "audit.log")
            with HttpDaemon({"audit_file": audit, "http_writes": "off"}) as daemon:
                begun = time.monotonic()
                for _ in range(calls):
                    self.assertEqual(403, daemon.call("Administer", {"semaphore": "secret", "pause": {}})[0])
                daemon.done("Administer", {"list": {}})
                seconds = time.monotonic() - begun
                self.assertEqual(0, daemon.terminate())
            with open(audit, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
        # As those of callers without the right: nothing of the request, and one line in a second.
        self.assertLessEqual(1, len(lines))
        self.assertLessEqual(len(lines), 1 + seconds)
        self.assertRegex(lines[0].pop("peer"), r"^ipv4:127\.0\.0\.1:\d+$")
        del lines[0]["time"]
        self.assertEqual({"identity": "", "act": "pause", "semaphore": None, "outcome": "PERMISSION_DENIED",
                          "reason": "PERMISSION_DENIED", "unwritten": 0}, lines[0])
        self.assertLessEqual(sum(1 + line["unwritten"] for line in lines), calls)

    def test_acts_of_the_anonymous_identity_too(self):
        _, digest = new_token()
        with tempfile.TemporaryDirectory(prefix="semaphored-http-") as folder:
            access, audit = (os.path.join(folder, name) for name in ("access.toml", "audit.log"))
            with open(access, "w", encoding="ascii") as file:
                file.write(f'[identities.ops]\ntokens = ["{digest}"]\nrules = [{{ prefixes = [""], verbs = ["acquire"] }}]\n'
                           '[identities.anonymous]\nrules = [{ prefixes = [""], verbs = ["administer"] }]\n')
            with HttpDaemon({"access_file": access, "audit_file": audit, "http_writes": "token"}) as daemon:
                self.assertEqual(403, daemon.call("Administer", {"semaphore": "s", "pause": {}})[0])
                self.assertEqual(0, daemon.terminate())
            with open(audit, encoding="utf-8") as file:
                self.assertEqual(["anonymous"], [json.loads(line)["identity"] for line in file])


class Known(unittest.TestCase):
    """With an access file."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-http-")
        self.addCleanup(folder.cleanup)
        self.access = os.path.join(folder.name, "access.toml")
        self.audit = os.path.join(folder.name, "audit.log")
        self.ops, self.ops_hash = new_token()
        self.app, self.app_hash = new_token()
        self.write(self.ops_hash)
        self.daemon = HttpDaemon({"access_file": self.access, "audit_file": self.audit,
                                  "http_writes": "token"})
        self.addCleanup(self.daemon.close)
        self.daemon.start()

    def write(self, ops_hash):
        with open(self.access + ".new", "w", encoding="ascii") as file:
            file.write(f'[identities.ops]\ntokens = ["{ops_hash}"]\n'
                       'rules = [{ prefixes = [""], verbs = ["administer", "verify", "acquire"] }]\n'
                       f'[identities.app]\ntokens = ["{self.app_hash}"]\n'
                       'rules = [{ prefixes = ["app/"], verbs = ["acquire"] }]\n'
                       'quotas = { permits = 2 }\n')
        os.rename(self.access + ".new", self.access)

    @staticmethod
    def bearer(token):
        return {"Authorization": "Bearer " + token}

    def sign_in(self, token):
        status, headers, text = self.daemon.ask("POST", "/session", json.dumps({"token": token}),
                                                {**JSON, **OWN})
        self.assertEqual(200, status, text)
        cookie = headers["Set-Cookie"]
        for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="):
            self.assertIn(part, cookie)
        self.assertNotIn(token, cookie)
        return {"Cookie": cookie.split(";")[0]}

    def test_identities_rules_and_quotas(self):
        call = self.daemon.call
        for headers in ({}, self.bearer("wrong"), {"Authorization": "Basic x"},
                        {"Authorization": "Bearer é"}, {"Authorization": ""}):
            status, error = call("Verify", {"semaphore": "app/a", "slot": 1, "token": 1}, headers)
            self.assertEqual((401, "UNAUTHENTICATED"), (status, error_info(error)["reason"]), headers)
        app = self.bearer(self.app)
        status, error = call("Acquire", {"semaphore": "ops/a", "limit": 1}, app)
        self.assertEqual((403, "PERMISSION_DENIED"), (status, error_info(error)["reason"]))
        self.daemon.done("Acquire", {"semaphore": "app/a", "limit": 9, "permits": 2}, app)
        status, error = call("Acquire", {"semaphore": "app/a"}, app)
        self.assertEqual((429, "QUOTA"), (status, error_info(error)["reason"]))
        self.assertEqual(401, call("Acquire", {"semaphore": "app/a"})[0])
        # What an unknown caller sends is not read.
        self.assertEqual(401, call("Acquire", {"none": 1}, self.bearer("wrong"))[0])
        self.assertEqual(401, call("Administer", {"semaphore": "x", "create": {"limit": 1}})[0])

    def test_acts_are_in_the_audit_log(self):
        self.daemon.done("Administer", {"semaphore": "x", "create": {"limit": 1}},
                         self.bearer(self.ops))

        def lines():
            with open(self.audit, encoding="utf-8") as file:
                return [json.loads(line) for line in file]
        wait_until(lambda: os.path.exists(self.audit) and lines(), "a line of the audit log")
        self.assertEqual(("ops", "create", "x"),
                         tuple(lines()[0][key] for key in ("identity", "act", "semaphore")))
        self.assertRegex(lines()[0]["peer"], r"^ipv4:127\.0\.0\.1:\d+$")

    def test_no_client_can_name_its_peer(self):
        client = self.daemon.client()
        client.stub.Administer(
            pb.AdministerRequest(request_id=client.next_id(), semaphore="y",
                                 create=pb.CreateSemaphore(limit=1)),
            metadata=(("authorization", "Bearer " + self.ops),
                      ("semaphored-inside-peer", "0" * 64 + " ipv4:192.0.2.1:1")))
        wait_until(lambda: os.path.exists(self.audit) and os.path.getsize(self.audit), "a line")
        with open(self.audit, encoding="utf-8") as file:
            self.assertNotIn("192.0.2.1", file.read())

    def test_a_cookie_stands_for_a_token(self):
        daemon = self.daemon
        cookie = self.sign_in(self.ops)
        request = {"semaphore": "z", "limit": 1}
        status, error = daemon.call("Acquire", request, cookie)
        self.assertEqual(403, status)
        self.assertIn("x-semaphored", error["message"])
        daemon.done("Acquire", request, {**cookie, **OWN})
        status, _, text = daemon.ask("GET", "/session", None, cookie)
        self.assertEqual({"accessControl": True, "identity": "ops", "writes": True},
                         json.loads(text))
        with Events(daemon, "GET", "/v1/watch?semaphore=z", None, cookie) as events:
            events.until("snapshot")
        self.assertEqual(204, daemon.ask("DELETE", "/session", None, {**cookie, **OWN})[0])
        self.assertEqual(401, daemon.call("Acquire", request, {**cookie, **OWN})[0])
        self.assertEqual("", json.loads(daemon.ask("GET", "/session", None, cookie)[2])["identity"])

    def test_what_does_not_sign_in(self):
        ask = self.daemon.ask
        good = json.dumps({"token": self.ops})
        self.assertEqual(403, ask("POST", "/session", good, JSON)[0])  # Without the own page's header.
        self.assertEqual(415, ask("POST", "/session", good, {**OWN, "Content-Type": "text/plain"})[0])
        self.assertEqual(403, ask("POST", "/session", good, {**JSON, **OWN, "Origin": "http://e.example"})[0])
        for wrong in ('{"token":"wrong"}', '{"token":""}', "{}", "[]", "", '{"token":7}',
                      '{"token":"a\\nb"}', json.dumps({"token": "x" * 5000}),
                      json.dumps({"token": self.ops, "more": 1}), good + " " * 100_000):
            status, headers, _ = ask("POST", "/session", wrong, {**JSON, **OWN})
            self.assertIn(status, (400, 401), wrong[:100])
            self.assertIsNone(headers["Set-Cookie"])

    def test_a_cookie_ends_with_its_token(self):
        cookie = self.sign_in(self.ops)
        stream = Events(self.daemon, "GET", "/v1/watch?prefix=", None, cookie)
        self.addCleanup(stream.close)
        other, other_hash = new_token()
        self.write(other_hash)
        self.daemon.wait_log("a new access file is in force")
        status, error = self.daemon.call("Administer", {"semaphore": "w", "create": {"limit": 1}},
                                         {**cookie, **OWN})
        self.assertEqual(401, status, error)
        self.daemon.done("Administer", {"semaphore": "w", "create": {"limit": 1}},
                         self.bearer(other))
        self.assertEqual("unauthenticated", stream.until("error")["code"])

    def test_streams_end_with_the_sign_in(self):
        daemon = self.daemon
        acquire = {"semaphore": "x", "limit": 1, "ttlMs": 60000}
        daemon.done("Acquire", acquire, self.bearer(self.ops))
        cookie, ops = self.sign_in(self.ops), self.bearer(self.ops)
        by_cookie = [Events(daemon, "GET", "/v1/watch?semaphore=x", None, cookie),
                     Events(daemon, "POST", "/v1/hold", {
                         "acquire": {**acquire, "semaphore": "y"}, "releaseOnDisconnect": True,
                         "beatIntervalMs": 1000}, {**cookie, **OWN})]
        by_token = Events(daemon, "GET", "/v1/watch?semaphore=x", None, ops)
        for stream in (*by_cookie, by_token):
            self.addCleanup(stream.close)
        by_cookie[0].until("snapshot")
        by_cookie[1].until("granted")
        by_token.until("snapshot")
        self.assertEqual(204, daemon.ask("DELETE", "/session", None, {**cookie, **OWN})[0])
        daemon.done("Administer", {"semaphore": "x", "resize": {"limit": 2}}, ops)
        self.assertEqual("error", by_cookie[0].next()[0])
        self.assertIsNone(by_cookie[0].next())
        self.assertEqual("unauthenticated", by_cookie[1].until("error")["code"])
        wait_until(lambda: daemon.describe_http("y", ops)["held"] == 0, "the permit is given back")
        by_token.until("changed")

    def test_pages_are_not_all_of_one_identity(self):
        pages = []
        self.addCleanup(lambda: [page.close() for page in pages])

        def opens(token):
            pages.append(Events(self.daemon, "GET", "/page/feed?view=list", None, self.bearer(token)))
            return pages[-1].answer.status
        self.assertEqual([200] * 75 + [429], [opens(self.app) for _ in range(76)])
        self.assertEqual(200, opens(self.ops))

    def test_where_the_nodes_are(self):
        def node(token):
            with Events(self.daemon, "GET", "/page/feed?view=sessions", None, self.bearer(token)) as events:
                return events.until("nodes")["rows"][0]
        shown = node(self.ops)
        self.assertEqual([self.daemon.address, self.daemon.process.pid], shown[3:5])
        self.assertEqual([*shown[:2], "", "", 0, shown[5]], node(self.app))

    def test_whom_the_figures_of_the_daemon_are_shown(self):
        def engine(token):
            with Events(self.daemon, "GET", "/page/feed?view=engine", None, self.bearer(token)) as events:
                return events.until("engine")
        self.assertIn("limits", engine(self.ops))
        # To others as much as DescribeDaemon shows.
        self.assertEqual({"adapter", "version", "vouched"}, set(engine(self.app)))

    def test_sign_ins_are_bounded(self):
        cookies = [self.sign_in(self.ops) for _ in range(65)]
        shown = [self.daemon.ask("GET", "/session", None, each)[2] for each in
                 (cookies[0], cookies[1], cookies[-1])]
        self.assertEqual(["", "ops", "ops"], [json.loads(each)["identity"] for each in shown])


if __name__ == "__main__":
    unittest.main()
