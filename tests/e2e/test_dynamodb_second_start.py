"""A second start of a daemon by mistake, on DynamoDB."""

import unittest

from daemon import Daemon, free_port
from dynamodb_case import DynamoCase
from second_start import SecondStartCase


class SecondStart(SecondStartCase, DynamoCase):

    def setUp(self):
        super().setUp()
        self.make_table()

    def newcomer(self, here):
        daemon = Daemon({"node_ttl": "5s", "node_id": "a"}, port=free_port(), store=self.url())
        daemon.environment = {**self.environment, "RUNTIME_DIRECTORY": here}
        self.addCleanup(daemon.close)
        return daemon


if __name__ == "__main__":
    unittest.main()
