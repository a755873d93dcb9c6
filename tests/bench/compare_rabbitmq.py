"""What compare_rabbitmq.sh does: starts a RabbitMQ and a daemon on it, runs the cases in turn, and
prints medians, ratios and differences."""

import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "engines"))

import comparing  # noqa: E402  pylint: disable=wrong-import-position
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
COLUMNS = ("per_s", "cycle_p50_us", "cycle_p99_us", "hand_off_p50_us", "hand_off_p99_us", "errors")


def main():
    arguments = comparing.read_arguments("tests/bench/compare_rabbitmq.sh", __doc__, 3)
    cases = comparing.chosen(CASES, arguments.only)

    with tempfile.TemporaryDirectory(prefix="semaphored-compare-") as folder:
        with RabbitServer(os.path.join(folder, "rabbitmq")) as server:
            with comparing.Daemons(os.path.join(arguments.bin_dir, "semaphored"),
                                   server.url(options="?layout=tokens"), folder,
                                   count=1) as daemons:
                runner = comparing.Runner(
                    arguments, {"broker": server.url(), "daemon": daemons.addresses[0]})
                medians = comparing.measure(runner, arguments.rounds, cases)
    comparing.report(arguments, medians, comparing.compared(COMPARED, medians), COLUMNS)
    sys.exit(1 if runner.failed else 0)


if __name__ == "__main__":
    main()
