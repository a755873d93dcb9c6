"""semctl run over a command that becomes another user, whom semctl may not signal: semctl says so before the permit
and when it happens; and where the kernel has cgroups (version 2) that semctl may use, the command ends
before the lease all the same."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# A process that becomes another user is made by fork(), before which gRPC would wait for its threads, now and then for ever.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

from daemon import BOUND_S, Daemon, pb, wait_until  # noqa: E402
from test_semctl import LOST, SEMCTL, is_alive  # noqa: E402

ANOTHER = 65534  # A user with no rights.
TTL_S = 2


def cgroup_mount():
    """Where the hierarchy of version 2 is mounted, and its groups can be ended; None: nowhere."""
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        for line in mounts:
            _, folder, kind, *_ = line.split()
            if kind == "cgroup2":
                return folder
    return None


class OtherUserTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.daemon.start()
        self.addCleanup(self.daemon.close)
        folder = tempfile.TemporaryDirectory(prefix="semctl-user-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.chmod(self.folder, 0o755)
        # Where it is built, another user may not look.
        self.semctl = shutil.copy(SEMCTL, self.folder)
        self.become_root = shutil.copy(shutil.which("setpriv"), os.path.join(self.folder, "become-root"))
        os.chmod(self.become_root, 0o4755)
        self.pid_file = os.path.join(self.folder, "pid")
        self.log_path = os.path.join(self.folder, "log")

    def delegated(self):
        """A cgroup that belongs to the other user; None where there are none."""
        mount = cgroup_mount()
        if mount is None:
            return None
        group = os.path.join(mount, f"semctl-test-{os.getpid()}")
        os.mkdir(group)
        self.addCleanup(self.remove, group)
        for name in ("", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"):
            os.chown(os.path.join(group, name), ANOTHER, ANOTHER)
        return group if os.path.exists(os.path.join(group, "cgroup.kill")) else None

    def remove(self, group):
        """The groups in it first. They are empty when what was in them has ended."""
        def removed():
            for folder, _, _ in os.walk(group, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    return False
            return True
        wait_until(removed, "the group can be removed")

    def start(self, *command, group=None):
        return self.start_semctl("run", "job", "--limit", "1", "--ttl", f"{TTL_S}s", "--", *command,
                                 group=group)

    def start_semctl(self, *arguments, group=None):
        """semctl as the other user."""
        def become():
            if os.geteuid() != 0:
                return
            if group is not None:
                with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as procs:
                    procs.write("0")
            os.setgroups([])
            os.setgid(ANOTHER)
            os.setuid(ANOTHER)
        environment = {**os.environ, "SEMCTL_SERVER": self.daemon.address}
        with open(self.log_path, "w", encoding="utf-8") as log:
            process = subprocess.Popen(  # pylint: disable=subprocess-popen-preexec-fn
                [self.semctl, *arguments], env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=log, preexec_fn=become)
        self.addCleanup(process.wait, BOUND_S)
        self.addCleanup(process.kill)
        return process

    def log(self):
        with open(self.log_path, encoding="utf-8") as log:
            return log.read()

    def start_root(self, group=None):
        """A command that becomes root with all its ids, and its pid."""
        process = self.start(*self.as_root(), group=group)
        return process, self.wait_root()

    def as_root(self):
        return (self.become_root, "--reuid", "0", "--regid", "0", "--clear-groups",
                "sh", "-c", f"echo $$ > {self.pid_file}.new; mv {self.pid_file}.new "
                f"{self.pid_file}; exec sleep 1000")

    def wait_root(self):
        """The pid of what as_root() has started."""
        wait_until(lambda: os.path.exists(self.pid_file), "the command runs")
        with open(self.pid_file, encoding="ascii") as file:
            pid = int(file.read())
        self.addCleanup(lambda: is_alive(pid) and os.kill(pid, signal.SIGKILL))
        return pid

    def enqueue(self, name):
        self.daemon.client().stub.Enqueue(
            pb.EnqueueRequest(semaphore=name, limit=1, payload=b"x", max_attempts=1), timeout=BOUND_S)

    def tickets(self, name):
        return self.daemon.client().describe(name).tickets

    def test_it_says_so_before_the_permit_and_when_it_happens(self):
        process, pid = self.start_root()
        self.assertIn("become-root runs as another user (set-user-ID)", self.log())
        self.daemon.kill9()
        wait_until(lambda: f"CANNOT KILL process {pid} (sleep)" in self.log(), "it says so")
        self.assertTrue(is_alive(pid))
        self.assertEqual(self.log().count("CANNOT KILL"), 1)
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(process.wait(BOUND_S), LOST)

    def test_a_job_that_cannot_be_killed_holds_up_no_other(self):
        begun = os.path.join(self.folder, "begun")
        os.mkdir(begun)
        os.chmod(begun, 0o777)
        script = (f'case "$SEMAPHORE_NAME" in job/root) exec {shlex.join(self.as_root())};; esac; '
                  f'echo > "{begun}/${{SEMAPHORE_NAME#job/}}"; exec sleep 1000')
        self.enqueue("job/root")
        self.enqueue("job/other")
        worker = self.start_semctl("work", "job/*", "--tickets", "3", "--ttl", f"{TTL_S}s", "--",
                                   "sh", "-c", script)
        pid = self.wait_root()
        wait_until(lambda: os.path.exists(f"{begun}/other"), "the other job is begun")
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            guardian = int(stat.read().rsplit(")", 1)[1].split()[1])
        os.kill(guardian, signal.SIGKILL)
        self.enqueue("job/late")
        wait_until(lambda: os.path.exists(f"{begun}/late"), "a later job is begun")
        self.assertTrue(is_alive(pid))
        self.assertEqual(self.tickets("job/root").assigned, 1)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.tickets("job/root").dead == 1, "the first job has failed")
        self.assertEqual(self.tickets("job/other").assigned, 1)
        self.assertIsNone(worker.poll())

    def test_what_is_known_is_said_while_the_permit_is_waited_for(self):
        self.daemon.client().acquire("job", limit=1)
        process = self.start(self.become_root, "true")
        wait_until(lambda: "set-user-ID" in self.log(), "it says so")
        self.daemon.client().wait_for_queue("job", 1)
        process.terminate()
        self.assertEqual(process.wait(BOUND_S), 128 + signal.SIGTERM)

    def test_other_commands_are_run_without_a_word(self):
        self.assertEqual(self.start("true").wait(BOUND_S), 0)
        self.assertEqual(self.log(), "")

    def test_its_cgroup_is_ended_where_there_are_any(self):
        group = self.delegated()
        self.assertIsNotNone(group, "this machine has no cgroups of version 2: see docs/contributing.md")
        process, pid = self.start_root(group)
        inside, = (name for name in os.listdir(group) if name.startswith("permit-"))
        with open(os.path.join(group, inside, "cgroup.procs"), encoding="ascii") as procs:
            self.assertEqual(procs.read().split(), [str(pid)])
        self.daemon.client().administer("job", revoke=pb.RevokeLeases(all=True, now=True))
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.assertFalse(is_alive(pid))
        self.assertNotIn("CANNOT KILL", self.log())
        wait_until(lambda: not os.path.exists(os.path.join(group, inside)), "its group is removed")

    def test_its_cgroup_is_ended_by_whoever_of_the_three_is_left(self):
        group = self.delegated()
        process, pid = self.start_root(group)
        process.kill()
        process.wait()
        wait_until(lambda: not is_alive(pid), "the guardian has ended it")


def load_tests(loader, tests, _pattern):
    """Only root can become another user: for others there is less to test."""
    if os.geteuid() == 0:
        return tests
    return loader.loadTestsFromName("OtherUserTest.test_other_commands_are_run_without_a_word",
                                    sys.modules[__name__])


if __name__ == "__main__":
    unittest.main()
