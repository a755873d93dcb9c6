"""The page by TLS, in a real browser: sign-in, acts, and what another site tries."""

import http.server
import os
import ssl
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import scenery  # noqa: E402,F401  (it puts the folder of the other tests on the path)
from browser import Browser  # noqa: E402
from certificates import Authority  # noqa: E402
from scenery import access_file  # noqa: E402
from test_http_tls import HttpsDaemon  # noqa: E402

TOKEN = "admin-token-0123456789"
JSON = {"Content-Type": "application/json"}


class Blank(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><body></body>")

    def log_message(self, *arguments):
        pass


class ByTls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="semaphored-page-"))
        authority = Authority(folder, "ca")
        server = authority.sign("server")
        rules = access_file(os.path.join(folder, "access.toml"), admin=(
            TOKEN, '{ prefixes = [""], verbs = ["acquire", "work", "verify", "administer"] }'))
        cls.daemon = cls.enterClassContext(HttpsDaemon({
            "tls_cert_file": server.cert_file, "tls_key_file": server.key_file, "access_file": rules,
            "tls_client_ca_file": authority.cert_file, "tls_client_certificates": "optional"}, authority))
        # The browser does not know the test's authority.
        cls.browser = cls.enterClassContext(Browser(arguments=["--ignore-certificate-errors"]))
        cls.headers = {"Authorization": "Bearer " + TOKEN}
        cls.other_site = cls.serve_blank(server)

    @classmethod
    def serve_blank(cls, pair):
        """The address of another web server on this host, with a page that has nothing."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert_file, pair.key_file)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Blank)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        cls.addClassCleanup(server.server_close)
        cls.addClassCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"https://127.0.0.1:{server.server_port}/"

    def setUp(self):
        self.daemon.done("Administer", {"semaphore": self.id(), "create": {"limit": 3}}, self.headers)
        self.browser.command("Network.clearBrowserCookies")
        self.browser.go(f"https://127.0.0.1:{self.daemon.http_port}/#/")
        self.browser.type("#token", TOKEN)
        self.browser.click("#confirm")
        self.browser.wait_text("#user", "admin")
        self.browser.wait_text("#age", "live")

    def tearDown(self):
        self.assertEqual(self.browser.errors(), [])

    def is_paused(self):
        return self.daemon.describe_http(self.id(), self.headers).get("paused", False)

    def pause(self, options, base=""):
        """The status of an act of the page that is open; "opaque", "failed" where that site may not know."""
        return self.browser.js("""
            const [url, name, options] = arguments;
            return fetch(url + "/semaphore.v1.SemaphoreService/Administer",
                {method: "POST", body: JSON.stringify({semaphore: name, pause: {}}), ...options})
              .then((answer) => answer.type === "opaque" ? "opaque" : answer.status, () => "failed")""",
                               base, self.id(), options)

    def test_an_act_of_the_page_itself(self):
        self.assertEqual("", self.browser.js("return document.cookie"))
        known = {"credentials": "same-origin", "headers": JSON}
        self.assertEqual(403, self.pause(known))
        self.assertFalse(self.is_paused())
        self.assertEqual(200, self.pause({**known, "headers": {**JSON, "X-Semaphored": "1"}}))
        self.assertTrue(self.is_paused())

    def test_acts_of_another_site(self):
        """At another port of the same host: the browser sends the cookie to both, as it shows a certificate to all that asks."""
        browser, daemon = self.browser, f"https://127.0.0.1:{self.daemon.http_port}"
        browser.go(self.other_site)
        for mode in ("no-cors", "cors"):
            for headers in ({}, {"Content-Type": "text/plain"}, JSON, {**JSON, "X-Semaphored": "1"}):
                seen = self.pause({"mode": mode, "credentials": "include", "headers": headers}, daemon)
                self.assertIn(seen, ("opaque", "failed"), (mode, headers))
        self.assertEqual("over", browser.js("""
            const [daemon, name] = arguments;
            document.body.innerHTML = `<iframe name="frame"></iframe><form method="post" target="frame" enctype="text/plain"
              action="${daemon}/semaphore.v1.SemaphoreService/Administer"><input name="i"></form>`;
            document.querySelector("input").name = JSON.stringify({semaphore: name, pause: {}, requestId: {clientId: "a"}}).slice(0, -2);
            document.querySelector("input").value = '"}}';
            return new Promise((over) => {
              document.querySelector("iframe").addEventListener("load", () => over("over"));
              document.querySelector("form").submit();
            })""", daemon, self.id()))
        # Nor is a stream opened.
        self.assertEqual("refused", browser.js("""
            return new Promise((over) => {
              const stream = new EventSource(arguments[0] + "/v1/watch?prefix=", {withCredentials: true});
              stream.onerror = () => { stream.close(); over("refused"); };
              stream.onopen = () => over("open");
            })""", daemon))
        self.assertFalse(self.is_paused())
        browser.errors()  # Those of this site are its own.


if __name__ == "__main__":
    unittest.main()
