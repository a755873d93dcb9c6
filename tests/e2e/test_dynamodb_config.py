"""What a store URL of DynamoDB may say, its table, whence keys come, TLS, and that nobody hears the
keys."""

import json
import os
import re
import socket
import subprocess
import time
import unittest
from concurrent import futures

from daemon import BOUND_S, grpc, pb, wait_until
from dynamodb_case import DynamoCase, Front
from engine_day import day
from ports import free_port
from scraping import Scrape

REFUSED_S = 15
CONFIGURATION_ERROR, STORE_ERROR = 2, 3
SECRET = "wJalrXUtnFEMI/K7MDENG+s3cr3tKEY"
TOKEN = "FwoGZXIvYXdzEXAMPLE//t0k3n+with/signs=="
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)


class ConfigurationCase(DynamoCase):

    def refused(self, url, secrets=()):
        """What a daemon says that cannot start with this store."""
        begun = time.monotonic()
        done = self.run_program("--listen", f"127.0.0.1:{free_port()}", "--log-level", "trace",
                                "--store", url)
        said = done.stderr + done.stdout
        self.assertEqual(done.returncode, STORE_ERROR, said)
        self.assertLess(time.monotonic() - begun, REFUSED_S)
        self.assertNotIn("serving", done.stdout)
        self.assertIn("dynamodb", said)
        for secret in secrets:
            self.assertNotIn(secret, said)
        return said

    def assert_works(self, daemon):
        client = daemon.client()
        client.release(client.acquire("works", limit=1).lease_id)


class Urls(ConfigurationCase):

    def test_options_that_are_none_or_wrong(self):
        for options, named in (
                ("&secret_access_key=s3cr3t", "'secret_access_key'"), ("&s3cr3t", "name=value"),
                ("&Lanes=2", "'Lanes'"), ("&lanes=0", "lanes=0: it must be a number from 1 to 64"),
                ("&timeout_ms=soon", "timeout_ms=soon"), ("&history_h=-1", "history_h=-1"),
                ("&poll_min_ms=100&poll_max_ms=50", "poll_min_ms must not be above"),
                ("&timeout_ms=99", "timeout_ms=99: it must be a number from 100 to 60000"),
                ("&poll_min_ms=4", "poll_min_ms=4: it must be a number from 5 to 60000"),
                ("&poll_min_ms=2000", "poll_min_ms must not be above"), ("&=x", "''"),
                ("&ca_file=/does/not/exist", "ca_file=/does/not/exist"),
                ("&profile=%zz", "percent")):
            with self.subTest(options=options):
                said = self.refused(self.url(options), ("s3cr3t",))
                self.assertIn(named, said)
                self.assertIn("dynamodb://eu-west-1/table", said)  # What would be right.

    def test_urls_that_are_no_urls(self):
        for url, named in (
                ("dynamodb://", "region"), ("dynamodb:///table", "region"),
                ("dynamodb://eu west/table", "region"), ("dynamodb://eu-west-1/ta", "3 to 255"),
                ("dynamodb://eu-west-1/ta/ble", "letters, digits"),
                (f"dynamodb://AKID:{SECRET}@eu-west-1/table", "documentation for credentials"),
                ("dynamodb://local/table?endpoint=127.0.0.1:8000", "endpoint must begin with"),
                ("dynamodb://local/table?endpoint=http://", "endpoint must"),
                ("dynamodb://local/table?endpoint=http://127.0.0.1:8000/path", "without a path"),
                (f"dynamodb://local/table?endpoint=http://AKID:{SECRET}@127.0.0.1:8000",
                 "endpoint names no user")):
            with self.subTest(url=url):
                self.assertIn(named, self.refused(url, (SECRET, SECRET[:8])))

    def test_print_config_shows_the_store_but_no_keys(self):
        for url, shown in ((self.url("&lanes=2"), self.url("&lanes=2")),
                           (self.url(f"&aws_secret_access_key={SECRET}"), self.url()),
                           (f"dynamodb://AKID:{SECRET}@eu-west-1/table", "@eu-west-1/table")):
            done = self.run_program("--store", url, "--print-config")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(shown, done.stdout)
            self.assertNotIn(SECRET[:8], done.stdout + done.stderr)

    def test_endpoints_that_are_not_there(self):
        port = free_port()
        said = self.refused(self.url("&timeout_ms=500", endpoint=f"http://127.0.0.1:{port}"))
        self.assertIn(f"port {port}", said)
        said = self.refused(self.url("&timeout_ms=500", endpoint="http://nowhere.invalid"))
        self.assertIn("nowhere.invalid", said)
        said = self.refused(self.url("&timeout_ms=2000",
                                     endpoint=f"https://127.0.0.1:{self.server.port}"))
        self.assertIn("SSL", said)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            said = self.refused(self.url("&timeout_ms=500", endpoint=f"http://127.0.0.1:{port}"))
            self.assertIn("timed out", said.lower())


