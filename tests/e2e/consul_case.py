"""What the tests with a real Consul have in common: a server for each class, daemons, semctl."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "engines"))

from consul import ConsulServer  # noqa: E402  the folder has to be on the path first
from daemon import BIN_DIR, BOUND_S, Daemon  # noqa: E402
from ports import free_port  # noqa: E402

SEMCTL = os.path.join(BIN_DIR, "semctl")


class ConsulCase(unittest.TestCase):
    PREFIX = "team"
    SERVER = {}  # More of the server's configuration.

    @classmethod
    def setUpClass(cls):
        cls.server = cls.start_server(**cls.SERVER)

    @classmethod
    def start_server(cls, token=None, **settings):
        folder = tempfile.mkdtemp(prefix="semaphored-e2e-")
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        server = ConsulServer(folder, settings, token)
        cls.addClassCleanup(server.remove)
        return server.start()

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.record = os.path.join(self.folder, "record")
        self.name = self.id().rsplit(".", 1)[1]

    def daemon(self, node_id="a", port=None, **settings):
        """Started; `port` of a proxy, for example."""
        daemon = Daemon({"node_ttl": "5s", "node_id": node_id, **settings}, port=free_port(),
                        store=self.server.url(self.PREFIX, port))
        self.addCleanup(daemon.close)
        return daemon.start()

    def semctl(self, daemon, *arguments):
        """(exit code, all that it said)."""
        done = subprocess.run([SEMCTL, "--server", daemon.address, *arguments], text=True,
                              capture_output=True, timeout=BOUND_S, check=False)
        return done.returncode, done.stdout + done.stderr

    def spawn(self, *command):
        """A process in a group of its own, ended with the test."""
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(process.wait, BOUND_S)
        self.addCleanup(process.kill)
        return process

    def stored(self, key):
        """What is stored under the prefix, JSON understood; None: nothing."""
        status, value = self.server.request("GET", f"kv/{self.PREFIX}/{key}?raw")
        return value if status == 200 else None
