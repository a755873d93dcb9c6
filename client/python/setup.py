"""What pyproject.toml cannot say: the modules of messages are generated when the package is built."""

import pathlib
import shutil
import sys

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import stubs  # noqa: E402  the folder has to be on the path first

ROOT = HERE.parent.parent
PROTO_ROOT = ROOT / "proto"


def in_checkout():
    """Otherwise this is a source distribution, which has the modules already."""
    return (PROTO_ROOT / "semaphore/v1/semaphore.proto").is_file()


class BuildPy(build_py):

    def run(self):
        super().run()
        if in_checkout():
            stubs.generate(PROTO_ROOT, pathlib.Path(self.build_lib) / "semaphored")


class Sdist(sdist):

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        if in_checkout():
            stubs.generate(PROTO_ROOT, pathlib.Path(base_dir) / "semaphored")
            shutil.copy(ROOT / "LICENSE", base_dir)


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