class Tables(ConfigurationCase):

    def test_made_on_request(self):
        said = self.refused(self.url())
        self.assertIn("semaphored schema --create", said)
        definition = re.search(r"--cli-input-json '(.*)'", said).group(1)
        done = self.run_program("schema", "--print", "--store", self.url())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), json.loads(definition))

        done = self.run_program("schema", "--create", "--store", self.url())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("is made", done.stdout)
        self.assertIn("making", done.stderr)
        _, expiry = self.server.request("DescribeTimeToLive", {"TableName": self.table})
        self.assertEqual(expiry["TimeToLiveDescription"], {
            "TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at_s"})
        self.environment["SEMAPHORED_STORE"] = self.url()
        done = self.run_program("schema", "--create")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("was there already", done.stdout)
        self.assert_works(self.daemon())

    def test_made_by_its_definition(self):
        done = self.run_program("schema", "--print", "--store", self.url())
        self.assertEqual(self.server.request("CreateTable", json.loads(done.stdout))[0], 200)
        self.assert_works(self.daemon())

    def test_made_by_many_at_once(self):
        """As by each machine of a deployment, before it starts."""
        with futures.ThreadPoolExecutor(4) as pool:
            for done in pool.map(lambda _: self.run_program("schema", "--create", "--store",
                                                            self.url()), range(4)):
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("can be used", done.stdout)

    def test_somebody_elses_is_left_as_it_is(self):
        for keys, kind in (("id",), "S"), (("PK",), "S"), (("PK", "SK"), "N"), (("SK", "PK"), "S"):
            with self.subTest(keys=keys, kind=kind):
                self.table = f"others-{'-'.join(keys)}-{kind}"
                status, _ = self.server.request("CreateTable", {
                    "TableName": self.table, "BillingMode": "PAY_PER_REQUEST",
                    "AttributeDefinitions": [{"AttributeName": key, "AttributeType": kind}
                                             for key in keys],
                    "KeySchema": [{"AttributeName": key, "KeyType": what}
                                  for key, what in zip(keys, ("HASH", "RANGE"))]})
                self.assertEqual(status, 200)
                before = self.server.request("DescribeTable", {"TableName": self.table})
                self.assertIn("has other keys", self.refused(self.url()))
                done = self.run_program("schema", "--create", "--store", self.url())
                self.assertEqual(done.returncode, STORE_ERROR)
                self.assertIn("has other keys", done.stderr)
                self.assertEqual(
                    self.server.request("DescribeTable", {"TableName": self.table}), before)

    def test_wrong_arguments(self):
        for arguments in ((), ("--create",), ("--create", "--print", "--store", self.url()),
                          ("--create", "--store", "dynamodb://")):
            done = self.run_program("schema", *arguments)
            self.assertEqual(done.returncode, CONFIGURATION_ERROR, arguments)

    def test_the_documented_rights_are_enough(self):
        """And none of them is for nothing."""
        with open(os.path.join(ROOT, "docs", "dynamodb.md"), encoding="utf-8") as file:
            policy = json.loads(re.search(r"```json\n(.*?)```", file.read(), re.DOTALL).group(1))
        rights = {action.partition(":")[2] for action in policy["Statement"][0]["Action"]}
        self.make_table()
        with Front(self.server) as front:
            front.refuse = lambda operation, _: (
                None if operation in rights | {"TransactWriteItems"} else "AccessDeniedException")
            metrics = f"127.0.0.1:{free_port()}"
            daemon = self.daemon(self.url(endpoint=front.endpoint), metrics_listen=metrics)
            other = self.daemon(self.url(endpoint=front.endpoint), node_id="b")
            client = daemon.client()
            lease = client.acquire("db", limit=1)
            waiting = other.client().acquire_later("db")
            client.wait_for_queue("db", 1)
            client.release(lease.lease_id)
            other.client().release(waiting.result(timeout=BOUND_S).lease.lease_id)
            day(self, daemon, other)
            self.assertEqual(Scrape(metrics).sum("semaphored_engine_upkeep_errors_total"), 0)
            daemon.kill9()
            daemon.start()
            self.assert_works(daemon)
            self.assertEqual(front.operations(), rights)


