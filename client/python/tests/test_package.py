"""The package as a user gets it: types, modules of the .proto, a wheel and a source distribution
that are built and installed without a network, and the examples of its texts."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from google.protobuf import descriptor_pb2
from semaphored.v1 import semaphore_pb2

from real import ROOT, Daemon

PACKAGE = os.path.join(ROOT, "client", "python")
BOUND_S = 150
USE = """
import sys
import semaphored
assert "site-packages" in semaphored.__file__, semaphored.__file__
with semaphored.Client(sys.argv[1]) as client:
    with client.permit("package/check", limit=2) as permit:
        print(permit.slot, permit.held)
"""

# Strict mypy refuses a `type: ignore` of what is right: each of these lines is wrong.
TYPED = """
import semaphored
from semaphored import aio
reveal_type(semaphored.Client().acquire('a').token)
semaphored.Client(tll=5)  # type: ignore[call-arg]
semaphored.Client().acquire('a', limt=5)  # type: ignore[call-arg]
semaphored.Client().permit('a', limt=5)  # type: ignore[call-arg]
semaphored.Client().permit('a', limit='5')  # type: ignore[arg-type]
semaphored.Client().permit('a', on_recall=lambda: None)  # type: ignore[misc, arg-type]
semaphored.Client().admin.revoke_all('a', nwo=True)  # type: ignore[call-arg]
aio.Client().permit('a', wiat=5)  # type: ignore[call-arg]
"""


def run(*command, **environment):
    """Its output; fails with all that it said."""
    given = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, env={**given, **environment}, timeout=BOUND_S, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout


def forget_json_names(messages):
    """The compiler writes them down for some, and leaves them to the reader for others."""
    for message in messages:
        forget_json_names(message.nested_type)
        for field in message.field:
            field.ClearField("json_name")


class Package(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-package-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def copy_of_the_checkout(self):
        """Building writes beside the sources, so it is done in a copy."""
        shutil.copytree(os.path.join(ROOT, "proto"), self.path("copy", "proto"))
        shutil.copytree(PACKAGE, self.path("copy", "client", "python"),
                        ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
        shutil.copy(os.path.join(ROOT, "LICENSE"), self.path("copy"))
        return self.path("copy", "client", "python")

    def nowhere(self):
        """A PATH without protoc, and without all else."""
        os.makedirs(self.path("nothing"), exist_ok=True)
        return self.path("nothing")

    def wheel(self, source, **environment):
        run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index",
            "--quiet", "--wheel-dir", self.path("wheels"), source, **environment)
        made, = os.listdir(self.path("wheels"))
        return self.path("wheels", made)

    def install_and_use(self, wheel):
        run(sys.executable, "-m", "venv", "--system-site-packages", self.path("venv"))
        python = self.path("venv", "bin", "python3")
        run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", wheel,
            PATH=self.nowhere())
        self.check_requirements(python)
        with Daemon() as daemon:
            self.assertEqual(run(python, "-c", USE, daemon.address), "1 True\n")
        return python

    def check_requirements(self, python):
        """What pip says of other packages of this machine is not ours."""
        done = subprocess.run([python, "-m", "pip", "check"], capture_output=True, text=True,
                              timeout=BOUND_S, check=False)
        self.assertEqual(done.stderr, "")
        self.assertIn(done.returncode, (0, 1))
        self.assertNotIn("semaphored", done.stdout)
        self.assertIn("grpcio", run(python, "-m", "pip", "show", "semaphored"))

    def test_a_wheel_by_way_of_a_source_distribution_installed_and_used(self):
        source = self.copy_of_the_checkout()
        run("sh", "-c", f"cd {source} && {sys.executable} setup.py --quiet sdist "
            f"--dist-dir {self.path('sdist')}")
        archive, = os.listdir(self.path("sdist"))
        # From the archive alone, without the checkout and without a compiler of .proto files.
        shutil.rmtree(self.path("copy"))
        shutil.unpack_archive(self.path("sdist", archive), self.path("unpacked"))
        unpacked, = os.listdir(self.path("unpacked"))
        self.assertIn("LICENSE", os.listdir(self.path("unpacked", unpacked)))
        wheel = self.wheel(self.path("unpacked", unpacked), PATH=self.nowhere())
        python = self.install_and_use(wheel)
        # The archive itself.
        run(python, "-m", "pip", "uninstall", "--yes", "--quiet", "semaphored")
        run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation",
            "--quiet", self.path("sdist", archive), PATH=self.nowhere())
        self.check_requirements(python)
        typed = self.path("typed.py")
        with open(typed, "w", encoding="utf-8") as file:
            file.write(TYPED)
        said = run("mypy", "--strict", "--python-executable", python, "--cache-dir",
                   self.path("cache"), typed)
        self.assertIn('"builtins.int"', said)

    def test_a_wheel_from_a_checkout(self):
        wheel = self.wheel(self.copy_of_the_checkout())
        listed = run(sys.executable, "-m", "zipfile", "--list", wheel)
        for name in ("semaphored/py.typed", "semaphored/aio.py",
                     "semaphored/v1/semaphore_pb2.py", "semaphored/v1/semaphore_pb2.pyi",
                     "semaphored/v1/semaphore_pb2_grpc.py", "semaphored/v1/error_details_pb2.py",
                     "semaphored/v1/status_pb2.py", "semaphored/v1/_pool.py"):
            self.assertIn(name, listed)

    def test_the_modules_are_those_of_the_proto(self):
        # Compiled again, in another way than the package does it.
        described = self.path("described")
        run("protoc", f"-I{os.path.join(ROOT, 'proto')}", f"--descriptor_set_out={described}",
            "semaphore/v1/semaphore.proto")
        with open(described, "rb") as file:
            of_proto = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file[0]
        of_package = descriptor_pb2.FileDescriptorProto()
        semaphore_pb2.DESCRIPTOR.CopyToProto(of_package)
        for file in (of_proto, of_package):
            forget_json_names(file.message_type)
        self.assertEqual(of_package.SerializeToString(deterministic=True),
                         of_proto.SerializeToString(deterministic=True))

    def test_it_meets_no_other_copy_of_its_messages(self):
        # What googleapis-common-protos declares under these names, and another version of the API.
        run(sys.executable, "-c", """
