"""Many eager clients that all want the fragile service at once; prints a short table.

Each client is a thread that makes its share of the requests one after the other, each request a process of
its own, as a cron job or a deploy script would be: `curl URL`, or `semctl run NAME --limit N -- curl URL`.
The exit code is 0 only if every request was done (with --bare: always).
"""

import argparse
import json
import subprocess
import sys
import threading
import time
import urllib.request


def percentile(values: list, share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Crowd:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.lock = threading.Lock()
        self.next = 0
        self.failed = 0
        self.last_error = ""
        self.waits_ms: list = []

    def command(self) -> list:
        # The child says when it begins, so that the wait for the permit is known.
        child = ["sh", "-c", 'date +%s%N; exec curl -fsS -o /dev/null "$0"', self.arguments.url]
        if self.arguments.bare:
            return child
        return [self.arguments.semctl, "run", self.arguments.semaphore, "--limit", str(self.arguments.limit), "--", *child]

    def client(self) -> None:
        while True:
            with self.lock:
                if self.next == self.arguments.requests:
                    return
                self.next += 1
            asked_ns = time.time_ns()  # To compare with the child's own clock, `date`; for the table only.
            run = subprocess.run(self.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            with self.lock:
                if run.stdout:
                    self.waits_ms.append((int(run.stdout.split()[0]) - asked_ns) / 1e6)
                if run.returncode != 0:
                    self.failed += 1
                    self.last_error = run.stderr.decode(errors="replace").strip()

    def run(self) -> float:
        threads = [threading.Thread(target=self.client) for _ in range(self.arguments.clients)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        show = sys.stderr.isatty()
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(timeout=0.5)
                if show:
                    sys.stderr.write(f"\r  {self.next} of {self.arguments.requests} requests")
                if thread.is_alive():
                    break
        if show:
            sys.stderr.write("\r" + " " * 40 + "\r")
        return time.monotonic() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--bare", action="store_true", help="without a semaphore")
    parser.add_argument("--semctl", default="semctl")
    parser.add_argument("--semaphore", default="fragile")
    parser.add_argument("--limit", type=int, default=4)
    arguments = parser.parse_args()
    counts_url = arguments.url.rstrip("/") + "/counts"
    urllib.request.urlopen(urllib.request.Request(counts_url, method="POST"), timeout=10).close()
    crowd = Crowd(arguments)
    seconds = crowd.run()
    with urllib.request.urlopen(counts_url, timeout=10) as answer:
        counts = json.load(answer)
    rows = [
        ("requests done", f"{counts['done']} of {arguments.requests}"),
        ("refused by the service", str(counts["refused"])),
        ("most at the service at once", f"{counts['peak']} (it bears {arguments.limit})"),
    ]
    if not arguments.bare:
        rows.append(("wait for a permit, p50 / p99", f"{percentile(crowd.waits_ms, 0.5):.0f} / {percentile(crowd.waits_ms, 0.99):.0f} ms"))
    rows.append(("time", f"{seconds:.1f} s"))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"  {name:<{width}}  {value}")
    if arguments.bare:
        return 0
    if crowd.failed:
        print(f"  {crowd.failed} clients failed; the last said: {crowd.last_error}", file=sys.stderr)
    good = counts["done"] == arguments.requests and counts["refused"] == 0 and counts["peak"] <= arguments.limit
    return 0 if good and not crowd.failed else 1


if __name__ == "__main__":
    sys.exit(main())
