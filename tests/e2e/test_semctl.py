"""semctl with a real daemon: exit codes and output, and that no command outlives its lease,
whatever is killed or stopped."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from daemon import BIN_DIR, BOUND_S, Daemon, pb, wait_until  # noqa: E402

SEMCTL = os.path.join(BIN_DIR, "semctl")
REFUSED, FULL, TIMED_OUT, LOST, UNREACHABLE = 119, 120, 121, 122, 123
TTL = "2s"
TTL_S = 2.0

# Writes the time into a file as long as it runs, so that its last sign of life can be read
# afterwards; so does a child of its own in the same group. "deaf" ignores SIGTERM.
BEATER = """
import os, signal, subprocess, sys, time
path, deaf = sys.argv[1], sys.argv[2] == "deaf"
if deaf: signal.signal(signal.SIGTERM, signal.SIG_IGN)
def beat(name):
    while True:
        with open(path + name, "w") as f: f.write(repr(time.clock_gettime(time.CLOCK_BOOTTIME)))
        time.sleep(0.01)
if os.fork() == 0: beat(".grandchild")
with open(path + ".pid", "w") as f: f.write(str(os.getpid()))
os.rename(path + ".pid", path + ".started")
beat(".child")
"""


def boot_time():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            return [int(child) for child in children.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


class SemctlTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.daemon.start()
        self.addCleanup(self.daemon.close)
        folder = tempfile.TemporaryDirectory(prefix="semctl-e2e-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "beat")
        self.stub = self.daemon.client().stub

    def environment(self):
        return {**os.environ, "SEMCTL_SERVER": self.daemon.address}

    def semctl(self, *arguments, **options):
        return subprocess.run([SEMCTL, *arguments], env=self.environment(), text=True,
                              capture_output=True, timeout=60, **options)

    def start(self, *arguments):
        process = subprocess.Popen([SEMCTL, *arguments], env=self.environment(), text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
        def end():
            for number in (signal.SIGCONT, signal.SIGKILL):
                if process.poll() is None:
                    process.send_signal(number)
            process.wait(BOUND_S)
            process.stderr.close()
        self.addCleanup(end)
        return process

    def start_beater(self, *options, deaf=False, ttl=TTL):
        """semctl run over a command that writes its signs of life; semctl and the command's pid."""
        process = self.start("run", "job", "--limit", "1", "--ttl", ttl, *options, "--",
                             sys.executable, "-c", BEATER, self.path, "deaf" if deaf else "mild")
        wait_until(lambda: os.path.exists(self.path + ".started"), "the command runs")
        with open(self.path + ".started") as started:
            return process, int(started.read())

    def last_beat(self):
        beats = []
        for name in (".child", ".grandchild"):
            try:
                with open(self.path + name) as beat:
                    beats.append(float(beat.read() or 0))
            except FileNotFoundError:
                pass
        return max(beats)

    def describe_rows(self, name="job"):
        request = pb.AdministerRequest(semaphore=name, describe=pb.DescribeSemaphore())
        return self.stub.Administer(request, timeout=BOUND_S).describe

    def describe(self, name="job"):
        return self.describe_rows(name).semaphore

    def wait_dead(self, child):
        """Waits until neither the beater nor what it started runs."""
        def dead():
            return not is_alive(child) and not [
                pid for pid in os.listdir("/proc") if pid.isdigit() and self.beats_here(pid)]
        wait_until(dead, "the command and what it started are dead")

    def beats_here(self, pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as words:
                command = words.read().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            return False
        return command[0] == sys.executable.encode() and self.path.encode() in command

    def grant_after(self):
        """Waits until the permit is given to somebody else; when that was, at the latest."""
        self.stub.Acquire(pb.AcquireRequest(semaphore="job", permits=1, wait_ms=int(BOUND_S * 1000),
                                            ttl_ms=1000), timeout=BOUND_S)
        return boot_time()


class RunTest(SemctlTest):
    def test_the_command_gets_slot_and_token_and_its_code_comes_back(self):
        script = 'echo $SEMAPHORE_NAME $SEMAPHORE_SLOT $SEMAPHORE_TOKEN $SEMAPHORE_LEASE; exit 7'
        ran = self.semctl("run", "job", "--limit", "4", "--permits", "3", "--", "sh", "-c", script)
        self.assertEqual(ran.returncode, 7)
        self.assertRegex(ran.stdout, r"^job 1,2,3 [1-9]\d* job#\w+\n$")
        self.assertEqual(ran.stderr, "")
        self.assertEqual(self.describe().held, 0)

    def test_exit_codes(self):
        lease = self.semctl("acquire", "job", "--limit", "1", "-q").stdout.strip()
        cases = {
            FULL: ["run", "job", "--no-wait", "--", "true"],
            TIMED_OUT: ["run", "job", "--wait", "100ms", "--", "true"],
            REFUSED: ["run", "job", "--limit", "2", "--", "true"],
            UNREACHABLE: ["--server", "127.0.0.1:1", "--connect-timeout", "200ms", "run", "job",
                          "--", "true"],
            2: ["run", "job"],
        }
        for code, arguments in cases.items():
            with self.subTest(arguments=arguments):
                ran = self.semctl(*arguments)
                self.assertEqual(ran.returncode, code, ran.stderr)
                self.assertNotEqual(ran.stderr, "")
        self.assertEqual(self.semctl("release", lease).returncode, 0)
        self.assertEqual(self.semctl("run", "job", "--", "no-such-command").returncode, 127)
        self.assertEqual(self.semctl("run", "job", "--", "/").returncode, 126)
        self.assertEqual(self.semctl("run", "job", "--", "sh", "-c", "kill -9 $$").returncode, 137)
        self.assertEqual(self.describe().held, 0)

    def test_a_script_whose_interpreter_cannot_be_run(self):
        folder = os.path.dirname(self.path)
        self.semctl("enqueue", "job", "--limit", "1", "-q", check=True)
        for interpreter, code, why in (("/none/such", 127, "No such file or directory"),
                                       ("/bin/sh\r", 127, "No such file or directory"),
                                       (folder, 126, "Permission denied")):
            script = os.path.join(folder, "script")
            with open(script, "w", encoding="ascii") as file:
                file.write(f"#! {interpreter} -e\nexit 0\n")
            os.chmod(script, 0o755)
            shell = subprocess.run(["sh", "-c", script], stderr=subprocess.DEVNULL, check=False)
            self.assertEqual(shell.returncode, code)
            for words in (["run"], ["work", "--once"]):
                with self.subTest(words, interpreter=interpreter):
                    done = self.semctl(*words, "job", "--", script)
                    self.assertEqual(done.returncode, code, done.stderr)
                    # A "\r" is read as a line's end here.
                    self.assertIn(f"{script}: its interpreter {interpreter}: {why}\n".replace("\r", "\n"), done.stderr)
        os.chmod(script, 0o644)
        self.assertIn(f"semctl: {script}: Permission denied\n", self.semctl("run", "job", "--", script).stderr)

    def test_signals_are_passed_on(self):
        script = ("import signal, sys, time\n"
                  "for n in (1, 2, 3, 10, 12, 15):\n"
                  "    signal.signal(n, lambda got, _: sys.exit(40 + got))\n"
                  "open(sys.argv[1] + '.started', 'w').close()\n"
                  "time.sleep(60)\n")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT,
                       signal.SIGUSR1, signal.SIGUSR2):
            with self.subTest(signal=number):
                process = self.start("run", "job", "--limit", "1", "--", sys.executable, "-c",
                                     script, self.path)
                wait_until(lambda: os.path.exists(self.path + ".started"), "the command runs")
                os.remove(self.path + ".started")
                process.send_signal(number)
                self.assertEqual(process.wait(BOUND_S), 40 + number)

    def test_a_signal_while_it_waits_leaves_the_queue(self):
        self.semctl("acquire", "job", "--limit", "1")
        process = self.start("run", "job", "--", "true")
        wait_until(lambda: self.describe().waiting == 1, "it stands in the queue")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(BOUND_S), 128 + signal.SIGINT)
        wait_until(lambda: self.describe().waiting == 0, "it has left the queue")

    def test_a_long_wait_is_told_with_the_place_in_the_queue(self):
        self.semctl("acquire", "job", "--limit", "1")
        process = self.start("run", "job", "--wait", "20s", "--", "true")
        line = process.stderr.readline()
        self.assertRegex(line, r"waiting for job since 2.*position 1")

    def test_what_the_command_leaves_behind_ends_with_it(self):
        ran = self.semctl("run", "job", "--limit", "1", "--kill-after", "200ms", "--", "sh", "-c",
                          "trap '' TERM; sleep 600 & echo $!")
        self.assertEqual(ran.returncode, 0)
        self.assertFalse(is_alive(int(ran.stdout)))

    def test_the_last_words_of_the_guardian_are_heard(self):
        # It is stopped while orders to prolong the lease come in, and continued when the command has
        # ended: it ends itself with orders unread.
        ran = self.semctl("run", "job", "--limit", "1", "--ttl", "4s", "--", "sh", "-c",
                          'guardian=$PPID; setsid sh -c "sleep 3; kill -CONT $guardian" & '
                          'kill -STOP $guardian; exit 7')
        self.assertEqual(ran.returncode, 7, ran.stderr)

    def test_a_restarted_daemon_is_not_noticed(self):
        process, child = self.start_beater(ttl="10s")
        waiting = self.start("run", "job", "--", "true")
        wait_until(lambda: self.describe().waiting == 1, "another one waits")
        before = self.describe_rows().leases[0].lease
        self.daemon.kill9()
        self.daemon.start()
        self.stub = self.daemon.client().stub
        after = wait_until(lambda: self.describe_rows().leases, "the lease is there")[0].lease
        self.assertEqual((before.lease_id, before.token), (after.lease_id, after.token))
        self.assertTrue(is_alive(child))
        process.terminate()
        self.assertEqual(process.wait(BOUND_S), 128 + signal.SIGTERM)
        self.assertEqual(waiting.wait(BOUND_S), 0, waiting.stderr.read() + self.daemon.log())


