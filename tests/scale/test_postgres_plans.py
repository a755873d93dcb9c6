"""How Postgres carries out what daemons ask of it, on a database with many semaphores and ten ended leases for each: in a day of two
daemons no statement, and none within the database's functions, reads a large table from its beginning to its end.

SEMAPHORED_TEST_LEASES says how many semaphores. (The plans of all statements, those that the day does not need too:
tests/unit/adapters/postgres/plans_test.cc.)"""

import json
import os
import re
import subprocess
import sys
import unittest

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
sys.path[:0] = [os.path.join(TESTS, folder) for folder in ("e2e", "engines")]

import cluster  # noqa: E402  the folders have to be on the path first
from cluster import Cluster  # noqa: E402
from daemon import BIN_DIR, BOUND_S  # noqa: E402
from postgres import PostgresServer  # noqa: E402
from postgres_day import SETTINGS, PostgresDay  # noqa: E402

SEMAPHORES = int(os.environ.get("SEMAPHORED_TEST_LEASES", "10000"))
LARGE = {"semaphores", "sessions", "leases", "waiters", "requests", "clients", "tickets", "payloads"}
# After a fail-over, and once an hour after a daemon has ended; see plans_test.cc.
MAY_SCAN = re.compile(r"^SELECT CASE WHEN withheld|DELETE FROM semaphored\.nodes")
EXPLAINED = """
session_preload_libraries = 'auto_explain'
auto_explain.log_min_duration = 0
auto_explain.log_nested_statements = on
auto_explain.log_format = json
log_line_prefix = '@ '
"""


def fill():
    """The statements of the unit test that fill all tables."""
    path = os.path.join(TESTS, "unit", "adapters", "postgres", "plans_test.cc")
    with open(path, encoding="utf-8") as file:
        text = re.search(r'kFill\[\] = R"sql\((.*?)\)sql"', file.read(), re.DOTALL).group(1)
    return text.replace("$count$", str(SEMAPHORES))


def scans(plan):
    """The large tables that a plan reads from the beginning to the end."""
    found = {plan["Relation Name"]} if plan["Node Type"] == "Seq Scan" else set()
    for below in plan.get("Plans", ()):
        found |= scans(below)
    return found & LARGE


class Plans(PostgresDay, unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls, lambda folder: PostgresServer(folder, EXPLAINED))

    def owner(self, statement, *parameters):
        # What the test itself asks is not judged.
        return self.server.execute("SET auto_explain.log_min_duration = -1; " + statement, parameters)

    def test_a_day_on_a_large_database(self):
        printed = subprocess.run(
            [os.path.join(BIN_DIR, "semaphored"), "schema", "--print", "--store", "postgres:///"],
            capture_output=True, text=True, timeout=BOUND_S, check=True)
        connection = self.server.connect()
        with connection.cursor() as cursor:
            for statement in (printed.stdout, fill(), "ANALYZE"):
                cursor.execute(statement)
        connection.close()
        with open(self.server.log_path, encoding="utf-8") as file:
            before = len(file.read())
        url = self.server.url() + f"?history_rows={10 * SEMAPHORES}"
        with Cluster({"a": url, "b": url}, SETTINGS) as daemons:
            self.day("semaphored", daemons, 10 * SEMAPHORES)
        with open(self.server.log_path, encoding="utf-8") as file:
            seen = self.judge(file.read()[before:])
        self.assertGreater(len(seen), 40, seen)

    def judge(self, log):
        """Returns the statements whose plans were seen, those within functions too."""
        seen, wrong = set(), []
        for entry in log.split("\n@ "):
            explained = re.match(r"LOG:  duration: .* plan:\n(.*)", entry, re.DOTALL)
            if not explained:
                continue
            text = json.loads(explained.group(1).replace("\t", " "))
            statement = " ".join(text["Query Text"].split())
            seen.add(statement)
            found = scans(text["Plan"])
            if found and "semaphored." in statement and not MAY_SCAN.search(statement):
                wrong.append(f"{sorted(found)}: {statement[:300]}")
        self.assertEqual(sorted(set(wrong)), [])
        return seen


if __name__ == "__main__":
    unittest.main()
