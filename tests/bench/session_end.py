#!/usr/bin/env python3
"""Ends a session that holds very many leases while other clients work, and prints how much longer their cycles take.

One load generator takes the leases under one session and is killed; after the TTL the daemon ends the session. Another
one acquires and releases with unary calls: three times before, as the reference, and again and again until the last
lease has ended. Prints the p99 of its cycles before and while the session ends (the medians of the runs, and the worst
run), the ratio of the medians, how long the end takes, and the highest age of the node's heartbeat meanwhile.

Exit code: 0 the p99 at most doubles, 1 it does not, a call failed, a heartbeat failed or was left out, or the daemon
could not vouch for its leases."""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "engines"))

import comparing  # noqa: E402  pylint: disable=wrong-import-position
from postgres import PostgresServer  # noqa: E402  pylint: disable=wrong-import-position

PATIENCE_S = 300
TTL_MS = 10_000
RATIO_MAX = 2.0
# The default node TTL is 10 s, and a heartbeat is sent every third of it: none is left out.
HEARTBEAT_AGE_MAX_S = 6.6
RUNS_BEFORE = 3


def read_arguments():
    parser = argparse.ArgumentParser(
        prog="tests/bench/session_end.py", description=__doc__.split("\n\n", maxsplit=1)[0],
        epilog="About 3 minutes with the defaults. The machine should be otherwise idle.")
    parser.add_argument("--leases", type=int, default=1_000_000, help="leases of the session (1000000)")
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--clients", type=int, default=16, help="unary clients that work meanwhile (16)")
    parser.add_argument("--duration", type=float, default=5.0, help="seconds of each run of theirs (5)")
    parser.add_argument("--bin-dir", default=os.path.join(ROOT, "build/release/bin"),
                        help="where semaphored and semaphored_bench are (build/release/bin)")
    return parser.parse_args()


def say(text):
    print(f"session_end: {text}", file=sys.stderr, flush=True)


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


class Metrics:
    """Of a daemon, at HOST:PORT."""

    def __init__(self, address):
        self._url = f"http://{address}/metrics"

    def figures(self):
        """{name: sum over the labels}."""
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        sums = {}
        for line in lines:
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.split("{", 1)[0]
                sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    def leases(self):
        return self.figures().get("semaphored_leases", 0.0)


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"session_end: {what}: not within {PATIENCE_S} s")
        time.sleep(0.1)


def begin_work(arguments, address):
    return subprocess.Popen(  # pylint: disable=consider-using-with
        [os.path.join(arguments.bin_dir, "semaphored_bench"), "unary", "--clients", str(arguments.clients),
         "--server", address, "-o", "json", "--duration", str(arguments.duration), "--warmup", "0.5"],
        stdout=subprocess.PIPE, text=True)


def p99_ms(work):
    """Of a run that was begun; ends the program if a call failed."""
    run = json.loads(work.communicate()[0])
    if run["errors"]:
        sys.exit(f"session_end: a call failed: {run['first_error']}")
    cycle = run["latency_us"]["cycle"]
    say(f"{cycle['count']} cycles, p50 {cycle['p50'] / 1000:.1f} ms, p99 {cycle['p99'] / 1000:.1f} ms")
    return cycle["p99"] / 1000


def check_heartbeat(figures):
    """The age of the last heartbeat; ends the program if the heartbeat has stopped, for however short a time."""
    age = figures["semaphored_heartbeat_age_seconds"]
    if figures["semaphored_heartbeat_failures_total"] > 0:
        sys.exit("session_end: a heartbeat failed")
    if age > HEARTBEAT_AGE_MAX_S:
        sys.exit(f"session_end: the last heartbeat is {age:.1f} s old")
    if figures["semaphored_vouched"] != 1:
        sys.exit("session_end: the daemon cannot vouch for its leases")
    return age


def measure(arguments, address, metrics):
    """The p99 of each run before, and while the session ends; the seconds of the end; the oldest heartbeat."""
    before, during, oldest = [], [], 0.0
    holder = subprocess.Popen(  # pylint: disable=consider-using-with
        [os.path.join(arguments.bin_dir, "semaphored_bench"), "leases", "--leases", str(arguments.leases),
         "--server", address, "--duration", "3600", "--ttl-ms", str(TTL_MS)], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: holder.poll() is not None or metrics.leases() >= arguments.leases, "the leases are granted")
        if holder.poll() is not None:
            sys.exit(f"session_end: the holder ended with {holder.returncode}")
        say(f"one session holds {arguments.leases} leases; the other clients work")
        for _ in range(RUNS_BEFORE):
            work = begin_work(arguments, address)
            while work.poll() is None:
                metrics.figures()  # As below, so that both cost the daemon the same.
                time.sleep(0.2)
            before.append(p99_ms(work))
    finally:
        holder.kill()
        holder.wait()
    say("the session's client is killed")
    wait_until(lambda: metrics.leases() < arguments.leases, "the session ends")
    begun = time.monotonic()
    left = arguments.leases
    while left >= 1:
        work = begin_work(arguments, address)
        while work.poll() is None:
            figures = metrics.figures()
            oldest = max(oldest, check_heartbeat(figures))
            if left >= 1 and figures.get("semaphored_leases", 0.0) <= arguments.clients:
                left = 0
                ended = time.monotonic()
            time.sleep(0.2)
        during.append(p99_ms(work))
        if time.monotonic() - begun > PATIENCE_S:
            sys.exit(f"session_end: the session has not ended after {PATIENCE_S} s")
    return before, during, ended - begun, oldest


def main():
    arguments = read_arguments()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="semaphored-session-end-"))
        store = f"sqlite://{folder}/store.db"
        if arguments.engine == "postgres":
            store = stack.enter_context(PostgresServer(os.path.join(folder, "postgres"))).url()
        metrics_address = free_address()
        daemons = stack.enter_context(comparing.Daemons(
            os.path.join(arguments.bin_dir, "semaphored"), store, folder, count=1,
            options=("--metrics-listen", metrics_address, "--leases-max", "100000000")))
        before, during, seconds, oldest = measure(arguments, daemons.addresses[0], Metrics(metrics_address))
    ratio = statistics.median(during) / statistics.median(before)
    print(f"{arguments.leases} leases on {arguments.engine}: ended in {seconds:.1f} s; p99 of others "
          f"{statistics.median(before):.1f} ms before (worst run {max(before):.1f}), "
          f"{statistics.median(during):.1f} ms meanwhile (worst run {max(during):.1f}): ratio {ratio:.2f}; "
          f"oldest heartbeat {oldest:.1f} s")
    sys.exit(0 if ratio <= RATIO_MAX else 1)


if __name__ == "__main__":
    main()
