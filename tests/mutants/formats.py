#!/usr/bin/python3
"""Mutants of stored formats: each changes a byte of what one encoder writes, and a golden test must fail on it.

Usage: tests/mutants/formats.py [--list] [--check] [--folder DIR] [--jobs N] [NUMBER...]

The options are those of rules.py; --folder is build/format-mutants by default. No engine is needed: the golden tests of
whole commits, which need one, see the same encoders.

Exit code: 0 all were killed, 1 a finding, 2 usage.
"""

import subprocess
import sys
import typing

from rules import ROOT, build, check_place, copy_tree, read_arguments

CASE_TIMEOUT_S = 60


class Mutant(typing.NamedTuple):
    file: str  # Below adapters/.
    old: str  # Occurs once.
    new: str
    case: str  # How the names of the golden tests begin.


M = Mutant
MUTANTS = [
    M("ledger/rules/intentions.cc", 'text["force_grace_ms"]', 'text["force_ms"]', "ledger golden: intentions"),
    M("sqlite/record.cc", "  writer.Number(row.settings.waiters_max);\n", "  writer.Signed(row.settings.waiters_max);\n",
      "sqlite golden: semaphores"),
    M("sqlite/record.cc", "  writer.Number(session.epoch);\n", "  writer.Number(session.epoch + 1);\n", "sqlite golden: semaphores"),
    M("sqlite/record_tickets.cc", "  writer.Number(ticket.attempt);\n", "  writer.Signed(ticket.attempt);\n", "sqlite golden: tickets"),
    M("postgres/commit_tickets.cc", '{"attempt", reason.attempt}', '{"tries", reason.attempt}', "postgres golden: reasons"),
    M("consul/format.cc", 'v.Optional("made_on_use", row.made_on_use);', 'v.Optional("on_use", row.made_on_use);',
      "consul golden: a document"),
    M("consul/format.cc", 'v.Optional("destroying", row.destroying);', 'v.Optional("going", row.destroying);',
      "consul golden: a document"),
    M("consul/keys.h", 'kFloor[] = "floor"', 'kFloor[] = "least"', "consul golden: keys"),
    M("dynamodb/items.cc", 'SetNumber(&item, "fencing_token", token);', 'SetNumber(&item, "token", token);', "dynamodb golden: leases"),
    M("dynamodb/items.cc", '"destroying", row.destroying', '"going", row.destroying', "dynamodb golden: a head"),
    M("dynamodb/items_tickets.cc", 'SetNumber(&item, "max_attempts", ticket.max_attempts);',
      'SetNumber(&item, "attempts", ticket.max_attempts);', "dynamodb golden: tickets"),
    M("rabbitmq/token_format.cc", 'content["making"] = true;', 'content["made"] = false;', "rabbitmq golden: settings of a semaphore"),
    M("rabbitmq/token_format.cc", '{"slot", token.slot}', '{"number", token.slot}', "rabbitmq golden: permits"),
]


def sources():
    """The text of all golden tests, with joined literals."""
    return "".join(path.read_text().replace('"\n', "") for path in (ROOT / "tests/unit").rglob("golden_test.cc"))


def judge(folder, mutant, jobs):
    """Returns "" if the mutant is killed, or what was found."""
    path = folder / "adapters" / mutant.file
    original = path.read_text()
    path.write_text(original.replace(mutant.old, mutant.new))
    try:
        wrong = build(folder, jobs, "unit_tests")
        if wrong:
            return "it does not compile:\n" + wrong
        done = subprocess.run([folder / "build/release/tests/unit/unit_tests", f"~[postgres]~[consul]~[dynamodb]~[rabbitmq]{mutant.case}*"],
                              cwd=folder, capture_output=True, text=True, check=False, timeout=CASE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"the test did not end within {CASE_TIMEOUT_S} s"
    finally:
        path.write_text(original)
    if "No test" in done.stdout or "No test" in done.stderr or "SIG" in done.stdout or done.returncode < 0:
        return "there is no such test, or it crashed"
    return "" if done.returncode > 0 else "it survived"


def main():
    arguments, numbers = read_arguments(__doc__, "format-mutants", len(MUTANTS))
    golden = sources()
    findings = 0
    folder = arguments.folder.resolve()
    if not arguments.list and not arguments.check:
        folder.mkdir(parents=True, exist_ok=True)
        copy_tree(folder)
        subprocess.run(["cmake", "--preset", "release"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    for number in numbers:
        mutant = MUTANTS[number - 1]
        found = check_place(ROOT / "adapters" / mutant.file, mutant.old)
        if not found and mutant.case not in golden:
            found = "there is no such test"
        if not found and not arguments.list and not arguments.check:
            found = judge(folder, mutant, arguments.jobs)
        findings += bool(found)
        if found or not arguments.check:
            print(f"{number:3} {mutant.file:28} {found or ('' if arguments.list else 'killed')}: {mutant.case}", flush=True)
    return 1 if findings and not arguments.list else 0


if __name__ == "__main__":
    sys.exit(main())
