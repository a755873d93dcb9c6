"""semctl run with a real daemon: whatever is killed or stopped, all that the command started ends
before its lease does; and semctl is to its command, and to a shell, as `nice` or `flock` are."""

import concurrent.futures
import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from daemon import BOUND_S, grpc, pb, pb_grpc, wait_until  # noqa: E402
from test_semctl import (LOST, SEMCTL, TTL_S, SemctlTest, boot_time, children_of,  # noqa: E402
                         is_alive)

# A command with a child, a child in a session of its own, and a daemon (two forks) in another one,
# all of them deaf to SIGTERM. Each writes the time into a file of its own as long as it runs.
FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def beat(name):
    with open(f"{sys.argv[1]}.{name}.pid", "w") as f: f.write(str(os.getpid()))
    os.rename(f"{sys.argv[1]}.{name}.pid", f"{sys.argv[1]}.{name}.started")
    while True:
        with open(f"{sys.argv[1]}.{name}", "w") as f:
            f.write(repr(time.clock_gettime(time.CLOCK_BOOTTIME)))
        time.sleep(0.01)
if os.fork() == 0: beat("child")
if os.fork() == 0:
    os.setsid()
    beat("session")
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    beat("daemon")
beat("command")
"""
MEMBERS = ("command", "child", "session", "daemon")

# Each generation does no more than to fork the next one, in a session of its own, and to end.
RUNNERS = """
import os, sys, time
if os.fork() == 0:
    generation = 0
    while True:
        generation += 1
        if os.fork(): os._exit(0)
        os.setsid()
        with open(sys.argv[1], "w") as f: f.write(str(generation))
