"""What compare_postgres.sh does: starts a Postgres and two daemons on it, runs the cases in turn,
and prints medians, ratios and what a cycle costs in statements and round trips."""

import argparse
import collections
import contextlib
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "engines"))

from comparing import Daemons, figures_of, say  # noqa: E402  pylint: disable=wrong-import-position
from postgres import PostgresServer  # noqa: E402  pylint: disable=wrong-import-position

# Case, what the generator is told, and of whom it asks: the server itself, one daemon, or both.
CASES = (
    ("recipe@1", "postgres-recipe --clients 1", "postgres"),
    ("recipe@64", "postgres-recipe --clients 64", "postgres"),
    ("advisory@64", "postgres-advisory --clients 64", "postgres"),
    ("bare", "postgres-bare --lanes {lanes} --batch {batch}", "postgres"),
    # One commit of the daemon's: it gives one permit back and grants another, as a hand-off does.
    ("bare commit@1", "postgres-bare --lanes 1 --batch 2", "postgres"),
    ("session@64", "session --clients 64", "daemon"),
    ("session@256", "session --clients 256", "daemon"),
    ("unary@64", "unary --clients 64", "daemon"),
    ("shared session@64", "session --clients 64 --semaphores 1 --limit 64", "daemon"),
    ("shared session@256", "session --clients 256 --semaphores 1 --limit 256", "daemon"),
    ("contended session@64", "contended --clients 64 --via session", "daemon"),
    ("hand-off of two daemons", "hand-off --clients 64 --laps", "daemons"),
    ("hand-off, all come back", "hand-off --clients 4", "daemons"),
    ("hand-off, held 5 ms", "hand-off --clients 4 --hold-ms 5", "daemons"),
)
COUNTED = ("recipe@64", "bare", "session@64", "session@256", "unary@64", "shared session@64",
           "contended session@64", "hand-off of two daemons")
# (what it says, case, figure, beside which cases, their figure, at least or at most, the aim). Of
# several cases the greatest figure counts: that is the one that is hardest to reach.
RECIPE = ("recipe@1", "recipe@64")
RATIOS = (
    ("cycles, session@64 to the recipe", "session@64", "per_s", RECIPE, "per_s", ">=", 8.0),
    ("cycles, session@256 to the recipe", "session@256", "per_s", RECIPE, "per_s", ">=", 8.0),
    ("cycles, session@64 to bare", "session@64", "per_s", ("bare",), "per_s", ">=", 0.4),
    ("cycles, session@256 to bare", "session@256", "per_s", ("bare",), "per_s", ">=", 0.4),
    ("cycles, one semaphore, session@64 to the recipe", "shared session@64", "per_s", RECIPE,
     "per_s", ">=", 6.0),
    ("cycles, one semaphore, session@256 to the recipe", "shared session@256", "per_s", RECIPE,
     "per_s", ">=", 6.0),
    ("p50, hand-off of two daemons to its commit", "hand-off of two daemons", "hand_off_p50_us",
     ("bare commit@1",), "commit_p50_us", "<", 4.0),
    ("p50, hand-off, all come back, to its commit", "hand-off, all come back", "hand_off_p50_us",
     ("bare commit@1",), "commit_p50_us", "<", 4.0),
    ("p50, hand-off, held 5 ms, to its commit", "hand-off, held 5 ms", "hand_off_p50_us",
     ("bare commit@1",), "commit_p50_us", "<", 4.0),
    ("p50, hand-off of two daemons to one UPDATE", "hand-off of two daemons", "hand_off_p50_us",
     ("commit@1",), "cycle_p50_us", None, None),
    ("p50, hand-off, all come back, to one UPDATE", "hand-off, all come back", "hand_off_p50_us",
     ("commit@1",), "cycle_p50_us", None, None),
    ("cycles, session@256 to advisory@64", "session@256", "per_s", ("advisory@64",), "per_s",
     None, None),
    ("cycles, unary@64 to the recipe", "unary@64", "per_s", RECIPE, "per_s", None, None),
)
MEETS = {">=": lambda ratio, aim: ratio >= aim, "<": lambda ratio, aim: ratio < aim}
# A disk that is throttled after much writing is given this long to recover before a case; it counts
# as throttled while a commit takes this many times what it took at best.
RECOVERY_S = 30.0
THROTTLED = 3.0
# Of the recipe, in one message.
CLAIM_STATEMENTS = 4
DAEMON_SCHEMA = "compare"


