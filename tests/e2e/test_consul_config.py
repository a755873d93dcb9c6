"""What a store URL of Consul may say, what it may not, TLS, and that nobody hears the token."""

import os
import re
import socket
import subprocess
import tempfile
import time
import unittest
import uuid
from urllib.parse import quote

from consul_case import ConsulCase
from daemon import BIN_DIR, BOUND_S, Daemon, grpc, wait_until
from engine_day import day
from ports import free_port
from scraping import Scrape

REFUSED_S = 15
STORE_ERROR = 3
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)


class ConfigurationCase(ConsulCase):

    def url(self, options="", host=None, prefix=None):
        host = host or f"127.0.0.1:{self.server.port}"
        return f"consul://{host}/{prefix or self.PREFIX}" + (f"?{options}" if options else "")

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8",
                  opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(text)
        return path

    def run_daemon(self, url, *arguments):
        return subprocess.run(
            [os.path.join(BIN_DIR, "semaphored"), "--listen", f"127.0.0.1:{free_port()}",
             "--log-level", "trace", "--store", url, *arguments], capture_output=True, text=True,
            timeout=BOUND_S, check=False)

    def refused(self, url, secrets=()):
        """What a daemon says that cannot start with this store."""
        begun = time.monotonic()
        done = self.run_daemon(url)
        said = done.stderr + done.stdout
        self.assertEqual(done.returncode, STORE_ERROR, said)
        self.assertLess(time.monotonic() - begun, REFUSED_S)
        self.assertNotIn("serving", done.stdout)
        self.assertIn("consul", said)
        for secret in secrets:
            self.assertNotIn(secret, said)
        return said

    def serve(self, url, **settings):
        daemon = Daemon({"node_id": "config", "log_level": "trace", "node_ttl": "5s", **settings},
                        port=free_port(), store=url)
        self.addCleanup(daemon.close)
        return daemon.start()


class Urls(ConfigurationCase):

    def test_options_that_are_none_or_wrong(self):
        good, empty = self.write("good", "x"), self.write("empty", "\n")
        for options, named in (
                ("datacenter=x", "'datacenter'"), ("token=s3cr3t-token", "'token'"),
                ("TLS=yes", "'TLS'"), ("dc=a&dc2=b", "'dc2'"), ("=x", "''"),
                ("s3cr3t-token", "name=value"),
                ("tls=perhaps", "tls must be yes or no"), ("tls=", "tls must be yes or no"),
                ("timeout_ms=soon", "timeout_ms=soon: it must be a number from 100 to 60000"),
                ("timeout_ms=99", "timeout_ms=99"), ("timeout_ms=-1", "timeout_ms=-1"),
                ("timeout_ms=60001", "timeout_ms=60001"), ("timeout_ms=", "timeout_ms="),
                ("session_ttl_s=9", "session_ttl_s=9: it must be a number from 10 to 86400"),
                ("session_ttl_s=86401", "session_ttl_s=86401"),
                ("session_ttl_s=1h", "session_ttl_s=1h"),
                ("token_file=/does/not/exist", "/does/not/exist: no token"),
                (f"token_file={empty}", f"{empty}: no token"),
                ("token_file=", "token_file="), (f"token_file={self.folder}", self.folder),
                ("tls=yes&ca_file=/does/not/exist", "ca_file=/does/not/exist"),
                ("tls=yes&cert_file=/does/not/exist", "cert_file=/does/not/exist"),
                ("tls=yes&key_file=/does/not/exist", "key_file=/does/not/exist"),
                (f"ca_file={good}", "tls=yes"), (f"tls=no&cert_file={good}", "tls=yes"),
                (f"tls=yes&key_file={good}", "key_file needs cert_file"),
                ("dc=%zz", "percent")):
            with self.subTest(options=options):
                said = self.refused(self.url(options), ("s3cr3t",))
                self.assertIn(named, said)
                self.assertIn("consul://127.0.0.1:8500/prefix", said)  # What would be right.

    def test_urls_that_are_no_urls(self):
        for url, named in (("consul://", "host"), ("consul:///team", "host"),
                           ("consul://127.0.0.1:port/team", "port=port"),
                           ("consul://127.0.0.1:0/team", "port=0"),
                           ("consul://127.0.0.1:65536/team", "port=65536"),
                           ("consul://[::1/team", "host"),
                           ("consul://s3cr3t@127.0.0.1/team", "token_file"),
                           ("consul://me:s3cr3t@127.0.0.1/team", "token_file"),
                           ("consul://127.0.0.1/te am", "prefix"),
                           ("consul://127.0.0.1//team", "prefix"),
                           (f"consul://127.0.0.1/{'x' * 201}", "200")):
            with self.subTest(url=url):
                self.assertIn(named, self.refused(url, ("s3cr3t",)))

    def test_agents_that_are_not_there(self):
        port = free_port()
        self.assertIn(f"127.0.0.1 port {port}", self.refused(self.url(host=f"127.0.0.1:{port}")))
        self.assertIn("nowhere.invalid", self.refused(self.url(host="nowhere.invalid:8500")))
        with socket.create_server(("127.0.0.1", 0)) as silent:
            said = self.refused(self.url("timeout_ms=1000",
                                         host=f"127.0.0.1:{silent.getsockname()[1]}"))
            self.assertIn("timed out", said)

    def test_datacenters(self):
        said = self.refused(self.url("dc=nowhere"))
        self.assertIn("nowhere", said)
        self.assertIn("datacenter", said)
        daemon = self.serve(self.url("dc=dc1"))
        client = daemon.client()
        client.release(client.acquire("dc", limit=1).lease_id)

    def test_tls_of_a_port_that_has_none(self):
        self.assertIn("SSL", self.refused(self.url("tls=yes")))

    def test_print_config_shows_the_store(self):
        done = self.run_daemon(self.url("dc=dc1&tls=no"), "--print-config")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(self.url("dc=dc1&tls=no"), done.stdout)