time.sleep(600)
"""

# Exits with 40 + how many signals other than USR1 it got, when it gets that.
COUNTER = """
import os, signal, sys, time
got = []
def note(number):
    got.append(number)
    open(sys.argv[1] + ".noted", "w").close()
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, lambda number, _: note(number))
signal.signal(signal.SIGUSR1, lambda *_: os._exit(40 + len(got)))
open(sys.argv[1] + ".started", "w").close()
while True: time.sleep(60)
"""


def end_all(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(is_alive(pid) for pid in pids), "they end")


class GuardianTest(SemctlTest):
    RUN = ("run", "job", "--limit", "1", "--ttl", "2s")

    def start_family(self, semctl=RUN):
        """semctl over the family; its three processes, by name, and the family's pids."""
        for name in MEMBERS:
            for end in ("", ".started"):
                if os.path.exists(f"{self.path}.{name}{end}"):
                    os.remove(f"{self.path}.{name}{end}")
        process = self.start(*semctl, "--", sys.executable, "-c", FAMILY, self.path)
        pids = []
        for name in MEMBERS:
            path = f"{self.path}.{name}.started"
            wait_until(lambda: os.path.exists(path), f"{name} runs")
            with open(path) as started:
                pids.append(int(started.read()))
        watcher, = children_of(process.pid)
        guardian, = children_of(watcher)
        self.addCleanup(end_all, pids)
        return process, {"semctl": process.pid, "watcher": watcher, "guardian": guardian}, pids

    def last_beat(self):
        beats = []
        for name in MEMBERS:
            with open(f"{self.path}.{name}") as beat:
                beats.append(float(beat.read() or 0))
        return max(beats)

    def end_what_is_left(self, chain):
        for pid in chain.values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def check_fault(self, fault):
        process, chain, family = self.start_family()
        try:
            for name, number in fault.items():
                os.kill(chain[name], number)
            begun = boot_time()
            granted = self.grant_after()
            self.assertFalse([pid for pid in family if is_alive(pid)])
            self.assertLess(self.last_beat(), min(granted, begun + TTL_S))
        finally:
            self.end_what_is_left(chain)
            process.wait(BOUND_S)
            self.semctl("revoke", "job", "--all", "--now")

    def test_one_is_killed_or_stopped_with_the_daemon_gone(self):
        for name in ("semctl", "watcher", "guardian"):
            for number in (signal.SIGKILL, signal.SIGSTOP):
                with self.subTest(name=name, number=number):
                    process, chain, family = self.start_family()
                    os.kill(chain[name], number)
                    self.daemon.kill9()
                    begun = boot_time()
                    wait_until(lambda: not [pid for pid in family if is_alive(pid)], "all ended")
                    self.assertLess(self.last_beat(), begun + TTL_S)
                    self.end_what_is_left(chain)
                    process.wait(BOUND_S)
                    self.daemon.start()
                    self.stub = self.daemon.client().stub
                    self.semctl("revoke", "job", "--all", "--now")

    def test_any_two_are_killed_or_stopped(self):
        for one, other in (("semctl", "watcher"), ("semctl", "guardian")):
            for first in (signal.SIGKILL, signal.SIGSTOP):
                for second in (signal.SIGKILL, signal.SIGSTOP):
                    with self.subTest(one=one, first=first, other=other, second=second):
                        self.check_fault({one: first, other: second})

    def test_watcher_and_guardian_are_killed_or_stopped(self):
        for first in (signal.SIGKILL, signal.SIGSTOP):
            for second in (signal.SIGKILL, signal.SIGSTOP):
                with self.subTest(watcher=first, guardian=second):
                    process, chain, family = self.start_family()
                    os.kill(chain["watcher"], first)
                    os.kill(chain["guardian"], second)
                    self.daemon.kill9()
                    begun = boot_time()
                    self.assertEqual(process.wait(BOUND_S), LOST)
                    self.assertFalse([pid for pid in family if is_alive(pid)])
                    self.assertLess(self.last_beat(), begun + TTL_S)
                    self.end_what_is_left(chain)
                    self.daemon.start()
                    self.stub = self.daemon.client().stub
                    self.semctl("revoke", "job", "--all", "--now")

    def check_loss(self, *stopped, semctl=RUN):
        """The lease ends while its session lives, so that a daemon vouches for the session on and on."""
        process, chain, family = self.start_family(semctl)
        try:
            for name in stopped:
                os.kill(chain[name], signal.SIGSTOP)
            self.semctl("revoke", "job", "--all", "--now")
            revoked = boot_time()
            self.assertEqual(process.wait(BOUND_S), LOST, process.stderr.read())
            self.assertFalse([pid for pid in family if is_alive(pid)])
            self.assertLess(self.last_beat(), revoked + BOUND_S)
        finally:
            self.end_what_is_left(chain)

    def test_a_lease_is_revoked_and_helpers_are_stopped(self):
        for stopped in (("guardian",), ("watcher",), ("guardian", "watcher")):
            with self.subTest(stopped=stopped):
                self.check_loss(*stopped)

    def test_a_ticket_is_revoked_and_helpers_are_stopped(self):
        self.semctl("enqueue", "job", "--limit", "1")
        self.check_loss("guardian", "watcher", semctl=("work", "job", "--once", "--ttl", "2s"))

    def start_and_stop(self, *names):
        """semctl run over `sleep`; stops these helpers when the command has just been forked, so that
        its start is not reported. The processes by name."""
        process = self.start("run", "job", "--limit", "1", "--ttl", "2s", "--", "sleep", "60")
        while True:
            for watcher in children_of(process.pid):
                for guardian in children_of(watcher):
                    for command in children_of(guardian):
                        chain = {"watcher": watcher, "guardian": guardian, "command": command}
                        for name in names:
                            os.kill(chain[name], signal.SIGSTOP)
                        self.addCleanup(end_all, chain.values())
                        return process, chain

    def test_the_guardian_is_stopped_as_it_starts_the_command(self):
        process, chain = self.start_and_stop("guardian")
        begun = boot_time()
        wait_until(lambda: boot_time() > begun + 2 * TTL_S or process.poll() is not None, "4 s")
        self.assertTrue(is_alive(chain["command"]), process.poll())

    def test_guardian_and_watcher_are_stopped_as_the_command_starts(self):
        process, chain = self.start_and_stop("guardian", "watcher")
        self.daemon.kill9()
        begun = boot_time()
        wait_until(lambda: not is_alive(chain["command"]), "the command is ended by semctl")
        self.assertLess(boot_time(), begun + TTL_S)
        self.assertEqual(process.wait(BOUND_S), LOST)

    def test_all_three_are_killed(self):
        process, chain, family = self.start_family()
        for name in ("semctl", "watcher", "guardian"):  # in one go: none can do anything about it
            os.kill(chain[name], signal.SIGSTOP)
        self.end_what_is_left(chain)
        wait_until(lambda: not is_alive(family[0]), "the kernel kills the command itself")

    def test_a_killer_by_name_does_not_find_all_three(self):
        _, chain, family = self.start_family()
        for name in ("watcher", "guardian"):
            for file in ("comm", "cmdline"):
                with open(f"/proc/{chain[name]}/{file}") as found:
                    shown = found.read().strip("\0\n")
                self.assertEqual(shown, f"permit-{name}")
        self.assertEqual(len(set(os.getsid(pid) for pid in chain.values())), 2)

    def test_nothing_that_the_command_started_outlives_it(self):
        # Whatever made a process group or a session of its own.
        for script in ("setsid sleep 600 & echo $!", "timeout 600 sleep 600 & echo $!",
                       "bash -mc 'sleep 600 & echo $!'", "(setsid sleep 600 & echo $!) & wait",
                       "trap '' TERM; setsid sleep 600 & echo $!"):
            with self.subTest(script=script):
                ran = self.semctl("run", "job", "--limit", "1", "--kill-after", "200ms", "--", "sh",
                                  "-c", script + "\nexit 3")
                self.assertEqual(ran.returncode, 3, ran.stderr)
                self.assertFalse(is_alive(int(ran.stdout)))
                self.assertEqual(self.describe().held, 0)

    def test_what_forks_while_it_is_killed(self):
        process = self.start("run", "job", "--limit", "1", "--ttl", "2s", "--kill-after", "0s", "--",
                             sys.executable, "-c", RUNNERS, self.path)
        wait_until(lambda: os.path.exists(self.path), "they run")
        process.kill()
        self.grant_after()
        with open(self.path) as generation:
            at_grant = generation.read()
        # Were one alive, it would have forked many more by the time that this command has run.
        self.semctl("describe", "job")
        with open(self.path) as generation:
            self.assertEqual(generation.read(), at_grant)


