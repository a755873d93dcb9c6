#!/usr/bin/env python3
"""How long a daemon needs to go on with many leases: its own after `kill -9` (restart), or those
that a dead daemon hosted (dead). The daemons are real, on an engine of their own.

    tests/bench/take_over.py restart --leases 100000            # on the embedded store
    tests/bench/take_over.py restart --leases 40000 --postgres
    tests/bench/take_over.py dead --leases 40000                # on Postgres, two daemons
    tests/bench/take_over.py restart --within 5                 # fails if it takes longer, in seconds

Each lease has a semaphore of its own. SEMAPHORED_BIN_DIR and SEMAPHORED_STUBS_DIR as in tests/e2e.
"""

import argparse
import os
import re
import statistics
import sys
import tempfile
import time

BENCH = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(BENCH, os.pardir, folder) for folder in ("e2e", "engines")]

from daemon import Daemon, Session, grpc, pb, wait_until  # noqa: E402
from postgres import PostgresServer  # noqa: E402

SESSIONS = 20
COMMANDS = 500  # In one message.
TTL_MS = 300_000
NODE_TTL_S = 5
DONE = re.compile(r"take-over: (\d+) claims were read, in (\d+) pages and (\d+) ms")


def acquire(number):
    return pb.SessionCommand(sequence=number // SESSIONS + 1, acquire=pb.SessionAcquire(
        semaphore=f"held/{number}", permits=1, limit=1))


def hold(daemon, leases):
    """Takes the leases, in a few sessions; returns the sessions."""
    sessions = []
    for number in range(SESSIONS):
        session = Session(daemon.client(), ttl_ms=TTL_MS, client_id=f"holder-{number}")
        sessions.append((session, session.opened().session_id))
        mine = range(number, leases, SESSIONS)
        for first in range(0, len(mine), COMMANDS):
            few = mine[first:first + COMMANDS]
            session.send(commands=[acquire(each) for each in few])
            granted = 0
            while granted < len(few):
                message = session.reader.until(lambda m: m.results, "grants")
                for result in message.results:
                    if not result.HasField("granted"):
                        sys.exit(f"a lease was refused: {result}")
                granted += len(message.results)
    return sessions


def resume(daemon, sessions):
    """The clients come back; returns how many leases they still have."""
    back = 0
    for number, (_, session_id) in enumerate(sessions):
        again = Session(daemon.client(), client_id=f"holder-{number}",
                        resume_session_id=session_id)
        back += len(again.opened().leases)
    return back


def restart(leases, within_s, store=None):
    with Daemon(store=store) as daemon:
        sessions = hold(daemon, leases)
        daemon.kill9()
        begun = time.monotonic()
        daemon.spawn()
        daemon.wait_healthy(120)
        took = time.monotonic() - begun
        print(f"restart with {leases} leases: serving after {took:.2f} s", flush=True)
        back = resume(daemon, sessions)
        print(f"{back} leases were resumed", flush=True)
        if took > within_s:
            sys.exit(f"the restart took {took:.2f} s: {within_s:g} s are allowed")
        return back == leases


def dead(leases, store):
    settings = {"node_ttl": f"{NODE_TTL_S}s", "lanes": "3"}
    with Daemon({**settings, "node_id": "first"}, store=store) as first, \
            Daemon({**settings, "node_id": "heir"}, store=store) as heir:
        sessions = hold(first, leases)
        first.kill9()
        client = heir.client()
        spans = []

        def taken_over():
            begun = time.monotonic()
            client.release(client.acquire("other", limit=1).lease_id)
            spans.append(time.monotonic() - begun)
            return DONE.search(heir.log())

        claims, pages, took_ms = map(int, wait_until(taken_over, "the take-over", 120).groups())
        print(f"take-over of {leases} leases on Postgres: {claims} claims in {pages} pages and "
              f"{took_ms} ms; meanwhile an acquire and its release took "
              f"{statistics.median(spans) * 1000:.1f} ms, at most {max(spans) * 1000:.0f} ms",
              flush=True)
        back = resume(heir, sessions)
        print(f"{back} leases were resumed", flush=True)
        return back == leases


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["restart", "dead"])
    parser.add_argument("--leases", type=int, default=40_000)
    parser.add_argument("--postgres", action="store_true", help="of restart")
    parser.add_argument("--within", type=float, default=float("inf"), help="seconds that a restart may take")
    options = parser.parse_args()
    try:
        if options.what == "restart" and not options.postgres:
            done = restart(options.leases, options.within)
        else:
            with tempfile.TemporaryDirectory() as folder, \
                    PostgresServer(os.path.join(folder, "pg")) as server:
                if options.what == "restart":
                    done = restart(options.leases, options.within, server.url())
                else:
                    done = dead(options.leases, server.url())
    except grpc.RpcError as error:
        sys.exit(f"{error.code()}: {error.details()}")
    sys.exit(0 if done else "leases were lost")


if __name__ == "__main__":
    main()
