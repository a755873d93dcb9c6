"""What a new user types at semctl: wrong words, missing parts, no daemon. Every message says what
would be right, in semctl's own words."""

import concurrent.futures
import json
import os
import re
import socket
import subprocess
import tempfile
import time
import unittest

from daemon import BIN_DIR, BOUND_S, Daemon, free_port

SEMCTL = os.path.join(BIN_DIR, "semctl")
NO, USAGE, REFUSED, FULL, UNREACHABLE = 1, 2, 119, 120, 123

# Names of the protocol: fields, values of enums, reasons.
WIRE_NAME = re.compile(r"\b[a-z]+(_[a-z]+)*_(ms|id|max)\b|\b[A-Z]+(_[A-Z]+)+\b|\b[a-z]+\.[a-z]+_[a-z]")

# One line for each command that asks a daemon.
ASKING = (
    ("run", "x", "--", "true"), ("acquire", "x"), ("renew", "x#0"), ("release", "x#0"),
    ("verify", "x#0"), ("create", "x", "--limit", "1"), ("resize", "x", "--limit", "1"),
    ("configure", "x"), ("pause", "x"), ("resume", "x"), ("drain", "x"), ("revoke", "x", "--all"),
    ("destroy", "x"), ("prune", "x"), ("adopt", "x"), ("apply", "FILE"), ("diff", "FILE"),
    ("import", "FILE"),
    ("export",), ("describe", "x"), ("list",), ("history", "x"), ("work", "x", "--", "true"),
    ("enqueue", "x"), ("tickets", "x"), ("dead-letters", "x"), ("watch",), ("top",),
    ("top", "--rounds", "1", "-o", "json"))


class Typing(unittest.TestCase):

    def type(self, *words, server=None, environment=None):
        """The exit code, stdout and stderr."""
        given = {key: value for key, value in os.environ.items() if not key.startswith("SEMCTL_")}
        if server is not None:
            given["SEMCTL_SERVER"] = server
        done = subprocess.run([SEMCTL, *words], env={**given, **(environment or {})}, text=True,
                              errors="backslashreplace", capture_output=True, timeout=BOUND_S, check=False)
        return done.returncode, done.stdout, done.stderr

    def refuse(self, *words, code=USAGE, server=None):
        """stderr of a line that is refused."""
        got, said, complained = self.type(*words, server=server)
        self.assertEqual(got, code, said + complained)
        self.assertEqual(said, "")
        return complained


