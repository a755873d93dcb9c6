"""The .deb packages of this build: what lintian says, what is in them, and the library as another project links it.
tests/install/test_deb_booted.py installs them."""

import glob
import os
import re
import shutil
import tempfile
import unittest

import packages
from packages import PACKAGE_BOUND_S, ROOT, run


class Deb(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.debs = packages.deb_packages()
        cls.folder = tempfile.mkdtemp(prefix="semaphored-deb-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for deb in cls.debs.values():
            run("dpkg-deb", "--extract", deb, cls.folder)

    def test_lintian_has_nothing_to_say(self):
        changes, = glob.glob(os.path.join(os.path.dirname(self.debs["semctl"]), "*.changes"))
        said = run("lintian", "--allow-root", "--fail-on", "error,warning", changes, bound_s=PACKAGE_BOUND_S)
        self.assertEqual(said, "")

    def test_each_override_is_argued(self):
        for path in glob.glob(os.path.join(ROOT, "deploy/debian/*lintian-overrides")):
            with open(path, encoding="ascii") as file:
                lines = file.read().splitlines()
            for before, line in zip(["", *lines], lines):
                if line and not line.startswith("#"):
                    self.assertTrue(before.startswith("#"), f"{path}: {line}")

    def test_what_is_in_them(self):
        here = {os.path.relpath(os.path.join(place, name), self.folder)
                for place, _, names in os.walk(self.folder) for name in names}
        for path in ("etc/semaphored/semaphored.toml", "lib/systemd/system/semaphored.service",
                     "usr/bin/semaphored", "usr/bin/semctl", "usr/lib/sysusers.d/semaphored.conf",
                     "usr/share/bash-completion/completions/semctl", "usr/share/fish/vendor_completions.d/semctl.fish",
                     "usr/share/man/man1/semctl.1.gz", "usr/share/man/man8/semaphored.8.gz",
                     "usr/share/zsh/vendor-completions/_semctl",
                     "usr/share/semaphored/proto/semaphore/v1/semaphore.proto"):
            self.assertIn(path, here)
        self.assertEqual(run("dpkg", "--info", self.debs["semaphored"], "conffiles"),
                         "/etc/semaphored/semaphored.toml\n")
        with open(os.path.join(ROOT, "deploy/semaphored.example.toml"), encoding="utf-8") as ours, \
                open(os.path.join(self.folder, "etc/semaphored/semaphored.toml"), encoding="utf-8") as packed:
            self.assertEqual(packed.read(), ours.read())

    def test_the_unit_is_that_of_deploy(self):
        def lines(path):
            with open(path, encoding="utf-8") as file:
                return re.sub(r"(?s).*?\n\[Unit\]\n", "", "\n" + file.read(), count=1).splitlines()
        packed = lines(os.path.join(self.folder, "lib/systemd/system/semaphored.service"))
        packed.remove("Documentation=man:semaphored(8)")
        self.assertEqual(packed, [line.replace("/usr/local/bin/", "/usr/bin/") for line in
                                  lines(os.path.join(ROOT, "deploy/systemd/semaphored.service"))])

    def test_another_project_links_the_library(self):
        run(os.path.join(ROOT, "tests/install/check.sh"), packages.BUILD_DIR, packages.BIN_DIR,
            os.path.join(self.folder, "usr"), bound_s=PACKAGE_BOUND_S)


if __name__ == "__main__":
    unittest.main()
