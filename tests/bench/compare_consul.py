"""What compare_consul.sh does: starts a Consul server and a daemon on it for each group of cases,
runs them in turn, and prints medians and ratios."""

import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "engines"))

import comparing  # noqa: E402  pylint: disable=wrong-import-position
from consul import ConsulServer  # noqa: E402  pylint: disable=wrong-import-position

# Case, what the generator is told, and of whom it asks. Each client has a semaphore of its own, or
# all have one permit. Each group has a Consul to itself, which both sides share: what the other
# group leaves in its log on disk (a list of free pages, written with each commit) would be measured
# along with it.
GROUPS = (
    (("recipe@1", "consul-recipe --clients 1", "consul"),
     ("recipe@64", "consul-recipe --clients 64", "consul"),
     ("session@64", "session --clients 64", "daemon"),
     ("unary@64", "unary --clients 64", "daemon")),
    (("recipe, one permit@64", "consul-recipe --contended --clients 64", "consul"),
     ("session, one permit@64", "contended --clients 64 --via session", "daemon")),
)
COMPARED = (
    ("cycles, own keys, to the recipe", "session@64", "recipe@64", "per_s", "ratio", ">=", 3.2),
    ("cycles, own keys, unary", "unary@64", "recipe@64", "per_s", "ratio", None, None),
    ("hand-offs, one permit, to the recipe", "session, one permit@64", "recipe, one permit@64",
     "per_s", "ratio", ">=", 13.0),
)
COLUMNS = ("per_s", "cycle_p50_us", "cycle_p99_us", "hand_off_p50_us", "hand_off_p99_us",
           "requests_per_cycle", "errors")


def measure(arguments, cases):
    """Medians, and whether nothing went wrong."""
    with tempfile.TemporaryDirectory(prefix="semaphored-compare-") as folder:
        with ConsulServer(os.path.join(folder, "consul")) as server:
            with comparing.Daemons(os.path.join(arguments.bin_dir, "semaphored"),
                                   server.url("compare"), folder, count=1) as daemons:
                runner = comparing.Runner(
                    arguments, {"consul": f"127.0.0.1:{server.port}",
                                "daemon": daemons.addresses[0]})
                return comparing.measure(runner, arguments.rounds, cases), not runner.failed


def main():
    arguments = comparing.read_arguments("tests/bench/compare_consul.sh", __doc__, 2)
    wanted = comparing.chosen([case for group in GROUPS for case in group], arguments.only)
    medians = {}
    all_went_well = True
    for group in GROUPS:
        cases = [case for case in group if case in wanted]
        if not cases:
            continue
        found, went_well = measure(arguments, cases)
        medians.update(found)
        all_went_well = all_went_well and went_well
    comparisons = [each for each in COMPARED if each[1] in medians and each[2] in medians]
    comparing.report(arguments, medians, comparing.compared(comparisons, medians), COLUMNS)
    sys.exit(0 if all_went_well else 1)


if __name__ == "__main__":
    main()
