"""A client of the recipe "Consul Semaphore in Python", which goes round as a gist: what somebody
else would write who has the recipe, and knows nothing of us nor of HashiCorp's own clients. Its
steps are the gist's, and so are its names:

    service/<name>/lock/.lock       {"limit": 3, "holders": ["<session>", ...]}, no flags
    service/<name>/lock/<session>   a contender's entry, held by its session

As a program:  gist_client.py ADDRESS NAME LIMIT RECORD
takes a slot, holds it for a moment, gives it back, and so on until it is told to stop by SIGTERM.
RECORD: the file to which it adds a line for each entry and exit.
"""

import base64
import json
import os
import random
import signal
import socket
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

REQUEST_S = 30
CHECK_S = 10  # Until the check of the process has to pass.
WAIT_S = 2  # Of each blocking query, so that it notices when it is to stop.


class WouldBlock(Exception):
    """All slots are taken."""


class Semaphore:
    """For one process, as in the gist: its health check is known by the process's id."""

    def __init__(self, address, service_name, concurrency_limit):
        self.address = address
        self.concurrency_limit = concurrency_limit
        self.prefix = f"service/{service_name}/lock/"
        self.node = self._ask("GET", "agent/self")["Member"]["Name"]
        self.session_id = None
        self.acquired = False

    def _ask(self, method, path, body=None, **query):
        """What the JSON of the answer says; None for 404."""
        return self._ask_with_index(method, path, body, **query)[1]

    def _ask_with_index(self, method, path, body=None, **query):
        url = f"http://{self.address}/v1/{urllib.parse.quote(path)}?{urllib.parse.urlencode(query)}"
        data = None if body is None else body.encode()
        request = urllib.request.Request(url, data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S) as reply:
                index = int(reply.headers.get("X-Consul-Index", "0"))
                text = reply.read()
        except urllib.error.HTTPError as error:
            error.read()
            if error.code != 404:
                raise
            return int(error.headers.get("X-Consul-Index", "0")), None
        return index, json.loads(text) if text.strip() else None

    # ---- 1. a health check of this process ----

    def _pid_health_check(self):
        pid = os.getpid()
        check_id = f"pidHealth:{pid}"
        path = f"health/node/{self.node}"
        index, checks = self._ask_with_index("GET", path)
        if not any(check["CheckID"] == check_id for check in checks):
            self._ask("PUT", "agent/check/register", json.dumps({
                "ID": check_id, "Name": "Semaphore PID", "Interval": "1s", "Timeout": "10s",
                "Args": ["sh", "-c", f"ps -p {pid} || exit 2"]}))
        begun = time.monotonic()
        while True:
            check = next((each for each in checks if each["CheckID"] == check_id), None)
            if check and check["Status"] == "passing":
                return check_id
            if time.monotonic() - begun > CHECK_S:
                raise RuntimeError("the check of this process does not pass")
            index, checks = self._ask_with_index("GET", path, index=index, wait=f"{WAIT_S}s")

    # ---- 2. a session, 3. a contender's entry ----

    def contend(self):
        checks = ["serfHealth", self._pid_health_check()]
        self.session_id = self._ask("PUT", "session/create", json.dumps(
            {"Checks": checks, "Behavior": "delete", "TTL": "3600s"}))["ID"]
        value = json.dumps({"host": socket.gethostname(), "pid": os.getpid()})
        if not self._ask("PUT", f"kv/{self.prefix}{self.session_id}", value,
                         acquire=self.session_id):
            raise RuntimeError("the contender's entry could not be made")

    # ---- 4. to 9. ----

    def acquire(self, block=True, stopping=lambda: False):
        """True once it holds a slot; False if it was to stop. Raises WouldBlock."""
        self.contend()
        index = 0
        while not stopping():
            index, entries = self._ask_with_index("GET", f"kv/{self.prefix}", recurse="",
                                                  index=index, wait=f"{WAIT_S}s")
            modify_index, record, active = self._read(entries or [])
            # Its own limit is the truth, as the gist's is.
            valid = active & set(record.get("holders", []))
            if len(valid) >= self.concurrency_limit:
                if not block:
                    raise WouldBlock()
                continue
            value = json.dumps({"limit": self.concurrency_limit,
                                "holders": sorted(valid | {self.session_id})})
            self.acquired = self._ask("PUT", f"kv/{self.prefix}.lock", value, cas=modify_index)
            if self.acquired:
                return True
        return False

    def _read(self, entries):
        """(index of the record, what it says, the sessions that contend). Entries without a session
        are removed."""
        modify_index, record, active = 0, {}, set()
        for entry in entries:
            if entry["Key"] == f"{self.prefix}.lock":
                modify_index = entry["ModifyIndex"]
                record = json.loads(base64.b64decode(entry["Value"] or b""))
            elif entry.get("Session"):
                active.add(entry["Session"])
            else:
                self._ask("DELETE", f"kv/{entry['Key']}")
        return modify_index, record, active

    def release(self):
        """Without taking itself out of the record: the recipe leaves that to whoever comes next."""
        self.acquired = False
        self._ask("PUT", f"agent/check/deregister/pidHealth:{os.getpid()}")
        self._ask("PUT", f"session/destroy/{self.session_id}")
        self.session_id = None


def main():
    address, name, limit, record = sys.argv[1:]
    file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))

    def note(event):
        line = {"event": event, "pid": os.getpid(), "group": os.getpgrp(), "kind": "gist",
                "at_ns": time.monotonic_ns()}
        os.write(file, (json.dumps(line) + "\n").encode())

    semaphore = Semaphore(address, name, int(limit))
    while not stopping:
        if semaphore.acquire(stopping=lambda: bool(stopping)):
            note("in")
            time.sleep(random.uniform(0.02, 0.3))  # the work
            note("out")
        semaphore.release()


if __name__ == "__main__":
    main()
