#!/usr/bin/python3
"""Mutants of the clients' session machines: each changes one place, and a named conformance trace must fail on it.

Usage: tests/mutants/clients.py [--list] [--check] [--folder DIR] [--jobs N] LANGUAGE

  LANGUAGE     cpp, python or node
  --list       prints the mutants, and changes nothing
  --check      finds only the mutants whose place is not there any more, and builds nothing
  --folder DIR cpp: where the copy of the tree is built; default build/client-mutants
  --jobs N     cpp: processes of the build; default 2

Python's package comes from PYTHONPATH, with its generated modules; its other modules come from the tree.
A mutant is killed if the named trace fails by what it compares. A mutant that does not compile, a crash and a trace
that passes are findings.

Exit code: 0 all were killed, 1 a finding, 2 usage.
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import typing

import rules

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 120
# What each runner says of a difference, after its lines were joined.
DIFFERENCE = re.compile(r"step \d+ of \d+, .*: .* expected, |the machine does not come to rest")


class Mutant(typing.NamedTuple):
    file: str  # In the client's folder.
    old: str  # Occurs once.
    new: str
    trace: str


M = Mutant
PYTHON = [
    M("_lease.py", "- max(margin_ns, valid_for_ns // 100)", "- margin_ns", "one percent is the margin where that is more"),
    M("_leases.py", "good_until_ns(sent_ns + validity.elapsed_ms * MS_NS,", "good_until_ns(sent_ns,",
      "a pong counts from when its ping was sent"),
    M("_leases.py", "return validity.epoch < self._epoch", "return False", "a pong with an older epoch is ignored"),
    M("_leases.py", "self.unclaimed = ids - set(self._by_id)", "self.unclaimed = set()",
      "a listed permit that no command can claim is given back at once"),
    M("_leases.py", "max(self._deadline.at_ns, until_ns)", "until_ns", "a later answer takes no earlier promise back"),
    M("_machine.py", "                   or code in _REFUSED_IDENTITY)):", "                   or False)):",
      "UNAUTHENTICATED to a resume fails what waits, and keeps what is held up to its deadline"),
    M("_machine.py", "recalled.stream_number == self._stream_number and", "recalled.stream_number and",
      "a recall is not acknowledged on a later stream"),
    M("_machine.py", "+ self._pace_ns() // 4", "+ self._pace_ns() // 2",
      "a silent stream is given up a quarter of the validity after its ping"),
    M("_pings.py", "if sent_ns is not None:\n            return sent_ns", "if sent_ns is not None:\n            return self._opened_ns",
      "the grace counts from when the ping was sent that had arrived last"),
    M("_operations.py", "operation.abandoned = True\n        if operation.retrying:", "operation.abandoned = False\n        if operation.retrying:",
      "a wait that is given up is cancelled there, and a grant that crosses it goes back"),
    M("_operations.py", "if operation.command.sequence == 0 and not", "operation.command.sequence = 0\n                if not",
      "a broken connection is resumed with the same client, numbers and content"),
    M("_operations.py", "_WINDOW = 1000", "_WINDOW = 1001",
      "numbers stay within the daemon's window of the first that is unanswered"),
    M("_operations.py", "if error is None or error.code in _ENDS_GIVING_BACK:", "if True:",
      "permits whose release has failed are still given back"),
    M("_operations.py", "if error is None or error.code in _ENDS_GIVING_BACK:", "if error is None:",
      "PERMISSION_DENIED to a release is the end of it"),
    M("_operations.py", "        self._renumber(release)\n", "",
      "permits that are still to be given back hold up no number"),
    M("_operations.py", "self._leases.unclaimed.discard(operation.command.release.lease_id)", "pass",
      "permits that are still to be given back are given back once after a resume"),
    M("_operations.py", "release.pause_ns * 2", "release.pause_ns",
      "the pause before permits are given back again doubles up to ten seconds"),
    M("_operations.py", "        if operation.retrying:  # before", "        if False:  # before",
      "a wait that is given up in a pause is asked for before the cancel, and never after it"),
    M("_operations.py", "            operation.retrying = False\n            if operation.kind is Kind.ACQUIRE and", "            if operation.kind is Kind.ACQUIRE and",
      "a wait whose pause a resume has ended is given up by a cancel"),
    M("_leases.py", "        self.ping_wanted |= self._shortened\n", "",
      "a permit that is granted beside recalled ones is pinged for at once"),
    M("_leases.py", "if lease is not None and not self._by_id:", "if False:",
      "when the last recalled permit is lost a ping goes at once"),
    M("_leases.py", "if lease is not None and not self._by_id:", "if lease is not None:",
      "while a recalled permit is left no ping goes for one that was given back"),
]
NODE = [
    M("lease_state.js", "- Math.max(marginMs, validForMs / 100)", "- marginMs", "one percent is the margin where that is more"),
    M("session_machine.js", "this.#leases.extend(sentAt + Number(validity?.elapsedMs ?? 0), validForMs);",
      "this.#leases.extend(sentAt, validForMs);", "a pong counts from when its ping was sent"),
    M("session_machine.js", "return BigInt(validity?.epoch ?? 0) < this.#epoch;", "return false;", "a pong with an older epoch is ignored"),
    M("session_machine.js", "|| REFUSED_IDENTITY.has(error.code))) {", ")) {",
      "UNAUTHENTICATED to a resume fails what waits, and keeps what is held up to its deadline"),
    M("session_machine.js", "if (stream !== this.#streamNumber || ", "if (", "a recall is not acknowledged on a later stream"),
    M("session_machine.js", "?? this.#pingDue) + this.#paceMs / 4;", "?? this.#pingDue) + this.#paceMs / 2;",
      "a silent stream is given up a quarter of the validity after its ping"),
    M("leases.js", "    return listed;\n", "    return new Set();\n", "a listed permit that no command can claim is given back at once"),
    M("leases.js", "Math.max(this.#session.get(), goodUntil(made, validForMs, this.#marginMs))", "goodUntil(made, validForMs, this.#marginMs)",
      "a later answer takes no earlier promise back"),
    M("pings.js", "if (id === 0) return", "if (id >= 0) return", "the grace counts from when the ping was sent that had arrived last"),
    M("operations.js", "    operation.abandoned = true;\n    if (operation.retrying)", "    if (operation.retrying)",
      "a wait that is given up is cancelled there, and a grant that crosses it goes back"),
    M("operations.js", "if (operation.sequence === 0 && !this.#giveSequence(operation, now)) break;", "if (!this.#giveSequence(operation, now)) break;",
      "a broken connection is resumed with the same client, numbers and content"),
    M("operations.js", "const WINDOW = 1000;", "const WINDOW = 1001;",
      "numbers stay within the daemon's window of the first that is unanswered"),
    M("operations.js", "if (error === undefined || ENDS_GIVING_BACK.has(error.code)) this", "if (true) this",
      "permits whose release has failed are still given back"),
    M("operations.js", "if (error === undefined || ENDS_GIVING_BACK.has(error.code)) this", "if (error === undefined) this",
      "PERMISSION_DENIED to a release is the end of it"),
    M("operations.js", "    this.#renumber(operation);\n    this.#retryAt(", "    this.#retryAt(",
      "permits that are still to be given back hold up no number"),
    M("operations.js", "      if (operation.kind === 'release') this.#unclaimed.delete(operation.command.release.leaseId);\n", "",
      "permits that are still to be given back are given back once after a resume"),
    M("operations.js", "operation.pauseMs * 2", "operation.pauseMs",
      "the pause before permits are given back again doubles up to ten seconds"),
    M("operations.js", "    if (operation.retrying) this.#sendAgain(operation); // Before", "    // Before",
      "a wait that is given up in a pause is asked for before the cancel, and never after it"),
    M("operations.js", "      this.#sendAgain(operation);\n      if (operation.kind === 'acquire'", "      this.#toSend.push(operation);\n      if (operation.kind === 'acquire'",
      "a wait whose pause a resume has ended is given up by a cancel"),
    M("operations.js", "(waitMs > 0 && left > WAIT_MOST_MS)", "false",
      "a wait that is too long for its field is asked for without an end, and ends here"),
    M("leases.js", "    if (this.#shortened) this.#pingWanted = true;\n    const early", "    const early",
      "a permit that is granted beside recalled ones is pinged for at once"),
    M("leases.js", "if (this.#byId.delete(leaseId) && this.size === 0 && this.#shortened)", "if (this.#byId.delete(leaseId) && false)",
      "when the last recalled permit is lost a ping goes at once"),
    M("leases.js", "if (this.#byId.delete(leaseId) && this.size === 0 && ", "if (this.#byId.delete(leaseId) && ",
      "while a recalled permit is left no ping goes for one that was given back"),
]
CPP = [
    M("lease_state.cc", "- std::max(margin, valid_for / 100)", "- margin", "one percent is the margin where that is more"),
    M("lease_keeper.cc", "GoodUntil(sent + milliseconds(validity.elapsed_ms()),", "GoodUntil(sent,",
      "a pong counts from when its ping was sent"),
    M("lease_keeper.cc", "if (validity.epoch() < epoch_) return false;", "", "a pong with an older epoch is ignored"),
    M("lease_keeper.cc", "if (good_until > deadline_->get()) deadline_", "deadline_", "a later answer takes no earlier promise back"),
    M("lease_recalls.cc", "recalled.stream != stream_ || ", "", "a recall is not acknowledged on a later stream"),
    M("lease_keeper.cc", "unanswered) + Pace() / 4;", "unanswered) + Pace() / 2;",
      "a silent stream is given up a quarter of the validity after its ping"),
    M("lease_keeper.cc", "if (sent != kNever) return sent;", "if (sent == kNever) return open_sent_at_;", "the grace counts from when the ping was sent that had arrived last"),
    M("session_machine.cc", "|| IsRefusedIdentity(status.code()))", "|| (IsRefusedIdentity(status.code()) && false))",
      "UNAUTHENTICATED to a resume fails what waits, and keeps what is held up to its deadline"),
    M("operations.cc", "GiveBack(lease_id, now);\n  unclaimed_.clear();", "(void)lease_id;\n  (void)now;\n  unclaimed_.clear();",
      "a listed permit that no command can claim is given back at once"),
    M("operations.cc", "  abandoned.abandoned = true;\n", "",
      "a wait that is given up is cancelled there, and a grant that crosses it goes back"),
    M("operations.cc", "    if (operation.command.sequence() == 0) {\n      if", "    {\n      if",
      "a broken connection is resumed with the same client, numbers and content"),
    M("operations.cc", "kWindow = 1000;", "kWindow = 1001;",
      "numbers stay within the daemon's window of the first that is unanswered"),
    M("operation_answers.cc", "if (EndsGivingBack(answer)) return", "return",
      "permits whose release has failed are still given back"),
    M("lease_keeper.cc", "\n         absl::IsPermissionDenied(answer);", "\n         (absl::IsPermissionDenied(answer) && false);",
      "PERMISSION_DENIED to a release is the end of it"),
    M("operation_answers.cc", "  Renumber(release);\n", "",
      "permits that are still to be given back hold up no number"),
    M("operations.cc", "    if (operation.kind == Kind::kRelease) unclaimed_.erase(operation.command.release().lease_id());\n", "",
      "permits that are still to be given back are given back once after a resume"),
    M("operation_answers.cc", "release.pause * 2", "release.pause",
      "the pause before permits are given back again doubles up to ten seconds"),
    M("operations.cc", "if (retries_.erase({abandoned.retry_at, operation->first}) > 0)", "if (false)",
      "a wait that is given up in a pause is asked for before the cancel, and never after it"),
    M("operations.cc", "  retries_.clear();\n", "",
      "a wait whose pause a resume has ended is given up by a cancel"),
    M("operations.cc", " || wait > milliseconds(UINT32_MAX);", ";",
      "a wait that is too long for its field is asked for without an end, and ends here"),
    M("lease_keeper.cc", "  if (shortened_) pings_.Want();\n", "",
      "a permit that is granted beside recalled ones is pinged for at once"),
    M("lease_keeper.cc", "if (leases_.erase(lease_id) > 0 && leases_.empty() && shortened_)", "if (leases_.erase(lease_id) > 0 && false)",
      "when the last recalled permit is lost a ping goes at once"),
    M("lease_keeper.cc", "if (leases_.erase(lease_id) > 0 && leases_.empty() && ", "if (leases_.erase(lease_id) > 0 && ",
      "while a recalled permit is left no ping goes for one that was given back"),
]


def run(command: list, folder: pathlib.Path, **environment: str) -> subprocess.CompletedProcess:
    """Its output and error are one text."""
    return subprocess.run(command, cwd=folder, env={**os.environ, **environment}, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S)


class Python:
    """A copy of the package, with the generated modules of the one on PYTHONPATH."""

    mutants = PYTHON
    home = "client/python/semaphored"

    def __init__(self, folder: pathlib.Path) -> None:
        self.sources = folder / "semaphored"
        self.folder = folder
        generated = importlib.util.find_spec("semaphored.v1")
        if generated is None or generated.origin is None:
            sys.exit("clients: PYTHONPATH names no package semaphored with its generated modules")
        shutil.copytree(ROOT / self.home, self.sources, dirs_exist_ok=True)
        shutil.copytree(pathlib.Path(generated.origin).parent, self.sources / "v1", dirs_exist_ok=True)

    def build(self) -> str:
        """Nothing is to be built."""
        return ""

    def play(self, trace: str) -> subprocess.CompletedProcess:
        """The exit code is 0 if the trace holds; "": if all of them do."""
        test = ROOT / "client/python/tests/test_conformance.py"
        selection = ["-k", f"*test: {trace}"] if trace else []
        return run(["/usr/bin/python3", "-B", test, *selection], self.folder, PYTHONPATH=str(self.folder))


class Node:
    """A copy of the client beside the traces and the API."""

    mutants = NODE
    home = "client/node/lib"

    def __init__(self, folder: pathlib.Path) -> None:
        self.client = folder / "client/node"
        self.sources = self.client / "lib"
        for name in ("client/node/lib", "client/node/test", "proto", "tests/conformance"):
            shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True)

    def build(self) -> str:
        """Nothing is to be built."""
        return ""

    def play(self, trace: str) -> subprocess.CompletedProcess:
        """As Python's."""
        selection = [trace] if trace else []
        return run(["/usr/bin/python3", "-B", ROOT / "tests/conformance/node.py", "--client", self.client, *selection], ROOT)


