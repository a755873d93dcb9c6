"""What compare_rabbitmq.sh does: starts a RabbitMQ and a daemon on it, runs the cases in turn, and
prints medians, ratios and differences."""

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "engines"))

from comparing import Daemons, figures_of, say  # noqa: E402  pylint: disable=wrong-import-position
from rabbitmq import RabbitServer  # noqa: E402  pylint: disable=wrong-import-position

# Case, what the generator is told, and of whom it asks. A daemon's semaphore is a quorum queue.
CASES = (
    ("raw quorum@64", "rabbitmq-raw --clients 64", "broker"),
    ("session@64", "session --clients 64 --semaphores 1 --limit 64", "daemon"),
    ("raw quorum@256", "rabbitmq-raw --clients 256", "broker"),
    ("session@256", "session --clients 256 --semaphores 1 --limit 256", "daemon"),
    ("raw quorum hand-off@64", "rabbitmq-raw-hand-off --clients 64", "broker"),
    ("hand-off@64", "contended --clients 64 --via session", "daemon"),
    ("raw classic@64", "rabbitmq-raw --clients 64 --queue-type classic", "broker"),
    ("raw classic@256", "rabbitmq-raw --clients 256 --queue-type classic", "broker"),
    ("raw classic hand-off@64", "rabbitmq-raw-hand-off --clients 64 --queue-type classic",
     "broker"),
)
# (what it says, case, beside which case, figure, how they are compared, at least or at most, aim)
COMPARED = (
    ("cycles, session@64 to raw", "session@64", "raw quorum@64", "per_s", "ratio", ">=", 0.6),
    ("cycles, session@256 to raw", "session@256", "raw quorum@256", "per_s", "ratio", ">=", 0.6),
    ("hand-offs, one token, to raw", "hand-off@64", "raw quorum hand-off@64", "per_s", "ratio",
     None, None),
    ("us more for a hand-off, p50, than raw", "hand-off@64", "raw quorum hand-off@64",
     "hand_off_p50_us", "difference", "<=", 300.0),
)
COMPARE = {"ratio": lambda mine, theirs: mine / theirs,
           "difference": lambda mine, theirs: mine - theirs}
MEETS = {">=": lambda value, aim: value >= aim, "<=": lambda value, aim: value <= aim}


class Runner:
    """Runs the generator's cases."""

    def __init__(self, arguments, targets):
        self._arguments, self._targets = arguments, targets
        self.failed = False

    def case(self, name, words, of_whom):
        done = subprocess.run(
            [os.path.join(self._arguments.bin_dir, "semaphored_bench"), *words.split(),
             "--server", self._targets[of_whom], "-o", "json",
             "--duration", str(self._arguments.duration), "--warmup", str(self._arguments.warmup)],
            capture_output=True, text=True, timeout=240, check=False)
        if not done.stdout.startswith("{"):
            sys.exit(f"compare: {words}: {done.stderr}")
        run = json.loads(done.stdout)
        if run["errors"]:
            say(f"{name} went wrong: {run['first_error']}")
            self.failed = True
        return figures_of(run)


def measure(runner, rounds, cases):
    """Medians over the rounds; errors are added up."""
    runs = collections.defaultdict(lambda: collections.defaultdict(list))
    for number in range(1, rounds + 1):
        for name, words, of_whom in cases:
            figures = runner.case(name, words, of_whom)
            say(f"round {number} of {rounds}: {name}: {figures['per_s']:.0f}/s")
            for figure, value in figures.items():
                runs[name][figure].append(value)
    return {case: {figure: sum(values) if figure == "errors" else statistics.median(values)
                   for figure, values in figures.items()} for case, figures in runs.items()}


def compared(medians):
    found = []
    for label, case, peer, figure, how, relation, aim in COMPARED:
        mine = medians.get(case, {}).get(figure, 0)
        theirs = medians.get(peer, {}).get(figure, 0)
        value = COMPARE[how](mine, theirs) if mine and theirs else float("nan")
        reached = MEETS[relation](value, aim) if relation else None
        found.append({"what": label, "value": value, "relation": relation, "aim": aim,
                      "reached": reached})
    return found


def print_tables(medians, comparisons):
    columns = ("per_s", "cycle_p50_us", "cycle_p99_us", "hand_off_p50_us", "hand_off_p99_us",
               "errors")
    print(f"{'median of the rounds':26}" + "".join(f"{name:>17}" for name in columns))
    for case, figures in medians.items():
        cells = (f"{figures[name]:17.0f}" if name in figures else f"{'':17}" for name in columns)
        print(f"{case:26}" + "".join(cells))
    print()
    for each in comparisons:
        aim = "" if each["relation"] is None else (
            f"   {each['relation']} {each['aim']:<5} "
            f"{'reached' if each['reached'] else 'not reached'}")
        print(f"{each['what']:42}{each['value']:9.2f}{aim}")


def main():
    parser = argparse.ArgumentParser(
        prog="tests/bench/compare_rabbitmq.sh", description=__doc__,
        epilog="About 3 minutes with the defaults. The machine should be otherwise idle.")
    parser.add_argument("--rounds", type=int, default=3, help="times that each case is run (3)")
    parser.add_argument("--duration", type=float, default=4.0,
                        help="seconds measured each time (4)")
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--bin-dir", default=os.path.join(ROOT, "build/release/bin"),
                        help="where semaphored and semaphored_bench are (build/release/bin)")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--json", help="writes all figures to this file too")
    arguments = parser.parse_args()
    for program in ("semaphored", "semaphored_bench"):
        if not os.access(os.path.join(arguments.bin_dir, program), os.X_OK):
            sys.exit(f"compare: {arguments.bin_dir}/{program} is missing: "
                     "cmake --preset release && cmake --build --preset release")
    cases = [case for case in CASES if arguments.only in case[0]]

    with tempfile.TemporaryDirectory(prefix="semaphored-compare-") as folder:
        with RabbitServer(os.path.join(folder, "rabbitmq")) as server:
            with Daemons(os.path.join(arguments.bin_dir, "semaphored"),
                         server.url(options="?layout=tokens"), folder, count=1) as daemons:
                runner = Runner(arguments,
                                {"broker": server.url(), "daemon": daemons.addresses[0]})
                medians = measure(runner, arguments.rounds, cases)
    comparisons = compared(medians)
    print_tables(medians, comparisons)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"medians": medians, "comparisons": comparisons}, file, indent=1)
            file.write("\n")
    sys.exit(1 if runner.failed else 0)


if __name__ == "__main__":
    main()
