"""Tickets by semctl and a real daemon on the embedded store: what is enqueued is carried out,
whoever is killed."""

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import time
import unittest
import uuid

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from daemon import BOUND_S, pb, wait_until  # noqa: E402
from test_semctl import SEMCTL, SemctlTest, is_alive  # noqa: E402

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       "../../docs/examples/tickets/deploy.sh")

# Says that it was begun and by which process, and then waits until it is told what to exit with.
WAITER = """
import os, sys, time
folder = sys.argv[1]
attempt, token = os.environ["SEMAPHORE_ATTEMPT"], os.environ["SEMAPHORE_TOKEN"]
line = f"{os.environ['SEMAPHORE_TICKET']} {attempt} {token} {os.getpid()} {sys.stdin.read()}"
with open(f"{folder}/begun.new", "w") as begun: begun.write(line)
os.rename(f"{folder}/begun.new", f"{folder}/begun-{attempt}-{token}")
while not os.path.exists(f"{folder}/exit"): time.sleep(0.01)
with open(f"{folder}/exit") as code: sys.exit(int(code.read()))
"""


class TicketsTest(SemctlTest):
    def setUp(self):
        super().setUp()
        self.folder = os.path.dirname(self.path)

    def enqueue(self, name, payload, *options):
        done = self.semctl("enqueue", name, "--limit", "1", "--payload", "-", "-q", *options,
                           input=payload)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def start_worker(self, name, *options):
        return self.start("work", name, "--ttl", "2s", *options, "--", sys.executable, "-c",
                          WAITER, self.folder)

    def wait_begun(self, attempt):
        """The line that the command wrote at this attempt: ticket, attempt, token, pid, payload."""
        def begun():
            for name in os.listdir(self.folder):
                if name.startswith(f"begun-{attempt}-"):
                    with open(os.path.join(self.folder, name)) as file:
                        return file.read().split(" ", 4)
            return None
        return wait_until(begun, f"attempt {attempt} is begun")

    def let_exit(self, code):
        path = os.path.join(self.folder, "exit")
        with open(path + ".new", "w") as file:
            file.write(str(code))
        os.rename(path + ".new", path)

    def counts(self, name):
        tickets = self.describe(name).tickets
        return (tickets.queued, tickets.delayed, tickets.assigned, tickets.dead)

    def wait_counts(self, name, counts):
        wait_until(lambda: self.counts(name) == counts, f"{name} has {counts}")

    def tickets(self, name, *options):
        done = self.semctl("tickets", name, "-o", "json", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["tickets"]


class WorkTest(TicketsTest):
    def test_a_ticket_is_carried_out_with_its_payload(self):
        ticket = self.enqueue("job", "the payload", "--content-type", "text/plain")
        worker = self.start_worker("job", "--once")
        begun = self.wait_begun(1)
        self.assertEqual([begun[0], begun[1], begun[4]], [ticket, "1", "the payload"])
        self.assertEqual(self.counts("job"), (0, 0, 1, 0))
        self.let_exit(0)
        self.assertEqual(worker.wait(BOUND_S), 0)
        self.assertEqual(self.counts("job"), (0, 0, 0, 0))
        self.assertEqual(self.describe("job").held, 0)

    def test_a_prefix_and_an_end_when_nothing_is_left(self):
        # One write each: they run side by side.
        for number in range(5):
            self.enqueue(f"many/{number}", str(number))
        out = os.path.join(self.folder, "out")
        done = self.semctl("work", "many/*", "--tickets", "3", "--exit-when-empty", "--",
                           "sh", "-c", f"echo \"$(cat)\" >> {out}")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(out) as file:
            self.assertEqual(sorted(file.read().split()), ["0", "1", "2", "3", "4"])

    def test_exit_codes(self):
        self.enqueue("job", "x", "--max-attempts", "2", "--back-off", "50ms")
        done = self.semctl("work", "job", "--once", "--", "sh", "-c", "exit 75")
        self.assertEqual(done.returncode, 75, done.stderr)
        done = self.semctl("work", "job", "--once", "--", "sh", "-c", "kill -9 $$")
        self.assertEqual(done.returncode, 128 + 9, done.stderr)
        (dead,) = self.tickets("job", "--state", "dead")
        self.assertEqual([reason["text"] for reason in dead["reasons"]],
                         ["exit code 75", "killed by signal 9"])
        self.assertEqual(self.semctl("dead-letters", "job", "requeue", "--all").returncode, 0)
        done = self.semctl("work", "job", "--once", "--", "sh", "-c", "exit 65")
        self.assertEqual(done.returncode, 65, done.stderr)
        self.assertEqual(self.counts("job"), (0, 0, 0, 1))
        self.assertEqual(self.semctl("dead-letters", "job", "purge", "--all").returncode, 0)
        self.assertEqual(self.counts("job"), (0, 0, 0, 0))

    def test_a_command_that_does_not_exist_costs_no_attempt(self):
        self.enqueue("job", "x", "--max-attempts", "1")
        done = self.semctl("work", "job", "--", "/there/is/no/such/command")
        self.assertEqual(done.returncode, 127, done.stderr)
        self.assertEqual(self.counts("job"), (1, 0, 0, 0))
        self.assertEqual(self.tickets("job")[0]["attempt"], 0)

    def test_nothing_to_say(self):
        done = self.semctl("work", "job")
        self.assertEqual(done.returncode, 2)
        done = self.semctl("enqueue", "nobody/knows")
        self.assertEqual(done.returncode, 119)
        self.assertIn("nobody/knows: there is no such semaphore", done.stderr)
        self.enqueue("job", "x")
        done = self.semctl("tickets", "job", "cancel", "0" * 31 + "1")
        self.assertEqual(done.returncode, 119)
        self.assertIn("no such ticket", done.stderr)


class AdministrationTest(TicketsTest):
    def test_show_prioritise_cancel(self):
        first = self.enqueue("job", "one")
        second = self.enqueue("job", "two")
        self.assertEqual([t["ticket_id"] for t in self.tickets("job")], [first, second])
        self.assertEqual(self.semctl("tickets", "job", "show", second, "--payload").stdout, "two")
        done = self.semctl("tickets", "job", "prioritise", second, "7")
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = json.loads(self.semctl("tickets", "job", "show", second, "-o", "json").stdout)
        self.assertEqual((shown["priority"], shown["position"]), (7, 1))
        self.assertEqual(self.semctl("tickets", "job", "cancel", first).returncode, 0)
        self.assertEqual([t["ticket_id"] for t in self.tickets("job")], [second])
        self.assertIn("1 queued", self.semctl("describe", "job").stdout)


class FaultsTest(TicketsTest):
    def test_a_worker_that_is_killed_gives_its_ticket_to_another(self):
        ticket = self.enqueue("job", "x")
        killed = self.start_worker("job")
        first = self.wait_begun(1)
        killed.kill()
        killed.wait(BOUND_S)
        wait_until(lambda: not is_alive(int(first[3])), "its command is ended")
        self.start_worker("job")
        second = self.wait_begun(2)
        self.assertEqual(second[0], ticket)
        self.assertGreater(int(second[2]), int(first[2]))
        self.let_exit(0)
        self.wait_counts("job", (0, 0, 0, 0))

    def test_a_worker_that_stands_still_loses_its_ticket_and_its_command_first(self):
        self.enqueue("job", "x")
        stopped = self.start_worker("job")
        first = self.wait_begun(1)
        stopped.send_signal(signal.SIGSTOP)
        other = self.start_worker("job")
        self.wait_begun(2)
        self.assertFalse(is_alive(int(first[3])))
        self.let_exit(0)
        self.wait_counts("job", (0, 0, 0, 0))
        other.terminate()
        self.assertEqual(other.wait(BOUND_S), 0)
        stopped.send_signal(signal.SIGCONT)

    def test_a_daemon_that_is_killed_costs_no_attempt(self):
        self.enqueue("job", "x")
        worker = self.start_worker("job", "--once")
        self.wait_begun(1)
        self.daemon.kill9()
        self.daemon.start()
        self.let_exit(0)
        self.assertEqual(worker.wait(BOUND_S), 0)
        self.assertEqual(self.counts("job"), (0, 0, 0, 0))

    def test_tickets_and_their_delays_outlive_the_daemon(self):
        self.enqueue("job", "now")
        self.enqueue("job", "later", "--delay", "1s")
        self.daemon.kill9()
        self.daemon.start()
        self.assertEqual(self.counts("job"), (1, 1, 0, 0))
        done = self.semctl("work", "job", "--exit-when-empty", "--", "cat")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "nowlater")

    def test_an_administrator_takes_a_ticket_away(self):
        self.enqueue("job", "x")
        self.enqueue("job", "behind it")
        worker = self.start_worker("job")
        first = self.wait_begun(1)
        request = pb.AdministerRequest(semaphore="job", revoke=pb.RevokeLeases(all=True))
        self.stub.Administer(request, timeout=BOUND_S)
        second = self.wait_begun(2)  # It is the only one to go on with it.
        self.assertEqual(second[0], first[0], "a ticket that was cut short keeps its place")
        wait_until(lambda: not is_alive(int(first[3])), "its command is ended")
        self.let_exit(0)
        self.wait_counts("job", (0, 0, 0, 0))
        worker.terminate()
        self.assertEqual(worker.wait(BOUND_S), 0)

    def test_a_worker_that_is_asked_to_end_finishes_what_it_has(self):
        self.enqueue("job", "x")
        self.enqueue("job", "y")
        worker = self.start_worker("job")
        self.wait_begun(1)
        worker.terminate()
        self.assertIn("taking no more tickets", self.read_until(worker, "taking no more"))
        self.let_exit(0)
        self.assertEqual(worker.wait(BOUND_S), 0)
        self.assertEqual(self.counts("job"), (1, 0, 0, 0))

    def test_asked_twice_it_ends_its_command(self):
        self.enqueue("job", "x")
        worker = self.start_worker("job")
        begun = self.wait_begun(1)
        worker.terminate()
        self.read_until(worker, "taking no more")
        worker.terminate()
        self.assertEqual(worker.wait(BOUND_S), 128 + signal.SIGTERM)
        self.assertFalse(is_alive(int(begun[3])))
        self.assertEqual(self.counts("job"), (1, 0, 0, 0))
        self.assertEqual(self.tickets("job")[0]["reasons"][0]["text"], "its worker was stopped")

    def read_until(self, process, text):
        for line in process.stderr:
            if text in line:
                return line
        self.fail(f"it never said {text}")


