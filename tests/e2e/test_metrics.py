"""What the daemon tells Prometheus: exact figures after known work, in a form that promtool accepts,
with bounded cardinality; and the alerts about it."""

import os
import re
import subprocess
import tempfile
import unittest

from daemon import BIN_DIR, BOUND_S, Daemon, Reader, Session, grpc, pb, slots_of, wait_until
from scraping import Scrape, promtool, with_metrics

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
PROMETHEUS = os.path.join(ROOT, "deploy", "prometheus")


class Figures(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.daemon = self.enterContext(with_metrics())
        self.client = self.daemon.client()

    def scrape(self):
        return Scrape(self.daemon.metrics)

    def expect(self, expected, of=None):
        scrape = of or self.scrape()
        for (name, labels), value in expected.items():
            self.assertEqual(scrape.value(name, **dict(labels)), value, f"{name}{labels}")

    def becomes(self, value, name, **labels):
        wait_until(lambda: self.scrape().value(name, **labels) == value,
                   f"{name}{labels} is {value}")

    def refused(self, call, code):
        with self.assertRaises(grpc.RpcError) as raised:
            call()
        self.assertEqual(raised.exception.code(), code)

    def test_of_one_semaphore(self):
        db = (("semaphore", "team/db"),)
        first = self.client.acquire("team/db", limit=3, permits=2)
        second = self.client.acquire("team/db", limit=3)
        self.refused(lambda: self.client.acquire("team/db", limit=3),
                     grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.refused(lambda: self.client.acquire("made/up"), grpc.StatusCode.NOT_FOUND)
        waiting = self.client.acquire_later("team/db", limit=3)
        self.client.wait_for_queue("team/db", 1)
        scrape = wait_until(lambda: self.listed("team/db", 1), "the list has the waiter")
        self.expect({
            ("semaphored_grants_total", db): 2, ("semaphored_leases", db): 2,
            ("semaphored_held_permits", db): 3, ("semaphored_waiters", db): 1,
            ("semaphored_denials_total", db + (("reason", "FULL"),)): 1,
            ("semaphored_denials_total",
             (("semaphore", "(rest)"), ("reason", "NO_SUCH_SEMAPHORE"))): 1,
            ("semaphored_engine_limit_permits", db): 3,
            ("semaphored_engine_held_permits", db): 3, ("semaphored_engine_waiters", db): 1,
            ("semaphored_engine_semaphores", ()): 1, ("semaphored_engine_list_complete", ()): 1,
            ("semaphored_vouched", ()): 1, ("semaphored_scrape_complete", ()): 1,
            ("semaphored_grpc_calls_total", (("method", "Acquire"), ("code", "OK"))): 2,
            ("semaphored_grpc_calls_total",
             (("method", "Acquire"), ("code", "RESOURCE_EXHAUSTED"))): 1,
            ("semaphored_grpc_calls_in_flight", (("method", "Acquire"),)): 1,
        }, scrape)
        # A call gives its place back a moment after its client has the answer.
        self.becomes(1, "semaphored_limit_used", limit="calls_max")
        # It is counted in milliseconds, and the waiter may be younger than one.
        wait_until(lambda: self.scrape().value("semaphored_oldest_waiter_age_seconds", **dict(db)) > 0,
                   "the waiter has an age")
        self.assertIsNone(scrape.value("semaphored_leases", semaphore="made/up"))

        self.client.release(first.lease_id, slots=slots_of(first.slots)[:1])
        third = waiting.result(BOUND_S).lease
        self.expect({
            ("semaphored_grants_total", db): 3, ("semaphored_leases", db): 3,
            ("semaphored_held_permits", db): 3, ("semaphored_waiters", db): 0,
            ("semaphored_oldest_waiter_age_seconds", db): 0,
            ("semaphored_releases_total", db): 0, ("semaphored_wait_seconds_count", db): 3,
            ("semaphored_hold_seconds_count", db): 0,
        })
        self.client.release(second.lease_id)
        revoke = pb.RevokeLeases(lease_id=third.lease_id, now=True)
        self.assertEqual(self.client.administer("team/db", revoke=revoke).revoked, 1)
        scrape = wait_until(lambda: self.ended("team/db", "revoked"), "the lease is revoked")
        self.expect({
            ("semaphored_releases_total", db): 1, ("semaphored_leases", db): 1,
            ("semaphored_held_permits", db): 1, ("semaphored_hold_seconds_count", db): 2,
            ("semaphored_losses_total", db + (("cause", "revoked"),)): 1,
            ("semaphored_losses_total", db + (("cause", "expired"),)): 0,
        }, scrape)

    def listed(self, semaphore, waiters):
        scrape = self.scrape()
        found = scrape.value("semaphored_engine_waiters", semaphore=semaphore) == waiters
        return scrape if found else None

    def ended(self, semaphore, cause):
        scrape = self.scrape()
        return scrape if scrape.value("semaphored_losses_total", semaphore=semaphore,
                                      cause=cause) == 1 else None

    def test_a_lease_that_expires_and_one_that_is_recalled(self):
        self.client.acquire("short", limit=1, ttl_ms=1000)
        wait_until(lambda: self.ended("short", "expired"), "the lease has expired")
        lease = self.client.acquire("small", limit=1)
        revoke = pb.RevokeLeases(lease_id=lease.lease_id, grace_ms=60000)
        self.assertEqual(self.client.administer("small", revoke=revoke).revoked, 1)
        wait_until(lambda: self.scrape().value("semaphored_recalls_total", semaphore="small") == 1,
                   "the recall is counted")

    def test_sessions_streams_and_tickets(self):
        session = Session(self.client)
        session.opened()
        session.command(1, acquire=pb.SessionAcquire(semaphore="s", limit=5, permits=4))
        self.assertTrue(session.result(1).HasField("granted"))
        other = self.daemon.client()
        hold = Reader(other.stub.Hold(
            pb.HoldRequest(acquire=other.acquire_request("h", limit=1))))
        hold.until(lambda m: m.HasField("granted"), "granted")
        for _ in range(3):
            self.client.stub.Enqueue(pb.EnqueueRequest(semaphore="t", limit=1, payload=b"x"),
                                     timeout=BOUND_S)

        def tickets_listed():
            scrape = self.scrape()
            queued = scrape.value("semaphored_engine_tickets", semaphore="t", state="queued")
            return scrape if queued == 3 else None
        scrape = wait_until(tickets_listed, "the tickets are listed")
        self.expect({
            ("semaphored_sessions", (("state", "connected"),)): 1,
            ("semaphored_sessions", (("state", "away"),)): 0,
            ("semaphored_grpc_calls_in_flight", (("method", "Session"),)): 1,
            ("semaphored_grpc_calls_in_flight", (("method", "Hold"),)): 1,
            ("semaphored_grpc_calls_total", (("method", "Enqueue"), ("code", "OK"))): 3,
            ("semaphored_held_permits", (("semaphore", "s"),)): 4,
            ("semaphored_held_permits", (("semaphore", "h"),)): 1,
        }, scrape)
        self.becomes(2, "semaphored_limit_used", limit="streams_max")
        session.send(close=True)
        self.assertIsNone(session.reader.end())
        self.expect({
            ("semaphored_sessions", (("state", "connected"),)): 0,
            ("semaphored_releases_total", (("semaphore", "s"),)): 1,
            ("semaphored_held_permits", (("semaphore", "s"),)): 0,
            ("semaphored_grpc_calls_total", (("method", "Session"), ("code", "OK"))): 1,
        })

    def test_every_limit_under_which_something_stands(self):
        self.client.acquire("a", limit=2)
        self.client.acquire("a", limit=2)
        waiting = [self.client.acquire_later("a", limit=2) for _ in range(3)]
        self.client.wait_for_queue("a", 3)
        for _ in range(2):
            self.client.stub.Enqueue(pb.EnqueueRequest(semaphore="t", limit=1, payload=b"x"),
                                     timeout=BOUND_S)
        session = Session(self.client)
        session.opened()
        expected = {"semaphores_max": 2, "leases_max": 5, "waiters_max": 3, "sessions_max": 1,
                    "tickets_max": 2, "clients_max": 1, "one_shot_requests_max": 0,
                    "waiters_per_semaphore_max": 3, "tickets_per_semaphore_max": 2,
                    "dead_letters_per_semaphore_max": 0, "calls_max": 3, "streams_max": 1,
                    "watch_events_max": 0}

        def used():
            scrape = self.scrape()
            return {limit: scrape.value("semaphored_limit_used", limit=limit)
                    for limit in expected}
        try:
            wait_until(lambda: used() == expected, "each limit shows what stands under it")
        except AssertionError:
            self.assertEqual(used(), expected)
            raise
        scrape = self.scrape()
        limits = scrape.labelled("semaphored_limit_used", "limit")
        self.assertEqual(limits, set(expected) | {"connections_max", "answers_bytes_max",
                                                  "stream_bytes_max", "streams_bytes_max",
                                                  "standard_calls_max"})
        self.assertEqual(limits, scrape.labelled("semaphored_limit_max", "limit"))
        self.assertGreaterEqual(
            scrape.value("semaphored_limit_used", limit="connections_max"), 1)
        self.assertEqual(scrape.value("semaphored_limit_max", limit="semaphores_max"), 100000)
        for call in waiting:
            call.cancel()

    def test_a_semaphore_that_stays_paused(self):
        name = "semaphored_engine_oldest_pause_seconds"
        self.client.acquire("first", limit=1)
        self.client.acquire("second", limit=1)
        self.becomes(0, name)
        self.client.administer("first", pause=pb.PauseSemaphore())
        wait_until(lambda: self.scrape().value(name) > 2, "the first pause grows")
        self.client.administer("second", pause=pb.PauseSemaphore())
        self.client.administer("first", resume=pb.ResumeSemaphore())
        wait_until(lambda: 0 < self.scrape().value(name) < 2, "the second pause is the oldest")
        self.client.administer("second", resume=pb.ResumeSemaphore())
        self.becomes(0, name)

    def test_any_name_is_a_label(self):
        name = "Team.a_b-c/d:e@f+g" + "x" * 200
        self.client.acquire(name, limit=1)
        self.expect({("semaphored_leases", (("semaphore", name),)): 1})

    def test_of_the_process(self):
        scrape = self.scrape()
        self.assertGreater(scrape.value("process_resident_memory_bytes"), 1 << 20)
        self.assertGreater(scrape.value("process_open_fds"), 5)
        self.assertLess(scrape.value("process_open_fds"), scrape.value("process_max_fds"))
        self.assertGreater(scrape.value("process_cpu_seconds_total"), 0)
        self.assertGreater(scrape.value("process_start_time_seconds"), 1.7e9)
        self.assertGreater(scrape.value("semaphored_engine_step_seconds_count"), 0)
        self.assertEqual(scrape.labelled("semaphored_build_info", "adapter"), {"sqlite"})

    def test_is_what_promtool_accepts_and_the_documentation_says(self):
        self.client.acquire("a", limit=1)
        wait_until(lambda: self.scrape().value("semaphored_engine_limit_permits", semaphore="a"),
                   "the list is there")
        wait_until(lambda: self.scrape().value("semaphored_heartbeat_age_seconds") is not None,
                   "a heartbeat was sent")
        scrape = self.scrape()
        self.assertEqual(promtool("check", "metrics", text=scrape.text), "")
        documented = {}
        with open(os.path.join(ROOT, "docs", "metrics.md"), encoding="utf-8") as text:
            for line in text:
                row = re.match(r"\| `([a-z_]+)` \| (\w+) \|([^|]*)\|", line)
                if row:
                    documented[row.group(1)] = (row.group(2),
                                                set(re.findall(r"`(\w+)`", row.group(3))))
        self.assertEqual({name: kind for name, (kind, _) in documented.items()}, scrape.types)
        for name, (kind, labels) in documented.items():
            sample = name + ("_count" if kind in ("histogram", "summary") else "")
            for (of, key) in scrape.samples:
                if of == sample:
                    self.assertEqual({label for label, _ in key}, labels, name)

    def test_each_work_of_the_upkeep_is_documented(self):
        with open(os.path.join(ROOT, "docs", "metrics.md"), encoding="utf-8") as text:
            table = text.read().split("## The upkeep of the engine")[1].split("\n## ")[0]
        self.assertEqual(set(re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE)),
                         self.scrape().labelled("semaphored_engine_upkeep_errors_total", "work"))


class Settings(unittest.TestCase):

    def test_off_nothing_listens(self):
        with Daemon() as daemon:
            daemon.client().acquire("a", limit=1)
            self.assertNotIn("metrics at", daemon.log())

    def test_a_port_in_use_is_an_error_at_the_start(self):
        with with_metrics() as first:
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    [os.path.join(BIN_DIR, "semaphored"), "--listen", "127.0.0.1:0",
                     "--store", f"sqlite://{folder}/s.db", "--metrics-listen", first.metrics],
                    capture_output=True, text=True, timeout=BOUND_S, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn(f"metrics_listen: cannot listen on {first.metrics}: the address is in use",
                      done.stderr)

    def test_what_is_no_address_is_refused(self):
        for wrong in ("7421", ":7421", "unix:/tmp/x", "metrics.example:7421", "127.0.0.1:77777"):
            done = subprocess.run(
                [os.path.join(BIN_DIR, "semaphored"), "--metrics-listen", wrong],
                capture_output=True, text=True, timeout=BOUND_S, check=False)
            self.assertEqual(done.returncode, 2, wrong)
            self.assertIn(f'metrics_listen: "{wrong}" must be', done.stderr)

    def test_the_number_of_series_is_bounded_and_counters_only_rise(self):
        with with_metrics(metrics_semaphores_max=3) as daemon:
            client = daemon.client()
            before = None
            for turn in range(3):
                for number in range(8):
                    client.release(client.acquire(f"s{number}", limit=1).lease_id)
                scrape = Scrape(daemon.metrics)
                names = scrape.labelled("semaphored_grants_total", "semaphore")
                self.assertEqual(len(names), 4, names)
                self.assertIn("(rest)", names)
                self.assertEqual(scrape.sum("semaphored_grants_total"), 8 * (turn + 1))
                self.assertEqual(scrape.sum("semaphored_releases_total"), 8 * (turn + 1))
                if before is not None:
                    for (name, key), value in before.samples.items():
                        if name.endswith(("_total", "_count", "_bucket")):
                            self.assertGreaterEqual(scrape.samples[name, key], value, name)
                before = scrape
            wait_until(lambda: Scrape(daemon.metrics).sum("semaphored_engine_limit_permits") == 8,
                       "all are listed")


class Alerts(unittest.TestCase):

    def test_the_rules_and_the_example_are_right(self):
        rules = os.path.join(PROMETHEUS, "semaphored.rules.yml")
        self.assertEqual(promtool("check", "rules", rules), "")
        self.assertEqual(
            promtool("check", "config", os.path.join(PROMETHEUS, "prometheus.yml")), "")
        self.assertEqual(
            promtool("test", "rules", os.path.join(PROMETHEUS, "semaphored.test.yml")), "")

    def test_they_speak_of_metrics_that_there_are(self):
        with open(os.path.join(PROMETHEUS, "semaphored.rules.yml"), encoding="utf-8") as text:
            used = set(re.findall(r"\b(?:semaphored|process)_[a-z_]+", " ".join(
                line for line in text if "expr:" in line)))
        with open(os.path.join(ROOT, "docs", "metrics.md"), encoding="utf-8") as text:
            known = set(re.findall(r"^\| `([a-z_]+)`", text.read(), re.MULTILINE))
        self.assertEqual({re.sub("_bucket$", "", name) for name in used} - known, set())
        self.assertGreater(len(used), 10)


if __name__ == "__main__":
    unittest.main()
