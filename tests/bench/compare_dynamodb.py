"""What compare_dynamodb.sh does: starts a DynamoDB Local and a daemon on it, runs the cases in turn,
and prints medians, ratios and differences."""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "engines"))

import comparing  # noqa: E402  pylint: disable=wrong-import-position
from dynamodb import DynamoServer  # noqa: E402  pylint: disable=wrong-import-position

# Case, what the generator is told, and of whom it asks. Each client has a semaphore of its own, or
# all have one permit.
CASES = (
    ("raw@1", "dynamodb-raw --clients 1", "dynamodb"),
    ("raw@64", "dynamodb-raw --clients 64", "dynamodb"),
    ("session@1", "session --clients 1", "daemon"),
    ("session@64", "session --clients 64", "daemon"),
    ("unary@64", "unary --clients 64", "daemon"),
    ("session, one permit@64", "contended --clients 64 --via session", "daemon"),
)
COMPARED = (
    ("cycles, own keys, session@64 to raw", "session@64", "raw@64", "per_s", "ratio", ">=", 0.7),
    ("cycles, own keys, unary@64 to raw", "unary@64", "raw@64", "per_s", "ratio", ">=", 0.7),
    ("cycles alone, session@1 to raw", "session@1", "raw@1", "per_s", "ratio", None, None),
)
COLUMNS = ("per_s", "cycle_p50_us", "cycle_p99_us", "hand_off_p50_us", "hand_off_p99_us", "errors")


def main():
    arguments = comparing.read_arguments("tests/bench/compare_dynamodb.sh", __doc__, 2)
    cases = comparing.chosen(CASES, arguments.only)
    program = os.path.join(arguments.bin_dir, "semaphored")
    # What DynamoDB Local takes for keys.
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench")

    with tempfile.TemporaryDirectory(prefix="semaphored-compare-") as folder:
        with DynamoServer(os.path.join(folder, "dynamodb")) as server:
            for table in ("compare", "raw"):
                subprocess.run([program, "schema", "--create", "--store", server.url(table)],
                               check=True, stdout=subprocess.DEVNULL)
            with comparing.Daemons(program, server.url("compare"), folder, count=1) as daemons:
                runner = comparing.Runner(
                    arguments, {"dynamodb": server.url("raw"), "daemon": daemons.addresses[0]})
                medians = comparing.measure(runner, arguments.rounds, cases)
    comparing.report(arguments, medians, comparing.compared(COMPARED, medians), COLUMNS)
    sys.exit(1 if runner.failed else 0)


if __name__ == "__main__":
    main()
