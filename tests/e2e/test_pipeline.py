"""The pipeline of deployments with one daemon on the embedded store."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from daemon import Daemon  # noqa: E402
from pipeline import Pipeline  # noqa: E402


class EmbeddedPipeline(Pipeline, unittest.TestCase):

    def test_workers_and_the_daemon_are_killed(self):
        with Daemon() as daemon:
            self.run_pipeline([daemon])


if __name__ == "__main__":
    unittest.main()
