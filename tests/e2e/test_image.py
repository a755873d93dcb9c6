"""deploy/Dockerfile without an engine for containers: the same commands, in a root folder of its own. There the
daemon runs as the image's user, as process 1, on a file system that cannot be written but for its volume.

Needs root, and Debian's mirror, as installing the tests' packages does."""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import unittest

from daemon import BIN_DIR, BOUND_S, wait_until
from root import ALONE, mirror

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))
INSTALL_BOUND_S = 200.0
PROGRAMS = ("semaphored", "semctl")
USER = 7420
TOKEN = "/var/lib/semaphored/token"

# Not loopback, so that only a daemon that listens at all addresses is reached there.
OUTER = "192.0.2.1"

# In namespaces of its own, the network's among them: $root can only be read, but for the volume and /proc.
START = f"""
set -e
ip link set lo up
ip address add {OUTER}/32 dev lo
mount --bind "$root" "$root"
mount --bind "$volume" "$root/var/lib/semaphored"
mount -t proc proc "$root/proc"
mount -o remount,ro,bind "$root"
exec chroot --userspec=7420:7420 "$root" "$@"
"""


def runtime_stage():
    with open(os.path.join(ROOT, "deploy/Dockerfile"), encoding="utf-8") as file:
        return file.read().split(" AS runtime\n")[1].split("\nFROM ")[0].replace("\\\n", " ")


def image_environment():
    settings = [line.removeprefix("ENV ") for line in runtime_stage().splitlines() if line.startswith("ENV ")]
    return dict(word.split("=", 1) for line in settings for word in shlex.split(line))


