#!/usr/bin/env python3
"""Counts the methods that each class of the C++ code declares, and refuses a class with too many.

usage: tests/classes.py [--all]      exit 1 and one line for each class over the bound, or over its entry in KNOWN
       --all: prints every class with twenty methods or more

A declaration in the body of a class counts if it is a function: constructors, destructors, operators, deleted and inherited ones,
one for each overload. Members that are objects, types, friends and static_asserts do not count, nor do nested classes' functions,
which count for these.
"""
import pathlib
import re
import subprocess
import sys

METHODS_MAX = 45
# Classes that had more when the check was made, with their number then. An entry goes when its class is cut; none is added.
KNOWN = {
    "adapters/rabbitmq/connection.h Connection": 50,
    "adapters/rabbitmq/slot_store.h SlotStore": 46,
}
FOLDERS = ("adapters", "server", "client")


def plain(text: str) -> str:
    """The text without comments, strings, characters and preprocessor lines, whose places are kept."""
    text = re.sub(r'R"(\w*)\((?:.|\n)*?\)\1"', '""', text)
    pattern = r'//[^\n]*|/\*(?:.|\n)*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    # An apostrophe between digits separates them.
    text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", text)
    text = re.sub(pattern, lambda m: '""' if m.group()[0] == '"' else " ", text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)


def closing(text: str, at: int) -> int:
    """Behind the brace that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return len(text)


def members(body: str):
    """The declarations of a class's body, each up to its ';' or the body that follows it."""
    start = i = round_ = 0
    while i < len(body):
        c = body[i]
        round_ += {"(": 1, ")": -1}.get(c, 0)
        if c == "{" and round_ == 0:
            yield body[start:i]
            i = closing(body, i)
            if not re.match(r"\s*[;,]", body[i:]):
                start = i
            else:  # An initialiser: the declaration goes on to its ';'.
                while i < len(body) and body[i] not in ";{":
                    i += 1
                start = i = i + 1 if i < len(body) and body[i] == ";" else i
            continue
        if c == "{":
            i = closing(body, i)
            continue
        if c == ";" and round_ == 0:
            yield body[start:i]
            start = i + 1
        i += 1


def without_templates(text: str) -> str:
    """The text without what stands between < and >, as far as these are not operators."""
    text = re.sub(r"operator\s*(?:<=>|<<|>>|<=|>=|<|>|->)", "operator_", text)
    before = None
    while before != text:
        before = text
        text = re.sub(r"<[^<>;{}]*>", " ", text)
    return text


def is_method(declaration: str) -> bool:
    text = re.sub(r"\b(public|protected|private)\s*:", " ", declaration)
    text = re.sub(r"\[\[[^\]]*\]\]|\balignas\s*\([^)]*\)", " ", text)
    text = without_templates(text).strip()
    if re.match(r"(using|typedef|friend|static_assert|enum|class|struct|union)\b", text):
        return False
    head = text.split("(", 1)
    return len(head) == 2 and "=" not in head[0].replace("operator==", "").replace("operator=", "") \
        and re.search(r"(\w+|operator\s*\S+)\s*$", head[0]) is not None


def classes(text: str):
    """(name, number of methods) of each class that is defined in the text."""
    for match in re.finditer(r"\b(?:class|struct)\s+((?:\w+::)*\w+)\s*(?:final\s*)?(?::[^;{()]*)?\{", text):
        if re.search(r"\benum\s+$", text[: match.start()]):
            continue
        body = text[match.end() : closing(text, match.end() - 1) - 1]
        yield match.group(1), sum(map(is_method, members(body)))


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    names = subprocess.run(["git", "ls-files", *FOLDERS], cwd=root, check=True, capture_output=True, text=True)
    found = []
    for name in names.stdout.split():
        if name.endswith((".h", ".cc")) and (root / name).exists():
            text = plain((root / name).read_text())
            found += [(methods, f"{name} {cls}") for cls, methods in classes(text)]
    found.sort(reverse=True)
    if "--all" in sys.argv[1:]:
        for methods, cls in found:
            if methods >= 20:
                print(f"{methods:4} {cls}")
    over = [(methods, cls) for methods, cls in found if methods > max(METHODS_MAX, KNOWN.get(cls, 0))]
    for methods, cls in over:
        print(f"{cls} has {methods} methods, more than {max(METHODS_MAX, KNOWN.get(cls, 0))}")
    big = {cls for methods, cls in found if methods > METHODS_MAX}
    gone = sorted(set(KNOWN) - big)
    for cls in gone:
        print(f"tests/classes.py: {cls} is in KNOWN, and has no more than {METHODS_MAX} methods any longer")
    return 1 if over or gone else 0


if __name__ == "__main__":
    sys.exit(main())
