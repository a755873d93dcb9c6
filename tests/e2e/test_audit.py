"""What the audit log and the daemon's log hold back, and that both are opened again."""

import json
import os
import signal
import tempfile
import unittest
import urllib.request

from daemon import BOUND_S, Daemon, free_port, grpc, pb, wait_until
from test_security import Bearer, new_token

MIB = 1 << 20


class AuditTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-audit-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.audit = os.path.join(self.folder, "audit.jsonl")

    def daemon(self, **settings):
        daemon = Daemon(settings)
        daemon.__enter__()
        self.addCleanup(daemon.__exit__, None, None, None)
        return daemon

    def lines(self):
        with open(self.audit, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def test_an_identity_without_the_right_writes_little_and_nothing_of_its_request(self):
        access = os.path.join(self.folder, "access.toml")
        tokens = {}
        with open(access, "w", encoding="utf-8") as file:
            for name, verb in (("root", "administer"), ("tenant", "acquire")):
                tokens[name], digest = new_token()
                file.write(f'[identities.{name}]\ntokens = ["{digest}"]\n'
                           f'rules = [{{ prefixes = [""], verbs = ["{verb}"] }}]\n')
        daemon = self.daemon(access_file=access, audit_file=self.audit)
        tenant, root = (Bearer(daemon.channel(), tokens[name]) for name in ("tenant", "root"))
        refused = 300
        for number in range(refused):
            name = f"secret-{number}" if number % 2 else "secret/" + "x" * MIB
            self.assertIn(tenant.code("Administer", pb.AdministerRequest(
                semaphore=name, create=pb.CreateSemaphore(limit=1))),
                (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT))
        root.administer("marker", create=pb.CreateSemaphore(limit=1))
        lines = wait_until(lambda: (lambda found: found if found and found[-1]["semaphore"] == "marker" else None)(
            self.lines()), "all lines")
        short = lines[:-1]
        # One a second; the calls take a while on a busy machine.
        self.assertLess(len(short), refused / 4)
        self.assertNotIn("secret", json.dumps(short))
        self.assertTrue(all(set(line) == {"time", "identity", "peer", "act", "semaphore", "outcome", "reason",
                                          "unwritten"} for line in short), short[0])
        self.assertEqual(short[0]["unwritten"], 0)
        self.assertLessEqual(sum(1 + line["unwritten"] for line in short), refused)

    def test_long_fields_are_cut(self):
        daemon = self.daemon(audit_file=self.audit)
        client = daemon.client()
        requests = [pb.AdministerRequest(semaphore="n" * MIB, create=pb.CreateSemaphore(limit=1)),
                    pb.AdministerRequest(semaphore="s", revoke=pb.RevokeLeases(holder="h" * MIB, now=True)),
                    pb.AdministerRequest(semaphore="s", revoke=pb.RevokeLeases(lease_id="l" * MIB, now=True))]
        for request in requests:
            with self.assertRaises(grpc.RpcError):
                client.stub.Administer(request, timeout=BOUND_S)
        wait_until(lambda: len(self.lines()) == len(requests), "all lines")
        with open(self.audit, encoding="utf-8") as file:
            for line in file:
                self.assertLess(len(line), 10_000)

    def test_lost_lines_are_counted(self):
        os.symlink("/dev/full", self.audit)
        port = free_port()
        daemon = self.daemon(audit_file=self.audit, metrics_listen=f"127.0.0.1:{port}")
        for number in range(3):
            daemon.client().administer(f"s{number}", create=pb.CreateSemaphore(limit=1))

        def lost():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=BOUND_S) as page:
                return "semaphored_audit_lines_lost_total 3" in page.read().decode()
        wait_until(lost, "the metric")
        # The daemon's log is not filled by that.
        self.assertEqual(daemon.log().count("lines are lost") + daemon.log().count("line(s) are lost"), 1)

    def test_the_daemons_log_is_opened_again_at_sighup(self):
        path = os.path.join(self.folder, "log")
        daemon = self.daemon(log_file=path)
        os.rename(path, path + ".1")
        daemon.signal(signal.SIGHUP)

        def said():
            if not os.path.exists(path):
                return False
            with open(path, encoding="utf-8") as file:
                return "SIGHUP: the configuration was read" in file.read()
        wait_until(said, "a new log")
        with open(path + ".1", encoding="utf-8") as file:
            self.assertNotIn("SIGHUP", file.read())


if __name__ == "__main__":
    unittest.main()