class ExampleTest(TicketsTest):
    """docs/examples/tickets/deploy.sh: what is delivered twice happens once."""

    def run_example(self, **environment):
        return subprocess.run([EXAMPLE], env={**os.environ, "TARGET": self.folder,
                                              "SEMAPHORE_NAME": "deploy/prod",
                                              "SEMAPHORE_SLOT": "1", **environment},
                              input="v1", text=True, capture_output=True, timeout=BOUND_S)

    def done(self):
        with open(os.path.join(self.folder, "deploy_prod.done")) as file:
            return file.read().splitlines()

    def test_by_workers(self):
        good = self.enqueue("deploy/prod", "v1")
        self.enqueue("deploy/prod", "bad")
        environment = {**self.environment(), "TARGET": self.folder}
        done = subprocess.run([SEMCTL, "work", "deploy/*", "--exit-when-empty", "--", EXAMPLE],
                              env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line.split()[0] for line in self.done()], [good])
        self.assertEqual(self.counts("deploy/prod"), (0, 0, 0, 1))

    def test_an_overtaken_worker_is_turned_away(self):
        late = {"SEMAPHORE_TICKET": "t", "SEMAPHORE_TOKEN": "7"}
        self.assertEqual(self.run_example(SEMAPHORE_TICKET="t", SEMAPHORE_TOKEN="8").returncode, 0)
        self.assertEqual(self.run_example(**late).returncode, 75)
        self.assertEqual(self.run_example(SEMAPHORE_TICKET="t", SEMAPHORE_TOKEN="9").returncode, 0)
        self.assertEqual(len(self.done()), 1)


