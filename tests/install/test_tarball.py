"""The tarball of this build: its sums, and both programs from any folder, on a Debian that has none of their libraries.

Needs root, and the root of tests/engines/root.py."""

import os
import re
import subprocess
import tempfile
import unittest

import packages
from packages import PACKAGE_BOUND_S, ROOT, run

from daemon import wait_until
from root import in_root, root_of

GLIBC = r"(ld-linux\S*|lib(c|m|dl|rt|pthread|resolv))\.so\.\d+"


class Tarball(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="semaphored tarball "))
        made = run(os.path.join(ROOT, "deploy/tarball.sh"), "--from", packages.BUILD_DIR, "--out", cls.folder,
                   bound_s=PACKAGE_BOUND_S).splitlines()[-1]
        run("tar", "-xzf", made, "-C", cls.folder)
        cls.tree = made.removesuffix(".tar.gz")

    def elsewhere(self, *command):
        """Debian 13, with the programs' folder at the same place; it has other versions of what libraries they share."""
        return in_root(root_of("trixie"), command)

    def needed(self, path):
        return set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "--dynamic", path)))

    def test_the_sums_are_right(self):
        self.assertIn(": OK\n", run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=self.folder))

    def test_semctl_needs_nothing_but_glibc(self):
        for library in self.needed(f"{self.tree}/bin/semctl"):
            self.assertRegex(library, f"^{GLIBC}$")

    def test_the_daemon_finds_its_libraries_in_its_own_folder(self):
        found = run(*self.elsewhere("ldd", f"{self.tree}/bin/semaphored"))
        places = dict(re.findall(r"^\s+(\S+) => (.*) \(0x", found, re.MULTILINE))
        self.assertGreater(len(places), 30)
        for library, place in places.items():
            if not re.fullmatch(GLIBC, library):
                self.assertTrue(os.path.realpath(place).startswith(os.path.realpath(self.tree)), f"{library}: {place}")

    def test_no_folder_of_the_build_is_in_them(self):
        for program in ("semaphored", "semctl"):
            with open(f"{self.tree}/bin/{program}", "rb") as file:
                self.assertNotIn(ROOT.encode(), file.read())

    def test_there_is_a_licence_of_each_library(self):
        self.assertIn("libgrpc29", os.listdir(f"{self.tree}/share/licenses"))
        for name in os.listdir(f"{self.tree}/share/licenses"):
            self.assertGreater(os.path.getsize(f"{self.tree}/share/licenses/{name}"), 0)

    def test_they_run_elsewhere(self):
        out = os.path.join(self.folder, "out")
        with open(out, "wb") as stdout, open(os.path.join(self.folder, "log"), "wb") as stderr:
            process = subprocess.Popen(
                self.elsewhere(f"{self.tree}/bin/semaphored", "--listen", "127.0.0.1:0", "--store", "sqlite::memory:"),
                stdout=stdout, stderr=stderr)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def address():
            with open(out, encoding="ascii") as file:
                found = re.search(r"serving on (\S+)", file.read())
            return found and found.group(1)
        said = run(*self.elsewhere(f"{self.tree}/bin/semctl", "--server", wait_until(address, "it serves"), "run", "tarball",
                                   "--limit", "1", "--", "sh", "-c", "echo slot $SEMAPHORE_SLOT"))
        self.assertEqual(said, "slot 1\n")


if __name__ == "__main__":
    unittest.main()
