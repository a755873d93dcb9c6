"""Owners on Postgres: another daemon knows them, while the first one lives and when it is dead."""

import unittest

from cluster import Cluster, start_server
from owners_case import OwnersCase


class OwnersTest(OwnersCase):

    @classmethod
    def setUpClass(cls):
        cls.server = start_server(cls)

    def cluster(self):
        url = self.server.url() + "?lanes=4"
        return Cluster({"a": url, "b": url}, {"access_file": self.access})

    def test_another_daemon_knows_the_owners(self):
        with self.cluster() as cluster:
            self.check_after(cluster["b"], self.take(self.client(cluster["a"], "alice")))

    def test_a_release_at_another_daemon_is_audited(self):
        with self.cluster() as cluster:
            detached, _, _ = self.take(self.client(cluster["a"], "alice"))
            self.check_audited_release(cluster["b"], self.client(cluster["b"], "root"), detached)

    def test_a_daemon_that_takes_over_knows_the_owners(self):
        with self.cluster() as cluster:
            taken = self.take(self.client(cluster["a"], "alice"))
            cluster["a"].kill9()
            self.check_after(cluster["b"], taken)

    def test_quotas_count_what_an_identity_has_made(self):
        with self.cluster() as cluster:
            self.check_quotas(cluster["a"], lambda: None)


if __name__ == "__main__":
    unittest.main()
