"""A real pgbouncer in front of a PostgresServer, in transaction mode."""

import os
import socket
import subprocess
import tempfile
import time

from ports import free_port
from postgres import ROLE, as_server_user, server_owner

BOUND_S = 20.0
CONFIGURATION = """
[databases]
{role} = host=127.0.0.1 port={server_port} dbname={role}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users
pool_mode = transaction
ignore_startup_parameters = extra_float_digits, options
"""


class PgBouncer:
    """A context manager: leaving it stops the pooler. Reached by server.url(port=pooler.port)."""

    def __init__(self, server, password):
        self.port = free_port()
        self._server_port = server.port
        self._password = password
        self._process = None
        self._folder = None

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="semaphored-pgbouncer-")
        folder = self._folder.name
        self._write("users", f'"{ROLE}" "{self._password}"\n')
        path = self._write("pgbouncer.ini", CONFIGURATION.format(
            role=ROLE, server_port=self._server_port, port=self.port, folder=folder))
        if server_owner() is not None:  # It refuses root, too.
            for name in ("", "users", "pgbouncer.ini"):
                os.chown(os.path.join(folder, name), *server_owner())
        with open(os.path.join(folder, "log"), "wb") as log:
            self._process = subprocess.Popen(
                as_server_user(["/usr/sbin/pgbouncer", path]), cwd=folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + BOUND_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self.log()
                self.__exit__()
                raise RuntimeError(f"pgbouncer does not start:\n{said}")
            time.sleep(0.02)
        return self

    def __exit__(self, *unused):
        self._process.kill()
        self._process.wait(BOUND_S)
        self._folder.cleanup()

    def log(self):
        with open(os.path.join(self._folder.name, "log"), encoding="utf-8") as file:
            return file.read()

    def _write(self, name, text):
        path = os.path.join(self._folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def _answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False
