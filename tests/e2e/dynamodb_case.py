"""What the tests with DynamoDB Local have in common: one server, tables, daemons, and a front
that sees, and may refuse, what is asked of it."""

import http.client
import http.server
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "engines"))

from cluster import Cluster  # noqa: E402  the folder has to be on the path first
from daemon import BIN_DIR, BOUND_S, Daemon  # noqa: E402
from dynamodb import ENVIRONMENT, DynamoServer  # noqa: E402
from ports import free_port  # noqa: E402


class Front:
    """Stands before a DynamoDB Local as the service would: with TLS, if it has a certificate and
    its key, and with refusals. A context manager."""

    def __init__(self, server, certificate=None, key=None, port=0):
        self.seen = []  # (operation, body, headers), in the order in which they came.
        self.refuse = lambda operation, headers: None  # Or the name of an error.
        self.ended = False  # A kept connection has one more answer, and ends.
        front = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):  # pylint: disable=invalid-name  http.server's own
                body = self.rfile.read(int(self.headers["Content-Length"]))
                operation = self.headers["X-Amz-Target"].partition(".")[2]
                front.seen.append((operation, json.loads(body), self.headers))
                error = front.refuse(operation, self.headers)
                if error is not None:
                    kind = "com.amazonaws.dynamodb.v20120810#" + error
                    self.answer(400, json.dumps({"__type": kind, "message": "no"}).encode(), None)
                    return
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND_S)
                connection.request("POST", "/", body, dict(self.headers))
                reply = connection.getresponse()
                self.answer(reply.status, reply.read(), reply.getheader("x-amz-crc32"))
                connection.close()

            def answer(self, status, body, checksum):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if checksum is not None:
                    self.send_header("x-amz-crc32", checksum)
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = front.ended

            def log_message(self, *unused):  # pylint: disable=arguments-differ
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        # Who hangs up, or does not trust it, is meant to.
        self._server.handle_error = lambda *unused: None
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            # The handshake is the connection's own thread's.
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True,
                                                      do_handshake_on_connect=False)
            self.endpoint = f"https://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *unused):
        self.ended = True
        self._server.shutdown()
        self._thread.join(BOUND_S)
        self._server.server_close()

    def operations(self):
        """Names of rights, those inside of transactions too."""
        inside = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem",
                  "ConditionCheck": "ConditionCheckItem"}
        found = set()
        for operation, body, _ in list(self.seen):
            if operation == "TransactWriteItems":
                found |= {inside[kind] for item in body["TransactItems"] for kind in item}
            else:
                found.add(operation)
        return found


class DynamoCase(unittest.TestCase):

    server = None  # One for all classes of a script: each test has tables of its own.

    @classmethod
    def setUpClass(cls):
        if DynamoCase.server is not None:
            return
        folder = tempfile.mkdtemp(prefix="semaphored-e2e-")
        unittest.addModuleCleanup(shutil.rmtree, folder, ignore_errors=True)
        DynamoCase.server = DynamoServer(folder)
        unittest.addModuleCleanup(DynamoCase.server.remove)
        DynamoCase.server.start()

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.table = self.id().rsplit(".", 1)[1]
        # Keys that are found by accident would hide those that the test is about.
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("AWS_")}
        self.environment.update(ENVIRONMENT, HOME=self.folder, AWS_EC2_METADATA_DISABLED="true")

    def url(self, options="", endpoint=None):
        """`options` begin with '&'."""
        endpoint = endpoint or f"http://127.0.0.1:{self.server.port}"
        return f"dynamodb://local/{self.table}?endpoint={endpoint}{options}"

    def run_program(self, *arguments):
        """semaphored, which ends of itself."""
        return subprocess.run([os.path.join(BIN_DIR, "semaphored"), *arguments], text=True,
                              capture_output=True, timeout=BOUND_S, check=False,
                              env=self.environment)

    def make_table(self):
        done = self.run_program("schema", "--create", "--store", self.url())
        self.assertEqual(done.returncode, 0, done.stderr)

    def daemon(self, url=None, node_id="a", **settings):
        daemon = Daemon({"node_ttl": "5s", "node_id": node_id, **settings}, port=free_port(),
                        store=url or self.url())
        daemon.environment = self.environment
        self.addCleanup(daemon.close)
        return daemon.start()

    def cluster(self, stores, settings=None):
        """A Cluster, whose daemons find this test's keys."""
        cluster = Cluster(stores, settings)
        for daemon in cluster.daemons.values():
            daemon.environment = self.environment
        return cluster

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8",
                  opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(text)
        return path
