"""Consul with many leases: see take_over_case.py."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from take_over_case import TakeOverCase, cluster  # noqa: E402  the folder has to be on the path first
from consul import ConsulServer  # noqa: E402


class Scale(TakeOverCase, unittest.TestCase):
    BOUND_S = 60
    SETTINGS = {"lanes": "1"}

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls, ConsulServer)

    def store(self):
        return self.server.url(self.id().rsplit(".", 1)[1][-40:])


if __name__ == "__main__":
    unittest.main()