class Runner:
    """Runs the generator's cases."""

    def __init__(self, arguments, server):
        self._arguments, self._server = arguments, server
        self._bench = os.path.join(arguments.bin_dir, "semaphored_bench")
        self._best_commit_us = None
        self.failed = False

    def run(self, words, target, duration_s, warmup_s):
        done = subprocess.run(
            [self._bench, *words.split(), "--server", target, "-o", "json",
             "--duration", str(duration_s), "--warmup", str(warmup_s)],
            capture_output=True, text=True, timeout=240, check=False)
        if not done.stdout.startswith("{"):
            sys.exit(f"compare: {words}: {done.stderr}")
        return json.loads(done.stdout)

    def case(self, name, words, of_whom, daemons, duration_s=None, warmup_s=None):
        target = {"postgres": self._server.url(), "daemon": daemons.addresses[0],
                  "daemons": ",".join(daemons.addresses)}[of_whom]
        words = words.format(lanes=self._arguments.lanes, batch=self._arguments.batch)
        run = self.run(words, target,
                       self._arguments.duration if duration_s is None else duration_s,
                       self._arguments.warmup if warmup_s is None else warmup_s)
        if run["errors"]:
            say(f"{name} went wrong: {run['first_error']}")
            self.failed = True
        return run

    def commit(self, duration_s=0.4):
        return self.run("postgres-commit --clients 1", self._server.url(), duration_s, 0.1)

    def settle(self):
        """Waits, within bounds, until the disk syncs about as fast as it did at best. Returns what
        a commit takes."""
        deadline = time.monotonic() + RECOVERY_S
        while True:
            now_us = self.commit()["latency_us"]["cycle"]["p50"]
            self._best_commit_us = min(now_us, self._best_commit_us or now_us)
            if now_us <= THROTTLED * self._best_commit_us or time.monotonic() > deadline:
                return now_us
            time.sleep(2)


def measure(runner, daemons, rounds):
    """Medians over the rounds; errors are added up."""
    runs = collections.defaultdict(lambda: collections.defaultdict(list))
    for number in range(1, rounds + 1):
        for name, words, of_whom in CASES:
            before_us = runner.settle()
            say(f"round {number} of {rounds}: {name} (a commit takes {before_us:.0f} us)")
            figures = figures_of(runner.case(name, words, of_whom, daemons))
            figures["commit_before_us"] = before_us
            for figure, value in figures.items():
                runs[name][figure].append(value)
        for figure, value in figures_of(runner.commit(1.0)).items():
            runs["commit@1"][figure].append(value)
    return {case: {figure: sum(values) if figure == "errors" else statistics.median(values)
                   for figure, values in figures.items()} for case, figures in runs.items()}


def count(runner, server, daemons, duration_s):
    """Statements of a cycle, as the server counted them (pg_stat_statements), without what the
    daemons do when idle: those that were sent, and those that ran inside of commit_1. Each that is
    sent is a round trip, but for the four of a claim of the recipe, which go in one message."""
    def counted():
        return server.execute(
            "SELECT coalesce(sum(calls) FILTER (WHERE toplevel), 0)::float8,"
            " coalesce(sum(calls) FILTER (WHERE NOT toplevel), 0)::float8,"
            " coalesce(sum(wal_bytes) FILTER (WHERE toplevel), 0)::float8 FROM pg_stat_statements"
            " WHERE userid = 'semaphored'::regrole")[0]

    server.execute("SELECT pg_stat_statements_reset()")
    time.sleep(duration_s)
    idle = [value / duration_s for value in counted()]
    costs = {}
    for name, words, of_whom in CASES:
        if name not in COUNTED:
            continue
        say(f"statements of {name}")
        server.execute("SELECT pg_stat_statements_reset()")
        start = time.monotonic()
        run = runner.case(name, words, of_whom, daemons, duration_s, 0)
        took_s = time.monotonic() - start
        cycles = max(run["figures"].get("cycles_per_s", 0) * duration_s, 1)
        sent, nested, wal_bytes = (max(0, value - background * took_s)
                                   for value, background in zip(counted(), idle))
        costs[name] = {"statements_sent": sent / cycles, "statements_inside": nested / cycles,
                       "log_bytes": wal_bytes / cycles}
        costs[name]["round_trips"] = costs[name]["statements_sent"] - (
            CLAIM_STATEMENTS - 1 if words.startswith("postgres-recipe") else 0)
    return costs, idle[0]


def ratios_of(medians):
    ratios = []
    for label, case, figure, peers, peer_figure, relation, aim in RATIOS:
        mine = medians[case].get(figure, 0)
        theirs = max(medians[peer].get(peer_figure, 0) for peer in peers)
        ratio = mine / theirs if theirs and mine else float("nan")
        reached = MEETS[relation](ratio, aim) if relation else None
        ratios.append({"what": label, "ratio": ratio, "relation": relation, "aim": aim,
                       "reached": reached})
    return ratios


