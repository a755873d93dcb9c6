#!/usr/bin/env python3
"""Prints which tests failed, and the end of what each printed: the last lines of a run that is read later.

Usage: .ci/failures.py [--brief] PRESET=JUNIT_FILE...

  --brief  two lines for each test: its name, and the last line that says what was wrong

A file that is missing is passed over. Always exits with 0.
"""
import os
import re
import sys
import xml.etree.ElementTree

TESTS_MAX = 20
LINES_MAX = 40
LINE_CHARACTERS_MAX = 300
WRONG = re.compile(r"(Error|Exception|FAILED|ERROR|WARNING): |REQUIRE|CHECK|not within")


def failed_tests(path):
    """(name, why, lines of output) of each test in ctest's file that did not pass, in its order."""
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "run":
            continue
        failure = case.find("failure")
        why = failure.get("message", "") if failure is not None else case.get("status", "")
        lines = [line[:LINE_CHARACTERS_MAX] for line in (case.findtext("system-out") or "").splitlines()]
        yield case.get("name"), why, lines


def what_was_wrong(lines):
    said = [line for line in lines if WRONG.search(line)] or [line for line in lines if line.strip()]
    return said[-1:]


def main(arguments):
    brief = "--brief" in arguments
    for argument in arguments:
        preset, _, path = argument.partition("=")
        if not os.path.exists(path):
            continue
        try:
            tests = list(failed_tests(path))
        except xml.etree.ElementTree.ParseError as error:
            print(f"{path} cannot be read: {error}")
            continue
        for name, why, lines in tests[:TESTS_MAX]:
            print(f"{'' if brief else chr(10)}==== failed, {preset}: {name} ({why})")
            for line in what_was_wrong(lines) if brief else lines[-LINES_MAX:]:
                print(f"    {line}")
        if len(tests) > TESTS_MAX:
            print(f"==== failed, {preset}: {len(tests) - TESTS_MAX} more")


main(sys.argv[1:])
