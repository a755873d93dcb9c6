"""deploy/grafana/semaphored.json: each query asks for what a real daemon shows, by a real Prometheus, and there is an answer."""

import json
import os
import re
import subprocess
import tempfile
import unittest
import urllib.parse
import urllib.request

from daemon import BOUND_S, free_port, grpc, pb, wait_until
from scraping import Scrape, promtool, with_metrics

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
# Prometheus gives these to what it reads.
ITS_OWN = {"job", "instance"}
# They have no series before something has gone wrong.
MAY_BE_EMPTY = ("semaphored_engine_errors_total", "semaphored_unauthenticated_total", "semaphored_guard_closed_total")
SELECTOR = re.compile(r"\b([a-z_]+)\{([^}]*)\}")


def filled(query):
    """With the values that Grafana puts in for "All"."""
    query = query.replace("$__rate_interval", "1m")
    return re.sub(r"\$(semaphore|instance)\b", ".*", query)


class Dashboard(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        with open(os.path.join(ROOT, "deploy/grafana/semaphored.json"), encoding="utf-8") as file:
            cls.dashboard = json.load(file)
        cls.targets = [target for panel in cls.dashboard["panels"] for target in panel.get("targets", [])]
        cls.daemon = cls.enterClassContext(with_metrics())
        cls.work()
        cls.scrape = Scrape(cls.daemon.metrics)

    @classmethod
    def work(cls):
        """So that each metric has something to show."""
        client = cls.daemon.client()
        first = client.acquire("team/db", limit=2)
        client.acquire("team/db", limit=2)
        cls.waiting = client.acquire_later("team/db", limit=2)
        client.wait_for_queue("team/db", 1)
        client.release(first.lease_id)
        cls.waiting.result(BOUND_S)
        try:
            client.acquire("team/db", limit=2)
        except grpc.RpcError as refused:  # Full, and counted.
            assert refused.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        client.stub.Enqueue(pb.EnqueueRequest(semaphore="t", limit=1, payload=b"x"), timeout=BOUND_S)
        wait_until(lambda: Scrape(cls.daemon.metrics).value("semaphored_engine_tickets", semaphore="t", state="queued"),
                   "the list is there")
        wait_until(lambda: Scrape(cls.daemon.metrics).value("semaphored_heartbeat_age_seconds") is not None,
                   "a heartbeat was sent")

    def labels_of(self, name):
        return {label for of, key in self.scrape.samples if of == name for label, _ in key}

    def test_panels_have_places_of_their_own(self):
        ids = [panel["id"] for panel in self.dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        squares = [(x, y) for panel in self.dashboard["panels"] for place in [panel["gridPos"]]
                   for x in range(place["x"], place["x"] + place["w"])
                   for y in range(place["y"], place["y"] + place["h"])]
        self.assertEqual(len(squares), len(set(squares)))
        self.assertLess(max(x for x, _ in squares), 24)

    def test_each_query_speaks_of_metrics_and_labels_that_there_are(self):
        self.assertGreater(len(self.targets), 40)
        for target in self.targets:
            query = target["expr"]
            with self.subTest(query):
                names = set(re.findall(r"\b(?:semaphored|process)_[a-z_]+", query))
                self.assertTrue(names or query.startswith("count(up"), query)
                known = set()
                for name in names:
                    base = re.sub("_bucket$", "", name)
                    self.assertIn(base, self.scrape.types)
                    known |= self.labels_of(name)
                asked = {label for _, labels in SELECTOR.findall(query) for label in re.findall(r"(\w+)[=!]", labels)}
                for grouped in re.findall(r"\bby \(([^)]*)\)", query):
                    asked |= set(re.split(r",\s*", grouped))
                if not names & set(MAY_BE_EMPTY):
                    self.assertEqual(asked - ITS_OWN - known, set())
                shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                self.assertLessEqual(shown, asked, "a legend shows a label that the query sums up")

    def test_variables_ask_for_labels_that_there_are(self):
        queries = [variable["query"] for variable in self.dashboard["templating"]["list"] if variable["type"] == "query"]
        self.assertEqual(len(queries), 2)
        for query in queries:
            name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()
            self.assertIn(name, self.scrape.types)
            self.assertIn(label, self.labels_of(name) | ITS_OWN)

    def test_promtool_accepts_each_query(self):
        rules = {"groups": [{"name": "dashboard", "rules": [
            {"record": f"query:{number}", "expr": filled(target["expr"])}
            for number, target in enumerate(self.targets)]}]}
        with tempfile.NamedTemporaryFile("w", suffix=".yml", encoding="utf-8") as file:
            json.dump(rules, file)  # JSON is YAML, too.
            file.flush()
            self.assertEqual(promtool("check", "rules", file.name), "")

    def test_prometheus_answers_each_query(self):
        address = self.prometheus()
        empty = []

        def asked(query):
            with urllib.request.urlopen(f"http://{address}/api/v1/query?" + urllib.parse.urlencode({"query": query}),
                                        timeout=BOUND_S) as answer:
                said = json.load(answer)
            self.assertEqual(said["status"], "success", query)
            return said["data"]["result"]
        wait_until(lambda: asked("sum(count_over_time(semaphored_vouched[1m])) >= 3"), "it has read three times")
        for target in self.targets:
            if not asked(filled(target["expr"])) and not any(name in target["expr"] for name in MAY_BE_EMPTY):
                empty.append(target["expr"])
        self.assertEqual(empty, [])

    def prometheus(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-prometheus-")
        self.addCleanup(folder.cleanup)
        settings = os.path.join(folder.name, "prometheus.yml")
        with open(settings, "w", encoding="utf-8") as file:
            json.dump({"global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
                       "scrape_configs": [{"job_name": "semaphored",
                                           "static_configs": [{"targets": [self.daemon.metrics]}]}]}, file)
        address = f"127.0.0.1:{free_port()}"
        with open(os.path.join(folder.name, "log"), "wb") as log:
            process = subprocess.Popen(
                ["prometheus", f"--config.file={settings}", f"--storage.tsdb.path={folder.name}/data",
                 f"--web.listen-address={address}"], stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)

        def ready():
            try:
                with urllib.request.urlopen(f"http://{address}/-/ready", timeout=BOUND_S) as answer:
                    return answer.status == 200
            except OSError:
                return False
        wait_until(ready, "Prometheus is ready")
        return address


if __name__ == "__main__":
    unittest.main()
