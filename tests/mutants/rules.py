#!/usr/bin/python3
"""Mutants inside the rules and the ledger: each changes one place, and a named contract case must fail on it.

Usage: tests/mutants/rules.py [--list] [--check] [--folder DIR] [--jobs N] [NUMBER...]

  NUMBER       the mutants to try, from 1; without one, all
  --list       prints the mutants, and changes nothing
  --check      finds only the mutants whose place or case is not there any more, and builds nothing
  --folder DIR where the copy of the tree is built; default build/mutants
  --jobs N     processes of the build; default 2

A mutant is killed if the named case fails by an assertion. A mutant that does not compile, a crash and a case
that passes are findings. The cases run on engines in memory, so that no engine is started.

Exit code: 0 all were killed, 1 a finding, 2 usage.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASE_TIMEOUT_S = 60


class Mutant(typing.NamedTuple):
    file: str  # Below adapters/ledger/.
    old: str  # Occurs once.
    new: str
    case: str  # How the name of the contract case begins.
    engine: str = "sqlite-memory"


M = Mutant
MUTANTS = [
    # ---- claims ----
    M("rules/claims.cc", "  editor.Remember(std::move(done));\n  AfterRoom(editor, semaphore, context);\n  return outcome;",
      "  editor.Remember(std::move(done));\n  return outcome;", "one release serves as many as there is room for"),
    M("rules/claims.cc", "    editor.Leave(semaphore, waiter, command.cause);\n    AfterRoom(editor, semaphore, context);",
      "    editor.Leave(semaphore, waiter, command.cause);", "when the large waiter at the front gives up"),
    M("rules/claims.cc", "cancelled ? EndCause::kDisconnected : command.cause, context);\n  AfterRoom(editor, semaphore, context);",
      "cancelled ? EndCause::kDisconnected : command.cause, context);", "closing a session ends all its claims and passes"),
    M("rules/claims.cc", "return !IsEpochOf(state, claim, command.epoch);", "return !IsEpochOf(state, claim, 0);",
      "an end with another epoch changes nothing"),
    M("rules/claims.cc", "(session.closing && session.epoch == epoch + 1)", "(session.closing && session.epoch == epoch)",
      "what a closing session holds is ended"),
    M("rules/claims.cc", "  if (command.only_waiting) return Simply(OutcomeKind::kStale);\n", "",
      "the end of a wait does not touch a lease"),
    M("rules/claims.cc", "if (token == 0 || token != command.token) outcome = NotHeld();",
      "if (token == 0) outcome = NotHeld();", "an overtaken token is not held"),
    M("rules/claims.cc", "asked.limit != 0 && asked.limit != row.limit && !asked.adopt_limit", "asked.limit == 0xffffffff",
      "acquire with another limit than the stored one"),
    M("rules/claims.cc", "if (row.destroying) return Simply(OutcomeKind::kDestroyed);", "",
      "destroy with wait tells the waiters"),
    M("rules/claims.cc", "if (asked.permits > row.limit || (cap != 0 && asked.permits > cap)) {",
      "if (cap != 0 && asked.permits > cap) {", "acquire of more than the limit is refused at once"),
    M("rules/claims.cc", "state.lease_count() + state.waiter_count() < limits.leases_max",
      "state.lease_count() + state.waiter_count() <= limits.leases_max", "leases and waiters together have a limit"),
    M("rules/claims.cc", "if (semaphore->queue.size() >= waiters_max) {", "if (semaphore->queue.size() > waiters_max) {",
      "waiters of one semaphore have a limit"),
    M("rules/claims.cc", "    outcome.kind = OutcomeKind::kMoving;\n  } else if (lease->moved_from != 0 && !over) {",
      "  } else if (lease->moved_from != 0 && !over) {", "impolite: a lease that is repeated under another session"),
    M("rules/claims.cc", "if (waiter->detached() || !ComesFromOwner(command, *waiter)) {", "if (waiter->detached()) {",
      "impolite: a wait that is repeated under another session"),
    M("rules/claims.cc", "if (waiter->detached() || !ComesFromOwner(command, *waiter)) {",
      "if (!ComesFromOwner(command, *waiter)) {", "an end of a wait that was sent before the request was repeated"),
    M("rules/steps.h", "return lease.recall.pending() && lease.recall.grace_ms <= recall.grace_ms;",
      "return lease.recall.pending() && lease.recall.grace_ms == recall.grace_ms;",
      "a later revoke with a longer grace changes nothing"),
    # ---- the queue ----
    M("rules/queue.h", "semaphore.held + permits <= semaphore.row.limit",
      "semaphore.held + permits <= semaphore.row.limit + 1", "a full semaphore refuses who does not wait"),
    M("rules/queue.h", "semaphore_->row.settings.backfill && !Fits(", "!Fits(",
      "a large waiter is not starved by small requests"),
    M("rules/queue.h", "++passed_ > limits_->backfill_depth", "++passed_ > 1'000'000",
      "backfill looks only so far"),
    M("state/state.cc", "has + permits > row.settings.permits_per_holder", "has + permits > row.settings.permits_per_holder + 1",
      "a holder gets no more than its cap"),
    M("rules/queue.cc", "  if (semaphore.row.paused) return WaitReason::kPaused;\n", "", "a paused semaphore grants nothing"),
    M("rules/queue.cc", "if (offer && (!waits || ticket_at->first < at->first)) {", "if (offer) {",
      "ticket queue: w"),
    M("rules/queue.h", "         !semaphore.ready_offers().empty();", "         semaphore.row.limit != 0;",
      "ticket queue: without an offer a ticket is in nobody's way"),
    M("rules/queue.cc", "    editor.Destroy(semaphore);\n    return;", "    return;",
      "destroy with wait goes at once"),
    # ---- administration ----
    M("rules/admin.cc", "    if (lease->recall.pending()) staying -= lease->permits;\n",
      "    if (lease->foreign) staying -= lease->permits;\n",
      "a recall for shrinking counts those that are already recalled"),
    M("rules/admin.cc", "semaphore != nullptr && !editor.Touched(*semaphore) &&", "semaphore != nullptr &&",
      "an expected revision does not hold any more after a change"),
    M("rules/admin.cc", "  editor.Remember(std::move(done));\n", "", "a repeated administrative act is done once"),
    M("rules/admin.cc", "if (act.policy == DestroyPolicy::kRefuse && in_use)",
      "if (act.policy == DestroyPolicy::kRefuse && in_use && semaphore->leases.empty())",
      "destroy is refused"),
    M("rules/admin.cc", "    editor.Leave(semaphore, waiter, EndCause::kExceedsLimit);", "    editor.Leave(semaphore, waiter, EndCause::kDestroyed);",
      "a waiter that a lowered limit can never serve"),
    # ---- intentions ----
    M("rules/intentions.cc", "!is_new(lease) && lease->token <= revocation.token_max;", "!is_new(lease);",
      "large: a revoke ends the leases that stood"),
    M("rules/intentions.cc", "  if (!text.empty()) editor.AdvanceLater(*semaphore);\n", "",
      "large: a relative resize is done once"),
    M("rules/intentions.cc", "  editor.ChangeRow(semaphore, [&](SemaphoreRow& row) { row.intentions = std::move(text); });\n", "",
      "large: one that is destroyed grants nothing more"),
    M("rules/intentions.cc", "  left.host = context.self;\n", "  left.host = {};\n",
      "large: a relative resize is done once", "shared"),
    M("exclusive_view.cc", "    if (semaphore->row.destroying || !semaphore->row.intentions.empty()) core_->serving.Add(name);\n",
      "    if (semaphore->row.paused) core_->serving.Add(name);\n",
      "large: a destruction goes on after its daemon has died", "sqlite-disk"),
    M("shared_view.cc", "  mirror_.LookAtIntentions();\n", "", "large: what a daemon that stands still leaves", "shared"),
    # ---- sessions ----
    M("rules/sessions.cc", "    ++after->epoch;\n", "", "restart: a session goes on with its claims", "sqlite-disk"),
    M("rules/sessions.cc", "if (!IsEpochOf(*session, command.epoch))", "if (!IsEpochOf(*session, 0))",
      "closing with another epoch is stale"),
    M("rules/sessions.cc", "[](const ClaimInfo& info) { return !info.lease; });", "[](const ClaimInfo&) { return true; });",
      "ticket ends: what a session leaves behind"),
    # ---- what a commit rests upon ----
    M("state/transaction.cc", "    transaction_->epochs.push_back({session->id, session->epoch});\n",
      "    static_cast<void>(session);\n", "conditions: nothing is granted under a session", "shared"),
    M("rules/queue.cc", "  editor.RequireEpoch(claim);\n  editor.Grant(semaphore, std::move(lease));\n  return true;",
      "  editor.Grant(semaphore, std::move(lease));\n  return true;",
      "conditions: nothing is granted under a session", "shared"),
    M("rules/queue.cc", "  editor.RequireEpoch(claim);\n  editor.Replace(semaphore, ticket", "  editor.Replace(semaphore, ticket",
      "conditions: no ticket is taken", "shared"),
    M("rules/claims.cc", "  editor.RequireEpoch(claim);\n  Outcome outcome", "  Outcome outcome",
      "conditions: nothing waits under a session", "shared"),
    M("rules/tickets.cc", "  editor.RequireEpoch(claim);\n", "", "conditions: no ticket is taken", "shared"),
    M("rules/claims.cc", "    editor.RequireEpoch(*waiter);\n", "", "conditions: the host that a session leaves meanwhile ends no wait",
      "shared"),
    M("rules/claims.cc", "  editor.RequireEpoch(*lease);\n  // A client", "  // A client",
      "conditions: the host that a session leaves meanwhile ends no lease", "shared"),
    M("rules/claims.cc", "    editor.RequireEpoch(*moved);\n    editor.Replace(semaphore, waiter, moved);",
      "    editor.Replace(semaphore, waiter, moved);", "conditions: no claim moves to a session", "shared"),
    M("rules/claims.cc", "    editor.RequireEpoch(*moved);\n    editor.Replace(semaphore, lease, std::move(moved));\n    outcome.kind",
      "    editor.Replace(semaphore, lease, std::move(moved));\n    outcome.kind", "conditions: no claim moves to a session",
      "shared"),
    M("rules/claims.cc", "    editor.RequireEpoch(*settled);\n", "", "conditions: no move ends in a session", "shared"),
    M("rules/tickets.cc", "  if (command.epoch != 0) editor.RequireEpoch(*lease);\n", "",
      "conditions: the host that a session leaves meanwhile puts no ticket", "shared"),
    M("conditions.cc", "    transaction->reads.push_back({name, semaphore == nullptr ? 0 : semaphore->row.revision});\n",
      "    static_cast<void>(semaphore);\n", "shared: each daemon's answers are true at once", "shared-silent"),
    M("conditions.cc", "if (!written.contains(asked.request)) transaction->absent_requests",
      "if (false) transaction->absent_requests", "one-shot: an act, a release and a ticket are done once", "shared"),
    # ---- requests and the transaction ----
    M("state/transaction.cc", "  return cause == EndCause::kWaitExpired ||", "  return cause == EndCause::kEngineLost ||",
      "an acquire whose wait ran out"),
    M("state/transaction.cc", "      state->Apply(semaphore, WaiterChange{change->after, change->before, EndCause::kNone});\n    }\n    for (auto change = delta.tickets.rbegin()",
      "      if (change->before) state->Apply(semaphore, WaiterChange{change->after, change->before, EndCause::kNone});\n    }\n    for (auto change = delta.tickets.rbegin()",
      "after any commands the leases are the truth", "shared-lossy"),
    M("ledger.cc", "  if (IsOnlyIfRepeated(command) &&", "  if (IsReadOnly(command) && IsOnlyIfRepeated(command) &&",
      "an acquire that only counts if repeated does nothing new"),
    # ---- one-shot requests ----
    M("one_shots.cc", "now >= ended_[due_].since + retention_", "now >= ended_[due_].since",
      "one-shot: a row stays for the retention"),
    M("one_shots.cc", "if (change.row.request.one_shot.empty() || !ends) continue;", "if (ends || !ends) continue;",
      "one-shot: a row stays for the retention"),
    M("one_shots.cc", " && !change.row.pinned();", ";", "one-shot: at the bound new ids are refused"),
    M("request_book.cc", "  if (!one_shots_.HasRoom())\n", "  if (!one_shots_.HasRoom() && one_shot.empty())\n", "one-shot: at the bound new ids are refused"),
    M("request_book.cc", "requester == nullptr || !requester->remembered()", "requester == nullptr || requester->sequence == 0",
      "one-shot: an act, a release and a ticket", "shared"),
    M("exclusive_view.cc", "for (const Id& one_shot : image->one_shots) core_->requests.AddStored(one_shot);", "",
      "one-shot: restart: rows stand", "sqlite-disk"),
]


def copy_tree(folder: pathlib.Path) -> None:
    """The tracked files; only what differs is written, so that a build goes on where it was."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in names.decode().split("\0"):
        source, target = ROOT / name, folder / name
        if not name or not source.is_file():
            continue
        content = source.read_bytes()
        if target.is_file() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(source.stat().st_mode)


