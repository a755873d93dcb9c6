"""What the programs print where it cannot be written, where their standard files are closed, and files that are none."""

import json
import os
import signal
import subprocess
import tempfile
import unittest

from daemon import BIN_DIR, BOUND_S, Daemon, free_port, numbered, pb, wait_until

SEMCTL = os.path.join(BIN_DIR, "semctl")
SEMAPHORED = os.path.join(BIN_DIR, "semaphored")
NO, USAGE, NOT_WRITTEN, REFUSED, UNREACHABLE, NOT_FOUND = 1, 2, 118, 119, 123, 127


def run(*command, **options):
    return subprocess.run(command, check=False, text=True, timeout=BOUND_S,
                          **{"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "stdout": subprocess.PIPE, **options})


class Case(unittest.TestCase):

    def setUp(self):
        self.daemon = self.enterContext(Daemon())
        self.client = self.daemon.client()

    def semctl(self, *arguments, **options):
        return run(SEMCTL, "--server", self.daemon.address, *arguments, **options)

    def spawn(self, *command, **options):
        process = subprocess.Popen(command, **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process


class FullDisk(Case):

    def on_a_full_disk(self, *command):
        with open("/dev/full", "w", encoding="utf-8") as full:
            return run(*command, stdout=full)

    def test_semctl(self):
        self.client.acquire("team/db", limit=4)
        for words in (["export"], ["list"], ["describe", "team/db"], ["acquire", "team/db", "-q"], ["-o", "json", "list"],
                      ["version"], ["--version"], ["--help"], ["help", "run"], ["completion", "bash"]):
            with self.subTest(words):
                done = self.on_a_full_disk(SEMCTL, "--server", self.daemon.address, *words)
                self.assertEqual(done.returncode, NOT_WRITTEN, done.stderr)
                self.assertIn("standard output: ", done.stderr)
        self.assertEqual(json.loads(self.on_a_full_disk(SEMCTL, "-o", "json", "version").stderr)["event"], "output")
        # Another code stays.
        self.assertEqual(self.on_a_full_disk(SEMCTL, "--server", self.daemon.address, "drain", "team/db").returncode, NO)

    def test_semaphored(self):
        for words in (["token"], ["--print-config"], ["schema", "--print"], ["--help"], ["token", "--help"]):
            with self.subTest(words):
                done = self.on_a_full_disk(SEMAPHORED, *words)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("standard output: ", done.stderr)
        # Here the line is not what matters.
        copy = os.path.join(self.daemon.folder, "copy.db")
        self.assertEqual(self.on_a_full_disk(SEMAPHORED, "backup", copy, "--store", self.daemon.store).returncode, 0)
        self.assertTrue(os.path.exists(copy))

    def test_a_reader_that_is_gone_where_its_signal_is_ignored(self):
        """As in a unit of systemd."""
        for words in (["watch"], ["top", "--interval", "50ms"]):
            with self.subTest(words):
                process = self.spawn(SEMCTL, "--server", self.daemon.address, *words, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL, restore_signals=False,
                                     preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN))
                self.client.acquire("first", limit=1000)
                self.assertTrue(process.stdout.readline())
                process.stdout.close()

                def ended(process=process):
                    self.client.acquire("first", limit=1000)
                    return process.poll() is not None
                wait_until(ended, "it has ended")
                self.assertEqual(process.returncode, NOT_WRITTEN)


class Closed(Case):

    def closed(self, which, *command):
        return ["/bin/sh", "-c", f'exec "$@" {which}', "sh", *command]

    def assert_occupied(self, process, descriptors):
        def occupied():
            try:
                return [os.readlink(f"/proc/{process.pid}/fd/{each}") for each in descriptors]
            except FileNotFoundError:  # The shell has closed it, and is not the program yet.
                return None
        wait_until(lambda: occupied() == ["/dev/null"] * len(descriptors), occupied)

    def test_the_daemon(self):
        """None of its connections and files is what it prints to."""
        address = f"127.0.0.1:{free_port()}"
        process = self.spawn(*self.closed("<&- >&- 2>&-", SEMAPHORED, "--store", f"sqlite://{self.daemon.folder}/other.db",
                                          "--listen", address, "--http-listen", "off"))
        wait_until(lambda: run(SEMAPHORED, "health", "--address", address).returncode == 0, "it serves")
        self.assert_occupied(process, (1, 2))
        process.terminate()
        self.assertEqual(process.wait(BOUND_S), 0)

    def test_progress_is_not_written_into_the_back_up(self):
        for number in range(100):
            self.daemon.client().stub.Enqueue(self.ticket(number), timeout=BOUND_S)
        copy = os.path.join(self.daemon.folder, "copy.db")
        process = self.spawn(*self.closed("2>&-", SEMAPHORED, "backup", copy, "--store", self.daemon.store, "--rate", "1"),
                             stdout=subprocess.DEVNULL)
        self.assert_occupied(process, (2,))  # For seconds, in which it copies.
        self.assertEqual(process.wait(BOUND_S), 0)

    def ticket(self, number):
        return pb.EnqueueRequest(request_id=numbered("closed", number + 1), semaphore="work", limit=1, payload=bytes(60_000))

    def test_semctl(self):
        done = run(*self.closed(">&-", SEMCTL, "--server", self.daemon.address, "list"))
        self.assertEqual(done.returncode, NOT_WRITTEN, done.stderr)
        self.assertIn("Bad file descriptor", done.stderr)
        # Its command finds them closed, as without semctl.
        done = run(*self.closed("<&- >&-", SEMCTL, "--server", self.daemon.address, "run", "x", "--limit", "1", "--",
                                "sh", "-c", "test ! -e /proc/$$/fd/0 && test ! -e /proc/$$/fd/1"))
        self.assertEqual(done.returncode, 0, done.stderr)


class Files(Case):

    def test_what_is_no_file_or_has_no_end(self):
        with tempfile.TemporaryDirectory() as folder:
            for path, why in ((folder, "cannot|no lease id"), ("/dev/zero", "over 1 MiB|no lease id")):
                for words in (["enqueue", "x", "--limit", "1", "--payload", path], ["release", "--lease-file", path],
                              ["list", "--token-file", path], ["list", "--ca-file", path],
                              ["list", "--cert-file", path, "--key-file", path]):
                    with self.subTest(words):
                        done = self.semctl(*words)
                        self.assertIn(done.returncode, (USAGE, REFUSED), done.stderr)
                        self.assertRegex(done.stderr, why)
        with open("/dev/zero", encoding="utf-8") as endless:
            for words in (["enqueue", "x", "--limit", "1", "--payload", "-"], ["release", "--lease-file", "-"]):
                self.assertIn(self.semctl(*words, stdin=endless).returncode, (USAGE, REFUSED))
        self.assertEqual(self.semctl("list", "--names").stdout, "")


class ForPrograms(Case):

    def errors(self, *words, code):
        done = self.semctl("-o", "json", *words)
        self.assertEqual(done.returncode, code, done.stderr)
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        self.assertGreater(len(lines), 0)
        return lines

    def test_arguments_that_are_no_utf_8(self):
        self.client.acquire("x", limit=2)
        self.errors("run", "x", "--", b"./\xff", code=NOT_FOUND)
        self.errors("apply", b"\xff", code=USAGE)
        self.errors(b"--\xff", code=USAGE)
        self.errors("describe", b"\xff", code=USAGE)

    def test_libraries_print_no_lines_of_their_own(self):
        self.errors("list", "--tls", "--connect-timeout", "500ms", code=UNREACHABLE)


if __name__ == "__main__":
    unittest.main()
