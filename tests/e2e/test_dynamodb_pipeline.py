"""The pipeline of deployments with two daemons on one DynamoDB table."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from dynamodb_case import DynamoCase  # noqa: E402
from pipeline import Pipeline  # noqa: E402


class DynamoPipeline(Pipeline, DynamoCase):

    def test_workers_and_daemons_are_killed(self):
        self.make_table()
        with self.cluster({name: self.url() for name in "ab"}) as daemons:
            self.run_pipeline(list(daemons.daemons.values()))


if __name__ == "__main__":
    unittest.main()
