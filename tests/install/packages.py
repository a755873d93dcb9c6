"""What the tests of packages share: the packages of this build, made once for each process."""

import functools
import os
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))
sys.path[:0] = [os.path.join(ROOT, "tests", "e2e"), os.path.join(ROOT, "tests", "engines")]

from daemon import BIN_DIR, BOUND_S  # noqa: E402  the folder has to be on the path first

BUILD_DIR = os.path.dirname(os.path.abspath(BIN_DIR))
PACKAGE_BOUND_S = 300.0
NAMES = ("semaphored", "semctl", "libsemaphore-dev")


def run(*command, bound_s=BOUND_S, **options):
    """Its output; fails with all that it said."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, timeout=bound_s, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


@functools.cache
def folder():
    made = tempfile.TemporaryDirectory(prefix="semaphored-packages-")
    return made, made.name  # It is removed with this process.


def deb_packages(version="0.1.0"):
    """The files of the three packages, by name."""
    out = os.path.join(folder()[1], version)
    if not os.path.isdir(out):
        # Debugging symbols take as long as all the rest.
        run(os.path.join(ROOT, "deploy/deb.sh"), "--from", BUILD_DIR, "--version", version, "--out", out,
            bound_s=PACKAGE_BOUND_S, env={**os.environ, "DEB_BUILD_OPTIONS": "noautodbgsym"})
    architecture = run("dpkg", "--print-architecture").strip()
    return {name: os.path.join(out, f"{name}_{version}_{architecture}.deb") for name in NAMES}
