"""The page's feed and acts on an engine that two daemons share: each page shows, and changes, what both have."""

import time
import unittest

import cluster
from cluster import Cluster
from daemon import wait_until
from http_client import Events, HttpDaemon

LIST = "/page/feed?view=list"
ONE = "/page/feed?view=semaphore&name=shared"


class Shared(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        server = cluster.start_server(cls)
        daemons = Cluster({name: server.url("page") for name in "ab"})
        daemons.daemons = {name: HttpDaemon({**each.settings, "http_listen": "127.0.0.1:0"}, port=each.port, store=each.store)
                           for name, each in daemons.daemons.items()}
        cls.daemons = cls.enterClassContext(daemons)
        cls.a, cls.b = daemons["a"], daemons["b"]

    def shown(self, path, name, seen):
        """The first data of that event, on a page of daemon a, of which `seen` is true."""
        def next_one():
            data = events.until(name)
            return data if seen(data) else None
        with Events(self.a, "GET", path) as events:
            return wait_until(next_one, name)

    def test_what_is_held_and_waits_at_the_other_daemon(self):
        client = self.b.client()
        client.acquire("shared", limit=2, permits=2, holder="of b", ttl_ms=60_000)
        waiting = client.acquire_later("shared", holder="waits at b")
        client.wait_for_queue("shared", 1)
        self.shown(LIST, "list", lambda data: data.get("rows", {}).get("shared", [])[:3] == [2, 2, 1])
        self.shown(LIST + "&sort=oldest", "list", lambda data: time.time() - 60 < data.get("rows", {}).get("shared", [0] * 4)[3] / 1000 <= time.time())
        seen = self.shown(ONE, "semaphore", lambda data: data.get("leases") and data.get("waiters"))
        self.assertIn("of b", str(seen["leases"]))
        self.assertIn("waits at b", str(seen["waiters"]))
        # An act on the page of a is in force for a waiter of b.
        self.a.done("Administer", {"semaphore": "shared", "resize": {"limit": 3}})
        self.assertEqual(3, waiting.result(20).lease.slots[0].first)
        self.shown(ONE, "semaphore", lambda data: data.get("info", {}).get("held") == 3)

    def test_both_nodes(self):
        rows = self.shown("/page/feed?view=sessions", "nodes", lambda data: len(data["rows"]) == 2)["rows"]
        self.assertEqual([("a", self.a.address), ("b", self.b.address)], sorted((row[0], row[3]) for row in rows))

    def test_changes_are_seen_as_they_come(self):
        with Events(self.a, "GET", LIST) as events:
            for limit in (5, 6, 7):
                act = "create" if limit == 5 else "resize"
                self.b.done("Administer", {"semaphore": "moves", act: {"limit": limit}})
                wait_until(lambda limit=limit: events.until("list").get("rows", {}).get("moves", [0])[0] == limit,
                           "the limit is shown")
            wait_until(lambda: events.until("status")["age"] < 1_000, "what is shown is less than a second old")


if __name__ == "__main__":
    unittest.main()
