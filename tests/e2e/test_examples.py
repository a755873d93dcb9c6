"""client/examples in Go and Java: built with Debian's toolchains as their README says, and run. The one in C#, which
Debian has no toolchain for, is compared with its stub."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import node_packages
from daemon import Daemon, wait_until

EXAMPLES = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "client", "examples"))
PROTO = os.path.abspath(os.path.join(EXAMPLES, "..", "..", "proto"))
BUILD_BOUND_S = 170.0
BOUND_S = 60.0


class Program:
    """One run of an example, whose output goes to a file."""

    def __init__(self, case, *arguments):
        self.path = os.path.join(case.folder, f"out-{len(case.programs)}")
        with open(self.path, "wb") as out:
            self.process = subprocess.Popen([case.program, *arguments], stdout=out, stderr=out,
                                            stdin=subprocess.DEVNULL)
        case.programs.append(self.process)

    def output(self):
        with open(self.path, encoding="utf-8") as file:
            return file.read()

    def wait_for(self, text):
        def said():
            if self.process.poll() is not None and text not in self.output():
                raise AssertionError(f"ended with {self.process.returncode}: {self.output()}")
            return text in self.output()
        wait_until(said, f"the example says {text!r}", BOUND_S)

    def end(self):
        """Its exit code."""
        return self.process.wait(BOUND_S)


class Examples:
    """What is asked of each language; `language` names its folder."""

    language = ""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix=f"semaphored-{cls.language}-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        # What others wrote is compiled once for each user.
        cache = os.path.join(os.path.dirname(node_packages.cache_folder()), "go-build")
        done = subprocess.run([os.path.join(EXAMPLES, cls.language, "build.sh"), cls.folder],
                              env={**os.environ, "GOCACHE": cache}, timeout=BUILD_BOUND_S,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode != 0:
            raise AssertionError(f"build.sh ended with {done.returncode}:\n{done.stdout[-4000:]}")
        cls.program = os.path.join(cls.folder, "hold")

    def setUp(self):
        self.programs = []

    def tearDown(self):
        for process in self.programs:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait(BOUND_S)

    def test_works_under_a_permit_and_gives_it_back(self):
        with Daemon() as daemon:
            program = Program(self, daemon.address, "db", "1", "0.1")
            self.assertEqual(program.end(), 0, program.output())
            self.assertRegex(program.output(), r"^granted slot=1 token=\d+\nreleased 1\n$")
            self.assertEqual(daemon.client().describe("db").held, 0)

    def test_a_restarted_daemon_knows_the_lease_and_a_dead_one_is_noticed_in_time(self):
        with Daemon() as daemon:
            program = Program(self, daemon.address, "db", "1", "600")
            program.wait_for("granted")
            token = int(re.search(r"token=(\d+)", program.output()).group(1))
            daemon.kill9()
            daemon.start()
            program.wait_for("goes on")
            lease, = daemon.client().describe_rows("db").leases
            self.assertEqual(lease.lease.token, token)
            daemon.kill9()
            self.assertEqual(program.end(), 3, program.output())
            # Before the lease could end: by the example's own account, of a promise of 5 s.
            early = int(re.search(r"lost early_ms=(-?\d+)", program.output()).group(1))
            self.assertGreater(early, 0, program.output())

    def test_no_daemon_no_permit(self):
        program = Program(self, "127.0.0.1:1", "db", "1", "600")
        self.assertEqual(program.end(), 1, program.output())


class GoTest(Examples, unittest.TestCase):
    language = "go"


class JavaTest(Examples, unittest.TestCase):
    language = "java"


class CsharpTest(unittest.TestCase):

    def test_the_stub_has_what_is_used_of_it(self):
        with open(os.path.join(EXAMPLES, "csharp", "Hold.cs"), encoding="utf-8") as file:
            program = file.read()
        with tempfile.TemporaryDirectory(prefix="semaphored-csharp-") as folder:
            subprocess.run(["protoc", "-I", PROTO, f"--csharp_out={folder}",
                            os.path.join(PROTO, "semaphore", "v1", "semaphore.proto")],
                           check=True, timeout=BOUND_S)
            with open(os.path.join(folder, "Semaphore.cs"), encoding="utf-8") as file:
                stub = file.read()
        self.assertIn("namespace Semaphored.V1 ", stub)
        messages = {"AcquireRequest", "HoldRequest", "HoldResponse", "Lease", "LeaseValidity",
                    "NumberedRequestId", "ReleaseRequest", "ReleaseResponse", "RequestId"}
        for message in messages:
            self.assertIn(message, program)
            self.assertIn(f"public sealed partial class {message} ", stub)
        for case in re.findall(r"HoldResponse\.EventOneofCase\.(\w+)", program):
            self.assertRegex(stub, rf"(?s)enum EventOneofCase {{[^}}]*\b{case} = ")
        for name, kind in (("RequestId", "global::Semaphored.V1.RequestId"), ("Semaphore", "string"),
                           ("Limit", "uint"), ("WaitForever", "bool"), ("TtlMs", "uint"),
                           ("Numbered", "global::Semaphored.V1.NumberedRequestId"),
                           ("ClientId", "string"), ("Sequence", "ulong"), ("Epoch", "ulong"),
                           ("ValidForMs", "uint"), ("ElapsedMs", "ulong"), ("GraceMs", "uint"),
                           ("Token", "ulong"), ("LeaseId", "string"), ("Released", "uint"),
                           ("Granted", "global::Semaphored.V1.LeaseGranted"),
                           ("Recalled", "global::Semaphored.V1.LeaseRecalled"),
                           ("Recall", "global::Semaphored.V1.LeaseRecall"),
                           ("Beat", "global::Semaphored.V1.LeaseValidity"),
                           ("Slots", "pbc::RepeatedField<global::Semaphored.V1.SlotRange>"),
                           ("First", "uint")):
            with self.subTest(name):
                self.assertRegex(program, rf"\b{name}\b")
                self.assertIn(f"public {kind} {name} {{", stub)


if __name__ == "__main__":
    unittest.main()