class StubTest(TicketsTest):
    def test_a_worker_that_is_nothing_but_the_generated_stub(self):
        for payload in (b"one", b"two"):
            self.stub.Enqueue(pb.EnqueueRequest(semaphore="deploy/a", limit=1, payload=payload,
                                                attempts_unbounded=payload == b"two"),
                              timeout=BOUND_S)
        requests = queue.Queue()
        requests.put(pb.WorkRequest(open=pb.OpenWork(client_id=uuid.uuid4().hex,
                                                     prefixes=["deploy/"], tickets_max=1)))
        sequence = itertools.count(1)
        done, bounds = [], []
        for response in self.stub.Work(iter(requests.get, None), timeout=BOUND_S):
            for assignment in response.assignments:
                done.append((assignment.payload, assignment.lease.token))
                bounds.append((assignment.attempts_unbounded, assignment.max_attempts))
                enqueued_s = assignment.enqueued_at.ToMilliseconds() / 1000
                self.assertLess(abs(enqueued_s - time.time()), 60)
                requests.put(pb.WorkRequest(
                    finished=[pb.FinishTicket(sequence=next(sequence),
                                              lease_id=assignment.lease.lease_id,
                                              done=pb.TicketDone())],
                    close=len(done) == 2))
        self.assertEqual([payload for payload, _ in done], [b"one", b"two"])
        self.assertEqual(bounds, [(False, 5), (True, 0)])
        self.assertLess(done[0][1], done[1][1])
        self.assertEqual(self.counts("deploy/a"), (0, 0, 0, 0))


if __name__ == "__main__":
    unittest.main()
