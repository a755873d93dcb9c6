#!/usr/bin/env python3
"""What observers cost those who work: cycles of acquire and release over sessions, on the embedded store,
without observers, beside watchers of other names, beside viewers of the page, and beside a client that lists all the
time. In turn; medians.

    tests/bench/observers.py                       # 2,000 watchers; 50 viewers; a list of 10,000 semaphores
    tests/bench/observers.py --watchers 500 --rounds 3

The figures are cycles a second, and the p50 and p99 of a cycle in microseconds; each beside that without observers.
SEMAPHORED_BIN_DIR and SEMAPHORED_STUBS_DIR as in tests/e2e.
"""

import argparse
import collections
import os
import statistics
import subprocess
import sys
import tempfile
import types

BENCH = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(BENCH, os.pardir, "e2e")]

from daemon import BIN_DIR, Daemon, Session, free_port, pb  # noqa: E402
import comparing  # noqa: E402

COMMANDS = 500  # In one message.
# An observer is a process of its own, which says "ready" when it observes.
WATCHERS = """
import sys
from daemon import Client, Reader, grpc, pb
address, count = sys.argv[1], int(sys.argv[2])
channels = [grpc.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1),)) for _ in range(20)]
streams = [Client(channels[i % 20]).stub.Watch(pb.WatchRequest(semaphore=f"listed/{i}")) for i in range(count)]
for stream in streams: next(stream)
print("ready", flush=True)
sys.stdin.readline()
"""
# Half of them look at a list, half at one semaphore.
VIEWERS = """
import selectors, socket, sys
address, count = sys.argv[1], int(sys.argv[2])
readers = selectors.DefaultSelector()
for i in range(count):
    view = "list&sort=waiting" if i % 2 else f"semaphore&name=listed/{i}"
    feed = socket.create_connection(tuple(address.split(":")))
    feed.sendall(f"GET /page/feed?view={view} HTTP/1.1\\r\\nHost: {address}\\r\\n\\r\\n".encode())
    assert feed.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    readers.register(feed, selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for key, _ in readers.select():
        assert key.fileobj.recv(1 << 20)
"""
LISTER = """
import sys
from daemon import Client, grpc, pb
stub = Client(grpc.insecure_channel(sys.argv[1], (("grpc.max_receive_message_length", -1),))).stub
request = pb.AdministerRequest(list=pb.ListSemaphores(page_size=int(sys.argv[2])))
assert len(stub.Administer(request).list.semaphores) == int(sys.argv[2])
print("ready", flush=True)
while True: stub.Administer(request)
"""


class Observer:
    def __init__(self, script, *arguments):
        self.process = subprocess.Popen(
            ["/usr/bin/python3", "-c", script, *arguments], cwd=os.path.join(BENCH, os.pardir, "e2e"),
            env={**os.environ, "SEMAPHORED_BIN_DIR": os.path.abspath(BIN_DIR)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        if self.process.stdout.readline() != "ready\n":
            sys.exit("observers: the observer does not observe")
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.wait()


def make_semaphores(daemon, count):
    """listed/0 and so on; they stay when the session that has made them ends."""
    session = Session(daemon.client(), client_id="maker", release_on_disconnect=True)
    session.opened()
    for first in range(0, count, COMMANDS):
        few = range(first, min(first + COMMANDS, count))
        session.send(commands=[pb.SessionCommand(sequence=each + 1, acquire=pb.SessionAcquire(
            semaphore=f"listed/{each}", limit=1)) for each in few])
        left = len(few)
        while left > 0:
            left -= len(session.reader.until(lambda m: m.results, "grants").results)
    session.half_close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--watchers", type=int, default=2000)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--listed", type=int, default=10_000)
    parser.add_argument("--only", default="", help="only the observers whose name has this in it, beside none")
    parser.add_argument("--clients", type=int, default=64, help="cycles that are outstanding (64)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--duration", type=float, default=3.0, help="seconds measured each time (3)")
    arguments = parser.parse_args()
    words = f"session --clients {arguments.clients}"
    http = f"127.0.0.1:{free_port()}"
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    with tempfile.TemporaryDirectory(prefix="semaphored-observers-") as folder, \
            Daemon({"http_listen": http}, store=f"sqlite://{folder}/state.db") as daemon:
        cases = {"none": None, f"{arguments.watchers} watchers": (WATCHERS, daemon.address, arguments.watchers),
                 f"{arguments.viewers} viewers": (VIEWERS, http, arguments.viewers),
                 f"a list of {arguments.listed}": (LISTER, daemon.address, arguments.listed)}
        cases = {name: case for name, case in cases.items() if case is None or arguments.only in name}
        make_semaphores(daemon, max(arguments.watchers, arguments.listed))
        runner = comparing.Runner(types.SimpleNamespace(
            bin_dir=BIN_DIR, duration=arguments.duration, warmup=0.5), {"daemon": daemon.address})
        for number in range(arguments.rounds):
            for name, observer in cases.items():
                if observer is None:
                    figures = runner.case(name, words, "daemon")
                else:
                    with Observer(observer[0], observer[1], str(observer[2])):
                        figures = runner.case(name, words, "daemon")
                comparing.say(f"round {number + 1} of {arguments.rounds}: {name}: {figures['per_s']:.0f}/s")
                for figure, value in figures.items():
                    found[name][figure].append(value)
    alone = {figure: statistics.median(values) for figure, values in found["none"].items()}
    for name, figures in found.items():
        line = f"{name:24}"
        for figure, head, unit in (("per_s", "", "/s"), ("cycle_p50_us", "p50", " us"), ("cycle_p99_us", "p99", " us")):
            median = statistics.median(figures[figure])
            line += f"{head:>6}{median:9.0f}{unit}{median / alone[figure]:7.3f}"
        print(line)


if __name__ == "__main__":
    main()
