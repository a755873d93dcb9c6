"""Clients of Consul that share a semaphore with ours and are not ours."""

import json
import os
import shutil
import signal
import subprocess
import tempfile

from daemon import BOUND_S

FLAGS = 0xe0f69a2baa414de0  # Of api.Semaphore, on its record and its contenders.


class ConsulLock:
    """`consul lock` that wants a permit. A context manager: leaving it kills the process, whose
    session then takes its time to end."""

    def __init__(self, consul, path, limit):
        self._folder = tempfile.mkdtemp(prefix="semaphored-e2e-")
        self._inside = os.path.join(self._folder, "inside")
        self.process = subprocess.Popen(
            ["consul", "lock", f"-http-addr={consul.address}", f"-n={limit}", path,
             f"touch {self._inside}; exec sleep 1000"],
            start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(BOUND_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def is_inside(self):
        """It has had a permit at some time. Fails if it has given up."""
        assert self.process.poll() is None, "consul lock has ended"
        return os.path.exists(self._inside)


class Contender:
    """Does by hand what api.Semaphore does, one step at a time."""

    def __init__(self, consul, path, limit):
        self._consul, self._path, self._limit = consul, path, limit
        _, made = consul.request("PUT", "session/create", {"TTL": "600s", "Behavior": "delete"})
        self.session = made["ID"]
        _, taken = consul.request(
            "PUT", f"kv/{path}/{self.session}?acquire={self.session}&flags={FLAGS}", b"")
        assert taken is True, taken

    def try_acquire(self):
        """One attempt. False: it is full, or somebody else was first."""
        record, index = {"Limit": self._limit, "Holders": {}}, 0
        alive = set()
        status, entries = self._consul.request("GET", f"kv/{self._path}/?recurse&consistent")
        assert status == 200, status
        for entry in entries:
            if entry["Key"] == f"{self._path}/.lock":
                _, record = self._consul.request("GET", f"kv/{self._path}/.lock?raw")
                index = entry["ModifyIndex"]
            elif "Session" in entry:
                alive.add(entry["Session"])
        assert record["Limit"] == self._limit, record
        holders = [holder for holder in record["Holders"] if holder in alive]
        if len(holders) >= self._limit:
            return False
        record["Holders"] = dict.fromkeys([*holders, self.session], True)
        _, written = self._consul.request(
            "PUT", f"kv/{self._path}/.lock?cas={index}&flags={FLAGS}", json.dumps(record).encode())
        return written

    def end(self):
        """As its death: its session ends, and nothing is put right."""
        self._consul.request("PUT", f"session/destroy/{self.session}")