class LossTest(SemctlTest):
    """The command must be dead before the permit can be somebody else's."""

    def test_revoked_now(self):
        process, child = self.start_beater()
        self.assertEqual(self.semctl("revoke", "job", "--all", "--now").returncode, 0)
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.wait_dead(child)
        self.assertRegex(process.stderr.read(), "lost.*revoked")

    def test_recalled_with_a_deaf_command(self):
        process, child = self.start_beater(deaf=True)
        self.assertEqual(self.semctl("revoke", "job", "--all", "--grace", "1s").returncode, 0)
        granted = self.grant_after()
        self.assertLess(self.last_beat(), granted)
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.wait_dead(child)
        self.assertRegex(process.stderr.read(), "recalled")

    def test_the_daemon_is_gone(self):
        process, child = self.start_beater(deaf=True)
        self.daemon.kill9()
        gone = boot_time()
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.assertFalse(is_alive(child))
        self.assertLess(self.last_beat(), gone + TTL_S)
        self.assertRegex(process.stderr.read(), "semctl: .*(no daemon|lost)")

    def test_semctl_is_killed(self):
        for deaf in (False, True):
            with self.subTest(deaf=deaf):
                process, child = self.start_beater("--kill-after", "300ms", deaf=deaf)
                process.kill()
                killed = boot_time()
                process.wait(BOUND_S)
                granted = self.grant_after()
                self.assertLess(self.last_beat(), min(granted, killed + TTL_S))
                self.wait_dead(child)
                os.remove(self.path + ".started")
                self.semctl("revoke", "job", "--all", "--now")

    def test_semctl_is_stopped(self):
        process, child = self.start_beater(deaf=True)
        process.send_signal(signal.SIGSTOP)
        stopped = boot_time()
        granted = self.grant_after()
        self.assertLess(self.last_beat(), min(granted, stopped + TTL_S))
        self.wait_dead(child)
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.assertRegex(process.stderr.read(), "semctl: ")

    def test_the_guardian_is_killed(self):
        process, child = self.start_beater(deaf=True)
        watcher, = children_of(process.pid)
        guardian, = children_of(watcher)
        os.kill(guardian, signal.SIGKILL)
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.wait_dead(child)
        self.assertRegex(process.stderr.read(), "guardian")
        self.assertEqual(self.describe().held, 0, "given back once the command was dead")

    def test_the_watcher_is_killed(self):
        process, child = self.start_beater()
        os.kill(children_of(process.pid)[0], signal.SIGKILL)
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.assertFalse(is_alive(child))
        self.assertRegex(process.stderr.read(), "watcher")
        self.assertEqual(self.describe().held, 0)