class Keys(ConfigurationCase):

    def setUp(self):
        super().setUp()
        self.make_table()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            del self.environment[name]

    def test_none(self):
        said = self.refused(self.url())
        for place in ("AWS_ACCESS_KEY_ID", ".aws/credentials",
                      "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_EC2_METADATA_DISABLED"):
            self.assertIn(place, said)

    def assert_secret(self, daemon, *texts):
        texts = [daemon.log(), *texts]
        for name in ("cmdline", "comm"):
            with open(f"/proc/{daemon.process.pid}/{name}", encoding="utf-8") as file:
                texts.append(file.read())
        for text in texts:
            for secret in (SECRET, SECRET[:13], TOKEN, TOKEN[:13]):
                self.assertNotIn(secret, text)

    def test_of_a_profile_and_never_told(self):
        self.write(".aws/credentials",
                   f"[ci]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = {SECRET}\n"
                   f"aws_session_token = {TOKEN}\n")
        self.assertIn("'default'", self.refused(self.url()))
        self.assertIn("'other'", self.refused(self.url("&profile=other")))
        with Front(self.server) as front:
            url = self.url("&profile=ci&timeout_ms=5000", endpoint=front.endpoint)
            daemon = self.daemon(url, log_level="trace")
            self.assert_works(daemon)
            headers = front.seen[-1][2]
            self.assertEqual(headers["X-Amz-Security-Token"], TOKEN)
            self.assertIn("Credential=AKIDEXAMPLE/", headers["Authorization"])
            for header in ("host", "x-amz-date", "x-amz-security-token", "x-amz-target"):
                self.assertRegex(headers["Authorization"], f"SignedHeaders=[a-z0-9;-]*{header}[;,]")
            # Whatever the service refuses them for.
            for error in ("ExpiredTokenException", "InvalidSignatureException",
                          "AccessDeniedException"):
                front.refuse = lambda operation, _, error=error: error
                with self.assertRaises(grpc.RpcError) as raised:
                    daemon.client().acquire("works", limit=1)
                self.assert_secret(daemon, str(raised.exception))
                self.refused(url, (SECRET, TOKEN))
            front.refuse = lambda operation, headers: None
            wait_until(daemon.is_serving, "the daemon serves again")

    def test_of_the_profile_of_the_environment(self):
        """And nobody is told of them there either."""
        shared = self.write("shared", f"""
[default]
aws_access_key_id = AKIDOTHER
aws_secret_access_key = x
[ci]
aws_access_key_id = AKIDEXAMPLE
aws_secret_access_key = {SECRET}
aws_session_token = {TOKEN}
""")
        self.environment.update(AWS_SHARED_CREDENTIALS_FILE=shared, AWS_PROFILE="ci")
        with Front(self.server) as front:
            url = self.url(endpoint=front.endpoint)
            said = []
            for arguments in (("schema", "--create"), ("--print-config",)):
                done = self.run_program(*arguments, "--store", url)
                self.assertEqual(done.returncode, 0, done.stderr)
                said.append(done.stdout + done.stderr)
            daemon = self.daemon(url, log_level="trace")
            self.assert_works(daemon)
            self.assert_secret(daemon, *said)
            daemon.terminate()
            for _, _, headers in front.seen:
                self.assertIn("Credential=AKIDEXAMPLE/", headers["Authorization"])
                self.assertEqual(headers["X-Amz-Security-Token"], TOKEN)

    def test_of_a_profile_that_cannot_be_used(self):
        self.write(".aws/credentials", f"[half]\naws_secret_access_key = {SECRET}\n"
                                       "[role]\nrole_arn = arn:aws:iam::1:role/x\n[none]\n")
        for profile, named in (("half", "alone"), ("role", "role_arn"), ("none", "no keys"),
                               ("absent", "is not in")):
            with self.subTest(profile):
                self.environment["AWS_PROFILE"] = profile
                said = self.refused(self.url(), (SECRET,))
                self.assertIn(f"'{profile}'", said)
                self.assertIn(named, said)

    def test_that_were_changed_are_read_again(self):
        """As it goes with a session's keys, which somebody renews in the file."""
        keys = "[default]\naws_access_key_id = {}\naws_secret_access_key = x\n"
        self.write(".aws/credentials", keys.format("AKIDFIRST"))
        with Front(self.server) as front:
            daemon = self.daemon(self.url(endpoint=front.endpoint))
            self.assert_works(daemon)
            self.write(".aws/credentials", keys.format("AKIDSECOND"))
            front.refuse = lambda _, headers: (
                "ExpiredTokenException" if "AKIDFIRST" in headers["Authorization"] else None)
            self.assert_works(daemon)
            self.assertIn("AKIDSECOND", front.seen[-1][2]["Authorization"])
            daemon.terminate()