class LostBeforeItBegan(pb_grpc.SemaphoreServiceServicer):
    """Vouches for so little that each lease is lost when it comes."""

    def Session(self, requests, context):  # pylint: disable=invalid-name
        validity = pb.LeaseValidity(valid_for_ms=1)
        for request in requests:
            if request.HasField("open"):
                yield pb.SessionResponse(opened=pb.SessionOpened(
                    session_id="1", ttl_ms=60_000, validity=validity))
            if request.HasField("ping"):
                yield pb.SessionResponse(pong=pb.SessionPong(
                    ping_id=request.ping.ping_id, validity=validity))
            for command in request.commands:
                result = pb.SessionResult(sequence=command.sequence)
                if command.HasField("acquire"):
                    result.granted.CopyFrom(pb.Lease(lease_id="job#1", semaphore="job", token=1,
                                                     slots=[pb.SlotRange(first=1, last=1)]))
                else:
                    result.released.released = 1
                yield pb.SessionResponse(results=[result])
            if request.close:
                return


class BeginningTest(unittest.TestCase):
    def run_semctl(self, address, *before):
        return subprocess.run(
            [*before, SEMCTL, "run", "job", "--limit", "1", "--", "echo", "it began"],
            env={**os.environ, "SEMCTL_SERVER": address}, stdin=subprocess.DEVNULL, text=True,
            capture_output=True, timeout=BOUND_S, check=False)

    def test_a_lease_is_lost_before_its_command_has_begun(self):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        pb_grpc.add_SemaphoreServiceServicer_to_server(LostBeforeItBegan(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(0).wait(BOUND_S))
        # Two threads tell of the grant and of the loss, in either order.
        for _ in range(20):
            ran = self.run_semctl(f"127.0.0.1:{port}")
            self.assertEqual((ran.returncode, ran.stdout), (LOST, ""), ran.stderr)
            self.assertIn("lost", ran.stderr)

    def test_without_a_proc_of_its_own_pid_namespace(self):
        others = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        ran = self.run_semctl("127.0.0.1:1", "unshare", *others, "--pid", "--fork")
        self.assertEqual((ran.returncode, ran.stdout), (126, ""), ran.stderr)
        self.assertIn("PID namespace", ran.stderr)


class WrapperTest(SemctlTest):
    def start_counter(self, *before, **options):
        process = subprocess.Popen(
            [*before, SEMCTL, "run", "job", "--limit", "1", "--", sys.executable, "-c", COUNTER,
             self.path], env=self.environment(), start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_until(lambda: os.path.exists(self.path + ".started"), "the command runs")
        return process

    def test_sigchld_inherited_as_ignored(self):
        # Not a preexec_fn: gRPC's handler of forks may wait for ever for this process' own channels.
        ran = subprocess.run(
            ["env", "--ignore-signal=CHLD", SEMCTL, "run", "job", "--limit", "1", "--", "sh", "-c",
             "true & wait; exit 7"], env=self.environment(), stdin=subprocess.DEVNULL, text=True,
            capture_output=True, timeout=BOUND_S, check=False)
        self.assertEqual(ran.returncode, 7, ran.stderr)

    def test_nohup(self):
        process = self.start_counter("nohup")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.wait(BOUND_S), 40)

    def test_in_the_background_of_a_script(self):
        # The shell has it ignore SIGINT, since a Ctrl-C at the terminal is not meant for it.
        process = self.start_counter("sh", "-c", '"$0" "$@" & wait $!')
        semctl, = children_of(process.pid)
        for number in (signal.SIGINT, signal.SIGUSR1):
            os.kill(semctl, number)
        self.assertEqual(process.wait(BOUND_S), 40)

    def test_a_signal_to_the_process_group_comes_once(self):
        process = self.start_counter()
        os.killpg(process.pid, signal.SIGTERM)
        wait_until(lambda: os.path.exists(self.path + ".noted"), "the command has one")
        # Passed on in order: the other one would be before it.
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.wait(BOUND_S), 41)

    def test_a_signal_to_semctl_comes_as_well(self):
        process = self.start_counter()
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGUSR1)
        self.assertIn(process.wait(BOUND_S), (40, 41))