class CommandsTest(SemctlTest):
    def test_a_detached_lease(self):
        taken = json.loads(self.semctl("acquire", "job", "--limit", "2", "--permits", "2", "--ttl",
                                       "10s", "--holder", "me", "-o", "json").stdout)
        self.assertEqual((taken["slots"], taken["holder"], taken["ttl_ms"]),
                         ([{"first": 1, "last": 2}], "me", 10000))
        lease = taken["lease_id"]
        self.assertEqual(self.semctl("renew", lease).returncode, 0)
        self.assertEqual(self.semctl("verify", lease).returncode, 0)
        self.assertEqual(self.semctl("verify", "--semaphore", "job", "--slot", "2", "--token",
                                     str(taken["token"])).returncode, 0)
        part = json.loads(self.semctl("release", lease, "--slot", "2", "-o", "json").stdout)
        self.assertEqual((part["released"], part["remaining"]), (1, 1))
        self.assertEqual(self.semctl("release", lease).returncode, 0)
        self.assertEqual(self.semctl("release", lease).returncode, LOST)
        gone = self.semctl("verify", lease, "-o", "json")
        self.assertEqual((gone.returncode, json.loads(gone.stdout)["ended"]), (1, "RELEASED"))
        self.assertEqual(self.semctl("renew", lease).returncode, LOST)

    def test_administration(self):
        def act(*arguments):
            acted = self.semctl(*arguments, "-o", "json")
            self.assertEqual(acted.returncode, 0, acted.stderr)
            return json.loads(acted.stdout)
        created = act("create", "job", "--limit", "3", "--permits-per-holder", "2")
        self.assertTrue(created["created"])
        self.assertEqual(act("resize", "job", "--add", "2")["semaphore"]["limit"], 5)
        self.assertEqual(act("resize", "job", "--remove", "1")["semaphore"]["limit"], 4)
        self.assertEqual(act("resize", "job", "--limit", "2", "--policy", "refuse")["semaphore"]
                         ["limit"], 2)
        self.assertTrue(act("configure", "job", "--backfill")["semaphore"]["settings"]["backfill"])
        self.assertTrue(act("pause", "job")["semaphore"]["paused"])
        self.assertFalse(act("resume", "job")["semaphore"]["paused"])
        act("acquire", "job", "--holder", "me")
        drained = self.semctl("drain", "job")
        self.assertEqual(drained.returncode, 1, "somebody holds")
        self.assertIn("held by me", drained.stdout)
        self.assertEqual(act("revoke", "job", "--holder", "me", "--now")["revoked"], 1)
        self.assertTrue(act("drain", "job", "--wait", "5s")["drained"])
        act("prune", "job")
        self.assertEqual(act("history", "job")["rows"][0]["cause"], "REVOKED")
        self.assertEqual(act("describe", "job")["limit"], 2)
        self.assertEqual([row["semaphore"] for row in act("list", "jo")["semaphores"]], ["job"])
        self.assertTrue(act("destroy", "job")["gone"])
        missing = self.semctl("describe", "job", "-o", "json")
        self.assertEqual(missing.returncode, REFUSED)
        self.assertEqual(json.loads(missing.stderr)["error"]["reason"], "NO_SUCH_SEMAPHORE")

    def test_watch_and_top(self):
        watching = subprocess.Popen([SEMCTL, "watch", "--semaphore", "job", "--events", "4", "-o",
                                     "json"], env=self.environment(), text=True,
                                    stdout=subprocess.PIPE)
        self.addCleanup(watching.stdout.close)
        self.addCleanup(watching.wait)
        self.addCleanup(watching.kill)
        # It may begin before or after these: either way it sees the last grant and its end.
        for _ in range(40):
            self.semctl("run", "job", "--limit", "1", "--", "true")
            if watching.poll() is not None:
                break
        kinds = [json.loads(line)["kind"] for line in watching.stdout]
        self.assertEqual(watching.wait(BOUND_S), 0)
        self.assertEqual(len(kinds), 4)
        self.assertTrue({"GRANTED", "ENDED"} & set(kinds), kinds)
        top = self.semctl("top", "--rounds", "1", "--interval", "500ms", "-o", "json")
        self.assertEqual(json.loads(top.stdout)["semaphores"][0]["semaphore"], "job")
        self.assertIn("job", self.semctl("top", "--rounds", "1", "--interval", "500ms").stdout)

    def test_every_command_has_help_with_examples(self):
        overview = self.semctl("--help").stdout
        commands = re.findall(r"^  ([a-z]+) {4,}", overview.split("Subcommands:")[1], re.MULTILINE)
        self.assertGreaterEqual(len(commands), 20)
        for command in commands:
            with self.subTest(command=command):
                shown = self.semctl(command, "--help")
                self.assertEqual(shown.returncode, 0)
                self.assertRegex(shown.stdout, r"Examples:\n +(.*\| *)?.*semctl|source")


if __name__ == "__main__":
    unittest.main()
