"""DynamoDB goes away and comes back: nobody is granted anything meanwhile, nobody is left in the
belief that a lease still stands, and daemons go on by themselves."""

import threading
import unittest

from cluster import PATIENT_NODE_TTL_S
from dynamodb_case import DynamoCase
from outage import ENGINE_TIMEOUT_S, Holder, Outages, SETTINGS
from proxy import TcpProxy

OPTIONS = f"&timeout_ms={1000 * ENGINE_TIMEOUT_S}"


class Outage(Outages, DynamoCase):

    def setUp(self):
        super().setUp()
        self.proxy = TcpProxy(self.server.port)
        self.addCleanup(self.proxy.close)
        self.addCleanup(self.server.resume)  # For the next one, whatever has happened.

    def daemons(self, **settings):
        self.make_table()
        url = self.server.url(self.table, OPTIONS, self.proxy.port)
        return self.cluster({"a": url, "b": url}, {**SETTINGS, **settings})

    def test_it_is_paused(self):
        self.check_long_outage(self.server.pause, self.server.resume)

    def test_it_is_cut_off(self):
        self.check_long_outage(self.proxy.cut, self.proxy.heal)

    def test_a_short_outage_is_not_even_noticed_by_holders(self):
        with self.daemons(node_ttl=f"{PATIENT_NODE_TTL_S}s") as daemons:
            client = daemons["a"].client()
            holder = Holder(client, "held")
            for name, blink in (("paused", self.pause), ("closed", self.proxy.close_all)):
                with self.subTest(name):
                    holder.beat()
                    blink()
                    self.acquired(client, name, limit=1)
                    self.acquired(daemons["b"].client(), name + "/b", limit=1)
                    holder.beat()
                    self.wait_for_heartbeat(holder)

    def pause(self):
        self.server.pause()
        resumed = threading.Timer(1.0, self.server.resume)
        resumed.start()
        self.addCleanup(resumed.join)

    def test_a_daemon_stops_while_it_is_cut_off(self):
        with self.daemons() as daemons:
            daemons["a"].client().acquire("warm", limit=1)
            self.proxy.cut()
            for daemon in daemons.daemons.values():
                self.assertEqual(daemon.terminate(), 0, daemon.log()[-2000:])

    def test_commits_under_way_when_it_is_cut_have_one_effect(self):
        self.check_commits_under_way(self.proxy.close_all)


if __name__ == "__main__":
    unittest.main()
