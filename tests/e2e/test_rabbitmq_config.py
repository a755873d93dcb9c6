"""What a store URL of RabbitMQ may say, what it may not, TLS, and that nobody hears the password."""

import os
import re
import shlex
import socket
import subprocess
import tempfile
import time
import unittest
from urllib.parse import quote

import cluster  # noqa: F401  pylint: disable=unused-import  (Finds the scripts of the engines.)
from broker import foreign
from daemon import BIN_DIR, BOUND_S, Daemon, error_info, grpc, wait_until
from ports import free_port
from rabbitmq import USER, RabbitServer
from semaphore.v1 import semaphore_pb2 as pb

# With all that has a meaning in a URL.
WRONG = "Wr0ng-w/o?r:d@%41#&="
REFUSED_S = 15
STORE_ERROR, CONFIGURATION_ERROR = 3, 2
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)


def make_certificate(path):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", path + ".key", "-out", path + ".crt"], check=True, capture_output=True)
    os.chmod(path + ".key", 0o644)  # The server is another user.
    return path + ".crt"


class Configuration(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-e2e-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        os.chmod(cls.folder, 0o755)
        cls.certificate = make_certificate(os.path.join(cls.folder, "server"))
        cls.tls_port = free_port()
        cls.server = RabbitServer(os.path.join(cls.folder, "broker"), settings=(
            f"listeners.ssl.1 = 127.0.0.1:{cls.tls_port}\n"
            f"ssl_options.cacertfile = {cls.certificate}\n"
            f"ssl_options.certfile = {cls.certificate}\n"
            f"ssl_options.keyfile = {cls.folder}/server.key\n"
            "ssl_options.verify = verify_none"))
        cls.server.start()
        cls.addClassCleanup(cls.server.remove)

    def url(self, password=None, port=None, options="", scheme="amqp"):
        url = self.server.url(port, "?" + options)
        if password is not None:
            rest = url.partition("@")[2]
            url = f"amqp://{USER}:{quote(password, safe='')}@{rest}"
        return scheme + url.removeprefix("amqp")

    def refused(self, url, codes=(STORE_ERROR, CONFIGURATION_ERROR)):
        begun = time.monotonic()
        done = subprocess.run(
            [os.path.join(BIN_DIR, "semaphored"), "--listen", f"127.0.0.1:{free_port()}",
             "--store", url], capture_output=True, text=True, timeout=BOUND_S, check=False)
        self.assertIn(done.returncode, codes, done.stderr)
        self.assertLess(time.monotonic() - begun, REFUSED_S)
        self.assertNotIn("serving", done.stdout)
        said = done.stderr + done.stdout
        for secret in (WRONG, quote(WRONG, safe=""), self.server.url().split(":")[2].split("@")[0]):
            self.assertNotIn(secret, said)
        return said

    def test_a_wrong_password_is_refused_and_not_told(self):
        self.assertIn("ACCESS_REFUSED", self.refused(self.url(WRONG)))

    def test_a_password_from_a_file(self):
        path = os.path.join(self.folder, "secret")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.server.url().split(":")[2].split("@")[0] + "\n")
        rest = self.server.url().partition("@")[2]
        url = f"amqp://{USER}@{rest}?password_file={quote(path, safe='')}"
        with Daemon(store=url) as daemon:
            daemon.client().acquire("file", limit=1)

    def test_options_that_are_none(self):
        for options, named in (("layout=circles", "layout"), ("heartbeat_s=0", "heartbeat_s"),
                               ("timeout_ms=soon", "timeout_ms"), ("unknown=1", "unknown"),
                               ("consumer_timeout_ms=5", "consumer_timeout_ms"),
                               ("verify_host=perhaps", "verify_host"),
                               ("prefix=" + "x" * 61, "prefix"),
                               ("password_file=/does/not/exist", "/does/not/exist")):
            with self.subTest(options=options):
                self.assertIn(named, self.refused(self.url(WRONG, options=options)))

    def test_a_virtual_host_that_is_not_there(self):
        rest = self.url().replace("/?", "/nowhere?")
        self.assertIn("nowhere", self.refused(rest))

    def test_brokers_that_do_not_answer(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            for port in (free_port(), silent.getsockname()[1]):
                self.refused(self.url(port=port, options="timeout_ms=1000"), (STORE_ERROR,))

    def test_tls_with_the_certificate_checked(self):
        authority = f"ca_file={quote(self.certificate, safe='')}"
        url = self.url(port=self.tls_port, options=authority, scheme="amqps")
        self.assertIn("hostname", self.refused(url, (STORE_ERROR,)))
        with Daemon(store=url.replace("@127.0.0.1:", "@localhost:")) as daemon:
            daemon.client().acquire("tls", limit=1)
            encrypted = self.server.ctl("list_connections", "ssl", "--no-table-headers").split()
            self.assertGreaterEqual(encrypted.count("true"), 2)
        with Daemon(store=url + "&verify_host=no") as daemon:
            daemon.client().acquire("tls", limit=1)
        # Signed by somebody else.
        other = make_certificate(os.path.join(self.folder, "other"))
        localhost = self.url(port=self.tls_port, scheme="amqps").replace("@127.0.0.1:",
                                                                         "@localhost:")
        said = self.refused(f"{localhost}ca_file={quote(other, safe='')}", (STORE_ERROR,))
        self.assertIn("SSL", said)
        # And by nobody that the system knows.
        self.assertIn("SSL", self.refused(localhost, (STORE_ERROR,)))

    def test_a_ttl_longer_than_what_is_vouched_for_is_kept_alive(self):
        """The daemon vouches for some seconds at a time, whatever the TTL: clients are to ask for
        more in time."""
        with Daemon(store=self.url()) as daemon:
            done = subprocess.run(
                [os.path.join(BIN_DIR, "semctl"), "--server", daemon.address, "run", "long",
                 "--limit", "1", "--ttl", "60s", "--", "sleep", "9"],
                capture_output=True, text=True, timeout=BOUND_S, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            client = daemon.client()
            stream = client.stub.Hold(pb.HoldRequest(acquire=pb.AcquireRequest(
                semaphore="long", ttl_ms=60_000, holder="test")))
            good_until = None
            begun = time.monotonic()
            for event in stream:
                now = time.monotonic()
                if good_until is not None:
                    self.assertLess(now, good_until)
                validity = event.beat if event.HasField("beat") else event.granted.validity
                good_until = now + validity.valid_for_ms / 1000
                if now > begun + 9:
                    break
            stream.cancel()

    def test_tickets_are_refused_clearly(self):
        store = self.url(options="prefix=tickets-")
        with Daemon({"node_id": "a"}, store=store) as daemon:
            client = daemon.client()
            client.acquire("s", limit=1)
            opening = pb.WorkRequest(open=pb.OpenWork(client_id="w", semaphores=["s"]))
            for asked in (
                    lambda: client.stub.Enqueue(pb.EnqueueRequest(semaphore="s"), timeout=BOUND_S),
                    lambda: next(client.stub.Work(iter([opening]), timeout=BOUND_S)),
                    lambda: client.stub.Administer(
                        pb.AdministerRequest(semaphore="s", list_tickets=pb.ListTickets()),
                        timeout=BOUND_S)):
                with self.assertRaises(grpc.RpcError) as caught:
                    asked()
                self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
                self.assertEqual(error_info(caught.exception).reason, "NOT_SUPPORTED")
                self.assertIn("rabbitmq", caught.exception.details())

    def test_a_prefix_keeps_environments_apart(self):
        for prefix in ("one-", "two-"):
            with Daemon(store=self.url(options=f"prefix={prefix}")) as daemon:
                daemon.client().acquire("shared/name", limit=1)
        queues = self.server.ctl("list_queues", "name", "--no-table-headers").split()
        self.assertIn("one-shared/name.semaphore", queues)

    def log_in_as_documented(self, name, patterns=None):
        """A user with the rights of docs/rabbitmq.md, or with these. The URL without options."""
        if patterns is None:
            with open(os.path.join(ROOT, "docs", "rabbitmq.md"), encoding="utf-8") as file:
                command = re.search(r"^rabbitmqctl set_permissions .*$", file.read(), re.MULTILINE).group()
            *_, configure, write, read = shlex.split(command)
            patterns = configure, write, read
        self.server.ctl("add_user", name, "a-password")
        self.server.ctl("set_permissions", name, *patterns)
        return f"amqp://{name}:a-password@127.0.0.1:{self.server.port}/", patterns

    def all_that_daemons_do(self, a, b, layout):
        client, other = a.client(), b.client()
        client.administer("job", create=pb.CreateSemaphore(limit=2))
        leases = [each.acquire("job").lease_id for each in (client, other)]
        waiting = client.acquire_later("job")
        client.wait_for_queue("job", 1)
        other.release(leases[1])
        waiting.result(BOUND_S)
        client.administer("job", resize=pb.ResizeSemaphore(limit=1, policy=pb.SHRINK_POLICY_WAIT))
        client.administer("job", resize=pb.ResizeSemaphore(limit=3, policy=pb.SHRINK_POLICY_WAIT))
        client.administer("job", revoke=pb.RevokeLeases(all=True, now=True))
        client.administer("job", prune=pb.PruneSemaphore())
        if layout == "tokens":
            client.administer("job", pause=pb.PauseSemaphore())
            other.administer("job", resume=pb.ResumeSemaphore())
            listed = client.administer("", list=pb.ListSemaphores()).semaphores
            self.assertEqual([each.semaphore for each in listed], ["job"])
        client.administer("job", destroy=pb.DestroySemaphore(policy=pb.DESTROY_POLICY_FORCE, now=True))

    def test_an_exchange_of_another_kind_ends_no_daemon(self):
        """A program has put an exchange of another kind in the place of the daemons': they go on when it is theirs again."""
        exchange = "other-kind/semaphored.changes"
        with Daemon({"node_id": "other-kind"}, store=self.url(options="prefix=other-kind/")) as daemon:
            client = daemon.client()
            client.acquire("x", limit=2)
            with foreign(self.server) as channel:
                channel.exchange_delete(exchange)
                channel.exchange_declare(exchange, "direct", durable=True)
            self.server.ctl("close_all_connections", "a test")

            def code():
                try:
                    client.acquire("x", wait_ms=0)
                    return None
                except grpc.RpcError as error:
                    return error.code()

            wait_until(lambda: code() == grpc.StatusCode.UNAVAILABLE, "the exchange is met")
            self.assertEqual(code(), grpc.StatusCode.UNAVAILABLE)
            self.assertIsNone(daemon.process.poll(), daemon.log())
            with foreign(self.server) as channel:
                channel.exchange_delete(exchange)
            wait_until(lambda: code() is None, "it goes on")

    def test_the_documented_rights_are_enough(self):
        url, (configure, write, read) = self.log_in_as_documented("documented")
        for layout in ("tokens", "slots"):
            store = f"{url}?prefix=team/&layout={layout}"
            with Daemon({"node_id": f"{layout}-a"}, store=store) as a, Daemon({"node_id": f"{layout}-b"}, store=store) as b:
                self.all_that_daemons_do(a, b, layout)
                for daemon in (a, b):
                    self.assertNotIn("ACCESS_REFUSED", daemon.log())
        # And not more than is needed.
        for number, fewer in enumerate(((configure.replace("team/|", ""), write, read),
                                        (configure, write.replace(r"|amq\.default$", ""), read),
                                        (configure, write, read.replace("team/|", "")),
                                        (configure.replace(r"|amq\.gen-", ""), write, read))):
            url, _ = self.log_in_as_documented(f"fewer-{number}", fewer)
            with self.subTest(fewer=fewer):
                said = self.refused_at_work(f"{url}?prefix=team/{number}-")
                self.assertIn("ACCESS_REFUSED", said)

    def refused_at_work(self, store):
        """What a daemon says that cannot start, or cannot make a semaphore."""
        daemon = Daemon({"node_id": "a"}, store=store)
        self.addCleanup(daemon.close)
        try:
            daemon.start()
            daemon.client().administer("job", create=pb.CreateSemaphore(limit=1))
        except grpc.RpcError as error:
            return error.details()
        except AssertionError:
            return daemon.log()
        return ""
        self.assertIn("two-shared/name.semaphore", queues)


if __name__ == "__main__":
    unittest.main()