class Tokens(ConfigurationCase):
    ROOT_TOKEN = str(uuid.uuid4())

    @classmethod
    def setUpClass(cls):
        cls.server = cls.start_server(token=cls.ROOT_TOKEN, acl={
            "enabled": True, "default_policy": "deny", "down_policy": "deny",
            "tokens": {"master": cls.ROOT_TOKEN, "agent": cls.ROOT_TOKEN}})

    def setUp(self):
        super().setUp()
        self.forget_all()

    def forget_all(self):
        """As it was at first: what is there already need not be allowed to be made."""
        self.ask("DELETE", "kv/?recurse")
        self.ask("PUT", "catalog/deregister", {"Node": f"semaphored-{self.PREFIX}"})

    @staticmethod
    def documented_policy(begin="The token needs ", count=3):
        """What docs/consul.md says that the token needs."""
        with open(os.path.join(ROOT, "docs", "consul.md"), encoding="utf-8") as file:
            line = next(line for line in file if line.startswith(begin))
        rules = re.findall(r'`([a-z_]+ "[^"]*" \{ policy = "[a-z]+" \})`', line)
        if len(rules) != count:
            raise AssertionError(f"docs/consul.md: {line}")
        return "\n".join(rules)

    def ask(self, method, path, body=None):
        status, answer = self.server.request(method, path, body)
        self.assertEqual(status, 200, answer)
        return answer

    def token(self, rules):
        """(accessor, secret) of a new token with this policy."""
        policy = self.ask("PUT", "acl/policy", {"Name": f"p-{uuid.uuid4()}", "Rules": rules})
        token = self.ask("PUT", "acl/token", {"Policies": [{"ID": policy["ID"]}]})
        return token["AccessorID"], token["SecretID"]

    def url_with(self, secret, end="\n"):
        return self.url("token_file=" + quote(self.write("token", secret + end), safe=""))

    def assert_secret(self, secret, daemon, *more):
        texts = [daemon.log(), *more]
        for name in ("cmdline", "environ"):
            with open(f"/proc/{daemon.process.pid}/{name}", encoding="utf-8") as file:
                texts.append(file.read())
        for text in texts:
            self.assertNotIn(secret, text)
            self.assertNotIn(secret[:13], text)

    def test_the_documented_policy_is_enough(self):
        """For all that a daemon does, foreign clients and repairs included."""
        _, secret = self.token(self.documented_policy())
        url = self.url_with(secret, "\r\n")
        printed = self.run_daemon(url, "--print-config")
        self.assertEqual(printed.returncode, 0, printed.stderr)
        metrics = f"127.0.0.1:{free_port()}"
        daemon = self.serve(url, metrics_listen=metrics)
        client = daemon.client()
        leases = [client.acquire("db", limit=3, ttl_ms=60_000) for _ in range(3)]
        waiting = client.acquire_later("db", limit=3)
        client.wait_for_queue("db", 1)
        client.release(leases[0].lease_id)
        client.release(waiting.result(timeout=BOUND_S).lease.lease_id)
        self.ask("PUT", f"kv/{self.PREFIX}/db/.lock", b"garbled")
        code, said = self.semctl(daemon, "prune", "db")
        self.assertEqual(code, 0, said)
        for command in (("list",), ("describe", "db"), ("resize", "db", "--limit", "4"),
                        ("revoke", "db", "--all", "--now"), ("destroy", "db", "--force", "--now")):
            code, said = self.semctl(daemon, *command)
            self.assertEqual(code, 0, said)
        self.ask("PUT", f"kv/{self.PREFIX}/recipe/.lock", {"limit": 2, "holders": []})
        code, said = self.semctl(daemon, "adopt", "recipe", "--yes")
        self.assertEqual(code, 0, said)
        client.release(client.acquire("recipe", limit=2).lease_id)
        day(self, daemon, self.serve(url, node_id="other"))
        self.assertEqual(Scrape(metrics).sum("semaphored_engine_upkeep_errors_total"), 0)
        # A second life of the same node, and the heartbeats of the first.
        daemon.kill9()
        daemon.start()
        daemon.client().acquire("db", limit=1)
        log = daemon.log()
        self.assertNotIn("ermission denied", log)
        self.assert_secret(secret, daemon, printed.stdout + printed.stderr)

    def test_the_documented_policy_is_enough_where_permits_end_with_the_daemon(self):
        more = self.documented_policy("With `sessions=daemon` it needs", 2)
        rules = self.documented_policy() + "\n" + more.replace("web-1", self.server.name)
        _, secret = self.token(rules)
        url = self.url_with(secret) + "&sessions=daemon"
        first, second = self.serve(url, node_id="first"), self.serve(url, node_id="second")
        lease = first.client().acquire("db", limit=1, ttl_ms=60_000)
        waiting = second.client().acquire_later("db", limit=1)
        second.client().wait_for_queue("db", 1)
        first.client().release(lease.lease_id)
        self.assertTrue(waiting.result(timeout=BOUND_S).lease.lease_id)
        for daemon in (first, second):
            self.assertNotIn("ermission denied", daemon.log())
        _, secret = self.token(self.documented_policy())
        self.assertIn("ermission denied",
                      self.refused(self.url_with(secret) + "&sessions=daemon", (secret,)))

    def test_the_policy_is_not_more_than_is_needed(self):
        rules = self.documented_policy().splitlines()
        for missing in rules:
            with self.subTest(missing=missing):
                self.forget_all()
                _, secret = self.token("\n".join(rule for rule in rules if rule != missing))
                url = self.url_with(secret)
                if missing.startswith("session"):
                    # Without places there is nothing to give.
                    client = self.serve(url, node_id="less").client()
                    error = self.failed(client)
                    self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
                    self.assertIn("ermission denied", error.details())
                else:
                    self.assertIn("ermission denied", self.refused(url, (secret,)))

    def test_no_token_and_a_wrong_one(self):
        self.assertIn("ermission denied", self.refused(self.url()))
        wrong = str(uuid.uuid4())
        said = self.refused(self.url_with(wrong), (wrong, wrong[:13]))
        self.assertIn("ACL not found", said)

    def failed(self, client):
        with self.assertRaises(grpc.RpcError) as raised:
            client.acquire("db", limit=3, ttl_ms=60_000)
        return raised.exception

    def test_a_token_that_is_revoked(self):
        """Requests are told why, nothing is granted, and soon nothing is vouched for. A new
        token comes with a new daemon, and leases outlive that."""
        accessor, secret = self.token(self.documented_policy())
        url = self.url_with(secret)
        daemon = self.serve(url)
        client = daemon.client()
        lease = client.acquire("db", limit=3, ttl_ms=60_000)
        self.ask("DELETE", f"acl/token/{accessor}")
        error = self.failed(client)
        self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIn("PERMISSION_DENIED: consul: 403 ACL not found", error.details())
        wait_until(lambda: "nothing is vouched for" in daemon.log(), "it vouches for nothing")
        self.assertEqual(self.failed(client).code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIsNone(daemon.process.poll())
        daemon.wait_log("ACL not found")
        self.assertLess(len(daemon.log().splitlines()), 200, "the log is flooded")
        self.assert_secret(secret, daemon, error.details())
        daemon.terminate()
        _, secret = self.token(self.documented_policy())
        self.url_with(secret)  # Into the same file.
        daemon.start()
        verified = daemon.client().verify(lease.lease_id)
        self.assertTrue(verified.held)
        self.assertEqual(verified.lease.token, lease.token)


class Authority:
    """Signs certificates."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.file = self._run("req", "-x509", "-days", "2", "-subj", f"/CN={name}", name=name)

    def sign(self, name, alternative):
        """(certificate, key)."""
        request = self._run("req", "-subj", f"/CN={name}", name=name, ending="csr")
        path = os.path.join(self.folder, name)
        with open(path + ".ext", "w", encoding="ascii") as file:
            file.write(f"subjectAltName={alternative}\n")
        authority = os.path.join(self.folder, self.name)
        subprocess.run(["openssl", "x509", "-req", "-in", request, "-days", "2", "-CA", self.file,
                        "-CAkey", authority + ".key", "-CAcreateserial", "-extfile", path + ".ext",
                        "-out", path + ".crt"], check=True, capture_output=True)
        return path + ".crt", path + ".key"

    def _run(self, *arguments, name, ending="crt"):
        path = os.path.join(self.folder, name)
        subprocess.run(["openssl", *arguments, "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path + ".key", "-out",
                        f"{path}.{ending}"], check=True, capture_output=True)
        return f"{path}.{ending}"


class Tls(ConfigurationCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-e2e-")
        cls.addClassCleanup(folder.cleanup)
        cls.ours, cls.other = (Authority(folder.name, name) for name in ("ours", "other"))
        certificate, key = cls.ours.sign("server", "DNS:localhost")
        cls.client = cls.ours.sign("client", "DNS:client.invalid")
        cls.stranger = cls.other.sign("stranger", "DNS:client.invalid")
        cls.ports = {False: free_port(), True: free_port()}
        for strict, port in cls.ports.items():
            cls.server = cls.start_server(
                ports={"https": port}, ca_file=cls.ours.file, cert_file=certificate, key_file=key,
                verify_incoming_https=strict)

    def url_of(self, strict=False, host="localhost", **files):
        options = "".join(f"&{name}={quote(path, safe='')}" for name, path in files.items())
        return self.url(f"tls=yes{options}", host=f"{host}:{self.ports[strict]}")

    def works(self, url):
        client = self.serve(url).client()
        client.release(client.acquire("tls", limit=1).lease_id)

    def test_the_certificate_is_checked(self):
        self.works(self.url_of(ca_file=self.ours.file))
        # Signed by somebody else, or by nobody that the system knows.
        for files in ({"ca_file": self.other.file}, {}):
            said = self.refused(self.url_of(**files))
            self.assertIn("certificate", said)
            self.assertIn("issuer", said)
        # Of another host.
        said = self.refused(self.url_of(host="127.0.0.1", ca_file=self.ours.file))
        self.assertIn("'127.0.0.1'", said)
        # What is no certificate.
        said = self.refused(self.url_of(ca_file=self.write("text", "no certificate\n")))
        self.assertIn("text", said)

    def test_plain_http_to_a_port_that_has_tls(self):
        said = self.refused(self.url(host=f"localhost:{self.ports[False]}"))
        self.assertIn("HTTPS", said)

    def test_a_server_that_wants_a_certificate(self):
        certificate, key = self.client
        self.works(self.url_of(True, ca_file=self.ours.file, cert_file=certificate, key_file=key))
        said = self.refused(self.url_of(True, ca_file=self.ours.file))
        self.assertIn("the agent may want a certificate: cert_file and key_file", said)
        certificate, stranger = self.stranger
        said = self.refused(self.url_of(True, ca_file=self.ours.file, cert_file=certificate,
                                        key_file=stranger))
        self.assertIn("the agent may not accept the certificate of cert_file", said)
        # The key of another one.
        self.assertIn("key", self.refused(self.url_of(
            True, ca_file=self.ours.file, cert_file=certificate, key_file=key)))

    def test_both_in_one_file(self):
        both = self.write("both", "")
        with open(both, "a", encoding="ascii") as file:
            for path in self.client:
                with open(path, encoding="ascii") as part:
                    file.write(part.read())
        self.works(self.url_of(True, ca_file=self.ours.file, cert_file=both))


if __name__ == "__main__":
    unittest.main()
