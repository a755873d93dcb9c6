"""What two daemons on one engine tell Prometheus, and what is told while the engine is away."""

import contextlib
import unittest

import cluster
from cluster import Cluster
from daemon import Daemon, free_port, wait_until
from outage import ENGINE_TIMEOUT_S
from proxy import TcpProxy
from scraping import Scrape


class Shared(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls)

    def test_the_figures_of_both_and_an_outage(self):
        with TcpProxy(self.server.port) as proxy:
            url = self.server.url("metrics", port=proxy.port) + \
                f"&timeout_ms={1000 * ENGINE_TIMEOUT_S}"
            daemons = Cluster({"a": url, "b": url}, {
                "engine_timeout": f"{ENGINE_TIMEOUT_S}s", "metrics_list_interval": "100ms"})
            addresses = {}
            for name, daemon in daemons.daemons.items():
                addresses[name] = f"127.0.0.1:{free_port()}"
                daemon.settings["metrics_listen"] = addresses[name]
            with daemons:
                daemons["a"].client().acquire("shared", limit=3, permits=2)
                daemons["b"].client().acquire("shared", limit=3)
                for name, held in (("a", 2), ("b", 1)):
                    with self.subTest(name):
                        self.check_both_see_all(addresses[name], held)
                proxy.cut()
                for address in addresses.values():
                    self.check_outage(address)
                proxy.heal()
                for address in addresses.values():
                    wait_until(lambda a=address: Scrape(a).value("semaphored_vouched") == 1,
                               "it vouches again")

    def test_a_snapshot_that_stands(self):
        metrics = f"127.0.0.1:{free_port()}"
        with Daemon({"metrics_listen": metrics}, store=self.server.url("snapshot")) as daemon, \
                contextlib.closing(self.server.connect()) as reader:
            # Commits go on meanwhile; without a transaction a snapshot would not be told from the next one.
            def age():
                client = daemon.client()
                client.release(client.acquire("s", limit=1).lease_id)
                return Scrape(metrics).value("semaphored_engine_oldest_snapshot_seconds")
            self.assertLess(age(), 1)
            with reader.cursor() as cursor:
                cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
                wait_until(lambda: age() >= 5, "the snapshot is seen to stand")
                cursor.execute("COMMIT")
            wait_until(lambda: age() < 5, "the snapshot is seen to be gone")

    def check_both_see_all(self, address, held):
        def listed():
            scrape = Scrape(address)
            all_held = scrape.value("semaphored_engine_held_permits", semaphore="shared")
            return scrape if all_held == 3 else None
        scrape = wait_until(listed, "what both have is listed")
        self.assertEqual(scrape.value("semaphored_held_permits", semaphore="shared"), held)
        self.assertEqual(scrape.value("semaphored_grants_total", semaphore="shared"), 1)
        self.assertEqual(scrape.value("semaphored_engine_limit_permits", semaphore="shared"), 3)

    def check_outage(self, address):
        """Each scrape is answered meanwhile, until all signs of the outage are there."""
        def told():
            scrape = Scrape(address)
            self.assertEqual(scrape.value("semaphored_scrape_complete"), 1)
            self.assertEqual(
                scrape.value("semaphored_engine_limit_permits", semaphore="shared"), 3)
            return (scrape.value("semaphored_vouched") == 0 and
                    scrape.value("semaphored_heartbeat_failures_total") > 0 and
                    scrape.sum("semaphored_engine_errors_total") > 0 and
                    scrape.value("semaphored_engine_list_age_seconds") > 1 and
                    scrape.value("semaphored_engine_last_success_age_seconds") > 1)
        wait_until(told, "the outage is told of")


if __name__ == "__main__":
    unittest.main()
