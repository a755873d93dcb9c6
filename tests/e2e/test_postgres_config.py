"""What a store URL of Postgres may say, what it may not, and that nobody hears the password."""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from urllib.parse import quote

import cluster
import psycopg2
from daemon import BIN_DIR, BOUND_S, Daemon
from pgbouncer import PgBouncer
from ports import free_port
from postgres import ROLE
from proxy import TcpProxy

# With all that has a meaning in a URL.
PASSWORD = "Pas5-w/o?r:d@%41#&="
WRONG = "Wr0ng-w/o?r:d@%41#&="
# To be told that a server does not answer.
REFUSED_S = 15
STORE_ERROR, CONFIGURATION_ERROR = 3, 2


class Configuration(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls)
        cls.server.execute(f"ALTER ROLE {ROLE} PASSWORD %s", (PASSWORD,))

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def url(self, password=None, port=None, options="schema=config"):
        secret = ":" + quote(password, safe="") if password else ""
        return (f"postgres://{ROLE}{secret}@127.0.0.1:{port or self.server.port}/{ROLE}"
                f"?{options}")

    def run_daemon(self, *arguments, environment=None):
        return subprocess.run(
            [os.path.join(BIN_DIR, "semaphored"), "--listen", f"127.0.0.1:{free_port()}",
             *arguments], env={**os.environ, **(environment or {})}, capture_output=True,
            text=True, timeout=BOUND_S, check=False)

    def refused(self, url, codes, within_s=REFUSED_S, environment=None):
        begun = time.monotonic()
        done = self.run_daemon("--store", url, environment=environment)
        self.assertIn(done.returncode, codes, done.stderr)
        self.assertLess(time.monotonic() - begun, within_s)
        self.assertNotIn("serving", done.stdout)
        return done.stderr + done.stdout

    def write_secret(self, text):
        path = os.path.join(self.folder, "secret")
        with open(path, "w", encoding="utf-8",
                  opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text)
        return path

    def ways(self, password):
        """How a password can be given: (name, arguments, environment)."""
        escaped = re.sub(r"([:\\])", r"\\\1", password)
        yield "flag", ("--store", self.url(password)), {}
        yield "environment", (), {"SEMAPHORED_STORE": self.url(password)}
        config = os.path.join(self.folder, "semaphored.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'store = "{self.url(password)}"\n')
        yield "file", ("--config", config), {}
        yield "parameter", ("--store", self.url(
            options=f"schema=config&password={quote(password, safe='')}")), {}
        yield "PGPASSWORD", ("--store", self.url()), {"PGPASSWORD": password}
        yield "PGPASSFILE", ("--store", self.url()), {
            "PGPASSFILE": self.write_secret(f"*:*:*:{ROLE}:{escaped}\n")}
        path = self.write_secret(password + "\n")
        yield "password_file", ("--store", self.url(
            options=f"schema=config&password_file={quote(path)}")), {}

    def assert_secret(self, password, text, where):
        for form in (password, quote(password, safe=""), quote(password), password[:6]):
            self.assertNotIn(form, text, where)

    def test_the_password_works_and_is_told_nobody(self):
        for name, arguments, environment in self.ways(PASSWORD):
            with self.subTest(name):
                printed = self.run_daemon(*arguments, "--print-config", environment=environment)
                self.assertEqual(printed.returncode, 0, printed.stderr)
                self.assertIn("postgres://", printed.stdout)
                self.assert_secret(PASSWORD, printed.stdout + printed.stderr, "--print-config")
                self.serve(arguments, environment)

    def serve(self, arguments, environment):
        port = free_port()
        log_path = os.path.join(self.folder, "daemon.log")
        with open(log_path, "wb") as log:
            process = subprocess.Popen(
                [os.path.join(BIN_DIR, "semaphored"), "--listen", f"127.0.0.1:{port}",
                 "--node-id", "config", "--log-level", "trace", *arguments],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={**os.environ, **environment})
        daemon = Daemon(folder=self.folder, port=port)
        daemon.process, daemon.log_path = process, log_path
        try:
            daemon.wait_healthy()
            client = daemon.client()
            client.release(client.acquire("config", limit=1).lease_id)
            for name in ("cmdline", "comm"):
                with open(f"/proc/{process.pid}/{name}", encoding="utf-8") as file:
                    self.assert_secret(PASSWORD, file.read(), f"the process's {name}")
            for row in self.server.execute("SELECT application_name, query FROM pg_stat_activity "
                                           "WHERE usename = %s", (ROLE,)):
                self.assert_secret(PASSWORD, " ".join(row), "pg_stat_activity")
            self.assertEqual(daemon.terminate(), 0, daemon.log())
            self.assert_secret(PASSWORD, daemon.log(), "the log")
        finally:
            daemon.close()

    def test_a_wrong_password_is_told_nobody_either(self):
        for name, arguments, environment in self.ways(WRONG):
            with self.subTest(name):
                done = self.run_daemon(*arguments, environment=environment)
                self.assertEqual(done.returncode, STORE_ERROR, done.stderr)
                self.assertIn("password authentication failed", done.stderr)
                self.assert_secret(WRONG, done.stderr + done.stdout, "the error")

    def test_urls_that_cannot_be_understood(self):
        long = "x" * 60
        for options, named in (("schema=config&shema=x", "shema"), ("schema=Config", "schema"),
                               ("schema=pg_x", "schema"), ("schema=a-b", "schema"),
                               ("schema=a;drop", "schema"), ("schema=", "schema"),
                               (f"schema={long}", "schema"), ("lanes=0", "lanes"),
                               ("lanes=many", "lanes"), ("timeout_ms=-1", "timeout_ms"),
                               ("manage_schema=perhaps", "manage_schema"),
                               ("sslmode=perhaps", "sslmode"),
                               ("password_file=/does/not/exist", "/does/not/exist")):
            with self.subTest(options=options):
                said = self.refused(self.url(PASSWORD, options=options),
                                    (STORE_ERROR, CONFIGURATION_ERROR))
                self.assertIn(named, said)
                self.assert_secret(PASSWORD, said, options)

    def test_urls_that_are_no_urls(self):
        secret = quote(PASSWORD, safe="")
        for url in (f"postgres://{ROLE}:{secret}@127.0.0.1:notaport/{ROLE}",
                    f"postgres://{ROLE}:{secret}@[127.0.0.1/{ROLE}",
                    f"postgres://{ROLE}:{secret}%zz@127.0.0.1/{ROLE}"):
            with self.subTest(url=url):
                self.assert_secret(PASSWORD, self.refused(
                    url, (STORE_ERROR, CONFIGURATION_ERROR)), url)

    def test_servers_that_do_not_answer(self):
        proxy = TcpProxy(self.server.port)
        self.addCleanup(proxy.close)
        proxy.cut()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            for name, port in (("refused", free_port()), ("cut", proxy.port),
                               ("silent", silent.getsockname()[1])):
                with self.subTest(name):
                    said = self.refused(self.url(PASSWORD, port=port), (STORE_ERROR,))
                    self.assertIn("connect", said)
                    self.assert_secret(PASSWORD, said, name)
        said = self.refused(f"postgres://{ROLE}@nowhere.invalid/{ROLE}", (STORE_ERROR,))
        self.assertIn("nowhere.invalid", said)

    def test_what_is_missing_in_the_database_is_named(self):
        said = self.refused(self.url(PASSWORD).replace(f"/{ROLE}?", "/absent?"), (STORE_ERROR,))
        self.assertIn("absent", said)
        said = self.refused(self.url(PASSWORD, options="schema=unmade&manage_schema=no"),
                            (STORE_ERROR,))
        self.assertIn("unmade", said)
        self.server.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
        said = self.refused(self.url(options="schema=unmade").replace(
            f"//{ROLE}@", "//guest:guest@"), (STORE_ERROR,))
        self.assertIn("CREATE", said)

    def test_tls_with_the_certificate_checked(self):
        certificate = self.switch_tls_on()
        options = f"schema=tls&sslmode=verify-full&sslrootcert={quote(certificate, safe='')}"
        with Daemon(store=self.url(PASSWORD, options=options)) as daemon:
            daemon.client().acquire("tls", limit=1)
            encrypted = self.server.execute(
                "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
                "WHERE application_name = 'semaphored'")
            self.assertGreaterEqual(len(encrypted), 2)
            self.assertEqual({row[0] for row in encrypted}, {True})
        # Signed by somebody else.
        other = self.make_certificate(os.path.join(self.folder, "other"))
        options = f"schema=tls&sslmode=verify-full&sslrootcert={quote(other, safe='')}"
        said = self.refused(self.url(PASSWORD, options=options), (STORE_ERROR,))
        self.assertIn("certificate verify failed", said)

    def make_certificate(self, path):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
             "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", path + ".key", "-out", path + ".crt"], check=True, capture_output=True)
        return path + ".crt"

    def switch_tls_on(self):
        """The server's certificate, signed by itself; off again when the test has ended."""
        path = os.path.join(self.server.data, "server")
        certificate = self.make_certificate(path)
        owner = os.stat(self.server.data)
        for name in (path + ".key", path + ".crt"):
            os.chown(name, owner.st_uid, owner.st_gid)
        os.chmod(path + ".key", 0o600)
        self.addCleanup(self.server.execute, "SELECT pg_reload_conf()")
        self.addCleanup(self.server.execute, "ALTER SYSTEM RESET ssl")
        self.server.execute("ALTER SYSTEM SET ssl = on")
        self.server.execute("SELECT pg_reload_conf()")
        copy = os.path.join(self.folder, "server.crt")  # The data folder is the server's alone.
        shutil.copyfile(certificate, copy)
        return copy

    def test_a_pooler_is_refused(self):
        with PgBouncer(self.server, PASSWORD) as pooler:
            connection = psycopg2.connect(host="127.0.0.1", port=pooler.port, dbname=ROLE,
                                          user=ROLE, password=PASSWORD)
            self.addCleanup(connection.close)
            connection.cursor().execute("SELECT 1")  # It does work as such.
            said = self.refused(self.url(PASSWORD, port=pooler.port), (STORE_ERROR,))
            self.assertIn("pooler", said)
            self.assert_secret(PASSWORD, said, "the error")


if __name__ == "__main__":
    unittest.main()
