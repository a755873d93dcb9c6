"""semctl doctor: what it finds of daemons that are well, and of those that are not."""

import concurrent.futures
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

import cluster
from certificates import Authority
from cluster import Cluster
from daemon import BIN_DIR, BOUND_S, Daemon, free_port, grpc, pb, pb_grpc
from test_security import TlsDaemon, new_token

SEMCTL = os.path.join(BIN_DIR, "semctl")
OK, WARNS, FAILS, UNREACHABLE = 0, 1, 119, 123
VERSION = json.loads(subprocess.run([SEMCTL, "version", "-o", "json"], check=True, capture_output=True, text=True,
                                    timeout=BOUND_S).stdout)["version"]
CHECKS = ["reach", "tls", "rights", "clock", "engine", "version"]


class DoctorCase(unittest.TestCase):

    def doctor(self, *endpoints, code=OK, more=(), environment=None):
        """The checks as (endpoint, check) → finding."""
        if "--timeout" not in more:
            more = (*more, "--timeout", "30s")  # A loaded machine is not what is looked for.
        done = subprocess.run(
            [SEMCTL, "--server", ",".join(endpoints), "doctor", "-o", "json", *more], check=False,
            capture_output=True, text=True, timeout=4 * BOUND_S, env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        result = json.loads(done.stdout)
        self.order = [check["check"] for check in result["checks"]]
        self.assertEqual(result["worst"], {OK: "ok", WARNS: "warn"}.get(code, "fail"))
        for check in result["checks"]:
            self.assertEqual(check["grade"] == "ok", check["advice"] == "", check)
        return {(check["endpoint"], check["check"]): check for check in result["checks"]}

    def assert_finds(self, findings, endpoint, check, grade, text):
        finding = findings[endpoint, check]
        self.assertEqual(finding["grade"], grade, finding)
        self.assertRegex(finding["message"] + "; " + finding["advice"], text)


class Doctor(DoctorCase):

    def test_a_daemon_that_is_well(self):
        with Daemon() as daemon:
            findings = self.doctor(daemon.address)
            self.assertEqual(self.order, CHECKS)
            self.assert_finds(findings, daemon.address, "rights", "ok", "everything")
            self.assert_finds(findings, daemon.address, "engine", "ok", "sqlite answered in")
            done = subprocess.run([SEMCTL, "--server", daemon.address, "doctor"], check=True,
                                  capture_output=True, text=True, timeout=BOUND_S)
            lines = done.stdout.splitlines()
            self.assertEqual(len(lines), len(CHECKS))
            for line, check in zip(lines, CHECKS):
                self.assertRegex(line, rf"^ok +{daemon.address} +{check} +\S")
            # It has made no semaphore, and no session.
            listed = subprocess.run([SEMCTL, "--server", daemon.address, "list", "--names"], check=True,
                                    capture_output=True, text=True, timeout=BOUND_S)
            self.assertEqual(listed.stdout, "")

    def test_a_unix_socket(self):
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            address = f"unix:{folder}/s"
            daemon = Daemon()
            daemon.address = address
            with daemon:
                self.assert_finds(self.doctor(address), address, "tls", "ok", "on this machine")

    def test_a_daemon_that_is_not_there(self):
        address = f"127.0.0.1:{free_port()}"
        findings = self.doctor(address, code=UNREACHABLE)
        self.assert_finds(findings, address, "reach", "fail", "Connection refused")
        self.assertEqual(self.order, ["reach"])
        missing = f"unix:{tempfile.gettempdir()}/there-is-no-such-socket"
        self.assert_finds(self.doctor(missing, code=UNREACHABLE), missing, "reach", "fail", "No such file")
        unknown = "no-such-host.invalid:7420"
        self.doctor(unknown, code=UNREACHABLE, more=("--timeout", "5s"))

    def test_one_of_two_is_not_there(self):
        gone = f"127.0.0.1:{free_port()}"
        with Daemon() as daemon:
            findings = self.doctor(gone, daemon.address, code=FAILS)
            self.assert_finds(findings, gone, "reach", "fail", "refused")
            self.assert_finds(findings, daemon.address, "engine", "ok", "sqlite")

    def test_a_daemon_that_is_stopped(self):
        with Daemon() as daemon:
            daemon.signal(signal.SIGSTOP)
            findings = self.doctor(daemon.address, code=UNREACHABLE, more=("--timeout", "1s"))
            self.assertEqual(findings[daemon.address, "reach"]["grade"], "fail")

    def test_what_is_no_daemon(self):
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        findings = self.doctor(address, code=UNREACHABLE, more=("--timeout", "1s"))
        self.assertEqual(findings[address, "reach"]["grade"], "fail")
        findings = self.doctor(address, code=UNREACHABLE, more=("--timeout", "1s", "--tls"))
        self.assert_finds(findings, address, "tls", "fail", "no answer in time")

    def test_a_peer_that_goes_in_the_handshake(self):
        peer = socket.create_server(("127.0.0.1", 0))

        def serve():
            with contextlib.suppress(OSError):  # The listener is closed.
                while True:
                    connection, _ = peer.accept()
                    # A ServerHello that is too short: OpenSSL answers it with an alert, to a peer that has gone.
                    connection.sendall(b"\x16\x03\x03\x00\x05\x02\x00\x00\x01\x00")
                    connection.close()
        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(peer.close)
        self.addCleanup(peer.shutdown, socket.SHUT_RDWR)
        address = f"127.0.0.1:{peer.getsockname()[1]}"
        findings = self.doctor(address, code=UNREACHABLE, more=("--tls",))
        self.assert_finds(findings, address, "tls", "fail", "no handshake")

    def test_two_stores(self):
        with Daemon({"node_id": "a"}) as a, Daemon({"node_id": "a"}) as b:
            findings = self.doctor(a.address, b.address, code=FAILS)
            self.assertEqual(findings["", "nodes"]["grade"], "fail")
            self.assertEqual(self.order.count("nodes"), 2)  # The node id, and the stores.

    def test_one_daemon_twice(self):
        with Daemon() as daemon:
            other = daemon.address.replace("127.0.0.1", "localhost")
            findings = self.doctor(daemon.address, other, code=WARNS)
            self.assert_finds(findings, "", "nodes", "warn", "are the same daemon")

    def test_a_wrong_command_line(self):
        done = subprocess.run([SEMCTL, "doctor", "--timeout", "soon"], check=False, capture_output=True,
                              text=True, timeout=BOUND_S)
        self.assertEqual(done.returncode, 2)


class OtherDaemon(pb_grpc.SemaphoreServiceServicer):
    """Says of itself what no daemon of this machine can: its clocks are this machine's, changed."""

    def __init__(self, speed=1.0, ahead_s=0.0, engine_us=100, **fields):
        self.speed, self.ahead_s, self.engine_us = speed, ahead_s, engine_us
        self.fields = {"version": VERSION, "node_id": "other", "instance": "0" * 32, "engine": "sqlite", "in_touch": True, **fields}

    def DescribeDaemon(self, request, context):  # pylint: disable=invalid-name
        answer = pb.DescribeDaemonResponse(steady_us=int(time.monotonic_ns() / 1_000 * self.speed), **self.fields)
        answer.time.FromNanoseconds(time.time_ns() + int(self.ahead_s * 1e9))
        if request.probe_engine:
            answer.probe.latency_us = self.engine_us
        return answer


class Others(DoctorCase):

    def start(self, **described):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        pb_grpc.add_SemaphoreServiceServicer_to_server(OtherDaemon(**described), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(0).wait(BOUND_S))
        return f"127.0.0.1:{port}"

    def test_clocks_of_other_speeds(self):
        """By a half: what the round trips of a busy machine leave open counts for the daemon."""
        for speed, code, grade, text in ((1.0, OK, "ok", "wall clocks differ by"),
                                         (1.5, FAILS, "fail", "speeds by .*; .*repair the clock"),
                                         (0.5, FAILS, "fail", "speeds by .*; .*repair the clock")):
            with self.subTest(speed):
                address = self.start(speed=speed)
                self.assert_finds(self.doctor(address, code=code), address, "clock", grade, text)

    def test_wall_clocks_that_differ(self):
        for ahead_s in (3_600, -3_600):
            address = self.start(ahead_s=ahead_s)
            self.assert_finds(self.doctor(address, code=WARNS), address, "clock", "warn", r"differ by 3[56]\d{5}\.\d ms .*NTP")

    def test_another_version(self):
        address = self.start(version="9.8.7")
        self.assert_finds(self.doctor(address, code=WARNS), address, "version", "warn",
                          rf"the daemon is 9\.8\.7, semctl {re.escape(VERSION)}; .*compatibility")

    def test_two_versions(self):
        old = self.start(version=VERSION, node_id="a", instance="a" * 32, shared_engine=True)
        new = self.start(version="9.8.7", node_id="b", instance="b" * 32, shared_engine=True)
        self.assert_finds(self.doctor(old, new, code=WARNS), "", "version", "warn", "differ: .*9.8.7; end the upgrade")

    def test_an_engine_that_is_slow_or_away(self):
        address = self.start(engine_us=800_000)
        self.assert_finds(self.doctor(address, code=WARNS), address, "engine", "warn", r"answered in 800\.0 ms; .*load")
        address = self.start(in_touch=False)
        self.assert_finds(self.doctor(address, code=FAILS), address, "engine", "fail", "out of touch")

    def test_an_identity_that_may_do_nothing(self):
        address = self.start(identity="guest")
        self.assert_finds(self.doctor(address, code=WARNS), address, "rights", "warn", "'guest' may do nothing")


class Secured(DoctorCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.authority = Authority(self.folder, "ca")

    def start(self, days=40, **settings):
        pair = self.authority.sign("daemon", days=days)
        daemon = TlsDaemon({"tls_cert_file": pair.cert_file, "tls_key_file": pair.key_file, **settings})
        self.addCleanup(daemon.close)
        daemon.start() if days > 0 else daemon.spawn()
        return daemon

    def tls(self):
        return ("--ca-file", self.authority.cert_file)

    def access_file(self, digest, rules):
        path = os.path.join(self.folder, "access.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'[identities.ci]\ntokens = ["{digest}"]\nrules = [{rules}]\n')
        return path

    def test_certificates(self):
        daemon = self.start()
        findings = self.doctor(daemon.address, more=self.tls())
        self.assert_finds(findings, daemon.address, "tls", "ok", r"TLSv1\.3, the daemon's certificate is good for (39|40) days")
        stranger = Authority(self.folder, "stranger")
        findings = self.doctor(daemon.address, code=UNREACHABLE, more=("--ca-file", stranger.cert_file))
        self.assert_finds(findings, daemon.address, "tls", "fail", "is not accepted")
        findings = self.doctor(daemon.address, code=UNREACHABLE,
                               more=(*self.tls(), "--server-name", "elsewhere.example"))
        self.assert_finds(findings, daemon.address, "tls", "fail", "hostname mismatch")
        findings = self.doctor(daemon.address, code=UNREACHABLE, more=("--timeout", "1s"))
        self.assert_finds(findings, daemon.address, "reach", "fail", "; .+")

    def test_a_certificate_that_soon_expires(self):
        daemon = self.start(days=5)
        findings = self.doctor(daemon.address, code=WARNS, more=self.tls())
        self.assert_finds(findings, daemon.address, "tls", "warn", "good for [45] days")

    def test_a_certificate_that_has_expired(self):
        """Shown by a server of the test's: no daemon begins with one."""
        pair = self.authority.sign("expired", days=-1)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert_file, pair.key_file)
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def shake_hands():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
                        tls.recv(1)
        threading.Thread(target=shake_hands, daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        findings = self.doctor(address, code=UNREACHABLE, more=self.tls())
        self.assert_finds(findings, address, "tls", "fail", "has expired")

    def test_tokens(self):
        token, digest = new_token()
        daemon = self.start(access_file=self.access_file(
            digest, '{ prefixes = ["team/"], verbs = ["acquire"], create = false }'))
        right = {"SEMCTL_TOKEN": token}
        findings = self.doctor(daemon.address, more=self.tls(), environment=right)
        self.assert_finds(findings, daemon.address, "rights", "ok", "'ci' may acquire at 'team/' if it exists")
        self.assert_finds(findings, daemon.address, "engine", "ok", "sqlite")
        for wrong in ({"SEMCTL_TOKEN": token[:-1]}, {}):
            findings = self.doctor(daemon.address, code=FAILS, more=self.tls(), environment=wrong)
            self.assertEqual(findings[daemon.address, "rights"]["grade"], "fail")
            self.assertEqual(self.order, ["reach", "tls", "rights"])
        file = os.path.join(self.folder, "none")
        done = subprocess.run([SEMCTL, "--server", daemon.address, *self.tls(), "--token-file", file, "doctor"],
                              check=False, capture_output=True, text=True, timeout=BOUND_S)
        self.assertEqual(done.returncode, FAILS)
        self.assertIn("token", done.stderr)


class OnPostgres(DoctorCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls)

    def test_two_daemons(self):
        with Cluster({name: self.server.url("two") for name in "ab"}) as daemons:
            a, b = daemons.addresses
            findings = self.doctor(a, b)
            self.assert_finds(findings, "", "nodes", "ok", "2 daemons")
            self.assert_finds(findings, a, "engine", "ok", "postgres answered in")
            self.assertEqual(self.order, CHECKS + CHECKS + ["nodes"])

    def test_two_daemons_with_one_node_id(self):
        """Each on a database of its own: on one, the second would not start."""
        with Cluster({"a": self.server.url("one")}) as first, Cluster({"a": self.server.url("other")}) as second:
            findings = self.doctor(*first.addresses, *second.addresses, code=FAILS)
            self.assert_finds(findings, "", "nodes", "fail", "have the same node id 'a'")

    def test_an_engine_that_is_away(self):
        server = cluster.start_server(self)
        with Cluster({"a": server.url("away")}) as daemons:
            address = daemons["a"].address
            server.stop()
            findings = self.doctor(address, code=FAILS)
            self.assertEqual(findings[address, "engine"]["grade"], "fail")


if __name__ == "__main__":
    unittest.main()
