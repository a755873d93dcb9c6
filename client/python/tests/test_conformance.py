"""The traces of tests/conformance on this client's session machine. Their format: tests/conformance/README.md."""

import json
import os
import unittest

import grpc
from google.protobuf import json_format

from semaphored._calls import AcquireCall, Options
from semaphored._machine import SessionMachine
from semaphored._time import MS_NS, NEVER_NS
from semaphored.errors import Error, make_error
from semaphored.v1 import error_details_pb2
from semaphored.v1 import semaphore_pb2 as pb

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
FOLDER = os.path.join(ROOT, "tests", "conformance")
POOL = error_details_pb2.DESCRIPTOR.pool  # The package's own.
START_NS = 1_000_000 * MS_NS
TURNS_MAX = 1_000
DEFAULTS = ("False", "0", "", "None")


def read(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return json.load(file)


class Matcher:
    """Compares what is expected with what is there. Placeholders keep their values."""

    def __init__(self):
        self.values = {}

    def matches(self, expected, actual):
        if isinstance(expected, dict):
            actual = {} if actual is None else actual
            return isinstance(actual, dict) and all(
                self.matches(value, actual.get(key)) for key, value in expected.items())
        if isinstance(expected, list):
            actual = [] if actual is None else actual
            return (isinstance(actual, list) and len(expected) == len(actual)
                    and all(map(self.matches, expected, actual)))
        if isinstance(actual, list):
            return expected == len(actual)
        if isinstance(expected, str) and expected.startswith("$"):
            if expected not in self.values and actual in self.values.values():
                return False
            return self.values.setdefault(expected, actual) == actual
        if actual is None:
            return str(expected) in DEFAULTS
        return str(expected) == str(actual)


class Run:
    """One trace: a machine, its clock, and what was seen since the last step."""

    def __init__(self, options):
        times = {name[:-3]: value for name, value in options.items() if name.endswith("_ms")}
        others = {name: value for name, value in options.items()
                  if not name.endswith("_ms") and name != "endpoints"}
        self.now_ns = START_NS
        self.clients = 0
        self.machine = SessionMachine(
            Options(endpoints=tuple(f"e{i}:1" for i in range(options["endpoints"])), **others,
                    **{f"{name}_ns": value * MS_NS for name, value in times.items()}),
            self._next_client)
        self.has_stream = False
        self.was_closed = False
        self.calls = {}  # By name: [number, lease or None].
        self.errors = {}  # By name of the call.
        self.recalls = []
        self.wire = []
        self.reports = []

    def _next_client(self):
        self.clients += 1
        return f"client-{self.clients}"

    # ---- the driver ----

    def settle(self):
        """Does what the machine wants, until it wants nothing more at this time."""
        for _ in range(TURNS_MAX):
            if not self._turn():
                return
        raise AssertionError("the machine does not come to rest")

    def _turn(self):
        effects = self.machine.take_effects()
        if effects.drop_stream:
            self.has_stream = False
            self.wire.append({"drop": True})
        for tell in (*effects.results, *effects.losses, *effects.callbacks):
            tell()
        for recalled in effects.recalls:
            self.recalls.append(recalled)
            self.reports.append({"recalled": recalled.lease, "reason": recalled.recall.reason,
                                 "grace_ms": round(recalled.recall.grace * 1000)})
        if self.machine.closed and not self.was_closed:
            self.was_closed = True
            self.reports.append({"closed": True})
        endpoint = self.machine.start_connecting(self.now_ns)
        if endpoint is not None:
            self.has_stream = True
            self.wire.append({"connect": endpoint})
        message = self.machine.next_message(self.now_ns) if self.has_stream else None
        if message is not None:
            self.wire.append(json_format.MessageToDict(message))
            return True
        if not self.machine.closed and self.machine.next_due_ns(self.has_stream) <= self.now_ns:
            self.machine.tick(self.now_ns)
            return True
        return endpoint is not None or effects.drop_stream

    # ---- what goes in ----

    def acquire(self, what):
        times = what.get("times")
        for name in ([what["call"]] if times is None else
                     [f"{what['call']}{i}" for i in range(1, times + 1)]):
            self._acquire(name, what)

    def _acquire(self, name, what):
        call = self.calls[name] = [0, None]
        wait_ms = what.get("wait_ms")

        def done(result):
            if isinstance(result, Error):
                self._refused(name, result)
                return
            call[1] = result
            self.reports.append({"granted": name, "lease_id": result.lease_id,
                                 "slots": list(result.slots), "token": result.token})

        def queued(place):
            report = {"queued": name, "position": place.position, "reason": place.reason}
            if place.expected_wait is not None:
                report["expected_wait_ms"] = round(place.expected_wait * 1000)
            self.reports.append(report)

        request = json_format.ParseDict(what.get("request", {"semaphore": "db"}),
                                        pb.SessionAcquire())
        call[0] = self.machine.acquire(AcquireCall(
            request, done, None if wait_ms is None else wait_ms * MS_NS, on_queued=queued,
            on_lost=lambda loss: self._lost(name, loss), on_recall=lambda *_: None), self.now_ns)

    def _refused(self, name, error):
        self.errors[name] = error
        self.reports.append({"refused": name, "code": error.code.name, "reason": error.reason})

    def _lost(self, name, loss):
        if loss.cause.name != "CLOSED":
            self.reports.append({"lost": name, "cause": loss.cause.name})

    def cancel(self, name):
        self.machine.cancel(self.calls[name][0], self.now_ns)

    def release(self, what):
        name = what["call"]

        def done(error):
            if error is not None:
                self._refused(name, error)
            else:
                self.reports.append({"released": name})
        self.machine.release(self.calls[what["lease"]][1], done, self.now_ns)

    def handled(self, what):
        lease = self.calls[what["call"]][1]
        recalls = [recalled for recalled in self.recalls if recalled.lease is lease]
        for _ in range(what.get("times", 1)):
            self.machine.acknowledge(recalls[what["recall"]])

    def close(self, _):
        self.machine.close(self.now_ns)

    def message(self, what):
        self.machine.on_message(json_format.ParseDict(
            what, pb.SessionResponse(), descriptor_pool=POOL), self.now_ns)

    def end(self, what):
        self.has_stream = False
        code = grpc.StatusCode[what["code"]]
        error = None if code is grpc.StatusCode.OK else make_error(code, what.get("message", ""))
        self.machine.on_stream_end(error, self.now_ns)

    def advance_ms(self, by_ms):
        target_ns = self.now_ns + by_ms * MS_NS
        while not self.machine.closed:
            due_ns = self.machine.next_due_ns(self.has_stream)
            if due_ns > target_ns:
                break
            self.now_ns = max(self.now_ns, due_ns)
            self.machine.tick(self.now_ns)
            self.settle()
        self.now_ns = target_ns
        self.machine.tick(self.now_ns)

    def stall_ms(self, by_ms):
        self.now_ns += by_ms * MS_NS

    # ---- what is seen ----

    def seen_reports(self):
        leases = {id(lease): name for name, (_, lease) in self.calls.items() if lease is not None}
        return [{**report, "recalled": leases.get(id(report["recalled"]))}
                if "recalled" in report else report for report in self.reports]

    def good_until_ms(self, name):
        return (self.calls[name][1].good_until_ns() - START_NS) / MS_NS

    def held(self, name):
        return self.calls[name][1].held(self.now_ns)

    def next_due_ms(self):
        due_ns = self.machine.next_due_ns(self.has_stream)
        return None if self.machine.closed or due_ns == NEVER_NS else (due_ns - START_NS) / MS_NS


INPUTS = ("acquire", "cancel", "release", "handled", "close", "message", "end", "advance_ms",
          "stall_ms")
EXPECTATIONS = ("wire", "reports", "good_until_ms", "held", "next_due_ms")


def is_wire(matcher, expected, actual):
    """All fields of a message are named; what is in them may be named in part."""
    return (len(expected) == len(actual) and all(
        set(one) == set(other) and matcher.matches(one, other)
        for one, other in zip(expected, actual)))


def are_reports(matcher, expected, actual):
    left = list(actual)
    for report in expected:
        found = next((each for each in left if matcher.matches(report, each)), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def compare(what, expected, actual, holds=None):
    holds = expected == actual if holds is None else holds
    assert holds, f"{what}: {expected} expected, {actual} seen"


def check(run, matcher, step):
    """Raises AssertionError with what differs."""
    wire, reports = step.get("wire", []), step.get("reports", [])
    seen = run.seen_reports()
    compare("wire", wire, run.wire, is_wire(matcher, wire, run.wire))
    compare("reports", reports, seen, are_reports(matcher, reports, seen))
    for name, expected in step.get("good_until_ms", {}).items():
        compare("good until", expected, run.good_until_ms(name))
    for name, expected in step.get("held", {}).items():
        compare("held", expected, run.held(name))
    if "next_due_ms" in step:
        compare("next due", step["next_due_ms"], run.next_due_ms())
    run.wire, run.reports = [], []


def play(trace, basis):
    """Returns the run, for what a trace cannot say."""
    run, matcher = Run({**basis["options"], **trace.get("options", {})}), Matcher()
    steps = basis["prologues"].get(trace.get("after"), []) + trace["steps"]
    for number, step in enumerate(steps, 1):
        kind, = [key for key in step if key in INPUTS]
        unknown = [key for key in step if key not in (kind, "why", *EXPECTATIONS)]
        try:
            assert not unknown, f"unknown: {unknown}"
            getattr(run, kind)(step[kind])
            if kind != "stall_ms":
                run.settle()
            check(run, matcher, step)
        except AssertionError as error:
            raise AssertionError(f"step {number} of {len(steps)}, {step}: {error}") from error
    return run


class Conformance(unittest.TestCase):
    """One test for each trace."""


def _load():
    basis = read("basis.json")
    for name in sorted(os.listdir(os.path.join(FOLDER, "traces"))):
        for trace in read(os.path.join("traces", name))["traces"]:
            test = f"test: {trace['name']}"
            assert not hasattr(Conformance, test), f"two traces: {trace['name']}"
            setattr(Conformance, test, lambda _, trace=trace: play(trace, basis))


_load()

if __name__ == "__main__":
    unittest.main()
