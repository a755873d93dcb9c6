"""What `compare.sh --base` does: measures two builds of the daemon in one run, in turn, and prints the medians, their
ratio, and whether the ratio is within the spread. Each build has its own load generator, if its folder has one: the API
of an old build may be another. Otherwise both have that of this build.

The base build runs twice in each round. The second of them differs from the first only by noise; how far the medians of
the two differ is the spread that this machine has today. A case is slower only if it is slower by more than the spread
and by more than 3 %."""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import types

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "engines"))

import comparing  # noqa: E402  pylint: disable=wrong-import-position
from consul import ConsulServer  # noqa: E402  pylint: disable=wrong-import-position
from postgres import PostgresServer  # noqa: E402  pylint: disable=wrong-import-position

SLOWER_AT_LEAST = 0.03
BASE, AGAIN, THIS = "base", "base again", "this"
# Case, words for the load generator, figure, whether more is better.
CASES = {
    "sqlite": (("session@256", "session --clients 256", "per_s", True),
               ("unary@64", "unary --clients 64", "per_s", True),
               ("hand-off@64", "contended --clients 64 --via session", "hand_off_p50_us", False)),
    "postgres": (("session@64", "session --clients 64", "per_s", True),
                 ("hand-off@64", "contended --clients 64 --via session", "hand_off_p50_us", False)),
    "consul": (("session@64", "session --clients 64", "per_s", True),
               ("hand-off@64", "contended --clients 64 --via session", "hand_off_p50_us", False)),
}


def read_arguments():
    parser = argparse.ArgumentParser(
        prog="tests/bench/compare.sh", description=__doc__.split("\n\n", maxsplit=1)[0],
        epilog="About 8 minutes with the defaults. The machine should be otherwise idle.")
    parser.add_argument("--base", help="folder with the semaphored of the other build, and its semaphored_bench")
    parser.add_argument("--self", dest="only_base", action="store_true",
                        help="measures a build beside itself only: the spread")
    parser.add_argument("--bin-dir", default=os.path.join(ROOT, "build/release/bin"),
                        help="where semaphored and semaphored_bench are (build/release/bin)")
    parser.add_argument("--engines", default=",".join(CASES), help="which engines (all of these: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="times that each case is run (5)")
    parser.add_argument("--duration", type=float, default=3.0, help="seconds measured each time (3)")
    parser.add_argument("--warmup", type=float, default=1.0)
    arguments = parser.parse_args()
    arguments.engines = arguments.engines.split(",")
    for engine in arguments.engines:
        if engine not in CASES:
            parser.error(f"--engines: {engine!r} is none of {', '.join(CASES)}")
    if arguments.base is None:
        if not arguments.only_base:
            parser.error("--base is missing, or --self")
        arguments.base = arguments.bin_dir
    for program in (os.path.join(arguments.base, "semaphored"), os.path.join(arguments.bin_dir, "semaphored"),
                    os.path.join(arguments.bin_dir, "semaphored_bench")):
        if not os.access(program, os.X_OK):
            parser.error(f"{program} is missing")
    return arguments


def generator_folder(arguments, bin_dir):
    return bin_dir if os.access(os.path.join(bin_dir, "semaphored_bench"), os.X_OK) else arguments.bin_dir


@contextlib.contextmanager
def stores(engine, folder):
    """A function from a side to the URL of a store that no other side uses."""
    path = os.path.join(folder, engine)
    if engine == "sqlite":
        yield lambda side: f"sqlite://{path}-{side.replace(' ', '-')}.db"
    elif engine == "postgres":
        with PostgresServer(path) as server:
            yield lambda side: server.url(schema=side.replace(" ", "_"))
    else:
        with ConsulServer(path) as server:
            yield lambda side: server.url(side.replace(" ", "-"))


def measure(arguments, engine, sides):
    """{case: {side: [figure of each round]}}, and whether nothing went wrong."""
    found = {case[0]: {side: [] for side in sides} for case in CASES[engine]}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="semaphored-compare-"))
        url_of = stack.enter_context(stores(engine, folder))
        targets = {}
        for side, bin_dir in sides.items():
            own = os.path.join(folder, side)
            os.mkdir(own)
            daemons = comparing.Daemons(os.path.join(bin_dir, "semaphored"), url_of(side), own, count=1)
            targets[side] = stack.enter_context(daemons).addresses[0]
        runners = {side: comparing.Runner(types.SimpleNamespace(
            bin_dir=generator_folder(arguments, bin_dir), duration=arguments.duration, warmup=arguments.warmup), targets)
                   for side, bin_dir in sides.items()}
        for number in range(arguments.rounds):
            for name, words, figure, _ in CASES[engine]:
                # Each side is first as often as last.
                order = list(sides) if number % 2 == 0 else list(reversed(sides))
                for side in order:
                    value = runners[side].case(f"{engine} {name}, {side}", words, side)[figure]
                    comparing.say(f"round {number + 1} of {arguments.rounds}: {engine} {name}, {side}: {value:.0f}")
                    found[name][side].append(value)
    return found, not any(runner.failed for runner in runners.values())


def report(engine, found):
    """Prints a line for each case; False if one is slower than the spread allows."""
    fine = True
    for name, _, _, more_is_better in CASES[engine]:
        medians = {side: statistics.median(values) for side, values in found[name].items()}
        spread = abs(medians[AGAIN] / medians[BASE] - 1)
        line = f"{engine + ' ' + name:24}{medians[BASE]:12.0f}{medians[AGAIN]:12.0f}{spread:9.1%}"
        if THIS in medians:
            ratio = medians[THIS] / statistics.mean([medians[BASE], medians[AGAIN]])
            slower = 1 - ratio if more_is_better else ratio - 1
            is_slower = slower > max(SLOWER_AT_LEAST, spread)
            fine = fine and not is_slower
            line += f"{medians[THIS]:12.0f}{ratio:9.3f}  {'slower' if is_slower else 'not slower'}"
        print(line)
    return fine


def main():
    arguments = read_arguments()
    sides = {BASE: arguments.base, AGAIN: arguments.base}
    if not arguments.only_base:
        sides[THIS] = arguments.bin_dir
    all_found, went_well = {}, True
    for engine in arguments.engines:
        all_found[engine], well = measure(arguments, engine, sides)
        went_well = went_well and well
    print(f"{'medians':24}{BASE:>12}{AGAIN:>12}{'spread':>9}" +
          ("" if arguments.only_base else f"{THIS:>12}{'ratio':>9}"))
    print("(cycles per second; hand-offs: p50 in microseconds)")
    fine = [report(engine, found) for engine, found in all_found.items()]
    sys.exit(0 if went_well and all(fine) else 1)


if __name__ == "__main__":
    main()
