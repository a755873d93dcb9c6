"""The examples that --help prints, of semctl and of semaphored, and the shell lines of README.md and docs/ that call
them, run as they are printed: on a machine of the test's own, with a daemon at 127.0.0.1:7420."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import own_machine

if __name__ == "__main__":
    own_machine.enter()

from daemon import BIN_DIR, BOUND_S, Daemon, wait_until  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
NO, NOT_OPENED, REFUSED = 1, 3, 119

# Other people's programs. A sleep takes a tenth of its time.
TOOLS = {
    "nightly-report": "exit 0", "deploy.sh": "cat > /dev/null", "make": "exit 0", "convert": "cat > /dev/null",
    "jq": "cat", "psql": "cat > /dev/null", "aws": "exit 0", "work": "exit 0", "maintenance": "exit 0",
    "git": "echo 0123456789abcdef", "sleep": 'exec /bin/sleep "$(echo "$1" | sed "s/.$/.&/")"',
}
DECLARED = '[prefix."team/"]\nlimit = 4\n[semaphore."team/db"]\nlimit = 4\n'

# What has to be there before the examples of a command, as lines of a shell.
CREATE = "semctl create team/db --limit 4"
HOLD = "semctl acquire team/db --limit 4 --permits 4 --holder build-7:4711 --ttl 60s -q > lease"
TICKET = "semctl enqueue deploy/prod --limit 1 --payload request.json -q > ticket"
DEAD = "semctl work deploy/prod --once -- sh -c 'exit 65'; true"
BEFORE = {
    "acquire": (), "run": (CREATE,), "create": (), "renew": (HOLD,), "release": (HOLD,), "verify": (HOLD,),
    "revoke": (HOLD,), "describe": (HOLD,), "work": (TICKET,), "tickets": (TICKET,),
    "dead-letters": (TICKET, DEAD), "enqueue": (), "help": (), "version": (), "completion": (),
    "list": (CREATE,),
}
# They go on until they are stopped.
ENDLESS = re.compile(r"^(semctl (watch|top|work)\b(?!.*--(rounds|once|exit-when-empty))"
                     r"|(SEMAPHORED_\w+=\S+ )?semaphored(?! (schema|token|health|restore|backup|.*--print-config)))")
# Not 0: the answer is no; an engine that is not here, or has no recipe.
CODES = ((re.compile("^semctl diff semaphores.toml$"), (0, NO)),
         (re.compile("verify --semaphore team/db --slot 2 --token 1042"), (NO,)),
         (re.compile("^semctl adopt "), (REFUSED,)),
         (re.compile("--store '?(postgres|consul|amqps?|dynamodb):.*--node-id|schema --create --store dynamodb"),
          (NOT_OPENED,)))


def examples_of(help_text):
    """The lines below "Examples:", up to an empty one."""
    block = help_text.split("Examples:\n")[1].split("\n\n")[0]
    return [line.strip() for line in block.splitlines() if line.startswith("  ")]


def shell_lines(path):
    """The lines of its sh blocks that call semctl or semaphored; a block with jobs in the background is one script.
    Comments are left out, as are lines of other programs, which their own tests run."""
    with open(path, encoding="utf-8") as file:
        blocks = re.findall(r"^```sh\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)
    for block in blocks:
        lines = [re.sub(r"\s+# .*", "", line) for line in block.replace("\\\n", "").splitlines()]
        lines = [line for line in lines if re.match(r"(semctl|semaphored|sleep|wait)\b", line)]
        if any(line.endswith(" &") for line in lines):
            yield "\n".join(lines)
        else:
            yield from (line for line in lines if not line.startswith(("sleep", "wait")))


class Examples(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="semaphored-examples-", dir="/var/lib")
        self.addCleanup(shutil.rmtree, self.folder)
        for name, body in TOOLS.items():
            self.write(name, "#!/bin/sh\n" + body + "\n", 0o755)
        for name, text in (("request.json", "{}"), ("semaphores.toml", DECLARED), ("token", "smt_secret\n"),
                           ("lease", ""), ("ticket", "")):
            self.write(name, text)
        for name in (".zfunc", ".config/fish/completions"):
            os.makedirs(os.path.join(self.folder, name))
        os.makedirs("/var/lib/semaphored", exist_ok=True)
        self.write("/etc/semaphored.toml", 'store = "sqlite::memory:"\n')

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)

    def environment(self):
        environment = {"PATH": f"{BIN_DIR}:{self.folder}:" + os.environ["PATH"], "HOME": self.folder,
                       "AWS_EC2_METADATA_DISABLED": "true"}
        for variable, name in (("lease", "lease"), ("SEMAPHORE_LEASE", "lease"), ("ticket", "ticket")):
            with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                environment[variable] = file.read().strip()
        return environment

    def daemon(self, host="127.0.0.1"):
        daemon = Daemon(store="sqlite::memory:", port=7420)
        daemon.address = f"{host}:7420"
        self.addCleanup(daemon.close)
        return daemon.start()

    def begin(self, script):
        """In bash, as a person at a terminal has it; with its output in a file."""
        out = tempfile.TemporaryFile("w+", dir=self.folder)
        self.addCleanup(out.close)
        process = subprocess.Popen(["bash", "-c", script], cwd=self.folder, env=self.environment(), text=True,
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        process.output = lambda: (out.seek(0), out.read())[1]
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_line(self, line, codes=(0,)):
        process = self.begin(line)
        code = process.wait(60)
        self.assertIn(code, codes, process.output())

    def run_endless(self, line):
        """It begins, and ends well when it is stopped."""
        process = self.begin("exec " + line if "=" not in line.split()[0] else line)
        serves = "semaphored" in line
        try:
            wait_until(lambda: process.poll() is not None or not serves or "serving on" in process.output(),
                       "it serves")
            if not serves:
                with self.assertRaises(subprocess.TimeoutExpired, msg=line):
                    process.wait(0.7)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            code = process.wait(BOUND_S)
        self.assertIn(code, (0, -signal.SIGTERM), process.output())

    def try_line(self, line):
        codes = next((codes for pattern, codes in CODES if pattern.search(line)), (0,))
        if ENDLESS.match(line) and codes == (0,):
            self.run_endless(line)
        else:
            self.run_line(line, codes)

    def in_own_daemon(self, lines, before):
        for line in lines:
            with self.subTest(line):
                for host in ("127.0.0.1", "127.0.0.2"):
                    self.daemon(host)
                for preparation in before:
                    self.run_line(preparation)
                if "while semctl renew" in line:  # Until the lease has ended.
                    self.write("sleep", '#!/bin/sh\nsemctl release "$lease"\n', 0o755)
                self.try_line(line)
            self.doCleanups()
            self.setUp()

    def back_up(self, line):
        """With a daemon on the store where the line says, or the settings."""
        os.makedirs("/backup", exist_ok=True)
        os.makedirs("/var/lib/semaphored", exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink("/backup/state.db")
        with Daemon(port=7420, store="sqlite:///var/lib/semaphored/state.db"):
            self.run_line(line)
        os.unlink("/backup/state.db")

    def help_of(self, *words):
        return subprocess.run([os.path.join(BIN_DIR, words[0]), *words[1:], "--help"], text=True, check=True,
                              capture_output=True, timeout=BOUND_S).stdout


class Semctl(Examples):

    def test_help(self):
        self.in_own_daemon(examples_of(self.help_of("semctl")), (TICKET, CREATE))

    def test_help_of_every_command(self):
        overview = self.help_of("semctl").split("Subcommands:")[1].split("Exit codes:")[0]
        commands = re.findall(r"^  ([a-z-]+) ", overview, re.MULTILINE)
        self.assertGreater(len(commands), 25)
        for command in commands:
            lines = examples_of(self.help_of("semctl", command))
            self.assertGreater(len(lines), 0, command)
            self.in_own_daemon(lines, BEFORE.get(command, (CREATE,)))


class Semaphored(Examples):

    def test_help(self):
        for line in examples_of(self.help_of("semaphored")):
            with self.subTest(line):
                self.try_line(line)

    def test_help_of_schema_and_token(self):
        for command in ("schema", "token"):
            for line in examples_of(self.help_of("semaphored", command)):
                with self.subTest(line):
                    self.try_line(line)

    def test_help_of_health(self):
        self.daemon()
        for line in examples_of(self.help_of("semaphored", "health")):
            with self.subTest(line):
                self.try_line(line)

    def test_help_of_backup(self):
        lines = examples_of(self.help_of("semaphored", "backup"))
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.back_up(line)

    def test_help_of_restore(self):
        with Daemon(port=7420) as daemon:
            daemon.client().acquire("x", limit=1)
            daemon.terminate()
            os.makedirs("/backup", exist_ok=True)
            shutil.copy(daemon.store_path, "/backup/state.db")
        for line in examples_of(self.help_of("semaphored", "restore")):
            with self.subTest(line):
                self.try_line(line)  # It waits for 30 s, as it says.


class Documents(Examples):

    def test_shell_lines(self):
        count = 0
        for name in ("README.md", "docs/operations.md", "docs/tickets.md", "docs/clients.md", "docs/security.md",
                     "docs/postgres.md", "docs/consul.md", "docs/rabbitmq.md", "docs/dynamodb.md", "docs/metrics.md"):
            for line in shell_lines(os.path.join(ROOT, name)):
                if "semaphored restore" in line:
                    continue  # As in its --help.
                count += 1
                if "semaphored backup" in line:
                    self.back_up(line)
                    continue
                if line.startswith("semaphored"):
                    with self.subTest(line):
                        self.try_line(line)
                else:
                    self.in_own_daemon([line], (TICKET,))
        self.assertGreater(count, 20)


if __name__ == "__main__":
    unittest.main()