class ShellTest(SemctlTest):
    """What is typed at an interactive bash."""

    def setUp(self):
        super().setUp()
        self.terminal, other_end = pty.openpty()
        self.addCleanup(os.close, self.terminal)
        # A shell that leads a session and opens a terminal gets it as its own, and becomes bash.
        self.shell = subprocess.Popen(
            ["sh", "-c", 'exec bash --norc --noprofile -i < "$TTY" > "$TTY" 2>&1'],
            env={**self.environment(), "TTY": os.ttyname(other_end), "PS1": "", "PATH": ":".join(
                [os.path.dirname(SEMCTL), os.environ["PATH"]])}, start_new_session=True)
        self.addCleanup(self.shell.wait)
        self.addCleanup(self.shell.kill)
        self.shown = ""
        self.addCleanup(os.close, other_end)
        self.type("stty -echo; echo s'hell'")
        self.expect("shell")

    def type(self, text, end="\n"):
        os.write(self.terminal, (text + end).encode())

    def expect(self, text):
        """Waits until that is shown; what came before it."""
        deadline = time.monotonic() + BOUND_S
        while text not in self.shown:
            self.assertLess(time.monotonic(), deadline, f"no {text!r} in {self.shown!r}")
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.shown += os.read(self.terminal, 4096).decode()
        before, _, self.shown = self.shown.partition(text)
        return before

    def test_it_reads_from_the_terminal(self):
        self.type("semctl run job --limit 1 -- sh -c 'echo ready; read x; echo got $x; exit 3'; "
                  "echo code=$?")
        self.expect("ready")
        self.type("hi")
        self.expect("got hi")
        self.expect("code=3")

    def test_interrupt(self):
        self.type("semctl run job --limit 1 -- sh -c 'echo ready; exec sleep 60'; echo code=$?")
        self.expect("ready")
        self.type("\x03", end="")
        self.type("echo code=$?")
        self.expect(f"code={128 + signal.SIGINT}")

    def test_a_reader_at_the_end_of_a_pipeline(self):
        self.type("semctl run job --limit 1 -- sh -c 'echo ready > /dev/tty; sleep 60' | "
                  "sh -c 'read line < /dev/tty; echo typed $line'")
        self.expect("ready")
        self.type("hello")
        self.expect("typed hello")
        self.type("\x03", end="")

    def check_stop_and_continue(self, command):
        self.type(command)
        self.expect("ready")
        self.type("\x1a", end="")
        self.expect("Stopped")
        self.type("fg; echo code=$?")
        self.expect("code=5")

    # (A handler of Python's that is called as a sleep begins runs after it.)
    CONTINUED = ("python3 -c 'import os, signal\n"
                 "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})\n"
                 "print(\"ready\", flush=True)\n"
                 "signal.sigwait({signal.SIGCONT})\n"
                 "os._exit(5)'")

    def test_stop_and_continue(self):
        self.check_stop_and_continue(f"semctl run job --limit 1 -- {self.CONTINUED}")

    def test_stop_and_continue_in_a_script(self):
        with open(self.path, "w") as script:
            script.write(f"semctl run job --limit 1 -- {self.CONTINUED}\nexit $?\n")
        self.check_stop_and_continue(f"sh {self.path}")


