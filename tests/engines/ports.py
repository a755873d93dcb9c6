"""Ports for servers that the tests start, and start again on the same port."""

import contextlib
import errno
import os
import random
import socket
import tempfile
import time

LOWEST = 15000
KEPT_S = 3600.0  # Longer than a test runs.
# Tests run side by side, and a server may take seconds until it listens: a file in this folder, named for
# the port, says that the port has been given away.
FOLDER = os.path.join(tempfile.gettempdir(), f"semaphored-test-ports-{os.getuid()}")


def free_port():
    """A port that no socket of this machine listens on and that no test was given within the last hour. It
    lies below those that the system gives to outgoing connections: otherwise one of these could take it
    while the server is down, or even be connected to itself."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        above = max(int(file.read().split()[0]), LOWEST + 1000)
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    for _ in range(1000):
        port = random.randrange(LOWEST, above)
        if _is_free(port) and _take(port):
            return port
    raise RuntimeError(f"no free port between {LOWEST} and {above}: see {FOLDER}")


def _is_free(port):
    """Whether a server may listen at every address: some engines can do nothing else."""
    for address, family in (("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6)):
        try:
            with socket.create_server((address, port), family=family):
                pass
        except OSError as error:
            # Anything else: the machine does without this family.
            if error.errno == errno.EADDRINUSE:
                return False
    return True


def _take(port):
    path = os.path.join(FOLDER, str(port))
    with contextlib.suppress(FileNotFoundError):
        if time.time() - os.stat(path).st_mtime > KEPT_S:
            os.unlink(path)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True
