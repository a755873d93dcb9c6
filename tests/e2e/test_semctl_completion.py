"""Completion in bash, zsh and fish: a line is typed with a TAB at its end, and the words are compared
that the shell then hands to semctl."""

import os
import pty
import re
import select
import subprocess
import tempfile
import time
import unittest

from daemon import BIN_DIR, BOUND_S, Daemon

SEMCTL = os.path.join(BIN_DIR, "semctl")

# What is typed behind "semctl ", and the last word that becomes of it.
LINES = (
    ("descri", "describe"),
    ("help descri", "describe"),
    ("completion fi", "fish"),
    ("describe team:d", "team:db:one"),
    ("describe team:db:o", "team:db:one"),
    ("describe oth", "other"),
    ("list team:d", "team:db:one"),
    ("--server ADDRESS describe oth", "other"),
    ("run other --lim", "--limit"),
    ("run other --conn", "--connect-timeout"),
    ("-o j", "json"),
    ("--output=j", "--output=json"),
    ("resize other --policy rec", "recall"),
    ("resize other --policy=rec", "--policy=recall"),
    ("tickets other prio", "prioritise"),
    ("dead-letters other pu", "purge"),
    ("watch --semaphore oth", "other"),
    ("apply semaph", "semaphores.toml"),
    ("--ca-file semaph", "semaphores.toml"),
    ("enqueue other --payload=req", "--payload=request.json"),
    ("run other -- sha512su", "sha512sum"),
    ("run other -- ./depl", "./deploy.sh"),
    ("run other --limit 2 -- cat req", "request.json"),
    ("work other -- cat req", "request.json"),
)


class Completion(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.start()
        client = cls.daemon.client()
        for name in ("team:db:one", "other"):
            client.acquire(name, limit=1, ttl_ms=60_000)
        folder = tempfile.TemporaryDirectory(prefix="semctl-completion-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        for name in ("semaphores.toml", "request.json", "deploy.sh"):
            with open(os.path.join(cls.folder, name), "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n")
            os.chmod(os.path.join(cls.folder, name), 0o755)

    def environment(self):
        return {"PATH": os.path.abspath(BIN_DIR) + ":" + os.environ["PATH"], "HOME": self.folder,
                "TERM": "dumb", "SEMCTL_SERVER": self.daemon.address, "LC_ALL": "C.UTF-8"}

    def lines(self):
        return [(typed.replace("ADDRESS", self.daemon.address), became) for typed, became in LINES]

    def script(self, shell):
        done = subprocess.run([SEMCTL, "completion", shell], text=True, capture_output=True,
                              timeout=BOUND_S, check=True)
        return done.stdout


class Typist:
    """An interactive shell at a terminal of its own."""

    def __init__(self, case, command):
        self.terminal, other = pty.openpty()
        case.addCleanup(os.close, self.terminal)
        self.process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other,
                                        env=case.environment(), cwd=case.folder,
                                        start_new_session=True)
        os.close(other)
        case.addCleanup(self.process.wait)
        case.addCleanup(self.process.kill)
        self.shown = ""

    def type(self, text):
        os.write(self.terminal, text.encode())

    def await_match(self, pattern):
        deadline = time.monotonic() + BOUND_S
        while not (found := re.search(pattern, self.shown)):
            if time.monotonic() > deadline:
                raise AssertionError(f"not shown: {pattern} in {self.shown!r}")
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.shown += os.read(self.terminal, 4096).decode(errors="replace")
        self.shown = self.shown[found.end():]
        return found


class AtTheTerminal:
    """What bash and zsh have in common: a function in semctl's place prints what it was given."""

    shell = ()

    def test_typed(self):
        typist = Typist(self, self.shell)
        with open(os.path.join(self.folder, "rc"), "w", encoding="utf-8") as file:
            file.write('semctl() { if [ "$1" = __complete ]; then command semctl "$@"; '
                       'else for word in "$@"; do last="$word"; done; echo "last=<$last>"; fi; }\n'
                       "PS1='now> '\n" + self.script(self.shell[0]) + "echo rea''dy\n")
        typist.type(". ./rc\n")
        typist.await_match("ready")
        for typed, became in self.lines():
            with self.subTest(typed=typed):
                typist.type(f"semctl {typed}\t\n")
                self.assertEqual(typist.await_match(r"last=<([^>]*)>")[1], became)


class Bash(AtTheTerminal, Completion):
    shell = ("bash", "--norc", "--noprofile", "-i")

    def test_names_are_whole_also_if_bash_does_not_split_at_colons(self):
        script = self.script("bash") + (
            'COMP_WORDBREAKS="${COMP_WORDBREAKS//:}"\n'
            'COMP_LINE="semctl describe team:d"; COMP_POINT=${#COMP_LINE}\n'
            'COMP_WORDS=(semctl describe team:d); COMP_CWORD=2; _semctl; echo "${COMPREPLY[@]}"\n')
        done = subprocess.run(["bash", "-c", script], env=self.environment(), text=True,
                              capture_output=True, timeout=BOUND_S, check=True)
        self.assertEqual(done.stdout, "team:db:one\n")


class Zsh(AtTheTerminal, Completion):
    shell = ("zsh", "-f", "-i")

    def test_it_can_be_a_file_of_fpath(self):
        script = self.script("zsh")
        self.assertTrue(script.startswith("#compdef semctl\n"))
        self.assertEqual(subprocess.run(["zsh", "-n"], input=script, text=True, timeout=BOUND_S,
                                        check=False).returncode, 0)


class Fish(Completion):

    def test_typed(self):
        script = self.script("fish")
        for typed, became in self.lines():
            with self.subTest(typed=typed):
                done = subprocess.run(
                    ["fish", "--no-config", "-c", script + f"\ncomplete -C 'semctl {typed}'"],
                    env=self.environment(), cwd=self.folder, text=True, capture_output=True,
                    timeout=BOUND_S, check=False)
                words = [line.split("\t")[0] for line in done.stdout.splitlines()]
                self.assertIn(became, words, done.stderr)


class Candidates(Completion):
    """What all shells ask."""

    def candidates(self, *words):
        done = subprocess.run([SEMCTL, "__complete", "--", *words], env=self.environment(),
                              text=True, capture_output=True, timeout=BOUND_S, check=True)
        return done.stdout.splitlines()

    def test_every_option_of_every_command_is_a_candidate(self):
        commands = self.candidates("")[1:]
        self.assertGreater(len(commands), 25)
        self.assertNotIn("__complete", commands)
        for command in commands:
            with self.subTest(command=command):
                shown = subprocess.run([SEMCTL, command, "--help"], text=True, capture_output=True,
                                       timeout=BOUND_S, check=True).stdout
                shown = shown.split("Examples:")[0]
                options = set(re.findall(r"^ +(?:-\w,)?(--[a-z-]+)", shown, re.MULTILINE))
                self.assertLessEqual(options, set(self.candidates(command, "--")))

    def test_what_takes_no_name_asks_no_daemon(self):
        begun = time.monotonic()
        for words in (("renew", ""), ("acquire", "x", "--limit", ""), ("describe", "x", "")):
            self.assertEqual(self.candidates(*words), ["words"])
        self.assertLess(time.monotonic() - begun, 2.0)


if __name__ == "__main__":
    unittest.main()
