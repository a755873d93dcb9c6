#!/usr/bin/env python3
"""Prints how often each branch of the rules was taken beside each kind of fault.

Usage: branch_table.py NAMES TABLE IMPOSSIBLE

  NAMES       what simulation_tests "names of all branches" prints
  TABLE       rows of a run with SIM_TABLE: branch, the name, a count for each kind of fault
  IMPOSSIBLE  lines "branch | fault | reason", with the wildcards of fnmatch, for cells that cannot be reached

A cell is a count, "-" if it is listed as impossible, or "?" if it was not reached. Exit code: 0 no "?" is left,
1 some are.
"""

import collections
import fnmatch
import sys


def read_names(path):
    faults, branches = [], []
    with open(path, encoding="utf-8") as file:
        for line in file:
            fields = line.rstrip("\n").split("\t")
            if fields[0] == "faults:":
                faults = fields[1:]
            elif fields[0] == "branch:":
                branches.append(fields[1])
    return faults, branches


def read_counts(path, width):
    counts = collections.defaultdict(lambda: [0] * width)
    with open(path, encoding="utf-8") as file:
        for line in file:
            fields = line.rstrip("\n").split("\t")
            if fields[0] != "branch":
                continue
            row = counts[fields[1]]
            for index, count in enumerate(fields[2:]):
                row[index] += int(count)
    return counts


def read_impossible(path):
    rules = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                branch, fault, reason = (field.strip() for field in line.split("|", 2))
                rules.append([branch, fault, reason, 0])
    return rules


def main():
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    faults, branches = read_names(sys.argv[1])
    counts = read_counts(sys.argv[2], len(faults))
    rules = read_impossible(sys.argv[3])
    reached = impossible = 0
    missing, wrong = [], []
    for index, fault in enumerate(faults):
        print(f"fault {index + 1:2}: {fault}")
    print(f"{'branch':44}" + "".join(f"{index + 1:>9}" for index in range(len(faults))))
    # A branch that happened and is not in the list is shown, too.
    for branch in sorted(set(branches) | set(counts)):
        cells = []
        for fault, count in zip(faults, counts[branch]):
            rule = next((r for r in rules if fnmatch.fnmatch(branch, r[0]) and fnmatch.fnmatch(fault, r[1])), None)
            if count:
                reached += 1
                cells.append(str(count))
                if rule:
                    wrong.append(f"{branch} / {fault}: listed as impossible ({rule[2]}), and was reached {count} times")
            elif rule:
                impossible += 1
                rule[3] += 1
                cells.append("-")
            else:
                missing.append(f"{branch} / {fault}")
                cells.append("?")
        print(f"{branch:44}" + "".join(f"{cell:>9}" for cell in cells))
    print("\nimpossible, and why:")
    for branch, fault, reason, cells in rules:
        print(f"  {branch} / {fault} ({cells} cells): {reason}")
    for line in wrong:
        print(f"wrong: {line}")
    print(f"branches: {reached} cells reached, {impossible} impossible, {len(missing)} not reached")
    return 1 if missing or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
