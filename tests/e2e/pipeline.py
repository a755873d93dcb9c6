"""A pipeline of deployments as its users build it: each environment is a semaphore of limit 1 with a
queue, deployments come by API, workers are `semctl work` over a command. Workers and daemons are
killed at random. For the tests of each engine."""

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

from daemon import BIN_DIR, BOUND_S, Client, numbered, pb, wait_until

import grpc  # isort: skip  daemon puts the stubs on the path

SEMCTL = os.path.join(BIN_DIR, "semctl")
DEPLOYER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "deployer.py")
ENVIRONMENTS = ("acceptance", "production", "test")
DEPLOYMENTS = 30
BROKEN = (5, 17)  # Of each environment: they fail until their target is mended.
ATTEMPTS = 3
DONE_WITHIN_S = 100


class Workers:
    """`semctl work` processes; one that is killed is replaced. A context manager."""

    def __init__(self, addresses, folder, count, ttl):
        self._environment = {**os.environ, "PIPELINE": folder}
        self._addresses = addresses
        self._ttl = ttl
        self._count = count
        self._log_path = os.path.join(folder, "workers.log")
        self._started = 0
        self.processes = []
        self.ended = []  # Exit codes of those that nobody has killed.

    def __enter__(self):
        for _ in range(self._count):
            self.start()
        return self

    def __exit__(self, *unused):
        for process in self.processes:
            process.kill()
            process.wait(BOUND_S)

    def start(self):
        # Each begins at another daemon.
        first = self._started % len(self._addresses)
        self._started += 1
        servers = self._addresses[first:] + self._addresses[:first]
        with open(self._log_path, "ab") as log:
            self.processes.append(subprocess.Popen(
                [SEMCTL, "work", "deploy/*", "--tickets", "2", "--ttl", self._ttl,
                 "--", sys.executable, "-B", "-S", DEPLOYER],
                env={**self._environment, "SEMCTL_SERVER": ",".join(servers)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def kill_one(self, chance):
        self.replace_ended()
        process = self.processes.pop(chance.randrange(len(self.processes)))
        process.kill()
        process.wait(BOUND_S)
        self.start()

    def replace_ended(self):
        """One that found no daemon for long has given up."""
        for process in [each for each in self.processes if each.poll() is not None]:
            self.ended.append(process.returncode)
            self.processes.remove(process)
            self.start()

    def log(self):
        with open(self._log_path, encoding="utf-8", errors="replace") as log:
            return log.read()


class Enqueuer(threading.Thread):
    """Enqueues the deployments of one environment, in order: the next one when the one before is
    answered. A request is repeated, at any daemon, until it is."""

    def __init__(self, daemons, environment, requests):
        super().__init__(daemon=True)
        self._clients = [daemon.client() for daemon in daemons]
        self._environment = environment
        self._requests = requests
        self.tickets = {}  # By number.
        self.error = None

    def run(self):
        try:
            client_id = f"pipeline-{self._environment}-{time.monotonic_ns()}"
            for request in self._requests:
                request_id = numbered(client_id, request["number"])
                self.tickets[request["number"]] = self._enqueue(pb.EnqueueRequest(
                    request_id=request_id, semaphore=f"deploy/{self._environment}", limit=1,
                    payload=json.dumps(request).encode(), content_type="application/json",
                    max_attempts=ATTEMPTS if request["broken"] else 0,
                    attempts_unbounded=not request["broken"],
                    back_off=pb.TicketBackOff(initial_ms=50, max_ms=200)))
        except Exception as error:  # pylint: disable=broad-except  told by the test
            self.error = error

    def _enqueue(self, request):
        deadline = time.monotonic() + DONE_WITHIN_S
        turn = 0
        while True:
            turn += 1
            try:
                client: Client = self._clients[turn % len(self._clients)]
                return client.stub.Enqueue(request, timeout=3).ticket_id
            except grpc.RpcError as error:
                again = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
                if error.code() not in again or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


class Pipeline:
    """Of a TestCase. The engine's own part is a list of running daemons, which may be killed."""

    WORKERS = 4
    WORKER_KILLS = 6
    DAEMON_KILLS = 4
    WORKER_TTL = "2s"
    DOWN_S = 0.5  # How long a daemon that was killed stays away.

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="pipeline-e2e-")
        self.addCleanup(folder.cleanup)
        self.place = folder.name
        os.mkdir(os.path.join(self.place, "beats"))
        self.seed = int(os.environ.get("PIPELINE_SEED", random.randrange(1 << 30)))
        self.chance = random.Random(self.seed)
        print(f"\nPIPELINE_SEED={self.seed}", file=sys.stderr)

    def run_pipeline(self, daemons):
        """Everything that is promised, with these daemons (Daemon objects, running)."""
        with Workers([each.address for each in daemons], self.place, self.WORKERS,
                     self.WORKER_TTL) as workers:
            try:
                enqueuers = [Enqueuer(daemons, environment, self.requests(environment))
                             for environment in ENVIRONMENTS]
                for enqueuer in enqueuers:
                    enqueuer.start()
                self.strike(workers, daemons)
                self.wait_done(workers, DEPLOYMENTS - len(BROKEN))
                for enqueuer in enqueuers:
                    enqueuer.join(BOUND_S)
                    self.assertIsNone(enqueuer.error)
                    self.assertEqual(len(set(enqueuer.tickets.values())), DEPLOYMENTS)
                self.check_dead_letters(daemons)
                self.check_runs()
                with open(os.path.join(self.place, "mended"), "w", encoding="ascii"):
                    pass
                self.requeue(daemons)
                self.wait_done(workers, DEPLOYMENTS)
                self.check_tickets(enqueuers)
                self.wait_empty(daemons)
            except BaseException as error:
                sys.stderr.write(f"---- the workers' log:\n{workers.log()[-6000:]}\n----\n")
                # Last, where whoever reads only the end of it finds it.
                error.args = (f"{error}\nHow it stood: {self.standing(workers, daemons)}",)
                raise

    def requests(self, environment):
        return [{"environment": environment, "number": number, "broken": number in BROKEN,
                 "work_ms": self.chance.randrange(5, 60), "skip_api_v1": number % 2 == 0}
                for number in range(1, DEPLOYMENTS + 1)]

    # ---- what goes wrong ----

    def strike(self, workers, daemons):
        """Each kill when so many deployments are done, so that they are spread over the run."""
        kinds = ["worker"] * self.WORKER_KILLS + ["daemon"] * self.DAEMON_KILLS
        self.chance.shuffle(kinds)
        most = len(ENVIRONMENTS) * (DEPLOYMENTS - len(BROKEN)) - 10
        for when, kind in zip(sorted(self.chance.sample(range(most), len(kinds))), kinds):
            self.wait_progress(workers, when)
            if kind == "worker":
                workers.kill_one(self.chance)
                continue
            daemon = self.chance.choice(daemons)
            daemon.kill9()
            time.sleep(self.chance.random() * self.DOWN_S)
            daemon.start()

    def wait_progress(self, workers, count):
        def reached():
            workers.replace_ended()
            return sum(len(self.done(each)) for each in ENVIRONMENTS) >= count
        wait_until(reached, f"{count} deployments are done", DONE_WITHIN_S)

    def wait_done(self, workers, count):
        def reached():
            workers.replace_ended()
            return all(len(self.done(each)) >= count for each in ENVIRONMENTS)
        wait_until(reached, f"{count} deployments in each environment", DONE_WITHIN_S)

    # ---- what was promised ----

    def lines(self, environment, kind):
        path = os.path.join(self.place, f"{environment}.{kind}")
        if not os.path.exists(path):
            return []
        with open(path, encoding="ascii") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def done(self, environment):
        return self.lines(environment, "done")

    def last_beat(self, run):
        path = os.path.join(self.place, "beats", f"{run['ticket']}-{run['token']}")
        try:
            with open(path, encoding="ascii") as file:
                return float(file.read() or 0)
        except FileNotFoundError:
            return 0.0

    def intervals(self, environment):
        """(from, to, run) of each run, in order; one that was killed ends with its last beat."""
        found = []
        runs = self.lines(environment, "runs")
        exits = {(run["ticket"], run["token"]): run["at"] for run in runs
                 if run["event"] == "exit"}
        for run in runs:
            if run["event"] == "enter":
                end = exits.get((run["ticket"], run["token"]), 0.0)
                found.append((run["at"], max(run["at"], end, self.last_beat(run)), run))
        return sorted(found, key=lambda each: each[0])

    def check_runs(self):
        everywhere = {each: self.intervals(each) for each in ENVIRONMENTS}
        for environment, intervals in everywhere.items():
            for earlier, later in zip(intervals, intervals[1:]):
                self.assertLessEqual(
                    earlier[1], later[0],
                    f"{environment}: {earlier[2]} and {later[2]} were at work at one time")
            tokens = [run["token"] for _, _, run in intervals]
            self.assertEqual(tokens, sorted(set(tokens)), "tokens rise with each attempt")
            first = list(dict.fromkeys(run["number"] for _, _, run in intervals))
            # On one line, which stays together in a report that shows an end only.
            self.assertEqual(str(first), str(list(range(1, DEPLOYMENTS + 1))), f"{environment}: begun in order")
            done = [each["number"] for each in self.done(environment)]
            self.assertEqual(str(done), str([number for number in range(1, DEPLOYMENTS + 1)
                                             if number not in BROKEN]),
                             f"{environment}: done in order, each once")
        # Of two alone it cannot be said: one may stand still until a dead worker's lease has ended.
        together = sum(a[0] < b[1] and b[0] < a[1]
                       for one, other in itertools.combinations(everywhere.values(), 2)
                       for a in one for b in other)
        self.assertGreater(together, 0, "environments are worked on in parallel")

    def check_tickets(self, enqueuers):
        for environment, enqueuer in zip(ENVIRONMENTS, enqueuers):
            done = {each["number"]: each["ticket"] for each in self.done(environment)}
            self.assertEqual(done, enqueuer.tickets, "each was done as the ticket it was told")
            self.assertEqual(len(self.done(environment)), DEPLOYMENTS, "each once")

    def counts(self, daemons, environment):
        tickets = daemons[0].client().describe(f"deploy/{environment}").tickets
        return (tickets.queued, tickets.delayed, tickets.assigned, tickets.dead)

    def standing(self, workers, daemons):
        """For whoever has to find out why nothing goes on. Never raises."""
        running = [process.pid for process in workers.processes if process.poll() is None]
        found = [f"workers {running}"]
        for environment in ENVIRONMENTS:
            line = f"{environment}: {len(self.done(environment))} done"
            for daemon in daemons:
                try:
                    described = daemon.client().describe_rows(f"deploy/{environment}")
                    info = described.semaphore
                    held = [f"{each.lease.lease_id} of {each.lease.holder}"
                            for each in described.leases]
                    tickets = (info.tickets.queued, info.tickets.delayed, info.tickets.assigned,
                               info.tickets.dead)
                    line += (f", {daemon.address} says: queued, delayed, assigned, dead {tickets}, "
                             f"offers {info.offers}, held {held}")
                except Exception as error:  # pylint: disable=broad-except  it is told
                    line += f", {daemon.address} says nothing ({type(error).__name__})"
            found.append(line)
        return "\n  ".join(found)

    def check_dead_letters(self, daemons):
        for environment in ENVIRONMENTS:
            wait_until(lambda each=environment: self.counts(daemons, each) ==
                       (0, 0, 0, len(BROKEN)), f"dead letters of {environment}", DONE_WITHIN_S)
            dead = daemons[0].client().administer(
                f"deploy/{environment}",
                list_tickets=pb.ListTickets(states=[pb.TICKET_STATE_DEAD])).tickets
            self.assertEqual([each.attempt for each in dead], [ATTEMPTS] * len(BROKEN))
            for each in dead:
                self.assertTrue(each.reasons, "a dead letter tells why")

    def requeue(self, daemons):
        for environment in ENVIRONMENTS:
            requeued = daemons[-1].client().administer(
                f"deploy/{environment}", requeue_tickets=pb.RequeueTickets(all=True)).requeued
            self.assertEqual(requeued, len(BROKEN))

    def wait_empty(self, daemons):
        for environment in ENVIRONMENTS:
            wait_until(lambda each=environment: self.counts(daemons, each) == (0, 0, 0, 0),
                       f"{environment} is empty")
