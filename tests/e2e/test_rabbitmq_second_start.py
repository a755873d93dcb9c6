"""A second start of a daemon by mistake, on RabbitMQ: the broker keeps a node id for one
connection, and does not say for which."""

import unittest

import broker
from second_start import SecondStartCase


class SecondStart(SecondStartCase, unittest.TestCase):
    WORDS = ("another daemon has the node id a", "is alive")

    @classmethod
    def setUpClass(cls):
        cls.server = broker.start_broker(cls.addClassCleanup)

    def assert_refused(self, second, first):
        super().assert_refused(second, first)
        self.assertIn("another connection has it; waiting at most 6 s", second.log())

    def newcomer(self, here):
        # A daemon vouches for 1.25 heartbeats: for long enough on a machine that is busy.
        daemon = broker.daemon_on(self.server, "a", options="?layout=tokens&heartbeat_s=3")
        daemon.environment["RUNTIME_DIRECTORY"] = here
        self.addCleanup(daemon.close)
        return daemon


if __name__ == "__main__":
    unittest.main()
