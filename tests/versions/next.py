#!/usr/bin/python3
"""The daemon of version N + 1: this source, with the version of each store raised by one.

Usage: tests/versions/next.py [--check] [--folder DIR] [--jobs N]

  --check      only looks whether each place is there, and builds nothing
  --folder DIR where the copy of the tree is built; default build/next. The daemon is in
               DIR/build/release/bin
  --jobs N     processes of the build; default 2

Exit code: 0, 1 a place is missing or it does not compile, 2 usage.
"""

import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "mutants"))

from rules import build, copy_tree  # noqa: E402  the folder has to be on the path first

# File below adapters/, what occurs there once, and what stands there in version N + 1. Postgres' second schema lets
# daemons of N go on; the others shut them out.
CHANGES = [
    ("sqlite/schema.h", "kSchemaVersion = 1;", "kSchemaVersion = 2;"),
    ("sqlite/schema.cc", "\n    )sql\",\n};", "\n    )sql\",\n    \"CREATE TABLE bump(number INTEGER PRIMARY KEY);\",\n};"),
    ("postgres/schema.h", "kSchemaVersion = 1;", "kSchemaVersion = 2;"),
    ("postgres/schema.cc", "= {kSchema1};",
     "= {kSchema1, \"ALTER TABLE semaphored.store ADD COLUMN bump integer; UPDATE semaphored.store SET version = 2;\"};"),
    ("consul/keys.h", "kStoreVersion = 1;", "kStoreVersion = 2;"),
    ("consul/engine.cc", "      return JudgeVersion(",
     "      if (version < kStoreVersion) {\n"
     "        TransactionRequest raise;\n"
     "        raise.Cas(keys.Version(), absl::StrCat(kStoreVersion), entry->modify_index);\n"
     "        return client->Write(raise).status();\n"
     "      }\n"
     "      return JudgeVersion("),
    ("dynamodb/items.h", "kStoreVersion = 1;", "kStoreVersion = 2;"),
    ("dynamodb/engine.cc", "*version == 0) {", "*version < kStoreVersion) {"),
    ("dynamodb/engine.cc", "mark.set_if_absent.emplace_back(", "mark.set.emplace_back("),
    ("rabbitmq/document.h", "kFormat = 1;", "kFormat = 2;"),
]


def change(folder):
    """Changes the copy; returns what is missing."""
    missing = []
    for name, old, new in CHANGES:
        path = folder / "adapters" / name
        text = path.read_text(encoding="utf-8")
        if text.count(old) != 1:
            missing.append(f"{name}: {old!r} occurs {text.count(old)} times")
            continue
        path.write_text(text.replace(old, new), encoding="utf-8")
    return missing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "next")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.check:
        missing = [f"{name}: {old!r}" for name, old, _ in CHANGES
                   if (ROOT / "adapters" / name).read_text(encoding="utf-8").count(old) != 1]
    else:
        folder = arguments.folder.resolve()
        copy_tree(folder)
        missing = change(folder)
    if missing:
        print("\n".join(missing))
        return 1
    if arguments.check:
        return 0
    subprocess.run(["cmake", "--preset", "release", "-DSEMAPHORED_TESTS=OFF"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    trouble = build(folder, arguments.jobs, "semaphored")
    print(trouble or f"built: {folder}/build/release/bin/semaphored")
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
