"""What the tests with a real DynamoDB Local have in common: keys, a server for each class, tables."""

import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "engines"))

import cluster  # noqa: E402  the folder has to be on the path first
from daemon import BIN_DIR, BOUND_S, Daemon  # noqa: E402
from dynamodb import ENVIRONMENT, DynamoServer  # noqa: E402
from ports import free_port  # noqa: E402

SEMAPHORED = os.path.join(BIN_DIR, "semaphored")

# For the daemons. The machine's own keys, if it has some, are not for a server of tests.
os.environ.update(ENVIRONMENT)
for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE"):
    os.environ.pop(name, None)


def schema(*arguments, environment=None):
    """`semaphored schema`, done."""
    return subprocess.run([SEMAPHORED, "schema", *arguments], capture_output=True, text=True,
                          timeout=BOUND_S, check=False, env=environment)


def make_table(url):
    done = schema("--create", "--store", url)
    assert done.returncode == 0, done.stderr


class DynamoCase(unittest.TestCase):
    """Each test has a table of its own name on the class's server."""

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls, DynamoServer)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.name = self.id().rsplit(".", 1)[1]

    def url(self, options="", port=None):
        return self.server.url(self.name, options, port)

    def daemon(self, node_id="a", options="", port=None, **settings):
        """Started, on this test's table, which is made first; `port` of a proxy, for example."""
        make_table(self.url())
        daemon = Daemon({"node_ttl": "5s", "node_id": node_id, **settings}, port=free_port(),
                        store=self.url(options, port))
        self.addCleanup(daemon.close)
        return daemon.start()
