#!/usr/bin/env python3
"""What the guard of connections costs (docs/security.md): a daemon with it and one without, on the embedded store, in
turn; medians, and the ratio of the first to the second.

    tests/bench/guard.py                           # five rounds, about two minutes
    tests/bench/guard.py --bin-dir build/release/bin --rounds 9
"""

import argparse
import collections
import contextlib
import os
import statistics
import sys
import tempfile

BENCH = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(BENCH, os.pardir, "e2e")]

import comparing  # noqa: E402
from daemon import BIN_DIR, Daemon  # noqa: E402

CASES = (("hand-off@64", "hand-off", "hand_off_p50_us", "us"), ("session@256", "session --clients 256", "per_s", "/s"),
         ("unary@64", "unary --clients 64", "per_s", "/s"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--duration", type=float, default=2.0, help="seconds measured each time (2)")
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--bin-dir", default=BIN_DIR)
    arguments = parser.parse_args()
    found = collections.defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="semaphored-guard-") as folder, contextlib.ExitStack() as stack:
        targets = {}
        for mode in ("off", "on"):
            daemon = Daemon({"frame_guard": mode, "node_id": mode}, store=f"sqlite://{folder}/{mode}.db")
            stack.enter_context(daemon)
            targets[mode] = daemon.address
            targets[mode + ", twice"] = f"{daemon.address},{daemon.address}"
        runner = comparing.Runner(arguments, targets)
        for number in range(arguments.rounds):
            for name, words, figure, _ in CASES:
                for mode in ("off", "on"):
                    target = mode + ", twice" if words == "hand-off" else mode
                    found[name, mode].append(runner.case(f"{name}, {mode}", words, target)[figure])
            comparing.say(f"round {number + 1} of {arguments.rounds}")
    for name, _, _, unit in CASES:
        off, on = (statistics.median(found[name, mode]) for mode in ("off", "on"))
        print(f"{name:12}  off {off:8.0f} {unit}   on {on:8.0f} {unit}   {on / off:6.3f}")


if __name__ == "__main__":
    main()