class LossTest(SemctlTest):
    def test_after_a_hard_loss_the_command_is_killed_at_once(self):
        process, child = self.start_beater("--kill-after", "1h", deaf=True, ttl="1m")
        self.semctl("revoke", "job", "--all", "--now")
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.assertFalse(is_alive(child))

    def test_kill_after_does_not_outlive_the_lease(self):
        process, child = self.start_beater("--kill-after", "1h", deaf=True)
        self.daemon.kill9()
        gone = boot_time()
        self.assertEqual(process.wait(BOUND_S), LOST)
        self.assertFalse(is_alive(child))
        self.assertLess(self.last_beat(), gone + TTL_S)

    def test_it_exits_with_its_command_though_no_daemon_hears(self):
        process, child = self.start_beater()
        self.daemon.kill9()
        wait_until(lambda: not is_alive(child), "the command has ended")
        # It used to wait 5 s for an answer, twice.
        process.wait(3)

    def test_an_outage_of_two_thirds_of_the_ttl(self):
        process, child = self.start_beater(ttl="30s")
        self.daemon.kill9()
        gone = time.monotonic()
        wait_until(lambda: time.monotonic() - gone >= 20 or not is_alive(child), "20 s", 30)
        self.assertTrue(is_alive(child), "20 s without a daemon")
        self.daemon.start()
        # By then it would have lost its lease without a daemon.
        wait_until(lambda: time.monotonic() - gone >= 31 or not is_alive(child), "31 s", 30)
        self.assertTrue(is_alive(child), process.poll())
        process.terminate()
        self.assertEqual(process.wait(BOUND_S), 128 + signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
