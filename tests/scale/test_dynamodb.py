"""DynamoDB Local with many leases: see take_over_case.py."""

import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from take_over_case import LEASES, TakeOverCase, cluster  # noqa: E402  the folder has to be on the path first
from daemon import BIN_DIR  # noqa: E402
from dynamodb import ENVIRONMENT, DynamoServer  # noqa: E402


class Scale(TakeOverCase, unittest.TestCase):
    BOUND_S = 60
    SETTINGS = {"lanes": "4"}
    ENVIRONMENT = ENVIRONMENT
    SESSION_LEASES = LEASES // 10

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls, DynamoServer)

    def setUp(self):
        subprocess.run([os.path.join(BIN_DIR, "semaphored"), "schema", "--create", "--store", self.store()],
                       env={**os.environ, **ENVIRONMENT}, check=True, capture_output=True)

    def store(self):
        return self.server.url(self.id().rsplit(".", 1)[1][-40:])


if __name__ == "__main__":
    unittest.main()
