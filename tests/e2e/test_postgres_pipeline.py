"""The pipeline of deployments with two daemons on one Postgres."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import cluster  # noqa: E402
from cluster import Cluster  # noqa: E402
from pipeline import Pipeline  # noqa: E402


class PostgresPipeline(Pipeline, unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls)

    def test_workers_and_daemons_are_killed(self):
        with Cluster({name: self.server.url("pipeline") for name in "ab"}) as daemons:
            self.run_pipeline(list(daemons.daemons.values()))


if __name__ == "__main__":
    unittest.main()
