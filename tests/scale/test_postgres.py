"""Postgres with many leases: see take_over_case.py. Connections that end are made again in time."""

import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from take_over_case import LEASES, TakeOverCase, cluster, wait_until  # noqa: E402  the folder has to be on the path first


class Scale(TakeOverCase, unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls)

    def store(self):
        return self.server.url(self.id().rsplit(".", 1)[1][-40:])

    def test_connections_are_made_again(self):
        daemon = self.daemon("a")
        sessions = self.hold(daemon)
        ended = len(self.server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                                        "WHERE application_name = 'semaphored'"))
        self.assertGreater(ended, 2)
        begun = time.monotonic()
        wait_until(lambda: self.granted(daemon), "a grant", 2 * self.BOUND_S)
        took_s = time.monotonic() - begun
        self.assertLess(took_s, self.BOUND_S)
        print(f"\nconnections of a daemon with {LEASES} leases are ended: a grant after {took_s:.2f} s", flush=True)
        self.resume(daemon, sessions)
        self.assertNotIn("out of touch", daemon.log())


if __name__ == "__main__":
    unittest.main()
