"""Ports for servers that the tests start, and start again on the same port."""

import random
import socket

LOWEST = 15000


def free_port():
    """A loopback port that nobody listens on, below those that the system gives to outgoing
    connections: otherwise one of these could take it while the server is down, or even be
    connected to itself."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        above = max(int(file.read().split()[0]), LOWEST + 1000)
    for _ in range(200):
        port = random.randrange(LOWEST, above)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
    raise RuntimeError(f"no free port between {LOWEST} and {above}")