from google.protobuf import descriptor_pb2, descriptor_pool
for name, package, message in (("google/rpc/error_details.proto", "google.rpc", "ErrorInfo"),
                               ("google/rpc/status.proto", "google.rpc", "Status"),
                               ("semaphore/v1/semaphore.proto", "semaphore.v1", "Lease")):
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package)
    file.message_type.add(name=message)
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
import semaphored
""", PYTHONPATH=os.environ["PYTHONPATH"])

    def test_types_are_strict(self):
        shutil.copytree(os.path.join(os.environ["PYTHONPATH"], "semaphored"),
                        self.path("semaphored"))
        said = run("sh", "-c", f"cd {self.folder} && mypy --config-file "
                   f"{os.path.join(PACKAGE, 'pyproject.toml')} --cache-dir cache semaphored")
        self.assertIn("Success", said)

    def test_the_examples_of_the_texts_run(self):
        blocks = []
        for text in (os.path.join(PACKAGE, "README.md"),
                     os.path.join(ROOT, "docs", "clients.md"), os.path.join(ROOT, "README.md")):
            with open(text, encoding="utf-8") as file:
                blocks += [block for block in re.findall(r"```python\n(.*?)```", file.read(), re.S)
                           if "semaphored" in block]
        self.assertGreaterEqual(len(blocks), 4)
        for block in blocks:
            with Daemon() as daemon:  # One for each: they do not agree about limits.
                program = block.replace("127.0.0.1:7420", daemon.address)
                run(sys.executable, "-B", "-c", "def work(*_): pass\n" + program,
                    PYTHONPATH=os.environ["PYTHONPATH"])


if __name__ == "__main__":
    unittest.main()