class Cpp:
    """A copy of the tree with a build of its own."""

    mutants = CPP
    home = "client/semaphore"

    def __init__(self, folder: pathlib.Path, jobs: int) -> None:
        self.folder = folder
        self.jobs = jobs
        self.sources = folder / self.home
        folder.mkdir(parents=True, exist_ok=True)
        rules.copy_tree(folder)
        subprocess.run(["cmake", "--preset", "release"], cwd=folder, check=True, stdout=subprocess.DEVNULL)

    def build(self) -> str:
        """Returns "" or the last lines of what went wrong."""
        return rules.build(self.folder, self.jobs, "conformance_tests")

    def play(self, trace: str) -> subprocess.CompletedProcess:
        """As Python's."""
        program = self.folder / "build/release/tests/conformance/conformance_tests"
        return run([program], self.folder, **({"CONFORMANCE_TRACE": trace} if trace else {}))


def judge(client: typing.Any, mutant: Mutant) -> str:
    """Returns "" if the mutant is killed, or what was found."""
    path = client.sources / mutant.file
    original = path.read_text()
    wrong = rules.check_place(path, mutant.old)
    if wrong:
        return wrong
    path.write_text(original.replace(mutant.old, mutant.new))
    try:
        wrong = client.build()
        if wrong:
            return "it does not compile:\n" + wrong
        done = client.play(mutant.trace)
    except subprocess.TimeoutExpired:
        return f"the trace did not end within {TIMEOUT_S} s"
    finally:
        path.write_text(original)
    if done.returncode == 0:
        return "it survived"
    if not DIFFERENCE.search(" ".join(done.stdout.split())):
        return "the trace did not fail by what it compares:\n" + done.stdout[-2000:]
    return ""


