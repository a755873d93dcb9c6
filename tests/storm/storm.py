#!/usr/bin/python3
"""A storm: holders in one client language or in all, on daemons and an engine, while all of these are killed
(kill -9) and stopped (SIGSTOP) in random order; then judges from outside whether two holders were
ever inside, and whether a holder was stopped that need not be.

Usage: storm.py LANGUAGE [--seconds S] [--seed N] [--engine NAME] [--keep FOLDER]
       storm.py LANGUAGE --judge FOLDER [--engine NAME]     judges a storm that was kept before

  LANGUAGE   semctl, cpp, python or node; mixed: two holders of each
  --seconds  how long faults befall (default 60)
  --seed     of the faults, which it prints, and of the holders' choices; their timing is the
             machine's
  --engine   postgres (default) or consul, with two daemons; sqlite, with one
  --keep     keeps what was recorded there; after a failure it is kept in any case

Environment: SEMAPHORED_BIN_DIR, SEMAPHORED_STUBS_DIR, as for the process tests.
"""

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(TESTS, "engines"), os.path.join(TESTS, "e2e"), HERE]

import faults  # noqa: E402  the folders have to be on the path first
import holders  # noqa: E402
import judge  # noqa: E402
import traces  # noqa: E402
from daemon import wait_until  # noqa: E402
from world import NODE_TTL_S, World  # noqa: E402

TTL_S = 3.0
# So that some always wait.
LIMITS = {"storm/one": 1, "storm/three": 3}
HOLDERS = {"storm/one": 3, "storm/three": 5}
# How long a fault waits for a holder that it can befall.
PRESENT_BOUND_S = 3.0
CLIENT_PEACE_S = (0.6, 1.6)
SERVICE_PEACE_S = (1.5, 4.0)
GRANTS_LEAST_A_MINUTE = 20
RULES = judge.Rules(ttl_s=TTL_S, node_ttl_s=NODE_TTL_S)


class Lane(threading.Thread):
    """Carries a plan out until the time is over, each fault when `strike` has returned from the one
    before. `strike` returns False if there was nothing to befall."""

    def __init__(self, planned, until, strike):
        super().__init__(daemon=True)
        self.planned, self.until, self.strike = planned, until, strike
        self.missed = 0
        self.failure = None

    def run(self):
        try:
            for each in self.planned:
                time.sleep(max(0.0, min(each.after_s, self.until - time.monotonic())))
                if time.monotonic() >= self.until:
                    return
                if self.strike(each) is False:
                    self.missed += 1
        except Exception as error:  # pylint: disable=broad-except  reported by the storm
            self.failure = error


class Clients:
    """Befalls holders, each by a thread of its own, since a stop lasts while others begin."""

    def __init__(self, all_holders):
        self.holders = all_holders
        self.threads, self.failures = [], []

    def strike(self, planned):
        deadline = time.monotonic() + PRESENT_BOUND_S
        while not self._begin(planned):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _begin(self, planned):
        """With the first one that can be befallen, from the one on that is planned."""
        first = planned.index % len(self.holders)
        for holder in self.holders[first:] + self.holders[:first]:
            if not holder.busy.acquire(blocking=False):
                continue
            if holder.is_inside():
                thread = threading.Thread(target=self._strike, args=(holder, planned), daemon=True)
                self.threads.append(thread)
                thread.start()
                return True
            holder.busy.release()
        return False

    def _strike(self, holder, planned):
        try:
            holder.strike(planned)
        except Exception as error:  # pylint: disable=broad-except  reported by the storm
            self.failures.append(f"{planned}: {error!r}")
        finally:
            holder.busy.release()


def plans(language, engine, seconds, seed):
    """By lane. They are long enough: what is not reached in time is left out."""
    lanes = {"clients": (faults.client_kinds(language), CLIENT_PEACE_S),
             "service": (faults.service_kinds(1 if engine == "sqlite" else 2, engine != "sqlite"),
                         SERVICE_PEACE_S)}
    return {name: faults.plan(name, kinds, peace_s, int(seconds / peace_s[0]), TTL_S, seed)
            for name, (kinds, peace_s) in lanes.items()}


