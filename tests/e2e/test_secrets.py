"""What the daemon is told in confidence to reach its engine, it tells nobody: not in its log at
level trace, its errors, --print-config, its answers, its metrics, its title, nor in `schema` and `health`; with
the right secret and a wrong one, an engine that refuses, and one that is gone or not there.

What a secret in the environment can be seen by is the user's choice: /proc/PID/environ shows the
environment with which a process was started to its own user and to root. So a file is better.
"""

import base64
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from urllib.parse import quote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "engines"))

from consul import ConsulServer  # noqa: E402  the folder has to be on the path first
from daemon import BIN_DIR, BOUND_S, Daemon, error_info, grpc, pb  # noqa: E402
from dynamodb import DynamoServer  # noqa: E402
from ports import free_port  # noqa: E402
from postgres import ROLE, PostgresServer  # noqa: E402
from rabbitmq import USER, RabbitServer  # noqa: E402
from scraping import Scrape  # noqa: E402

SEMAPHORED = os.path.join(BIN_DIR, "semaphored")
# With what has to be escaped in a URL, quoted in a file, or is cut off at by a careless mask.
RIGHT = "R1ght-5ecret/@:?&=%#x'y z"
WRONG = "Wr0ng-5ecret/@:?&=%#x'y z"


def forms(secret):
    """As it may show up."""
    return {secret, secret[:12], quote(secret, safe=""), quote(secret),
            base64.b64encode(secret.encode()).decode()[:-4], secret.encode().hex()}