def print_tables(medians, ratios, costs, idle_per_s):
    columns = ("per_s", "cycle_p50_us", "cycle_p99_us", "hand_off_p50_us", "hand_off_p99_us",
               "commit_before_us", "errors")
    print(f"{'median of the rounds':26}" + "".join(f"{name:>18}" for name in columns))
    for case, figures in medians.items():
        cells = (f"{figures[name]:18.0f}" if name in figures else f"{'':18}" for name in columns)
        print(f"{case:26}" + "".join(cells))
    print()
    for each in ratios:
        aim = "" if each["relation"] is None else (
            f"   {each['relation']} {each['aim']:<5} "
            f"{'reached' if each['reached'] else 'not reached'}")
        print(f"{each['what']:52}{each['ratio']:9.2f}{aim}")
    if not costs:
        return
    columns = ("round_trips", "statements_sent", "statements_inside", "log_bytes")
    print(f"\n{'a cycle':26}" + "".join(f"{name:>18}" for name in columns))
    for case, cost in costs.items():
        print(f"{case:26}" + "".join(f"{cost[name]:18.3f}" for name in columns))
    print("(counted by pg_stat_statements in a run of its own; inside: of commit_1; what two idle "
          f"daemons send, {idle_per_s:.1f} statements a second, is taken off)")


def prepare(server):
    """The tables of `bare`, in a schema that no daemon looks after."""
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        for path in sorted(glob.glob(os.path.join(ROOT, "adapters/postgres/schema_*.sql"))):
            with open(path, encoding="utf-8") as file:
                cursor.execute(file.read())


def main():
    parser = argparse.ArgumentParser(
        prog="tests/bench/compare_postgres.sh", description=__doc__,
        epilog="About 5 minutes with the defaults. The machine should be otherwise idle.")
    parser.add_argument("--rounds", type=int, default=3, help="times that each case is run (3)")
    parser.add_argument("--duration", type=float, default=4.0,
                        help="seconds measured each time (4)")
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--bin-dir", default=os.path.join(ROOT, "build/release/bin"),
                        help="where semaphored and semaphored_bench are (build/release/bin)")
    parser.add_argument("--work-dir", default=os.environ.get("TMPDIR", "/tmp"),
                        help="the data folder is made below it; it must be on a real disk")
    parser.add_argument("--lanes", type=int, default=2, help="of the daemons and of bare (2, as the daemon's default)")
    parser.add_argument("--batch", type=int, default=64, help="operations in a commit of bare (64)")
    parser.add_argument("--json", help="writes all figures to this file too")
    parser.add_argument("--no-count", action="store_true", help="does not count statements")
    arguments = parser.parse_args()

    for program in ("semaphored", "semaphored_bench"):
        if not os.access(os.path.join(arguments.bin_dir, program), os.X_OK):
            sys.exit(f"compare: {arguments.bin_dir}/{program} is missing: "
                     "cmake --preset release && cmake --build --preset release")
    kind = subprocess.run(["stat", "--file-system", "--format=%T", arguments.work_dir],
                          capture_output=True, text=True, check=True).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        sys.exit(f"compare: {arguments.work_dir} is in memory, so its fsync costs nothing: "
                 "choose another --work-dir")

    costs, idle_per_s = {}, 0.0
    with tempfile.TemporaryDirectory(prefix="semaphored-compare-",
                                     dir=arguments.work_dir) as folder:
        os.chmod(folder, 0o755)  # The server is another user.
        with PostgresServer(os.path.join(folder, "postgres")) as server:
            runner = Runner(arguments, server)
            prepare(server)
            store = f"{server.url(schema=DAEMON_SCHEMA)}&lanes={arguments.lanes}"
            daemon = os.path.join(arguments.bin_dir, "semaphored")
            # Files of the server's log are made once and then used again: not amid a case.
            runner.run("postgres-bare --lanes 2", server.url(), 2, 0)
            server.execute("CHECKPOINT")
            with Daemons(daemon, store, folder, count=2) as daemons:
                medians = measure(runner, daemons, arguments.rounds)
            if not arguments.no_count:
                # Only now: the counting takes time too.
                server.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
                server.restart()
                server.execute("ALTER SYSTEM SET pg_stat_statements.track = 'all'")
                server.execute("SELECT pg_reload_conf()")
                server.execute("CREATE EXTENSION pg_stat_statements")
                with Daemons(daemon, store, folder, count=2) as daemons:
                    costs, idle_per_s = count(runner, server, daemons, 2.0)
    ratios = ratios_of(medians)
    print_tables(medians, ratios, costs, idle_per_s)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"medians": medians, "ratios": ratios, "a_cycle": costs,
                       "idle_statements_per_s": idle_per_s}, file, indent=1)
            file.write("\n")
    sys.exit(1 if runner.failed else 0)


if __name__ == "__main__":
    main()
