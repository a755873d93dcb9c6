"""What the daemon reads again (its configuration, the access file, its certificate) costs no holder a lease
that the new rules still allow."""

import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from certificates import Authority
from daemon import BIN_DIR, BOUND_S, Reader, grpc, pb, pb_grpc, wait_until
from test_security import Bearer, TlsDaemon, new_token, replace

TTL_MS = 3000
# Each disturbance is looked at for longer than a lease lasts without a sign of life.
WATCHED_S = 1.3 * TTL_MS / 1000


class ReloadLeases(unittest.TestCase):

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="semaphored-reload-leases-")
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.authority = Authority(self.folder, "ca")
        self.server = self.authority.sign("server")
        self.config = self.path("semaphored.toml")
        self.access = self.path("access.toml")
        self.token_file = self.path("token")
        self.root, self.root_hash = new_token()
        self.token, self.token_hash = new_token()
        self.write_token()
        self.write_access()
        self.write_config("")
        self.daemon = TlsDaemon({
            "config": self.config, "access_file": self.access,
            "tls_cert_file": self.server.cert_file, "tls_key_file": self.server.key_file})
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        self.channel = self.daemon.secure_channel(self.authority)
        self.admin = Bearer(self.channel, self.root)
        self.over = threading.Event()
        self.lost = []
        self.ends = []  # Of the session's streams.
        self.addCleanup(self.over.set)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write_token(self):
        replace(self.token_file, self.token.encode())

    def write_config(self, text):
        replace(self.config, ("# settings\n" + text).encode())

    def write_access(self, hashes=None, rules='{ prefixes = [""], verbs = ["acquire", "verify"] }',
                     first=""):
        listed = ", ".join(f'"{each}"' for each in hashes or [self.token_hash])
        replace(self.access, (
            first + f'[identities.root]\ntokens = ["{self.root_hash}"]\n'
            'rules = [{ prefixes = [""], verbs = ["administer"] }]\n'
            f'[identities.worker]\ntokens = [{listed}]\nrules = [{rules}]\n').encode())

    # ---- holders ----

    def metadata(self):
        return (("authorization", "Bearer " + self.token),)

    def keep(self, work):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()

    def run_command(self):
        """semctl, which reads its token file again."""
        running = subprocess.Popen(
            [os.path.join(BIN_DIR, "semctl"), "--server", self.daemon.address,
             "--ca-file", self.authority.cert_file, "--token-file", self.token_file,
             "run", "a/command", "--limit", "1", "--ttl", f"{TTL_MS}ms", "--",
             "sh", "-c", f"touch {self.path('runs')}; exec sleep 1000"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(running.wait)
        self.addCleanup(running.kill)
        return running

    def hold_by_session(self):
        """A Session with a lease, pinged by a thread, which resumes it as the client libraries do."""
        stub = pb_grpc.SemaphoreServiceStub(self.channel)
        state = {"session": "", "lease": None}

        def stream():
            opening = pb.OpenSession(client_id="c", ttl_ms=TTL_MS, resume_session_id=state["session"])
            yield pb.SessionRequest(open=opening)
            if not state["lease"]:
                yield pb.SessionRequest(commands=[pb.SessionCommand(
                    sequence=1, acquire=pb.SessionAcquire(semaphore="a/session", limit=1))])
            while not self.over.wait(0.3):
                yield pb.SessionRequest(ping=pb.SessionPing(ping_id=1))

        def work():
            while not self.over.is_set():
                reader = Reader(stub.Session(stream(), metadata=self.metadata()))
                while not isinstance(message := reader.next(), tuple):
                    if message.HasField("opened"):
                        if state["session"] and not message.opened.resumed:
                            self.lost.append("the session was not resumed")
                        state["session"] = message.opened.session_id
                    for result in message.results:
                        if result.HasField("granted"):
                            state["lease"] = result.granted
                    self.lost.extend(str(event) for event in message.events)
                self.ends.append(str(message[1]))
                time.sleep(0.1)
        self.keep(work)
        wait_until(lambda: state["lease"] or self.ends, "the session's lease")
        self.assertEqual(self.ends, [])
        return state["lease"]

    def hold_detached(self):
        """A lease of a unary call, renewed."""
        lease = Bearer(self.channel, self.token).acquire("a/detached", limit=1, ttl_ms=TTL_MS)
        stub = pb_grpc.SemaphoreServiceStub(self.channel)

        def work():
            while not self.over.wait(0.3):
                try:
                    stub.Renew(pb.RenewRequest(lease_id=lease.lease_id), timeout=BOUND_S,
                               metadata=self.metadata())
                except grpc.RpcError as error:
                    # In the moment in which the token changes on one side.
                    if error.code() != grpc.StatusCode.UNAUTHENTICATED:
                        self.lost.append(str(error))
        self.keep(work)
        return lease

    # ---- the disturbances ----

    def rotate_at_once(self):
        """The former token is known no more from one moment to the next, and the clients learn the new one
        later."""
        former = self.token_hash
        self.token, self.token_hash = new_token()
        self.write_access()
        wait_until(lambda: Bearer(self.channel, self.token).code(
            "Verify", pb.VerifyRequest(semaphore="a/x", slot=1, token=1)) == grpc.StatusCode.OK,
            "the new token is known")
        time.sleep(0.3 * TTL_MS / 1000)
        self.write_token()
        self.assertNotEqual(former, self.token_hash)

    def rotate_by_both(self):
        former = self.token_hash
        self.token, self.token_hash = new_token()
        self.write_access(hashes=[former, self.token_hash])
        wait_until(lambda: Bearer(self.channel, self.token).code(
            "Verify", pb.VerifyRequest(semaphore="a/x", slot=1, token=1)) == grpc.StatusCode.OK,
            "the new token is known")
        self.write_token()
        time.sleep(0.5)
        self.write_access()

    def narrow_rules(self):
        self.write_access(rules='{ prefixes = ["b/"], verbs = ["verify"] }, '
                                '{ prefixes = ["a/"], verbs = ["acquire"], create = false }')

    def another_identity_first(self):
        self.write_access(first='[identities.a-newcomer]\ncertificates = ["newcomer"]\n'
                                'rules = [{ prefixes = ["a/"], verbs = ["acquire"] }]\n')

    def lower_limits(self):
        self.write_config('ttl_max = "2s"\nttl_min = "1s"\nttl_default = "1s"\nstreams_max = 3\n'
                          'permits_per_request_max = 1\ncommands_per_message_max = 1\n')
        self.daemon.signal(signal.SIGHUP)

    def many_signals(self):
        for _ in range(50):
            self.daemon.signal(signal.SIGHUP)
            time.sleep(0.01)

    def new_certificate(self):
        new = self.authority.sign("server2")
        replace(self.server.cert_file, new.cert())
        replace(self.server.key_file, new.key())

    def test_no_lease_ends(self):
        command = self.run_command()
        leases = [self.hold_by_session(), self.hold_detached()]
        wait_until(lambda: os.path.exists(self.path("runs")), "the command runs")
        before = self.admin.describe_rows("a/command").leases[0].lease.lease_id
        for disturb in (self.many_signals, self.another_identity_first, self.narrow_rules,
                        self.rotate_by_both, self.rotate_at_once, self.new_certificate,
                        self.lower_limits, self.many_signals):
            with self.subTest(disturb.__name__):
                disturb()
                until = time.monotonic() + WATCHED_S
                while time.monotonic() < until:
                    for lease in leases:
                        self.assertTrue(self.admin.verify(lease.lease_id).held)
                    self.assertIsNone(command.poll())
                    self.assertEqual(
                        self.admin.describe_rows("a/command").leases[0].lease.lease_id, before)
                    time.sleep(0.2)
                self.assertEqual(self.lost, [])


if __name__ == "__main__":
    unittest.main()
