"""Daemons that log in as the role of docs/postgres.md, with the rights that are printed there and no others: all that they do
works, their upkeep too. A right that is missing is named."""

import os
import subprocess
import unittest

import cluster
import psycopg2
from cluster import Cluster
from daemon import BIN_DIR, BOUND_S, Daemon, free_port, wait_until
from postgres import printed_rights
from postgres_day import HISTORY_ROWS, SETTINGS, PostgresDay
from scraping import Scrape

OWNER, ROLE, DATABASE = "deployer", "semaphored", "production"
REFUSED = "permission denied"


class Rights(PostgresDay, unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls)
        cls.server.execute(f"CREATE ROLE {OWNER} LOGIN PASSWORD 'deploys'")
        cls.server.execute(f"CREATE DATABASE {DATABASE} OWNER {OWNER}")
        cls.server.execute(f"REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC")
        cls.server.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC", database=DATABASE)

    def make(self, schema, leave_out=None):
        """Makes the schema as its owner, with the printed rights but for the statement that has `leave_out` in it.
        The daemon's URL."""
        def psql(text):
            done = subprocess.run(
                ["psql", "--single-transaction", "-qv", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p",
                 str(self.server.port), "-U", OWNER, DATABASE], input=text, text=True, timeout=BOUND_S,
                env={**os.environ, "PGPASSWORD": "deploys"}, capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
        printed = subprocess.run(
            [os.path.join(BIN_DIR, "semaphored"), "schema", "--print", "--store",
             f"postgres:///?schema={schema}"], capture_output=True, text=True, timeout=BOUND_S,
            check=True)
        psql(printed.stdout)
        rights = printed_rights(schema)
        if leave_out is not None:
            kept = [each for each in rights.split(";\n") if leave_out not in each]
            self.assertEqual(len(kept) + 1, len(rights.split(";\n")))
            rights = ";\n".join(kept)
        psql(rights)
        return (self.server.url(schema, role=ROLE, database=DATABASE) +
                f"&manage_schema=no&history_rows={HISTORY_ROWS}")

    def owner(self, statement, *parameters):
        connection = psycopg2.connect(host="127.0.0.1", port=self.server.port, dbname=DATABASE,
                                      user=OWNER, password="deploys")
        with connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            rows = cursor.fetchall() if cursor.description else []
        connection.close()
        return rows

    def server_log(self):
        with open(self.server.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    # ---- with all of them ----

    def test_all_that_daemons_do(self):
        url = self.make("whole")
        before = len(self.server_log())
        with Cluster({"a": url, "b": url}, SETTINGS) as daemons:
            for daemon in daemons.daemons.values():
                daemon.settings["metrics_listen"] = f"127.0.0.1:{free_port()}"
            daemons["a"].terminate()
            # As after a promotion: tokens go on far above, and nothing is granted for a while.
            self.owner("UPDATE whole.store SET timeline = '0000FFFF', withheld_ms = 100")
            daemons["a"].start()
            self.assertGreaterEqual(self.owner("SELECT last_value FROM whole.tokens")[0][0], 1 << 48)
            self.day("whole", daemons)
            for daemon in daemons.daemons.values():
                self.assertNotIn(REFUSED, daemon.log())
            scrape = Scrape(daemons["a"].settings["metrics_listen"])
            self.assertEqual(scrape.sum("semaphored_engine_upkeep_errors_total"), 0)
        self.assertNotIn(REFUSED, self.server_log()[before:])

    # ---- without one of them ----

    def test_a_right_that_the_start_needs(self):
        url = self.make("no_tokens", leave_out="SEQUENCE no_tokens.tokens")
        done = subprocess.run([os.path.join(BIN_DIR, "semaphored"), "--store", url, "--listen",
                               f"127.0.0.1:{free_port()}"], capture_output=True, text=True,
                              timeout=BOUND_S, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("permission denied for sequence tokens", done.stderr)

    def test_a_right_that_only_the_upkeep_needs(self):
        url = self.make("no_numbers", leave_out="SEQUENCE no_numbers.history_numbers")
        self.owner(f"GRANT USAGE ON SEQUENCE no_numbers.history_numbers TO {ROLE}")
        metrics = f"127.0.0.1:{free_port()}"
        with Daemon({**SETTINGS, "metrics_listen": metrics}, store=url) as daemon:
            client = daemon.client()
            for _ in range(2 * HISTORY_ROWS):
                client.release(client.acquire("s", limit=1).lease_id)
            wait_until(lambda: Scrape(metrics).value("semaphored_engine_upkeep_errors_total",
                                                     work="history") >= 3, "errors are counted")
            wait_until(lambda: Scrape(metrics).value("semaphored_engine_history_rows") == 2 * HISTORY_ROWS,
                       "the rows are counted")
            self.assertEqual(Scrape(metrics).value("semaphored_engine_history_rows_max"), HISTORY_ROWS)
            said = [line for line in daemon.log().splitlines()
                    if "permission denied for sequence history_numbers" in line]
            self.assertIn("upkeep", said[0])
            self.assertLess(len(said), 4, daemon.log())  # One in ten seconds.


if __name__ == "__main__":
    unittest.main()