class Tls(ConfigurationCase):

    def make_certificate(self, name):
        """Files of a certificate and its key."""
        certificate, key = (os.path.join(self.folder, name + ending) for ending in (".pem", ".key"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", "/CN=dynamodb", "-addext", "subjectAltName=IP:127.0.0.1",
                        "-out", certificate, "-keyout", key],
                       check=True, capture_output=True, timeout=BOUND_S)
        return certificate, key

    def test_a_certificate_that_is_known_or_not(self):
        self.make_table()
        certificate, key = self.make_certificate("tls")
        with Front(self.server, certificate, key) as front:
            self.assertIn("certificate", self.refused(self.url(endpoint=front.endpoint)))
            other = front.endpoint.replace("127.0.0.1", "localhost")
            self.assertIn("localhost", self.refused(
                self.url(f"&ca_file={certificate}", endpoint=other)))
            daemon = self.daemon(self.url(f"&ca_file={certificate}", endpoint=front.endpoint))
            self.assert_works(daemon)
        # Another's for a while, as behind a gateway: that is no reason to end.
        with Front(self.server, *self.make_certificate("other"), front.port):
            # (A commit whose answer was lost just then is not answered before its outcome is known.)
            wait_until(lambda: ("certificate" in self.trouble(daemon)
                                or "out of touch with the engine" in daemon.log()), "it is met")
        with Front(self.server, certificate, key, front.port):
            wait_until(lambda: self.trouble(daemon) == "", "it goes on")
        daemon.terminate()

    def trouble(self, daemon):
        """Why it does not work now; empty: it works."""
        client = daemon.client()
        try:
            # Of many permits: those that could not be given back are held for a while.
            request = client.acquire_request("trouble", limit=1000)
            lease = client.stub.Acquire(request, timeout=5).lease
            client.stub.Release(pb.ReleaseRequest(request_id=client.next_id(),
                                                  lease_id=lease.lease_id), timeout=5)
            return ""
        except grpc.RpcError as error:
            self.assertIn(error.code(), (grpc.StatusCode.UNAVAILABLE,
                                         grpc.StatusCode.DEADLINE_EXCEEDED), error)
            self.assertIsNone(daemon.process.poll(), daemon.log())
            return error.details()


if __name__ == "__main__":
    unittest.main()