def befall(world, all_holders, planned, seconds):
    """Findings: what went wrong with the storm itself."""
    until = time.monotonic() + seconds
    clients = Clients(all_holders)
    lanes = [Lane(planned["clients"], until, clients.strike),
             Lane(planned["service"], until, world.strike)]
    for lane in lanes:
        lane.start()
    while time.monotonic() < until or any(lane.is_alive() for lane in lanes):
        time.sleep(0.1)
        for holder in all_holders:
            if holder.busy.acquire(blocking=False):
                holder.look()
                holder.busy.release()
        if any(lane.failure for lane in lanes) or any(each.failure for each in all_holders):
            break
    for lane in lanes:
        lane.until = 0.0
        lane.join(60)
    for thread in clients.threads:
        thread.join(60)
    print(f"faults that found nothing to befall: {sum(lane.missed for lane in lanes)}")
    return [*clients.failures, *[f"{lane.failure!r}" for lane in lanes if lane.failure]]


def hold(folder, language, arguments):
    """Runs the storm; findings."""
    book = faults.Book()
    metronome = faults.Metronome(book)
    planned = plans(language, arguments.engine, arguments.seconds, arguments.seed)
    for lane, each in planned.items():
        print(f"planned for {lane}: {'; '.join(map(str, each))}")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="semaphored-storm-") as state, \
            World(arguments.engine, state, book) as world:
        settings = SimpleNamespace(addresses=world.addresses, ttl_ms=int(TTL_S * 1000),
                                   folder=folder, seed=arguments.seed, book=book)
        names = [name for name, count in HOLDERS.items() for _ in range(count)]
        all_holders = [holders.make(language, number, name, LIMITS[name], settings)
                       for number, name in enumerate(names)]
        try:
            metronome.start()
            for holder in all_holders:
                holder.start()
            findings = befall(world, all_holders, planned, arguments.seconds)
            end_ns = time.monotonic_ns()
            findings += wind_down(folder, world, all_holders)
        finally:
            metronome.stopping.set()
            for holder in all_holders:
                holder.close()
        runs = {holder.number: holder.runs for holder in all_holders
                if holder.runs is not None}
        traces.save(folder, LIMITS, len(all_holders), runs, book.faults, end_ns)
        findings += [holder.failure for holder in all_holders if holder.failure]
        for name, daemon in world.daemons.items():
            shutil.copy(daemon.log_path, os.path.join(folder, f"daemon-{name}.log"))
    print(f"faults: {book.counts()}")
    return findings


def wind_down(folder, world, all_holders):
    """Holders end, and every permit comes back."""
    with open(os.path.join(folder, "stop"), "w", encoding="ascii"):
        pass
    for holder in all_holders:
        holder.end()
    for holder in all_holders:
        holder.join()
    try:
        wait_until(lambda: world.held(LIMITS) == (0, 0), "all permits and waiters are gone",
                   4 * (TTL_S + NODE_TTL_S))
    except Exception as error:  # pylint: disable=broad-except  a finding
        return [f"after the storm: {error!r}: {world.held(LIMITS)}"]
    return []


def verdict(folder, engine):
    history = traces.load(folder)
    daemons = ["a"] if engine == "sqlite" else ["a", "b"]
    findings, losses = judge.judge(history, RULES, daemons)
    acts = sum(stay.acts for stay in history.stays)
    print(f"{len(history.stays)} grants, {acts} acts, {sum(losses.values())} losses by reason: "
          f"{losses}")
    codes = [run.code for runs in history.runs.values() for run in runs]
    if codes:
        print(f"semctl ended with {({code: codes.count(code) for code in sorted(set(codes))})}")
    return findings, history, losses


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language", choices=(*holders.LANGUAGES, "mixed"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", default="postgres", choices=("sqlite", "postgres", "consul"))
    parser.add_argument("--keep")
    parser.add_argument("--judge", metavar="FOLDER")
    arguments = parser.parse_args()
    findings = []
    folder = arguments.judge or arguments.keep or tempfile.mkdtemp(prefix="storm-")
    if not arguments.judge:
        os.makedirs(folder, exist_ok=True)
        findings = hold(folder, arguments.language, arguments)
    found, history, losses = verdict(folder, arguments.engine)
    findings += found
    if not arguments.judge:
        least = GRANTS_LEAST_A_MINUTE * arguments.seconds / 60
        if len(history.stays) < least:
            findings.append(f"{len(history.stays)} grants are too few: {least:.0f} are wanted")
        if not losses:
            findings.append("no permit was lost: this storm proved nothing")
    for finding in findings[:40]:
        print("FINDING", finding)
    if findings:
        print(f"what was recorded is in {folder}")
    elif not arguments.keep and not arguments.judge:
        shutil.rmtree(folder)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
