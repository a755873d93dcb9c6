"""A server of the tests that is one process, with its data and its log in a folder. The process is known by its id and
by its command line, which names the folder; never by the name of a program."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

from pausing import pause
from postgres import is_running

BOUND_S = 60.0


class ServerProcess:
    """The process outlives this object until stop(). As a context manager it is started, stopped and removed. A subclass
    has start(), which returns the object."""

    stop_signal = signal.SIGTERM

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.data = os.path.join(self.folder, "data")
        self.log_path = os.path.join(self.folder, "server.log")
        self._known_path = os.path.join(self.folder, "server.json")
        self._known = None  # Ports and process.
        self._process = None  # Only if this object started it.

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.remove()
            raise

    def __exit__(self, *unused):
        self.remove()

    def stop(self, number=None):
        pid = self.pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, number or self.stop_signal)
            self._wait(lambda: not is_running(pid), f"process {pid} ends")
        if self._process is not None:
            self._process.wait(BOUND_S)
            self._process = None

    def kill(self):
        self.stop(signal.SIGKILL)

    def restart(self):
        self.stop()
        self.start()

    def pause(self):
        pause(self.pid())

    def resume(self):
        os.kill(self.pid(), signal.SIGCONT)

    def remove(self):
        """Stops it and removes its data; the log stays."""
        self._load()
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        for name in ("server.json", "url"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, name))

    def pid(self):
        """None if it does not run."""
        # Between fork and exec, what this object has started has no command line of its own.
        if self._process is not None and self._process.poll() is None:
            return self._process.pid
        pid = (self._known or {}).get("pid")
        if pid is None or not is_running(pid):
            return None
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if self._mark().encode() in file.read():
                    return pid
        return None  # The file is stale, and another process has the number by now.

    # ---- For subclasses ----

    def _mark(self):
        """What its command line has, and that of no other process."""
        return self.data

    def _load(self):
        if self._known is None:
            with contextlib.suppress(FileNotFoundError, ValueError):
                with open(self._known_path, encoding="ascii") as file:
                    self._known = json.load(file)

    def _spawn(self, command):
        with open(self.log_path, "ab") as log:
            # In a session of its own: what is sent to a terminal's processes is not for it.
            self._process = subprocess.Popen(  # pylint: disable=consider-using-with
                command, cwd=self.data, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self._known["pid"] = self._process.pid
        with open(self._known_path, "w", encoding="ascii") as file:
            json.dump(self._known, file)

    def _write_url(self, url):
        with open(os.path.join(self.folder, "url"), "w", encoding="ascii") as file:
            file.write(url)

    def _check_runs(self, name):
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"{name} ended with {self._process.returncode}, see {self.log_path}:\n{self._log_end()}")

    def _wait(self, condition, what):
        deadline = time.monotonic() + BOUND_S
        while not condition():
            if self._process is not None:
                self._process.poll()
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {BOUND_S} s: {what}; {self.log_path} ends with:\n{self._log_end()}")
            time.sleep(0.05)

    def _log_end(self):
        with contextlib.suppress(FileNotFoundError):
            with open(self.log_path, encoding="utf-8", errors="replace") as file:
                return file.read()[-2000:]
        return ""
