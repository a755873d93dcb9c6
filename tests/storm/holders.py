"""The holders of a storm: processes of a client language, which are killed, stopped and started
again."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time

import node_packages
from daemon import BIN_DIR, BOUND_S, wait_until
from pausing import pause
from traces import Run, holder_folder

HERE = os.path.dirname(os.path.abspath(__file__))
END_BOUND_S = 60.0
STAYS_MS = ((50, 400), (50, 400), (400, 2000), (2000, 7000))
LANGUAGES = ("semctl", "cpp", "python", "node")


def command_of(language):
    """(command, environment)"""
    script = os.path.join(HERE, "holders", "holder")
    package = os.path.abspath(os.path.join(BIN_DIR, os.pardir, "python_client"))
    if language == "cpp":
        return [os.path.abspath(os.path.join(BIN_DIR, "storm_holder"))], {}
    if language == "python":
        return [sys.executable, "-B", script + ".py"], {"PYTHONPATH": package}
    return (["node", script + ".mjs"],
            {"NODE_PATH": os.path.join(node_packages.folder(), "node_modules")})


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            return [int(child) for child in children.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Holder:
    """One of them. `settings` of a storm: addresses, ttl_ms, folder, seed, book. Faults come from
    one thread at a time."""

    def __init__(self, number, semaphore, limit, settings):
        self.number, self.semaphore, self.limit = number, semaphore, limit
        self.settings = settings
        self.folder = holder_folder(settings.folder, number)
        os.mkdir(self.folder)
        self.said = open(os.path.join(self.folder, "said.log"), "ab")
        self.busy = threading.Lock()  # Held by the fault that befalls it.
        self.process = None
        self.failure = ""
        self.runs = None  # Of a semctl, those that have ended.

    def addresses(self):
        """Half of the holders begin with the last one."""
        return ",".join(self.settings.addresses[::1 if self.number % 2 == 0 else -1])


class ProgramHolder(Holder):
    """A program that takes one permit after the other."""

    def __init__(self, language, *arguments):
        super().__init__(*arguments)
        self.command, self.environment = command_of(language)
        self.starts = 0

    def start(self):
        self.starts += 1
        trace = os.path.join(self.folder, f"{self.starts}.trace")
        seed = self.settings.seed * 1000 + self.number * 10 + self.starts
        self.process = subprocess.Popen(
            [*self.command, self.addresses(), self.semaphore, str(self.limit),
             str(self.settings.ttl_ms), str(seed), trace],
            env={**os.environ, **self.environment}, stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=self.said)

    def is_inside(self):
        """Whether a fault now has something to befall."""
        return self.process.poll() is None

    def strike(self, planned):
        fault = self.settings.book.begin(planned.kind, f"holder {self.number}")
        if planned.kind == "kill":
            self.process.kill()
            self.process.wait(BOUND_S)
            self.process.stdin.close()
            self.start()
            return
        pause(self.process.pid)
        time.sleep(planned.seconds)
        self.settings.book.end(fault)
        send(self.process.pid, signal.SIGCONT)

    def look(self):
        if self.process.poll() is not None and not self.failure:
            self.failure = f"holder {self.number} ended with {self.process.returncode}"

    def end(self):
        self.look()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def join(self):
        try:
            code = self.process.wait(END_BOUND_S)
        except subprocess.TimeoutExpired:
            self.failure = self.failure or f"holder {self.number} has not ended"
            return
        if code != 0:
            self.failure = self.failure or f"holder {self.number} ended with {code}"

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(BOUND_S)
        self.said.close()


class SemctlHolder(Holder):
    """semctl run over inside.py, again and again."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        # What three killed processes leave behind nothing ends: see faults.ALL_THREE.
        self.alone = self.number % 2 == 0
        self.random = random.Random(f"{self.settings.seed}-semctl-{self.number}")
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.runs = []

    def start(self):
        self.thread.start()

    def _command(self):
        manners = self.random.choice(("mild", "deaf"))
        stay = str(self.random.randint(*self.random.choice(STAYS_MS)))
        inside = [sys.executable, "-I", "-S", "-B", os.path.join(HERE, "holders", "inside.py"),
                  self.folder, stay, "alone" if self.alone else "family", manners]
        after = self.random.choice(([], ["--kill-after", "300ms"]))
        return [os.path.join(BIN_DIR, "semctl"), "--server", self.addresses(), "run",
                self.semaphore, "--limit", str(self.limit), "--ttl", f"{self.settings.ttl_ms}ms",
                "--wait", "30s", *after, "--", *inside]

    def _run(self):
        try:
            while not self.stopping.is_set():
                begin_ns = time.monotonic_ns()
                self.process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL,
                                                stdout=subprocess.DEVNULL, stderr=self.said)
                code = self.process.wait()
                self.runs.append(Run(begin_ns, time.monotonic_ns(), code))
                self.stopping.wait(0.02 if code == 0 else 0.1)
        except Exception as error:  # pylint: disable=broad-except  reported by the storm
            self.failure = f"holder {self.number}: {error!r}"

    def chain(self):
        """Process ids by part; empty unless the command runs."""
        process = self.process
        if process is None or process.poll() is not None:
            return {}
        for watcher in children_of(process.pid):
            for guardian in children_of(watcher):
                for command in children_of(guardian):
                    return {"semctl": process.pid, "watcher": watcher, "guardian": guardian,
                            "command": command}
        return {}

    def is_inside(self):
        return bool(self.chain())

    def strike(self, planned):
        chain = self.chain()
        if not chain:
            return  # It has ended in this moment.
        parts = planned.target.split("+")
        if len(parts) == 3 and not self.alone:
            parts = parts[1:]
        book, number = self.settings.book, self.number
        faults = [book.begin(planned.kind, f"{part} {number}") for part in parts]
        for part in parts:
            # All at once: none of them can do anything about it.
            send(chain[part], signal.SIGSTOP)
        if planned.kind == "kill":
            for part in parts:
                send(chain[part], signal.SIGKILL)
            self._wait_for_end(chain)
            return
        time.sleep(planned.seconds)
        for part in parts:
            send(chain[part], signal.SIGCONT)
        for fault in faults:
            book.end(fault)

    def _wait_for_end(self, chain):
        """What is left of the chain ends; a further fault before would be a third one to it."""
        wait_until(lambda: not any(is_alive(pid) for pid in chain.values()),
                   f"what was left of semctl {self.number} ends", END_BOUND_S)

    def look(self):
        pass

    def end(self):
        self.stopping.set()

    def join(self):
        self.thread.join(END_BOUND_S)
        if self.thread.is_alive():
            self.failure = self.failure or f"semctl {self.number} has not ended"

    def close(self):
        self.stopping.set()
        if self.process is not None and self.process.poll() is None:
            send(self.process.pid, signal.SIGCONT)
            self.process.kill()
        if self.thread.ident is not None:
            self.thread.join(BOUND_S)
        self._kill_left()
        self.said.close()

    def _kill_left(self):
        """Processes of the command, which have a trace each."""
        for name in os.listdir(self.folder):
            pid = name.partition(".")[0]
            with contextlib.suppress(OSError):
                with open(f"/proc/{int(pid) if pid.isdigit() else 0}/cmdline", "rb") as words:
                    if self.folder.encode() in words.read().split(b"\0"):
                        send(int(pid), signal.SIGKILL)


def make(language, number, *arguments):
    """`mixed`: each language in turn, and none twice on the same side of the daemons' addresses."""
    if language == "mixed":
        language = LANGUAGES[(number + number // len(LANGUAGES)) % len(LANGUAGES)]
    if language == "semctl":
        return SemctlHolder(number, *arguments)
    return ProgramHolder(language, number, *arguments)
