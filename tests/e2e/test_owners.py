"""Owners on the embedded store: they are known after a restart."""

import unittest

from daemon import Daemon
from owners_case import OwnersCase


class OwnersTest(OwnersCase):

    def test_a_restarted_daemon_knows_the_owners(self):
        for stop in ("kill9", "terminate"):
            with self.subTest(stop), Daemon({"access_file": self.access}) as daemon:
                taken = self.take(self.client(daemon, "alice"))
                getattr(daemon, stop)()
                daemon.start()
                self.check_after(daemon, taken)

    def test_quotas_count_what_an_identity_has_made(self):
        with Daemon({"access_file": self.access}) as daemon:
            def restart():
                daemon.kill9()
                daemon.start()
            self.check_quotas(daemon, restart)


if __name__ == "__main__":
    unittest.main()
