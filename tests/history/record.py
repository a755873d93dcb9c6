"""Records a history of the real daemon on one engine, while clients are impolite and faults befall
daemons, connections and the engine; then judges it.

Usage: record.py ENGINE [--seconds S] [--operations N] [--seed N] [--file FILE]
       record.py --judge FILE [ENGINE]     judges a history that was recorded before

  ENGINE        sqlite (on a small disk that fills up: needs root), postgres, consul, dynamodb,
                rabbitmq (judged by tokens only, without administrators)
  --seconds     for how long at least (default 20); more until there are enough operations
  --operations  fewer than these are a failure (default 10000)
  --seed        of the clients' and the faults' choices; their timing is the machine's
  --pause       how long a fault lasts, in seconds (default 1). More than the node TTL, 5, makes the
                other daemon take over
  --file        keeps the history there; after a failure it is kept in any case

Environment: SEMAPHORED_BIN_DIR, SEMAPHORED_STUBS_DIR, as for the process tests.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(TESTS, "engines"), os.path.join(TESTS, "e2e"), HERE]

import history  # noqa: E402  the folders have to be on the path first
import judge  # noqa: E402
from administrators import Administrator  # noqa: E402
from clients import Manners, UnaryClient  # noqa: E402
from consul import ConsulServer  # noqa: E402
from daemon import BIN_DIR, Daemon  # noqa: E402
from dynamodb import ENVIRONMENT, DynamoServer  # noqa: E402
from programs import Driver  # noqa: E402
from ports import free_port  # noqa: E402
from postgres import PostgresServer  # noqa: E402
from proxy import TcpProxy  # noqa: E402
from rabbitmq import RabbitServer  # noqa: E402
from session_client import SessionClient  # noqa: E402
from small_disk import SmallDisk  # noqa: E402

SEMAPHORES = {"one": 1, "three": 3, "eight": 8, "forty": 40, "other/one": 1, "other/three": 3}
ADMINISTERED = ("three", "eight", "forty", "other/three")
SETTINGS = {"node_ttl": "5s", "resume_grace": "4s"}
# How long a fault lasts: less than the node TTL, so that most of them are survived.
PAUSE_S = 1.0
DISK_SIZE = "192m"
UNDECIDED_S = 60.0
STARTS_MAX = 5
LANGUAGES = ("cpp", "python", "node")
OF_EACH_DRIVER_LEAST = 50
MOST_S = 240
SERVERS = {"postgres": PostgresServer, "consul": ConsulServer, "dynamodb": DynamoServer,
           "rabbitmq": RabbitServer}
PROMISES = {**dict.fromkeys(["sqlite", "postgres", "consul", "dynamodb"], judge.Promises()),
            "rabbitmq": judge.Promises(only_tokens=True)}


class World:
    """The daemons on one engine, and what can befall them. A context manager."""

    def __init__(self, engine, folder, pause_s=PAUSE_S):
        self.pause_s = pause_s
        self.server = self.proxy = self.disk = None
        self._stack = contextlib.ExitStack()
        if engine == "sqlite":
            self.disk = SmallDisk(DISK_SIZE)
            self._stack.callback(self.disk.close)
            store = "sqlite://" + os.path.join(self.disk.folder, "state.db")
            self.daemons = [self.daemon("a", store)]
            return
        self.server = SERVERS[engine](os.path.join(folder, engine))
        os.mkdir(self.server.folder)
        self._stack.callback(self.server.remove)
        self.server.start()
        self.proxy = self._stack.enter_context(TcpProxy(self.server.port))
        arguments = {"postgres": {"schema": "history"}, "consul": {"prefix": "history"},
                     "dynamodb": {}, "rabbitmq": {}}[engine]
        self.daemons = [self.daemon("a", self.server.url(**arguments)),
                        self.daemon("b", self.server.url(port=self.proxy.port, **arguments))]

    def daemon(self, name, store):
        daemon = Daemon({**SETTINGS, "node_id": name}, port=free_port(), store=store)
        daemon.environment.update(ENVIRONMENT)
        self._stack.callback(daemon.close)
        return daemon

    def __enter__(self):
        with contextlib.ExitStack() as on_error:
            on_error.push(self._stack)
            if isinstance(self.server, DynamoServer):
                subprocess.run([os.path.join(BIN_DIR, "semaphored"), "schema", "--create",
                                "--store", self.daemons[0].store], check=True,
                               env={**os.environ, **ENVIRONMENT}, stdout=subprocess.DEVNULL)
            for daemon in self.daemons:
                self.start(daemon)
            on_error.pop_all()
        return self

    def __exit__(self, *exception):
        return self._stack.__exit__(*exception)

    def start(self, daemon):
        """A daemon that does not reach its engine in time ends, and is started again."""
        for left in reversed(range(STARTS_MAX)):
            try:
                return daemon.start()
            except AssertionError:
                if left == 0 or daemon.process.poll() is None:
                    raise

    # ---- faults ----

    def kill(self, daemon):
        daemon.kill9()
        self.start(daemon)

    def stop_for_a_while(self, daemon):
        daemon.signal(signal.SIGSTOP)
        time.sleep(self.pause_s)
        daemon.signal(signal.SIGCONT)

    def cut_answers(self, _daemon):
        """Connections to the engine break, with answers under way."""
        for _ in range(20):
            self.proxy.close_all()
            time.sleep(0.05)

    def partition(self, _daemon):
        self.proxy.cut()
        time.sleep(self.pause_s)
        self.proxy.heal()

    def stop_engine(self, _daemon):
        self.server.pause()
        time.sleep(self.pause_s)
        self.server.resume()

    def fill_disk(self, _daemon):
        self.disk.fill()
        time.sleep(self.pause_s)
        self.disk.make_room()

    def faults(self):
        alone = [self.kill, self.stop_for_a_while]
        return [*alone, self.fill_disk] if self.server is None else [
            *alone, self.cut_answers, self.partition, self.stop_engine]

    def mend(self):
        """A daemon that found itself declared dead has ended."""
        for daemon in self.daemons:
            if daemon.process.poll() is not None:
                self.start(daemon)


class Chaos(threading.Thread):
    """One fault after the other, each kind as often, with some peace between: more of it after the
    time that was asked for, when only operations are missing."""

    def __init__(self, world, seed, seconds):
        super().__init__(daemon=True)
        self.world, self.random = world, random.Random(f"{seed}-chaos")
        self.stopping = threading.Event()
        self.done, self.failure = {}, None
        self.dense_until = time.monotonic() + seconds

    def peace_s(self):
        late = time.monotonic() > self.dense_until
        return self.random.uniform(4.0, 6.0) if late else self.random.uniform(1.0, 2.0)

    def run(self):
        try:
            turn = 0
            while not self.stopping.wait(self.peace_s()):
                faults = self.world.faults()
                fault = faults[turn % len(faults)]
                fault(self.random.choice(self.world.daemons))
                self.done[fault.__name__] = self.done.get(fault.__name__, 0) + 1
                self.world.mend()
                turn += 1
        except Exception as error:  # pylint: disable=broad-except  reported by the run
            self.failure = error


def end(threads):
    for thread in threads:
        thread.stopping.set()
    for thread in threads:
        thread.join(90)


def run(engine, arguments):
    """(findings, summary)."""
    only_tokens = PROMISES[engine].only_tokens
    recorder = history.Recorder(SEMAPHORES, () if only_tokens else ADMINISTERED)
    manners = Manners(permits_max=1 if only_tokens else 3)
    with tempfile.TemporaryDirectory(prefix="semaphored-history-") as folder, \
            World(engine, folder, arguments.pause) as world, contextlib.ExitStack() as stack:
        addresses = [daemon.address for daemon in world.daemons]
        clients = [kind(recorder, addresses, number, manners, arguments.seed)
                   for number, kind in enumerate([SessionClient] * 8 + [UnaryClient] * 5)]
        administrators = [Administrator(recorder, addresses, number, manners, arguments.seed)
                          for number in range(2 if recorder.administered else 0)]
        chaos = Chaos(world, arguments.seed, arguments.seconds)
        begun = time.monotonic()
        Administrator(recorder, addresses, 2, manners, arguments.seed).create()
        drivers = [Driver(recorder, addresses, language, number, manners, arguments.seed)
                   for number, language in enumerate(LANGUAGES)]
        for driver in drivers:
            stack.callback(driver.close)
        threads = [*clients, *administrators, *drivers]
        for thread in [*threads, chaos]:
            thread.start()
        told = begun
        while time.monotonic() < begun + arguments.seconds or (
                len(recorder.ops) < arguments.operations and time.monotonic() < begun + MOST_S):
            time.sleep(0.2)
            if time.monotonic() > told + 5:
                told = time.monotonic()
                print(f"{told - begun:4.0f} s  {len(recorder.ops)} operations", flush=True)
            if chaos.failure or any(each.failure for each in threads):
                break
        chaos.stopping.set()
        chaos.join(60)
        end(administrators)
        Administrator(recorder, addresses, 3, manners, arguments.seed).restore()
        for driver in drivers:
            driver.end()
        end(clients)
        end(drivers)
        last = UnaryClient(recorder, addresses, 0, manners, "drain")
        for semaphore, limit in SEMAPHORES.items():
            last.drain(semaphore, limit)
        findings = [f"{thread.name}: {thread.failure!r}" for thread in [chaos, *threads]
                    if thread.failure]
        findings += [f"{each.label} has not ended" for each in threads if each.is_alive()]
        findings += [f"the {each.label} driver wrote {each.count} operations: too few"
                     for each in drivers if each.count < OF_EACH_DRIVER_LEAST]
        if findings:
            for daemon in world.daemons:
                print(f"---- {daemon.address}\n{daemon.log()[-3000:]}", flush=True)
    return recorder, findings, chaos.done


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", nargs="?", default="sqlite", choices=sorted(PROMISES))
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=PAUSE_S)
    parser.add_argument("--file")
    parser.add_argument("--judge", metavar="FILE")
    arguments = parser.parse_args()
    if arguments.judge:
        limits, ops = history.load(arguments.judge)
        findings, faults = [], {}
    else:
        recorder, findings, faults = run(arguments.engine, arguments)
        limits, ops = recorder.semaphores, recorder.ops
    begun = time.monotonic()
    findings += judge.judge(limits, ops, PROMISES[arguments.engine])
    judged_s = time.monotonic() - begun
    print(f"faults: {faults}\n{judge.summary(ops)}\njudged in {judged_s:.1f} s")
    if judged_s > UNDECIDED_S:
        findings.append(f"the history was undecided after {UNDECIDED_S:.0f} s")
    if not arguments.judge and len(ops) < arguments.operations:
        findings.append(f"{len(ops)} operations are too few: {arguments.operations} are wanted")
    for finding in findings[:40]:
        print("FINDING", finding)
    if not arguments.judge and (arguments.file or findings):
        path = arguments.file or tempfile.mktemp(prefix=f"history-{arguments.engine}-",
                                                 suffix=".jsonl")
        recorder.save(path)
        print(f"the history is in {path}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
