"""A second start of a daemon by mistake, on Consul."""

import unittest

from consul_case import ConsulCase
from daemon import Daemon, free_port
from second_start import SecondStartCase


class SecondStart(SecondStartCase, ConsulCase):

    def newcomer(self, here):
        daemon = Daemon({"node_ttl": "5s", "node_id": "a"}, port=free_port(),
                        store=self.server.url(self.PREFIX))
        daemon.environment["RUNTIME_DIRECTORY"] = here
        self.addCleanup(daemon.close)
        return daemon


if __name__ == "__main__":
    unittest.main()