def check_unchanged(client: typing.Any) -> str:
    """Returns "" if all traces hold without a mutant, and the named ones are there."""
    wrong = client.build()
    if wrong:
        return wrong
    files = (ROOT / "tests/conformance/traces").glob("*.json")
    names = {trace["name"] for file in files for trace in json.loads(file.read_text())["traces"]}
    missing = {mutant.trace for mutant in client.mutants} - names
    if missing:
        return f"there are no such traces: {sorted(missing)}"
    done = client.play("")
    return "" if done.returncode == 0 else f"without a mutant:\n{done.stdout[-4000:]}"


def main() -> int:
    """Tries the mutants of one language."""
    parser = rules.make_parser(__doc__, "client-mutants")
    parser.add_argument("language", choices=["cpp", "python", "node"])
    arguments = parser.parse_args()
    kind = {"cpp": Cpp, "python": Python, "node": Node}[arguments.language]
    if arguments.list:
        for number, mutant in enumerate(kind.mutants, 1):
            print(f"{number:3} {mutant.file:22} {mutant.trace}")
        return 0
    if arguments.check:
        wrong = [(mutant, rules.check_place(ROOT / kind.home / mutant.file, mutant.old)) for mutant in kind.mutants]
        for mutant, why in wrong:
            if why:
                print(f"{mutant.file:22} {why}: {mutant.trace}")
        return 1 if any(why for _, why in wrong) else 0
    with tempfile.TemporaryDirectory(prefix="semaphored-mutants-") as folder:
        client = Cpp(arguments.folder.resolve(), arguments.jobs) if kind is Cpp else kind(pathlib.Path(folder))
        wrong = check_unchanged(client)
        if wrong:
            print(wrong)
            return 1
        findings = 0
        for number, mutant in enumerate(kind.mutants, 1):
            found = judge(client, mutant)
            findings += bool(found)
            print(f"{number:3} {mutant.file:22} {found or 'killed'}: {mutant.trace}", flush=True)
    print(f"clients: {len(kind.mutants) - findings} of {len(kind.mutants)} mutants of {arguments.language} killed")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
