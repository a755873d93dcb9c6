"""What the daemon can be told, by flag, environment and file, and how it refuses what is wrong."""

import os
import subprocess
import tempfile
import tomllib
import unittest

from daemon import BIN_DIR, BOUND_S


class Configuration(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-e2e-")
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "semaphored.toml")

    def run_daemon(self, *arguments, environment=None):
        return subprocess.run([os.path.join(BIN_DIR, "semaphored"), *arguments],
                              env={**os.environ, **(environment or {})}, capture_output=True,
                              text=True, timeout=BOUND_S, check=False)

    def printed(self, *arguments, environment=None):
        done = self.run_daemon(*arguments, "--print-config", environment=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return tomllib.loads(done.stdout)

    def refused(self, *arguments, environment=None):
        done = self.run_daemon(*arguments, environment=environment)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stderr + done.stdout

    def write(self, text):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)

    def test_help_and_version(self):
        for flag in ("--help", "--version"):
            done = self.run_daemon(flag)
            self.assertEqual(done.returncode, 0)
            self.assertTrue(done.stdout)
        overview = self.run_daemon("--help").stdout
        self.assertIn("--store", overview)
        for command in ("backup", "restore", "health", "schema", "token"):
            self.assertEqual(self.run_daemon(command, "--help").returncode, 0)
            self.assertIn(f"semaphored {command}", overview)

    def test_defaults(self):
        config = self.printed()
        self.assertEqual(config["listen"], "127.0.0.1:7420")
        self.assertEqual(config["store"], "sqlite:///var/lib/semaphored/state.db")
        self.assertEqual(config["ttl_min"], "1s")

    def test_flags_win_over_environment_over_file(self):
        self.write('ttl_default = "11s"\nnode_ttl = "12s"\nbatch_max = 13\n')
        config = self.printed("--config", self.path, "--ttl-default=31s",
                              environment={"SEMAPHORED_TTL_DEFAULT": "21s",
                                           "SEMAPHORED_NODE_TTL": "22s"})
        self.assertEqual((config["ttl_default"], config["node_ttl"], config["batch_max"]),
                         ("31s", "22s", 13))

    def test_what_is_printed_can_be_read_again(self):
        self.write(self.run_daemon("--print-config", "--ttl-default=31s").stdout)
        self.assertEqual(self.printed("--config", self.path)["ttl_default"], "31s")

    def test_an_unknown_scheme_names_those_that_exist(self):
        said = self.refused("--store", "mongodb://localhost/x")
        self.assertIn("mongodb", said)
        self.assertIn("sqlite", said)

    def test_wrong_values_are_named(self):
        for arguments, named in ((("--ttl-default=soon",), "ttl-default"),
                                 (("--ttl-min=0",), "ttl-min"),
                                 (("--ttl-default=10000h",), "ttl-default"),
                                 (("--log-level=loud",), "log-level"),
                                 (("--listen=nowhere",), "listen"),
                                 (("--no-such-flag",), "no-such-flag"),
                                 (("--config", "/does/not/exist.toml"), "/does/not/exist.toml")):
            with self.subTest(arguments=arguments):
                self.assertIn(named, self.refused(*arguments))

    def test_the_file_is_checked(self):
        self.write('ttl_defualt = "11s"\n')
        said = self.refused("--config", self.path)
        self.assertIn("ttl_defualt", said)
        self.assertIn("ttl_default", said, "the nearest key is not named")
        self.write('ttl_default = \n')
        self.assertIn(self.path, self.refused("--config", self.path))

    def test_three_mistakes_are_three_messages(self):
        self.write('log_format = "xml"\nttl_defualt = "11s"\nlisten = "nowhere"\n')
        done = self.run_daemon("--config", self.path)
        self.assertEqual(done.returncode, 2)
        said = done.stderr.splitlines()
        self.assertEqual(len(said), 3, said)
        for line, words in zip(said, ("log_format", "ttl_default", "listen")):
            self.assertTrue(line.startswith("semaphored: "), line)
            self.assertIn(words, line)

    def test_more_than_this_machine_has_to_be_asked_for(self):
        self.assertIn("allow-insecure-remote",
                      self.refused("--store", "sqlite::memory:", "--listen", "0.0.0.0:0"))


if __name__ == "__main__":
    unittest.main()
