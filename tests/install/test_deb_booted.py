"""The .deb packages in a Debian of its own that systemd has booted: installed, upgraded under a held lease, removed,
installed again and purged.

Needs root, and Debian's mirror, as installing the tests' packages does."""

import json
import shutil
import unittest

import packages

from booted_root import BootedRoot  # packages has put its folder on the path
from daemon import wait_until

CONFIG = "/etc/semaphored/semaphored.toml"
STATE = "/var/lib/semaphored"
# README.md names its address. There is no curl.
PAGE = r"""exec 3<>/dev/tcp/127.0.0.1/7422; printf 'GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3; head -n 1 <&3"""
VERSIONS = ("0.1.0", "0.1.1~next")


class Packages(BootedRoot):
    # It serves at its default address, which is another daemon's outside.
    options = ("--private-network",)

    @classmethod
    def setUpClass(cls):
        cls.make_root()
        for version in VERSIONS:
            for deb in packages.deb_packages(version).values():
                shutil.copy(deb, f"{cls.root}/root")
        cls.boot()
        wait_until(lambda: cls.inside("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"),
                   "the system is up")

    def install(self, version):
        # -i: a package whose libraries are missing stays unconfigured, which is an error.
        self.done("sh", "-c", f"dpkg --force-confold -i /root/semaphored_{version}_*.deb /root/semctl_{version}_*.deb")
        # What it depends on is not there: test_deb links with it on this machine.
        self.done("sh", "-c", f"dpkg --force-depends -i /root/libsemaphore-dev_{version}_*.deb")
        self.assertEqual(self.done("dpkg-query", "-Wf", "${Status} ${Version}", "semaphored"),
                         f"install ok installed {version}")
        self.assertEqual(self.done("systemctl", "is-active", "semaphored"), "active")
        self.assertIn("HTTP/1.1 200 OK", self.done("bash", "-c", PAGE))

    def process(self):
        return self.done("systemctl", "show", "semaphored", "-p", "MainPID", "--value")

    def held(self, lease):
        """By the process that serves now."""
        found = self.inside("semctl", "verify", "--lease-file", lease)
        return found.returncode == 0

    def test_from_the_first_installation_to_the_purge(self):
        self.install(VERSIONS[0])
        self.assertEqual(self.done("stat", "-c", "%U:%G %a", CONFIG), "root:semaphored 640")
        self.assertEqual(self.done("stat", "-c", "%U:%G %a", STATE), "semaphored:semaphored 700")
        self.assertEqual(self.done("semctl", "run", "packaged", "--limit", "1", "--", "sh", "-c",
                                   "echo slot $SEMAPHORE_SLOT"), "slot 1")
        lease = json.loads(self.done("semctl", "acquire", "packaged", "--ttl", "10m", "-o", "json"))
        with open(f"{self.root}/root/lease", "w", encoding="ascii") as file:
            file.write(lease["lease_id"] + "\n")
        self.assertTrue(self.held("/root/lease"))
        self.done("sh", "-c", f"echo 'ttl_default = \"31s\"' >>{CONFIG}")

        before = self.process()
        self.install(VERSIONS[1])
        self.assertNotEqual(self.process(), before)
        self.assertTrue(self.held("/root/lease"))
        self.assertIn('ttl_default = "31s"', self.done("cat", CONFIG))
        self.assertEqual(self.done("stat", "-c", "%U:%G %a", CONFIG), "root:semaphored 640")

        self.done("dpkg", "--remove", "semaphored")
        self.assertNotEqual(self.inside("systemctl", "is-active", "semaphored").returncode, 0)
        self.done("test", "-e", CONFIG)
        self.done("test", "-e", f"{STATE}/state.db")
        self.assertNotEqual(self.inside("test", "-e", "/usr/bin/semaphored").returncode, 0)
        self.install(VERSIONS[1])
        self.assertTrue(self.held("/root/lease"))

        self.done("dpkg", "--purge", "semaphored", "semctl", "libsemaphore-dev")
        left = self.done("find", "/", "-xdev", "(", "-name", "*semaphored*", "-o", "-name", "*semctl*", "-o", "-name",
                         "*libsemaphore*", ")",
                         "-not", "-path", "/root/*", "-not", "-path", "/tmp/*")
        self.assertEqual(left, "")
        self.assertIn("semaphored", self.done("getent", "passwd", "semaphored"))


if __name__ == "__main__":
    unittest.main()
