"""semctl and the C++ client over TLS, and with a token: who is believed, what is sent to whom, and
what is said when it does not fit."""

import concurrent.futures
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest

from daemon import BIN_DIR, BOUND_S, Daemon, grpc, pb, pb_grpc, wait_until

SEMCTL = os.path.join(BIN_DIR, "semctl")
TOKEN = "smt_" + "S3cr3t" * 7 + "x"
UNREACHABLE, REFUSED = 123, 119


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder,
                   timeout=BOUND_S)


def make_certificates(folder):
    """ca.pem signs server.pem (for db-locks.example and localhost), client.pem, and expired.pem, a client's, too;
    stranger.pem is another authority."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for name in ("ca", "stranger"):
        openssl(folder, "req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.pem",
                "-days", "2", "-subj", f"/CN={name}")
    with open(os.path.join(folder, "server.ext"), "w", encoding="ascii") as file:
        file.write("subjectAltName=DNS:db-locks.example,DNS:localhost\n")
    with open(os.path.join(folder, "client.ext"), "w", encoding="ascii") as file:
        file.write("subjectAltName=DNS:client.example\n")
    shutil.copy(os.path.join(folder, "client.ext"), os.path.join(folder, "expired.ext"))
    for name, days in (("server", "2"), ("client", "2"), ("expired", "-1")):
        openssl(folder, "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr",
                "-subj", f"/CN={name}")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-out", f"{name}.pem", "-days", days, "-extfile", f"{name}.ext")


class Guard(pb_grpc.SemaphoreServiceServicer):
    """Lets in who shows the token that is wanted, and notes what was shown. Knows one method of
    each kind."""

    def __init__(self):
        self.wanted = TOKEN
        self.shown = []

    def check(self, context):
        shown = dict(context.invocation_metadata()).get("authorization")
        self.shown.append(shown)
        if self.wanted and shown != f"Bearer {self.wanted}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")

    def Verify(self, request, context):  # pylint: disable=invalid-name  gRPC's own
        self.check(context)
        return pb.VerifyResponse(held=True)

    def Session(self, requests, context):  # pylint: disable=invalid-name
        self.check(context)
        next(requests)
        yield pb.SessionResponse(opened=pb.SessionOpened(
            session_id="1", ttl_ms=60_000, validity=pb.LeaseValidity(valid_for_ms=60_000)))
        for request in requests:
            for command in request.commands:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, f"not any more ({command.sequence})")


class TlsFront:
    """Ends TLS before a daemon that speaks none."""

    def __init__(self, folder, port):
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(os.path.join(folder, "server.pem"),
                                  os.path.join(folder, "server.key"))
        self._tls.load_verify_locations(os.path.join(folder, "ca.pem"))
        self._tls.verify_mode = ssl.CERT_REQUIRED
        self._tls.set_alpn_protocols(["h2"])
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for each in (self._listener, *self._open):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        try:
            near = self._tls.wrap_socket(near, server_side=True)
            far = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            near.close()
            return
        self._open += [near, far]
        threading.Thread(target=self._pump, args=(far, near), daemon=True).start()
        self._pump(near, far)

    @staticmethod
    def _pump(source, sink):
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                sink.sendall(data)
        except (OSError, ValueError):
            pass
        for each in (source, sink):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class SemctlTls(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-e2e-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        make_certificates(cls.folder)

    def path(self, name, text=None):
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
        return path

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def guard(self, tls=True, client_certificates=False):
        """(the guard, its port)."""
        guard = Guard()
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        pb_grpc.add_SemaphoreServiceServicer_to_server(guard, server)
        if tls:
            credentials = grpc.ssl_server_credentials(
                [(self.read("server.key"), self.read("server.pem"))],
                root_certificates=self.read("ca.pem") if client_certificates else None,
                require_client_auth=client_certificates)
            port = server.add_secure_port("127.0.0.1:0", credentials)
        else:
            port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(0).wait(BOUND_S))
        return guard, port

    def semctl(self, server, *arguments, environment=None):
        """(exit code, what it said on stderr)."""
        done = subprocess.run(
            [SEMCTL, "--server", server, "--connect-timeout", "1s", *arguments], text=True,
            capture_output=True, timeout=BOUND_S, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})})
        self.assertNotIn(TOKEN, done.stdout + done.stderr)
        return done.returncode, done.stderr

    def verify(self, server, *arguments, environment=None):
        return self.semctl(server, "verify", "x/0123456789abcdef0123456789abcdef", *arguments,
                           environment=environment)

    def test_who_is_believed(self):
        guard, port = self.guard(client_certificates=True)
        server = f"localhost:{port}"
        mine = ("--cert-file", self.path("client.pem"), "--key-file", self.path("client.key"))
        token = ("--token-file", self.path("token", TOKEN + "\n"))
        ours = ("--ca-file", self.path("ca.pem"))
        self.assertEqual(self.verify(server, *ours, *mine, *token), (0, ""))
        self.assertEqual(guard.shown.pop(), f"Bearer {TOKEN}")
        # All of it in the environment.
        self.assertEqual(self.verify(server, environment={
            "SEMCTL_CA_FILE": self.path("ca.pem"), "SEMCTL_CERT_FILE": self.path("client.pem"),
            "SEMCTL_KEY_FILE": self.path("client.key"), "SEMCTL_TOKEN": TOKEN}), (0, ""))
        self.assertEqual(self.verify(server, *ours, *mine, environment={
            "SEMCTL_TLS": "1", "SEMCTL_TOKEN_FILE": self.path("token"),
            "SEMCTL_SERVER_NAME": "db-locks.example"}), (0, ""))
        guard.shown.clear()
        expired = ("--cert-file", self.path("expired.pem"), "--key-file", self.path("expired.key"))
        for wrong in (("--ca-file", self.path("stranger.pem"), *mine), (*ours,), (*ours, *expired),
                      (*ours, *mine, "--server-name", "elsewhere.example"), ("--tls", *mine)):
            with self.subTest(wrong=wrong):
                code, said = self.verify(server, *wrong, *token)
                self.assertEqual(code, UNREACHABLE, said)
                self.assertRegex(said, "TLS handshake failed: semctl doctor")
                code, said = self.semctl(server, "run", "x", *wrong, *token, "--", "true")
                self.assertEqual(code, UNREACHABLE, said)
                self.assertRegex(said, "TLS handshake failed: semctl doctor")
        # Without TLS it does not come to that either.
        self.assertEqual(self.verify(server, *token)[0], UNREACHABLE)
        # Where there is no connection TLS is not to blame.
        for nowhere in ("localhost:1", "no-such-host.invalid:7420"):
            code, said = self.verify(nowhere, *ours, *mine)
            self.assertEqual(code, UNREACHABLE, said)
            self.assertRegex(said, "does it run there")
        self.assertEqual(guard.shown, [])

    def test_a_wrong_token(self):
        guard, port = self.guard(tls=False)
        server = f"127.0.0.1:{port}"
        for environment in ({}, {"SEMCTL_TOKEN": "smt_other"}):
            code, said = self.verify(server, environment=environment)
            self.assertEqual(code, REFUSED, said)
            self.assertIn("who are you?", said)
            # The session of `run` is refused as clearly, and not tried for ever.
            code, said = self.semctl(server, "run", "x", "--limit", "1", "--", "true",
                                     environment=environment)
            self.assertEqual(code, REFUSED, said)
            self.assertIn("who are you?", said)
            code, said = self.semctl(server, "work", "x", "--", "true", environment=environment)
            self.assertEqual(code, REFUSED, said)
        self.assertEqual(len(guard.shown), 4)

    def test_a_token_that_counts_no_more(self):
        """The stream ends with UNAUTHENTICATED: whoever waits is told."""
        _, port = self.guard(tls=False)
        code, said = self.semctl(f"127.0.0.1:{port}", "run", "x", "--limit", "1", "--", "true",
                                 environment={"SEMCTL_TOKEN": TOKEN})
        self.assertEqual(code, REFUSED, said)
        self.assertIn("not any more", said)

    def test_what_is_wrong_is_named(self):
        token = self.path("token", TOKEN)
        for arguments, words in (
                (("--ca-file", "/does/not/exist"), ("--ca-file", "/does/not/exist", "No such file")),
                (("--ca-file", token), ("--ca-file", "CERTIFICATE")),
                (("--cert-file", self.path("client.pem")), ("--key-file", "needed")),
                (("--key-file", self.path("client.key")), ("--cert-file", "needed")),
                (("--token-file", "/does/not/exist"), ("--token-file", "No such file")),
                (("--token-file", self.path("empty", "\n")), ("--token-file", "must hold one token")),
                (("--token-file", self.path("two", "a b\n")), ("must hold one token",)),
                (("--token-file", token, "--server", "192.0.2.1:7420"),
                 ("never sent without TLS", "192.0.2.1:7420", "--ca-file")),
                (("--token-file", token, "--server", "127.0.0.1.example:1"), ("never sent",))):
            for command in (("verify", "x/0123456789abcdef0123456789abcdef"),
                            ("run", "x", "--limit", "1", "--", "true"),
                            ("work", "x", "--", "true")):
                with self.subTest(arguments=arguments, command=command[0]):
                    done = subprocess.run([SEMCTL, *arguments, *command], text=True, check=False,
                                          capture_output=True, timeout=BOUND_S)
                    self.assertEqual(done.returncode, REFUSED, done.stderr)
                    for word in words:
                        self.assertIn(word, done.stderr)
                    self.assertNotIn(TOKEN, done.stderr)

    def test_run_over_tls(self):
        """Everything else of the client goes through TLS as it does without."""
        ours = ("--ca-file", self.path("ca.pem"), "--cert-file", self.path("client.pem"),
                "--key-file", self.path("client.key"))
        with Daemon() as daemon, TlsFront(self.folder, daemon.port) as front:
            server = f"localhost:{front.port}"
            code, said = self.semctl(server, *ours, "run", "db", "--limit", "1", "--", "true")
            self.assertEqual(code, 0, said)
            code, said = self.semctl(server, *ours, "enqueue", "jobs", "--limit", "1")
            self.assertEqual(code, 0, said)
            code, said = self.semctl(server, *ours, "work", "jobs", "--once", "--", "true")
            self.assertEqual(code, 0, said)
            wait_until(lambda: daemon.client().describe("db").held == 0, "it was given back")


if __name__ == "__main__":
    unittest.main()