def build(folder: pathlib.Path, jobs: int, target: str = "contract_tests") -> str:
    """Returns "" or the last lines of what went wrong."""
    done = subprocess.run(
        ["cmake", "--build", "--preset", "release", "-j", str(jobs), "--target", target],
        cwd=folder, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else "\n".join(done.stdout.splitlines()[-15:])


def run_case(folder: pathlib.Path, mutant: Mutant) -> subprocess.CompletedProcess:
    """Runs the mutant's case. Catch2's exit code is the number of cases that failed."""
    name = mutant.case.replace(",", "\\,")
    program = folder / "build/release/tests/contract/contract_tests"
    return subprocess.run([program, f"{mutant.engine}/{name}*"], cwd=folder, capture_output=True,
                          text=True, check=False, timeout=CASE_TIMEOUT_S)


def judge(folder: pathlib.Path, mutant: Mutant, jobs: int) -> str:
    """Returns "" if the mutant is killed, or what was found."""
    path = folder / "adapters/ledger" / mutant.file
    original = path.read_text()
    wrong = check_place(path, mutant.old)
    if wrong:
        return wrong
    path.write_text(original.replace(mutant.old, mutant.new))
    try:
        wrong = build(folder, jobs)
        if wrong:
            return "it does not compile:\n" + wrong
        done = run_case(folder, mutant)
    except subprocess.TimeoutExpired:
        return f"the case did not end within {CASE_TIMEOUT_S} s"
    finally:
        path.write_text(original)
    if done.returncode < 0 or "SIG" in done.stdout:
        return "the case crashed"
    if "No test" in done.stdout:
        return "there is no such case"
    return "" if done.returncode > 0 else "it survived"


def check_place(path: pathlib.Path, old: str) -> str:
    """Returns "" or what is wrong with the place of a mutant."""
    count = path.read_text().count(old)
    return "" if count == 1 else f"its place occurs {count} times"


def check(mutant: Mutant, cases: list[str]) -> str:
    """Returns "" or why the mutant cannot be tried. `cases`: the names of all contract cases."""
    wrong = check_place(ROOT / "adapters/ledger" / mutant.file, mutant.old)
    if not wrong and not any(case.startswith(mutant.case) for case in cases):
        wrong = "there is no such case"
    return wrong


def contract_cases() -> list[str]:
    """The names of the contract cases, by their sources."""
    sources = "".join(path.read_text() for path in sorted((ROOT / "tests/contract").glob("*_cases.cc")))
    sources = re.sub(r'"\s*\n\s*"', "", sources)
    return re.findall(r'CONTRACT_CASE\w*\(\s*"((?:[^"\\]|\\.)*)"', sources)


def make_parser(description: str, folder: str) -> argparse.ArgumentParser:
    """The options of all programs here. `folder`: the default of --folder, below build/."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / folder)
    parser.add_argument("--jobs", type=int, default=2)
    return parser


def read_arguments(description: str, folder: str, count: int) -> tuple[argparse.Namespace, typing.Sequence[int]]:
    """The options, and which of `count` mutants are asked for."""
    parser = make_parser(description, folder)
    parser.add_argument("numbers", type=int, nargs="*")
    arguments = parser.parse_args()
    numbers = arguments.numbers or range(1, count + 1)
    if any(not 1 <= number <= count for number in numbers):
        parser.error(f"mutants have the numbers 1 to {count}")
    return arguments, numbers


def main() -> int:
    """Runs the mutants that are asked for."""
    arguments, numbers = read_arguments(__doc__, "mutants", len(MUTANTS))
    if arguments.list:
        for number in numbers:
            mutant = MUTANTS[number - 1]
            print(f"{number:3} {mutant.file:22} {mutant.engine}/{mutant.case}")
        return 0
    if arguments.check:
        cases = contract_cases()
        wrong = {number: check(MUTANTS[number - 1], cases) for number in numbers}
        for number, why in wrong.items():
            if why:
                print(f"{number:3} {MUTANTS[number - 1].file:22} {why}: {MUTANTS[number - 1].case}")
        return 1 if any(wrong.values()) else 0
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    copy_tree(folder)
    subprocess.run(["cmake", "--preset", "release"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    wrong = build(folder, arguments.jobs)
    if wrong:
        print(wrong)
        return 1
    findings = 0
    for number in numbers:
        mutant = MUTANTS[number - 1]
        found = judge(folder, mutant, arguments.jobs)
        findings += bool(found)
        print(f"{number:3} {mutant.file:22} {found or 'killed'}: {mutant.engine}/{mutant.case}", flush=True)
    print(f"rules: {len(numbers) - findings} of {len(numbers)} mutants killed")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
