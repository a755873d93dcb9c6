"""Several real daemons on one store of a real engine."""

import contextlib
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "engines"))

from daemon import Daemon  # noqa: E402
from ports import free_port  # noqa: E402  the folder has to be on the path first
from postgres import PostgresServer  # noqa: E402

NODE_TTL_S = 5  # The least that is allowed.
# Where nobody may be out of touch, however slow the machine is for a while.
PATIENT_NODE_TTL_S = 15
SETTINGS = {"node_ttl": f"{NODE_TTL_S}s", "resume_grace": "4s"}


def start_server(test_case, kind=PostgresServer):
    """A server of its own for a class of tests; for a case that stops it, pass the case. `kind`
    makes one that is to be started in a folder (PostgresServer, ConsulServer …)."""
    folder = tempfile.mkdtemp(prefix="semaphored-e2e-")
    clean_up = (test_case.addClassCleanup if isinstance(test_case, type) else test_case.addCleanup)
    clean_up(shutil.rmtree, folder, ignore_errors=True)
    server = kind(folder)
    clean_up(server.remove)
    return server.start()


class Cluster:
    """Daemons by their node ids, started one after the other. `stores` has a URL for each."""

    def __init__(self, stores, settings=None):
        self.daemons = {
            name: Daemon({**SETTINGS, **(settings or {}), "node_id": name}, port=free_port(),
                         store=store)
            for name, store in stores.items()}
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            for daemon in self.daemons.values():
                stack.enter_context(daemon)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception):
        return self._stack.__exit__(*exception)

    def __getitem__(self, name):
        return self.daemons[name]

    @property
    def addresses(self):
        return [daemon.address for daemon in self.daemons.values()]