class Secrets(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("AWS_", "PG", "SEMAPHORED_"))}
        self.environment.update(HOME=self.folder, AWS_EC2_METADATA_DISABLED="true")
        self.count = 0

    def engine(self, kind):
        folder = tempfile.mkdtemp(prefix="semaphored-e2e-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        server = kind(folder)
        self.addCleanup(server.remove)
        return server.start()

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8", opener=lambda p, f: os.open(p, f, 0o600)) as file:
            file.write(text)
        return path

    def assert_untold(self, text, where):
        for secret in (RIGHT, WRONG):
            for form in forms(secret):
                self.assertNotIn(form, text, f"{where} tells it")

    def run_program(self, *arguments, **environment):
        done = subprocess.run([SEMAPHORED, *arguments], text=True, capture_output=True, check=False,
                              timeout=BOUND_S, env={**self.environment, **environment})
        self.assert_untold(done.stdout + done.stderr, " ".join(arguments[:1]))
        return done

    def check(self, right, wrong, absent=None, refuses=True, **environment):
        """`right`, `wrong`, `absent`: URLs of an engine that takes the secret, that does not, and
        of one that is not there. `refuses`: it knows that the wrong one is wrong."""
        for url, works in ((right, True), (wrong, not refuses), (absent, False)):
            if url is None:
                continue
            self.run_program("--store", url, "--print-config", **environment)
            self.run_program("schema", "--print", "--store", url, **environment)
            created = self.run_program("schema", "--create", "--store", url, **environment)
            if works:
                self.assertEqual(created.returncode, 0, created.stderr)
            self.run_program("health", "--store", url, "--listen", "127.0.0.1:1", **environment)
            if not works:
                self.count += 1
                log = os.path.join(self.folder, f"refused-{self.count}.log")
                done = self.run_program("--store", url, "--listen", f"127.0.0.1:{free_port()}",
                                        "--log-level", "trace", "--engine-timeout", "1s",
                                        "--log-file", log, **environment)
                self.assertNotEqual(done.returncode, 0, "it served")
                with open(log, encoding="utf-8", errors="replace") as file:
                    said = file.read()
                self.assertRegex(said, "critical cannot (open the store|join as node)")
                self.assert_untold(said, "the log of one that was refused")

    def serve(self, url, **environment):
        """A daemon at level trace, in both formats of the log, that does a bit of everything."""
        for log_format in ("json", "text"):
            log_file = os.path.join(self.folder, f"{log_format}.log")
            daemon = Daemon({"log_level": "trace", "log_format": log_format, "log_file": log_file,
                             "node_id": "secrets", "engine_timeout": "1s",
                             "metrics_listen": f"127.0.0.1:{free_port()}"}, store=url)
            daemon.environment = {**self.environment, **environment}
            self.addCleanup(daemon.close)
            daemon.start()
            self.use(daemon)
            if log_format == "text":
                yield daemon
            self.assert_untold(str(self.failing_calls(daemon)), "an answer")
            metrics = Scrape(daemon.settings["metrics_listen"])
            self.assertIn("semaphored_", metrics.text)
            self.assert_untold(metrics.text, "the metrics")
            for name in ("cmdline", "comm", "status"):
                with open(f"/proc/{daemon.process.pid}/{name}", encoding="utf-8") as file:
                    self.assert_untold(file.read(), f"the process's {name}")
            daemon.terminate()
            self.assert_untold(daemon.log(), "stdout or stderr")
            with open(log_file, encoding="utf-8", errors="replace") as file:
                log = file.read()
            self.assertIn("semaphored", log)
            self.assert_untold(log, "the log")

    def use(self, daemon):
        client = daemon.client()
        client.release(client.acquire("secrets", limit=1).lease_id)
        self.assert_untold(str(client.describe_rows("secrets")), "an answer")

    def failing_calls(self, daemon, timeout_s=BOUND_S):
        """What is said of calls that cannot be done."""
        said = []
        client = daemon.client()
        for request in (pb.AdministerRequest(semaphore="nowhere", describe=pb.DescribeSemaphore()),
                        pb.AdministerRequest(semaphore="nowhere", destroy=pb.DestroySemaphore()),
                        pb.AdministerRequest(list=pb.ListSemaphores())):
            try:
                said.append(client.stub.Administer(request, timeout=timeout_s))
            except grpc.RpcError as error:
                said += [error.details(), error_info(error), error.trailing_metadata()]
        try:
            client.stub.Acquire(client.acquire_request("other", limit=1), timeout=timeout_s)
        except grpc.RpcError as error:
            said += [error.details(), error_info(error), error.trailing_metadata()]
        return said

    def without_engine(self, daemon, server):
        """The engine goes away under the daemon, and comes back."""
        server.pause()
        try:
            said = self.failing_calls(daemon, timeout_s=1.5)
            self.assert_untold(str(said), "an answer without the engine")
        finally:
            server.resume()

    def test_postgres(self):
        server = self.engine(PostgresServer)
        server.execute(f"ALTER ROLE {ROLE} PASSWORD %s", (RIGHT,))

        def url(password, port=None, more=""):
            secret = ":" + quote(password, safe="") if password else ""
            return (f"postgres://{ROLE}{secret}@127.0.0.1:{port or server.port}/{ROLE}"
                    f"?schema=secrets{more}")

        self.check(url(RIGHT), url(WRONG), url(RIGHT, free_port()))
        files = [self.write(name, text + "\n") for name, text in (("r", RIGHT), ("w", WRONG))]
        in_file = [url("", more="&password_file=" + quote(file)) for file in files]
        self.check(in_file[0], in_file[1])
        for daemon in self.serve(url(RIGHT)):
            self.without_engine(daemon, server)

    def test_consul(self):
        server = self.engine(ConsulServer)  # Without rules: it takes any token.
        # One that goes as a header: no line's end, no blank at its end.
        file = quote(self.write("token", RIGHT + "\n"))
        url = server.url("secrets") + f"?token_file={file}"
        self.check(url, url, url.replace(str(server.port), str(free_port())), refuses=False)
        # Given where it does not belong.
        for wrong in (f"consul://{quote(RIGHT, safe='')}@127.0.0.1:{server.port}/secrets",
                      f"consul://me:{quote(RIGHT, safe='')}@127.0.0.1:{server.port}/secrets",
                      server.url("secrets") + f"?token={quote(RIGHT, safe='')}"):
            done = self.run_program("--store", wrong, "--log-level", "trace")
            self.assertNotEqual(done.returncode, 0)
        for daemon in self.serve(url):
            self.without_engine(daemon, server)

    def test_rabbitmq(self):
        server = self.engine(RabbitServer)
        server.ctl("change_password", USER, RIGHT)

        def url(password, port=None, more=""):
            secret = ":" + quote(password, safe="") if password else ""
            return f"amqp://{USER}{secret}@127.0.0.1:{port or server.port}/{more}"

        self.check(url(RIGHT), url(WRONG), url(RIGHT, free_port()))
        files = [self.write(name, text + "\n") for name, text in (("r", RIGHT), ("w", WRONG))]
        in_file = [url("", more="?password_file=" + quote(file)) for file in files]
        self.check(in_file[0], in_file[1])
        for daemon in self.serve(url(RIGHT)):
            self.without_engine(daemon, server)

    def test_dynamodb(self):
        server = self.engine(DynamoServer)  # It takes any keys.
        keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": RIGHT,
                "AWS_SESSION_TOKEN": WRONG.replace(" ", "")}
        url = server.url("secrets")
        absent = url.replace(str(server.port), str(free_port()))
        self.check(url, url, absent, refuses=False, **keys)
        profile = self.write("credentials", "[default]\naws_access_key_id = AKIDEXAMPLE\n"
                             f"aws_secret_access_key = {RIGHT}\n")
        in_file = {"AWS_SHARED_CREDENTIALS_FILE": profile}
        self.check(url, url, refuses=False, **in_file)
        broken = self.write("broken", f"[default]\n{RIGHT}\naws_secret_access_key {RIGHT}\n")
        done = self.run_program("--store", url, "--log-level", "trace",
                                AWS_SHARED_CREDENTIALS_FILE=broken)
        self.assertNotEqual(done.returncode, 0)
        for daemon in self.serve(url, **keys):
            self.without_engine(daemon, server)


if __name__ == "__main__":
    unittest.main()
