"""What the comparisons with an engine have in common: daemons, and figures of the load generator."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time


def say(text):
    print(f"compare: {text}", file=sys.stderr, flush=True)


class Daemons:
    """Daemons on one store, as a context manager."""

    def __init__(self, program, store, folder, count):
        self._program, self._store, self._folder = program, store, folder
        self._count = count
        self._processes = []
        self.addresses = []

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.push(self.__exit__)
            for number in range(self._count):
                self._start(number)
            stack.pop_all()
        return self

    def __exit__(self, *unused):
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, number):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        path = os.path.join(self._folder, f"daemon-{number}.log")
        with open(path, "wb") as log:
            process = subprocess.Popen(  # pylint: disable=consider-using-with
                [self._program, "--store", self._store, "--listen", f"127.0.0.1:{port}"],
                stdout=log, stderr=log)
        self._processes.append(process)
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            if process.poll() is not None or time.monotonic() > deadline:
                with open(path, encoding="utf-8", errors="replace") as log:
                    sys.exit(f"compare: the daemon does not listen:\n{log.read()}")
            time.sleep(0.05)
        self.addresses.append(f"127.0.0.1:{port}")


def figures_of(run):
    found = {"per_s": run["figures"].get("cycles_per_s", 0.0), "errors": run["errors"]}
    for name in ("cycle", "hand_off", "commit"):
        if run["latency_us"].get(name, {}).get("count"):
            found[name + "_p50_us"] = run["latency_us"][name]["p50"]
            found[name + "_p99_us"] = run["latency_us"][name]["p99"]
    return found
