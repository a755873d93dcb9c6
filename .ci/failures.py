#!/usr/bin/env python3
"""Prints which tests failed, and the end of what each printed: the last lines of a run that is read later.

Usage: .ci/failures.py PRESET=JUNIT_FILE...    A file that is missing is passed over. Always exits with 0.
"""
import os
import sys
import xml.etree.ElementTree

TESTS_MAX = 20
LINES_MAX = 40
LINE_CHARACTERS_MAX = 300


def failed_tests(path):
    """(name, why, output) of each test in ctest's file that did not pass, in its order."""
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "run":
            continue
        failure = case.find("failure")
        why = failure.get("message", "") if failure is not None else case.get("status", "")
        yield case.get("name"), why, case.findtext("system-out") or ""


def main(arguments):
    for argument in arguments:
        preset, _, path = argument.partition("=")
        if not os.path.exists(path):
            continue
        try:
            tests = list(failed_tests(path))
        except xml.etree.ElementTree.ParseError as error:
            print(f"{path} cannot be read: {error}")
            continue
        for name, why, output in tests[:TESTS_MAX]:
            print(f"\n==== failed, {preset}: {name} ({why})")
            for line in output.splitlines()[-LINES_MAX:]:
                print(f"    {line[:LINE_CHARACTERS_MAX]}")
        if len(tests) > TESTS_MAX:
            print(f"\n==== failed, {preset}: {len(tests) - TESTS_MAX} more")


main(sys.argv[1:])