class WithoutDaemon(Typing):

    def setUp(self):
        self.nowhere = f"127.0.0.1:{free_port()}"

    def test_version(self):
        for words in (("--version",), ("version",)):
            with self.subTest(words=words):
                code, said, _ = self.type(*words)
                self.assertEqual(code, 0)
                self.assertRegex(said, r"^semctl \d+\.\d+\.\d+\n$")

    def test_version_for_programs(self):
        code, said, _ = self.type("version", "-o", "json")
        self.assertEqual((code, f"semctl {json.loads(said)['version']}\n"), self.type("version")[:2])

    def test_help(self):
        code, overview, _ = self.type("help")
        self.assertEqual((code, overview), self.type("--help")[:2])
        self.assertIn("Subcommands:", overview)
        code, of_run, _ = self.type("help", "run")
        self.assertEqual((code, of_run), self.type("run", "--help")[:2])
        self.assertIn("semctl run", of_run)
        self.assertIn("must be one of run, acquire", self.refuse("help", "nothing"))

    def test_help_lists_options_in_their_own_order(self):
        lists = 0
        for command in ("run", "acquire", "renew", "release", "verify", "resize", "revoke", "destroy", "work", "watch"):
            help_ = self.type("help", command)[1]
            order = re.findall(r"^ +(?:-\w,)?(--[a-z-]+|[A-Z]+)\b", help_.split("\nExamples:")[0], re.MULTILINE)
            for needed in re.findall(r"(?:Needs|Excludes):((?: (?:--[a-z-]+|[A-Z]+)\b)+)", help_):
                with self.subTest(command=command, needed=needed):
                    self.assertEqual(needed.split(), sorted(needed.split(), key=order.index))
                    lists += 1
        self.assertGreater(lists, 15)

    def test_an_unknown_command_gets_a_suggestion(self):
        self.assertEqual(self.refuse("lst"),
                         "semctl: unknown command 'lst'; did you mean 'list'?\n")
        self.assertEqual(self.refuse("--server", "a:1", "descrbe", "x"),
                         "semctl: unknown command 'descrbe'; did you mean 'describe'?\n")
        self.assertEqual(self.refuse("qqqqqqqq"), "semctl: unknown command 'qqqqqqqq'\n")
        self.assertIn("a command is missing", self.refuse())

    def test_all_that_is_wrong_with_the_options_is_said_at_once(self):
        said = self.refuse("run", "x", "--limt", "2", "--permits", "many", "--wait=soon", "--",
                           "true").splitlines()
        self.assertEqual(len(said), 3, said)
        self.assertEqual(said[0], "semctl: unknown option '--limt'; did you mean '--limit'?")
        self.assertRegex(said[1], "--permits: must be a number.*'many'")
        self.assertRegex(said[2], "--wait: not a duration like 500ms")
        # More than the protocol can say.
        self.assertIn("--wait: must be at most 49d, not 60d",
                      self.refuse("acquire", "x", "--wait", "60d"))

    def test_a_command_without_dashes(self):
        for words, right in (
                (("run", "NAME", "echo", "hi"), "semctl run NAME -- echo hi"),
                (("run", "NAME", "--limit", "2", "ls", "-l"), "semctl run NAME --limit 2 -- ls -l"),
                (("run", "NAME", "echo", "two words"), "semctl run NAME -- echo 'two words'"),
                (("run", "NAME"), "semctl run NAME -- COMMAND..."),
                (("work", "jobs/a", "cat"), "semctl work jobs/a -- cat"),
                (("work", "jobs/*"), "semctl work 'jobs/*' -- COMMAND...")):
            with self.subTest(words=words):
                said = self.refuse(*words)
                self.assertIn('behind "--", which is missing: ' + right + "\n", said)
        self.assertIn("NAME -- COMMAND", self.refuse("run", "NAME", "--"))

    def test_fixed_words_are_listed(self):
        for words, right in (
                (("resize", "x", "--add", "1", "--policy", "nicely"), "wait, recall, refuse"),
                (("list", "-o", "xml"), "text, json"),
                (("completion", "csh"), "bash, zsh, fish"),
                (("tickets", "x", "shw"), "show, cancel, prioritise"),
                (("tickets", "x", "--state", "ded"), "queued, delayed, assigned, dead"),
                (("dead-letters", "x", "revive"), "requeue, purge")):
            with self.subTest(words=words):
                said = self.refuse(*words)
                self.assertIn("must be one of " + right + ", not '", said)

    def test_an_argument_that_is_no_utf_8_is_named(self):
        for name, *words in (
                ("NAME", "describe", b"\xff"), ("PREFIX", "list", b"team/\xc3"), ("--page-token", "list", "--page-token", b"\xff"),
                ("--holder", "acquire", "x", b"--holder=\xed\xa0\x80"), ("--holder", "run", "x", "--holder", b"\xff", "--", "true"),
                ("NAME", "work", "x", b"\xff", "--", "true"), ("--content-type", "enqueue", "x", "--content-type", b"\xff"),
                ("TICKET", "tickets", "x", "show", b"\xff"), ("LEASE", "release", b"\xff"),
                ("--lease", "revoke", "x", "--lease", b"\xff")):
            with self.subTest(words=words):
                self.assertRegex(self.refuse(*words, server=self.nowhere), rf"^semctl: {name}: must be UTF-8\b")
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"x#\xff\n")
            file.flush()
            self.assertIn("no lease id", self.refuse("renew", "--lease-file", file.name, server=self.nowhere))
        # The name of a file is any bytes.
        self.assertIn("cannot read", self.refuse("enqueue", "x", "--payload", b"\xff", code=REFUSED, server=self.nowhere))

    def test_a_zero_that_the_api_takes_for_not_given(self):
        for words in (("run", "x", "--permits", "0", "--", "true"), ("acquire", "x", "--permits=0"),
                      ("run", "x", "--limit", "00", "--", "true"), ("acquire", "x", "--limit", "0x0"),
                      ("enqueue", "x", "--limit", "0")):
            with self.subTest(words=words):
                option = re.match("--[a-z]+", words[2])[0]
                self.assertEqual(self.refuse(*words, server=self.nowhere),
                                 f"semctl: {option}: must be 1 or more, not 0\n")
        for time_ in ("0", "0s", "0.1ms"):
            self.assertEqual(self.refuse("doctor", "--timeout", time_, server=self.nowhere),
                             "semctl: --timeout: must be 1ms or more\n")

    def test_endpoints_are_checked_before_anything_waits(self):
        for server, why in (("http://a:7420", "begins with http://"), ("localhost", "has no port"),
                            ("a:99999", "has the port 99999"), (",", "give 1 to 64"),
                            ("a:1,b", "'b' has no port"), ("::1:7420", "is not in [ ]")):
            for words in (("--server", server, "list"), ("run", "x", "--server=" + server, "--", "true")):
                with self.subTest(words=words):
                    begun = time.monotonic()
                    said = self.refuse(*words)
                    self.assertLess(time.monotonic() - begun, 1.5)
                    self.assertIn("--server: ", said)
                    self.assertIn(why, said)
                    self.assertIn("such as 127.0.0.1:7420", said)
        self.assertIn("has no port", self.refuse("list", server="nowhere"))

    def test_no_daemon_is_one_code_soon(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write("[semaphore.x]\nlimit = 1\n")
            file.flush()
            lines = [[file.name if word == "FILE" else word for word in words] for words in ASKING]

            def timed(words):
                begun = time.monotonic()
                return (*self.type(*words, server=self.nowhere), time.monotonic() - begun)

            # They wait most of their time.
            with concurrent.futures.ThreadPoolExecutor(len(lines)) as threads:
                answers = list(threads.map(timed, lines))
        for words, (code, said, complained, took_s) in zip(lines, answers):
            with self.subTest(words=words):
                self.assertEqual((code, said), (UNREACHABLE, ""), complained)
                self.assertLess(took_s, 8.0 if words[0] in ("run", "work") else 5.0)
                self.assertIn("no daemon could be reached", complained)
                self.assertRegex(self.type("help", words[0])[1], r"123\b.*no daemon could be\s+reached")

    def test_a_machine_that_answers_nothing_is_one_code_soon(self):
        # Connections are made, by the kernel, and then nothing is said.
        with socket.create_server(("127.0.0.1", 0)) as silent:
            server = f"127.0.0.1:{silent.getsockname()[1]}"
            for words in (("list",), ("top",), ("watch",)):
                with self.subTest(words=words):
                    begun = time.monotonic()
                    self.refuse(*words, code=UNREACHABLE, server=server)
                    self.assertLess(time.monotonic() - begun, 5.0)

    def test_no_wait_does_not_wait_for_a_daemon(self):
        for words in (("run", "x", "--no-wait", "--", "true"), ("acquire", "x", "--no-wait")):
            with self.subTest(words=words):
                begun = time.monotonic()
                self.refuse(*words, code=UNREACHABLE, server=self.nowhere)
                self.assertLess(time.monotonic() - begun, 1.5)

    def test_codes_do_not_meet_those_of_timeout(self):
        codes = re.findall(r"^  ([\d,]+|128\+N) ", self.type("help")[1], re.MULTILINE)
        self.assertIn("119", codes)
        self.assertNotIn("124", codes)
        self.assertNotIn("125", codes)


class WithDaemon(Typing):

    def setUp(self):
        self.daemon = Daemon()
        self.daemon.start()
        self.addCleanup(self.daemon.close)
        self.server = self.daemon.address
        self.client = self.daemon.client()

    def ok(self, *words):
        code, said, complained = self.type(*words, server=self.server)
        self.assertEqual(code, 0, complained)
        return said

    def test_no_wait_does_not_wait_for_permits(self):
        self.client.acquire("x", limit=1, ttl_ms=60_000)
        for words in (("run", "x", "--no-wait", "--", "true"), ("acquire", "x", "--no-wait")):
            with self.subTest(words=words):
                begun = time.monotonic()
                said = self.refuse(*words, code=FULL, server=self.server)
                self.assertLess(time.monotonic() - begun, 1.5)
                self.assertIn("wait with --wait", said)

    def test_advice_names_options_that_the_command_has(self):
        for words in (("describe", "nope"), ("history", "nope"), ("pause", "nope"),
                      ("resize", "nope", "--limit", "2"), ("tickets", "nope")):
            code, said, complained = self.type(*words, server=self.server)
            with self.subTest(words=words):
                self.assertIn(code, (0, REFUSED), said)
                options = self.type("help", words[0])[1]
                for option in re.findall(r"--[a-z-]+", complained):
                    self.assertIn(option, options)
        self.assertEqual(self.refuse("describe", "nope", code=REFUSED, server=self.server),
                         "semctl: nope: there is no such semaphore\n"
                         "semctl: semctl list shows those that exist\n")
        self.assertIn("give --limit to create it",
                      self.refuse("acquire", "nope", code=REFUSED, server=self.server))

    def test_no_name_of_the_protocol_is_printed(self):
        lease = self.client.acquire("x", limit=2, permits=2, ttl_ms=60_000, holder="me").lease_id
        bad = "x" * 300
        said = ""
        for words in (
                ("acquire", "x", "--ttl", "1ms"), ("run", "x", "--ttl", "1ms", "--", "true"),
                ("work", "x", "--ttl", "1ms", "--", "true"), ("acquire", "x", "--wait", "365d"),
                ("acquire", "x", "--wait", "10ms"), ("run", "x", "--wait", "10ms", "--", "true"),
                ("acquire", "x", "--no-wait"), ("acquire", "x", "--limit", "9"),
                ("acquire", "x", "--permits", "9"), ("acquire", "x", "--priority", "2000"),
                ("acquire", "x", "--holder", bad), ("acquire", bad), ("acquire", "/x"),
                ("renew", "nonsense"), ("release", "nonsense"), ("release", lease, "--slot", "9"),
                ("verify", "nonsense"), ("verify", "--semaphore", "x", "--slot", "0", "--token", "1"),
                ("create", "y", "--limit", "0"), ("create", "x", "--limit", "5"),
                ("create", "y", "--limit", "1", "--longest-hold", "1ms"),
                ("configure", "x", "--recall-grace", "300d"), ("configure", "x", "--revision", "99"),
                ("resize", "x", "--limit", "99999999"), ("resize", "x", "--remove", "9"),
                ("resize", "x", "--limit", "1", "--policy", "refuse"),
                ("resize", "x", "--limit", "1", "--grace", "300d"), ("destroy", "x"),
                ("destroy", "x", "--wait", "300d"), ("drain", "x", "--wait", "300d"),
                ("revoke", "x", "--lease", "nonsense"), ("revoke", "x", "--all", "--grace", "300d"),
                ("list", "--page-token", "a b"), ("list", "/x"), ("history", "x", "--page-token", "none"),
                ("describe", "nope"), ("tickets", "x", "show", "nonsense"),
                ("tickets", "x", "cancel", "1" * 32), ("dead-letters", "x", "purge", "nonsense"),
                ("enqueue", "x", "--delay", "300d"), ("enqueue", "x", "--content-type", bad),
                ("enqueue", "x", "--back-off", "300d"), ("enqueue", "x", "--traceparent", "nonsense"),
                ("watch", "/x")):
            complained = self.refuse(*words, code=self.type(*words, server=self.server)[0],
                                     server=self.server)
            with self.subTest(words=words):
                self.assertNotEqual(complained, "")
                # limit_max is a setting of the daemon.
                self.assertNotRegex(complained.replace("limit_max", ""), WIRE_NAME)
            said += complained
        for option in ("--ttl: must be 1s to", "--wait: must be",
                       "--page-token: must be the --page-token of the page before",
                       "--longest-hold: must be 1s to", "--priority: must be -1000 to 1000"):
            self.assertIn(option, said)

    def test_events_and_ends_are_words(self):
        lease = self.client.acquire("x", limit=1, ttl_ms=60_000)
        self.client.release(lease.lease_id)
        for words in (("history", "x"), ("watch", "--events", "1"), ("verify", lease.lease_id),
                      ("release", lease.lease_id)):
            _, said, complained = self.type(*words, server=self.server)
            with self.subTest(words=words):
                self.assertNotRegex(complained, WIRE_NAME)
                self.assertNotRegex(said, r"\bRELEASED\b|\bSNAPSHOT\b")
        # For programs they stay as they were.
        self.assertEqual(json.loads(self.ok("history", "x", "-o", "json"))["rows"][0]["cause"],
                         "RELEASED")

    def test_describe_shows_what_revoke_wants_and_times_with_a_zone(self):
        lease = self.client.acquire("x", limit=1, ttl_ms=60_000, holder="me")
        code, said, _ = self.type("describe", "x", server=self.server,
                                  environment={"TZ": "Asia/Kolkata"})
        self.assertEqual(code, 0)
        self.assertIn(lease.lease_id, said)
        self.assertRegex(said, r"\be2e\b")  # The node, by the id that it was given.
        self.assertEqual(len(re.findall(r"\d\d:\d\d:\d\d \+0530", said)), 2, said)
        shown = re.search(r"x#\w+", said)[0]
        self.assertIn("leases recalled, or ended: 1", self.ok("revoke", "x", "--lease", shown, "--now"))
        self.assertRegex(self.ok("history", "x"), r"\d\d:\d\d:\d\d [+-]\d{4}")

    def test_a_revoke_of_no_lease_says_no(self):
        self.client.acquire("x", limit=1, ttl_ms=60_000, holder="me")
        code, said, _ = self.type("revoke", "x", "--holder", "typo", server=self.server)
        self.assertEqual(code, NO)
        self.assertIn("leases recalled, or ended: 0", said)
        code, said, _ = self.type("revoke", "x", "--holder", "typo", "-o", "json",
                                  server=self.server)
        self.assertEqual((code, json.loads(said)["revoked"]), (NO, 0))
        self.ok("revoke", "x", "--holder", "me")
        self.ok("revoke", "x", "--all")

    def test_a_negative_priority_is_no_option(self):
        ticket = self.ok("enqueue", "x", "--limit", "1", "-q").strip()
        self.assertIn("moved", self.ok("tickets", "x", "prioritise", ticket, "-5", "-o", "json"))
        shown = json.loads(self.ok("tickets", "x", "show", ticket, "-o", "json"))
        self.assertEqual(shown["priority"], -5)
        self.ok("enqueue", "x", "--priority", "-7")

    def test_what_programs_read(self):
        lease = json.loads(self.ok("acquire", "x", "--limit", "1", "-o", "json"))
        self.assertEqual(list(lease), ["lease_id", "semaphore", "slots", "token", "holder", "ttl_ms",
                                       "session_id", "valid_for_ms"])
        semaphore = ["semaphore", "limit", "held", "waiting", "paused", "destroying", "revision",
                     "created_at"]
        quiet = json.loads(self.ok("acquire", "quiet", "--limit", "1", "-q", "-o", "json"))
        self.assertEqual(list(quiet), list(lease))
        described = json.loads(self.ok("describe", "x", "-o", "json"))
        self.assertEqual([key for key in described if key != "tickets"],
                         semaphore + ["settings", "leases", "waiters",
                                      "next_page_token"])
        self.assertEqual(list(described["leases"][0]),
                         list(lease)[:-1] + ["foreign", "recalled", "granted_at", "node"])
        listed = json.loads(self.ok("list", "-o", "json"))
        self.assertEqual(list(listed), ["semaphores", "next_page_token"])
        self.assertLessEqual(set(semaphore), set(listed["semaphores"][0]))
        revoked = json.loads(self.ok("revoke", "x", "--all", "--now", "-o", "json"))
        self.assertEqual(list(revoked), ["revoked", "others_asked", "semaphore"])
        self.assertEqual(list(json.loads(self.ok("history", "x", "-o", "json"))["rows"][0]),
                         ["number", "semaphore", "holder", "slots", "token", "granted_at",
                          "ended_at", "cause"])

    def test_errors_for_programs(self):
        said = self.refuse("describe", "nope", "-o", "json", code=REFUSED, server=self.server)
        self.assertEqual(json.loads(said), {"error": {
            "code": "NOT_FOUND", "reason": "NO_SUCH_SEMAPHORE", "exit_code": REFUSED,
            "message": "nope: there is no such semaphore",
            "advice": "semctl list shows those that exist"}})


if __name__ == "__main__":
    unittest.main()
