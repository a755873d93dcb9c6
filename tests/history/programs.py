"""The clients of the project as programs of their own, one for each language, whose calls are recorded;
see drivers/."""

import os
import subprocess
import sys
import threading

import history
import node_packages
from daemon import BIN_DIR

HERE = os.path.dirname(os.path.abspath(__file__))
WORKERS = 3
END_BOUND_S = 90.0


def commands():
    """(command, environment) by language."""
    package = os.path.abspath(os.path.join(BIN_DIR, os.pardir, "python_client"))
    modules = os.path.join(node_packages.folder(), "node_modules")
    script = os.path.join(HERE, "drivers", "driver")
    return {"cpp": ([os.path.abspath(os.path.join(BIN_DIR, "history_driver"))], {}),
            "python": ([sys.executable, "-B", script + ".py"], {"PYTHONPATH": package}),
            "node": (["node", script + ".mjs"], {"NODE_PATH": modules})}


class Driver(threading.Thread):
    """A program, and what it writes. `failure` is set if it ends before it should, or badly."""

    def __init__(self, recorder, addresses, language, place, manners, seed):
        super().__init__(daemon=True)
        self.recorder, self.label = recorder, language
        self.failure = None
        self.count = 0
        turned = addresses[place % len(addresses):] + addresses[:place % len(addresses)]
        limits = ",".join(f"{name}={limit}" for name, limit in recorder.semaphores.items())
        command, environment = commands()[language]
        self.stopping = threading.Event()
        self.process = subprocess.Popen(
            [*command, ",".join(turned), limits, ",".join(recorder.administered), str(seed),
             language, str(WORKERS), str(manners.permits_max)], env={**os.environ, **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self):
        try:
            for line in self.process.stdout:
                self.recorder.add(history.operation_of(line))
                self.count += 1
            code = self.process.wait(END_BOUND_S)
            if code != 0 or not self.stopping.is_set():
                self.failure = RuntimeError(f"the {self.label} driver ended with {code}")
        except Exception as error:  # pylint: disable=broad-except  reported by the run
            self.failure = error

    def end(self):
        """It comes to its end by itself; see join()."""
        self.stopping.set()
        self.process.stdin.close()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(END_BOUND_S)
