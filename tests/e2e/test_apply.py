"""semctl apply, diff, export and import: semaphores as a file declares them, and moved from one
engine to another."""

import json
import os
import subprocess
import tempfile
import unittest

import cluster
from daemon import BIN_DIR, BOUND_S, Daemon

SEMCTL = os.path.join(BIN_DIR, "semctl")
USAGE, REFUSED, UNREACHABLE = 2, 119, 123

DECLARED = """
[prefix."team/"]
limit = 4
recall_grace = "10s"
shrink = "refuse"

[prefix."team/fast/"]
limit = 9

[semaphore."team/db"]
limit = 2
longest_hold = "1h30m"
backfill = true

[semaphore."team/fast/mail"]
[semaphore."alone"]
limit = 1
permits_per_holder = 1
waiters_max = 7
recall_grace = "0s"
"""


class SemctlTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semctl-apply-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        self.client = self.daemon.client()

    def semctl(self, *arguments, daemon=None, text=None):
        return subprocess.run(
            [SEMCTL, "--server", (daemon or self.daemon).address, *arguments], input=text, text=True,
            capture_output=True, timeout=BOUND_S, check=False)

    def ok(self, *arguments, **more):
        done = self.semctl(*arguments, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def file(self, text):
        path = os.path.join(self.folder, "declared")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def names(self):
        return self.ok("list", "--names").split()


class Apply(SemctlTest):

    def test_what_is_declared_is_made_and_stays(self):
        path = self.file(DECLARED)
        planned = self.semctl("diff", path)
        self.assertEqual(planned.returncode, 1)
        self.assertIn('+ team/db: limit 2, backfill true, longest_hold "90m", recall_grace "10s"\n',
                      planned.stdout)
        self.assertIn("+ team/fast/mail: limit 9", planned.stdout)
        self.ok("apply", path, "--dry-run")
        self.assertEqual(self.names(), [])
        self.assertIn("3 of 3 steps done", self.ok("apply", path))
        self.assertEqual(self.names(), ["alone", "team/db", "team/fast/mail"])
        settings = self.client.describe("team/db").settings
        self.assertEqual((settings.longest_hold_ms, settings.recall_grace_ms, settings.backfill),
                         (5_400_000, 10_000, True))
        settings = self.client.describe("alone").settings
        self.assertEqual((settings.HasField("recall_grace_ms"), settings.recall_grace_ms),
                         (True, 0))
        revision = self.client.describe("team/db").revision
        self.assertEqual(self.ok("diff", path), "")
        self.assertIn("0 of 0 steps done, 3 semaphores", self.ok("apply", path))
        self.assertEqual(self.client.describe("team/db").revision, revision)

    def test_what_has_changed_is_changed_back(self):
        path = self.file(DECLARED)
        self.ok("apply", path)
        self.ok("resize", "team/db", "--limit", "5")
        self.ok("configure", "alone", "--waiters-max", "3")
        told = json.loads(self.semctl("diff", path, "-o", "json").stdout)
        self.assertEqual([d["semaphore"] for d in told["differences"]], ["alone", "team/db"])
        self.assertEqual(told["differences"][0]["changes"]["waiters_max"], {"from": 3, "to": 7})
        self.assertEqual(told["differences"][1]["changes"], {"limit": {"from": 5, "to": 2}})
        applied = json.loads(self.ok("apply", path, "-o", "json"))
        self.assertEqual(applied["applied"], [{"semaphore": "alone", "done": "configured"},
                                              {"semaphore": "team/db", "done": "resized"}])
        self.assertEqual(self.semctl("diff", path).returncode, 0)

    def test_json_says_the_same(self):
        self.ok("apply", self.file(DECLARED))
        exported = self.ok("export", "-o", "json")
        self.assertEqual(self.semctl("diff", "-", text=exported).returncode, 0)

    def test_all_is_checked_before_the_first_change(self):
        self.ok("create", "team/db", "--limit", "4")
        self.client.acquire("team/db", permits=3)
        refused = self.semctl("apply", self.file(DECLARED))
        self.assertEqual(refused.returncode, REFUSED)
        self.assertIn('team/db: the limit would be 2, but 3 are held, and shrink is "refuse"',
                      refused.stderr)
        self.assertEqual(self.names(), ["team/db"])
        bad = self.semctl("apply", self.file(
            '[semaphore."a"]\nlimit = -1\ncolour = 3\n[semaphore."/b"]\nlongest_hold = "1x"\n'))
        self.assertEqual(bad.returncode, USAGE)
        for wrong in ('semaphore "a", limit must be a whole number from 0 to 10000000, not -1',
                      "colour, which is not known", 'semaphore "/b" must be 1 to 255',
                      'longest_hold must be a duration', 'semaphore "/b" has no limit'):
            self.assertIn(wrong, bad.stderr)
        for unreadable in ("[", '{"semaphore": {"a": {"limit": 1}, "a": {"limit": 2}}}'):
            self.assertEqual(self.semctl("diff", self.file(unreadable)).returncode, USAGE)
        self.assertEqual(self.names(), ["team/db"])

    def test_shrinking_recalls_if_that_is_declared(self):
        self.ok("create", "r", "--limit", "3")
        lease = self.client.acquire("r", permits=3)
        self.ok("apply", self.file(
            '[semaphore."r"]\nlimit = 1\nshrink = "recall"\nshrink_grace = "1h"\n'))
        self.assertTrue(self.client.verify(lease.lease_id).HasField("recall"))

    def test_a_busy_semaphore_is_changed_all_the_same(self):
        """Its revision rises with every grant; its definition does not change by that."""
        self.ok("create", "busy", "--limit", "50")
        calls = [self.client.acquire_later("busy", wait_ms=0) for _ in range(20)]
        self.ok("apply", self.file('[semaphore."busy"]\nlimit = 60\nwaiters_max = 5\n'))
        self.assertEqual(self.client.describe("busy").limit, 60)
        self.assertEqual([call.result().lease.semaphore for call in calls], ["busy"] * 20)

    def test_one_that_fails_in_the_middle_is_told(self):
        declared = "".join(f'[semaphore."s{i}"]\nlimit = {n}\n'
                           for i, n in enumerate((1, 2, 5_000_000, 3)))
        failed = self.semctl("apply", self.file(declared))
        self.assertEqual(failed.returncode, REFUSED)
        self.assertIn("2 of 4 steps done", failed.stdout)
        self.assertIn("limit", failed.stderr)
        self.assertIn("stopped at s2: 1 steps after it were not begun", failed.stderr)
        self.assertEqual(self.names(), ["s0", "s1"])

    def test_prune_within_declared_prefixes_and_only_what_is_idle(self):
        path = self.file(DECLARED)
        self.ok("apply", path)
        for name in ("team/old", "team/used", "other/old"):
            self.ok("create", name, "--limit", "1")
        lease = self.client.acquire("team/used")
        self.assertEqual(self.semctl("diff", path).returncode, 0)
        differs = self.semctl("diff", path, "--prune")
        self.assertEqual(differs.returncode, 1)
        self.assertIn("- team/old: limit 1", differs.stdout)
        refused = self.semctl("apply", path, "--prune", "--yes")
        self.assertEqual(refused.returncode, REFUSED)
        self.assertIn("team/used: is not declared, but in use (1 held", refused.stderr)
        self.client.release(lease.lease_id)
        unasked = self.semctl("apply", path, "--prune")
        self.assertEqual(unasked.returncode, USAGE)
        self.assertIn("--yes", unasked.stderr)
        self.assertIn("team/old", self.names())
        self.ok("apply", path, "--prune", "--yes")
        self.assertEqual(self.names(), ["alone", "other/old", "team/db", "team/fast/mail"])
        self.assertEqual(self.semctl("apply", self.file('[semaphore."x"]\nlimit = 1\n'),
                                     "--prune", "--yes").returncode, USAGE)

    def test_nobody_there_is_no_difference(self):
        path = self.file(DECLARED)
        self.daemon.terminate()
        self.assertEqual(self.semctl("--connect-timeout", "300ms", "diff", path).returncode,
                         UNREACHABLE)


class Move(SemctlTest):
    """From the embedded store to Postgres."""

    @classmethod
    def setUpClass(cls):
        cls.server = cluster.start_server(cls)

    def test_definitions_go_to_another_engine(self):
        self.ok("apply", self.file(DECLARED))
        self.ok("create", "many/0", "--limit", "1")
        exported = self.ok("export")
        self.assertEqual(self.ok("export", "--prefix", "many/"),
                         '[semaphore."many/0"]\nlimit = 1\n')
        with Daemon(store=self.server.url("moved")) as other:
            self.ok("import", "-", text=exported, daemon=other)
            self.assertEqual(self.ok("export", daemon=other), exported)
            self.assertIn("0 of 0", self.ok("import", "-", text=exported, daemon=other))
            self.ok("resize", "alone", "--limit", "8", daemon=other)
            kept = self.semctl("import", "-", text=exported, daemon=other)
            self.assertEqual(kept.returncode, REFUSED)
            self.assertIn("alone: exists already, and is not the same; see --replace", kept.stderr)
            self.assertEqual(other.client().describe("alone").limit, 8)
            self.ok("import", "-", "--replace", text=exported, daemon=other)
            self.assertEqual(self.ok("export", daemon=other), exported)


if __name__ == "__main__":
    unittest.main()
