"""What the comparisons with an engine have in common: daemons, runs and figures of the load
generator, and how they are compared."""

import argparse
import collections
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMPARE = {"ratio": lambda mine, theirs: mine / theirs,
           "difference": lambda mine, theirs: mine - theirs,
           "value": lambda mine, theirs: mine}
MEETS = {">=": lambda value, aim: value >= aim, "<=": lambda value, aim: value <= aim}


def say(text):
    print(f"compare: {text}", file=sys.stderr, flush=True)


class Daemons:
    """Daemons on one store, as a context manager."""

    def __init__(self, program, store, folder, count, options=()):
        self._program, self._store, self._folder = program, store, folder
        self._options = options
        self._count = count
        self._processes = []
        self.addresses = []

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.push(self.__exit__)
            for number in range(self._count):
                self._start(number)
            stack.pop_all()
        return self

    def __exit__(self, *unused):
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @staticmethod
    def _read(path):
        with open(path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def _start(self, number):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        path = os.path.join(self._folder, f"daemon-{number}.log")
        with open(path, "wb") as log:
            process = subprocess.Popen(  # pylint: disable=consider-using-with
                [self._program, "--store", self._store, "--listen", f"127.0.0.1:{port}", *self._options],
                stdout=log, stderr=log)
        self._processes.append(process)
        deadline = time.monotonic() + 20
        # A connection that is accepted earlier is closed again.
        while f"serving on 127.0.0.1:{port}" not in (said := self._read(path)):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"compare: the daemon does not serve:\n{said}")
            time.sleep(0.05)
        self.addresses.append(f"127.0.0.1:{port}")


def figures_of(run):
    found = {"per_s": run["figures"].get("cycles_per_s", 0.0), "errors": run["errors"]}
    if "requests_per_cycle" in run["figures"]:
        found["requests_per_cycle"] = run["figures"]["requests_per_cycle"]
    for name in ("cycle", "hand_off", "commit"):
        if run["latency_us"].get(name, {}).get("count"):
            found[name + "_p50_us"] = run["latency_us"][name]["p50"]
            found[name + "_p99_us"] = run["latency_us"][name]["p99"]
    return found


class Runner:
    """Runs the generator's cases: (name, words, of whom), against the target of that name."""

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


def chosen(cases, only):
    """Those whose name contains `only`; ends the program if there is none."""
    found = [case for case in cases if only in case[0]]
    if not found:
        names = "; ".join(case[0] for case in cases)
        sys.exit(f"compare: --only {only!r} is in no case's name; there are: {names}")
    return found


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


def compared(comparisons, medians):
    """`comparisons`: what it says, case, beside which case, figure, how they are compared, at least
    or at most, aim."""
    found = []
    for label, case, peer, figure, how, relation, aim in comparisons:
        mine = medians.get(case, {}).get(figure, 0)
        theirs = medians.get(peer, {}).get(figure, 0)
        value = COMPARE[how](mine, theirs) if mine and theirs else float("nan")
        reached = MEETS[relation](value, aim) if relation else None
        found.append({"what": label, "value": value, "relation": relation, "aim": aim,
                      "reached": reached})
    return found


def print_tables(medians, comparisons, columns):
    print(f"{'median of the rounds':26}" + "".join(f"{name:>19}" for name in columns))
    for case, figures in medians.items():
        cells = (f"{figures[name]:19.{0 if figures[name] >= 10 or name == 'errors' else 2}f}"
                 if name in figures else f"{'':19}" for name in columns)
        print(f"{case:26}" + "".join(cells))
    print()
    for each in comparisons:
        aim = "" if each["relation"] is None else (
            f"   {each['relation']} {each['aim']:<5} "
            f"{'reached' if each['reached'] else 'not reached'}")
        print(f"{each['what']:42}{each['value']:9.2f}{aim}")


def read_arguments(program, description, minutes):
    parser = argparse.ArgumentParser(
        prog=program, description=description,
        epilog=f"About {minutes} minutes with the defaults. The machine should be otherwise idle.")
    parser.add_argument("--rounds", type=int, default=3, help="times that each case is run (3)")
    parser.add_argument("--duration", type=float, default=4.0,
                        help="seconds measured each time (4)")
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--bin-dir", default=os.path.join(ROOT, "build/release/bin"),
                        help="where semaphored and semaphored_bench are (build/release/bin)")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--json", help="writes all figures to this file too")
    arguments = parser.parse_args()
    for name in ("semaphored", "semaphored_bench"):
        if not os.access(os.path.join(arguments.bin_dir, name), os.X_OK):
            sys.exit(f"compare: {arguments.bin_dir}/{name} is missing: "
                     "cmake --preset release && cmake --build --preset release")
    return arguments


def report(arguments, medians, comparisons, columns):
    print_tables(medians, comparisons, columns)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"medians": medians, "comparisons": comparisons}, file, indent=1)
            file.write("\n")