class Image(unittest.TestCase):
    """The tests' order is theirs alone; the root folder is made once."""

    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix="semaphored-image-")
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        os.chmod(cls.root, 0o755)
        # Debian slim is the smallest variant, without documents and translations.
        cls.install("debootstrap", "--variant=minbase", "bookworm", cls.root, mirror())
        with open(os.path.join(cls.root, "etc/apt/apt.conf.d/80retries"), "w", encoding="ascii") as file:
            file.write('Acquire::Retries "3";\n')
        shutil.copy("/etc/resolv.conf", os.path.join(cls.root, "etc/resolv.conf"))
        shutil.copy(os.path.join(ROOT, "deploy/image.sh"), os.path.join(cls.root, "tmp"))
        cls.before = cls.bytes()
        cls.install("chroot", cls.root, "sh", "/tmp/image.sh")
        for program in PROGRAMS:
            subprocess.run(["strip", "--strip-unneeded", "-o", f"{cls.root}/usr/local/bin/{program}",
                            os.path.join(BIN_DIR, program)], check=True, timeout=BOUND_S)
        shutil.copy(os.path.join(ROOT, "deploy/entrypoint.sh"),
                    os.path.join(cls.root, "usr/local/bin/semaphored-entrypoint"))

    @staticmethod
    def install(*command):
        # Twice: both go on with what they have, and a mirror may fail for a moment. In name spaces of their own: what is
        # mounted in the root folder must not outlive them, since the folder is removed.
        for _ in range(2):
            done = subprocess.run([*ALONE, *command], capture_output=True, text=True, check=False,
                                  timeout=INSTALL_BOUND_S)
            if done.returncode == 0:
                return
        raise AssertionError(f"{command}: {done.stdout[-3000:]}{done.stderr[-1000:]}")

    @classmethod
    def bytes(cls):
        said = subprocess.run(["du", "-sb", "--one-file-system", "--exclude=var/lib/apt/*",
                               "--exclude=var/cache/*", cls.root], capture_output=True,
                              text=True, check=True, timeout=BOUND_S).stdout
        return int(said.split()[0])

    def setUp(self):
        self.volume = tempfile.mkdtemp(prefix="semaphored-volume-")
        self.addCleanup(shutil.rmtree, self.volume)
        os.chown(self.volume, USER, USER)
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "root": self.root,
                            "volume": self.volume, **image_environment()}

    def start(self, *command, **settings):
        """As the image's entry point, or another program instead of it."""
        # chroot itself stands outside.
        return subprocess.Popen(
            ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "/bin/sh", "-c", START, "sh",
             *command], env={**self.environment, **settings}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run_there(self, *command, **settings):
        process = self.start(*command, **settings)
        said, _ = process.communicate(timeout=BOUND_S)
        return process.returncode, said

    @staticmethod
    def beside(daemon, *command):
        """As `docker exec`: in the daemon's namespaces, with its environment."""
        with open(f"/proc/{daemon}/environ", encoding="utf-8") as file:
            environment = dict(pair.split("=", 1) for pair in file.read().split("\0") if pair)
        done = subprocess.run(
            ["nsenter", f"--target={daemon}", "--mount", "--pid", "--net", "--root", "--wdns=/",
             f"--setuid={USER}", f"--setgid={USER}", *command], env=environment, text=True, check=False,
            timeout=BOUND_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def daemon(self, **settings):
        """Serves; its process 1 as seen from here."""
        process = self.start("semaphored-entrypoint", **settings)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def serving():
            with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
                children = file.read().split()
            if not children or os.readlink(f"/proc/{children[0]}/exe") != f"{self.root}/usr/local/bin/semaphored":
                return None
            return int(children[0]) if self.beside(children[0], "semaphored", "health")[0] == 0 else None
        return process, wait_until(serving, "the daemon serves")

    def end(self, process, daemon):
        os.kill(daemon, signal.SIGTERM)
        self.assertEqual(process.wait(BOUND_S), 0)

    def test_the_stage_is_made_by_what_is_tested_here(self):
        runtime = runtime_stage()
        for line in ("RUN sh /tmp/image.sh", f"USER {USER}:{USER}\n", "VOLUME /var/lib/semaphored\n",
                     'CMD ["semaphored", "health"]\n', 'ENTRYPOINT ["semaphored-entrypoint"]\n', "EXPOSE 7420\n",
                     "COPY deploy/entrypoint.sh /usr/local/bin/semaphored-entrypoint\n"):
            self.assertIn(line, runtime)

    def test_it_serves_and_ends_as_process_1(self):
        process, daemon = self.daemon()
        with open(f"/proc/{daemon}/status", encoding="ascii") as file:
            status = file.read()
        self.assertRegex(status, rf"(?m)^Uid:\s+{USER}\s")
        self.assertRegex(status, r"(?m)^NSpid:\s+\d+\s+1$")
        code, said = self.beside(daemon, "semctl", "--token-file", TOKEN, "run", "image", "--limit", "1", "--",
                                 "sh", "-c", "echo slot $SEMAPHORE_SLOT; exit 7")
        self.assertEqual((code, said), (7, "slot 1\n"))
        self.end(process, daemon)

    def test_it_is_reached_from_outside_by_those_with_a_token(self):
        _, daemon = self.daemon()
        self.assertEqual(self.beside(daemon, "semaphored", "health", "--address", f"{OUTER}:7420")[0], 0)
        for server in ("127.0.0.1:7420", f"{OUTER}:7420"):
            code, said = self.beside(daemon, "semctl", "--server", server, "list")
            self.assertEqual(code, 119, said)
            self.assertIn("serves only clients that it knows", said)

    def test_the_page_is_reached_from_outside_if_it_is_asked_for(self):
        _, daemon = self.daemon(SEMAPHORED_HTTP_LISTEN="0.0.0.0:7422")
        done = subprocess.run(["nsenter", f"--target={daemon}", "--net", "curl", "-s", "-o", "/dev/null", "-w",
                               "%{http_code}\n", f"http://{OUTER}:7422/",
                               "--next", "-s", "-o", "/dev/null", "-w", "%{http_code}\n", "-H", "Content-Type: application/json", "-d",
                               '{"list": {}}', f"http://{OUTER}:7422/semaphore.v1.SemaphoreService/Administer"],
                              capture_output=True, text=True, check=True, timeout=BOUND_S)
        self.assertEqual(done.stdout.split(), ["200", "401"])

    def test_the_first_run_alone_makes_a_token(self):
        process, daemon = self.daemon()
        made = {}
        for name in ("token", "access.toml"):
            path = os.path.join(self.volume, name)
            self.assertEqual((os.stat(path).st_mode & 0o777, os.stat(path).st_uid), (0o600, USER))
            with open(path, encoding="ascii") as file:
                made[name] = file.read()
        self.assertNotIn(made["token"].strip(), made["access.toml"])
        self.end(process, daemon)
        said = process.stdout.read()
        self.assertIn(f"first run: clients need the token in {TOKEN}\n", said)
        self.assertNotIn(made["token"].strip(), said)

        process, daemon = self.daemon()
        for name, text in made.items():
            with open(os.path.join(self.volume, name), encoding="ascii") as file:
                self.assertEqual(file.read(), text)
        self.assertEqual(self.beside(daemon, "semctl", "--token-file", TOKEN, "list")[0], 0)
        self.end(process, daemon)

    def test_a_first_run_that_was_cut_off_is_done_again(self):
        for name in ("token", "access.toml.new"):
            with open(os.path.join(self.volume, name), "w", encoding="ascii") as file:
                file.write("half of")
            os.chown(os.path.join(self.volume, name), USER, USER)
        _, daemon = self.daemon()
        self.assertEqual(self.beside(daemon, "semctl", "--token-file", TOKEN, "list")[0], 0)

    def test_no_token_is_made_where_none_is_asked_for(self):
        _, daemon = self.daemon(SEMAPHORED_ACCESS_FILE="")
        self.assertEqual(self.beside(daemon, "semctl", "list")[0], 0)
        code, said = self.run_there("semaphored-entrypoint", "token")
        self.assertEqual(code, 0, said)
        self.assertEqual(set(os.listdir(self.volume)) & {"token", "access.toml"}, set())

    def test_nothing_but_the_volume_can_be_written(self):
        for path, ends in (("/var/lib/semaphored/x", 0), ("/x", 1), ("/tmp/x", 1), ("/usr/x", 1)):
            with self.subTest(path):
                code, said = self.run_there("touch", path)
                self.assertEqual(code, ends, said)

    def test_it_is_small(self):
        added = self.bytes() - self.before
        print(f"measured: {added / 1e6:.0f} MB beside Debian's own {self.before / 1e6:.0f} MB")
        self.assertLess(added, 80e6)


if __name__ == "__main__":
    unittest.main()
