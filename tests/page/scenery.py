"""A daemon with its page, and semaphores as a team has them: for the tests of the page, and for its picture."""

import hashlib
import itertools
import os
import queue
import re
import sys
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))

from daemon import BOUND_S, Client, Daemon, Reader, pb, wait_until  # noqa: E402,F401

TTL_MS = 600_000


def page_daemon(folder=None, port=None, **settings):
    """A daemon that serves its page on a free port. Without an access file all may write."""
    return Daemon({"http_listen": "127.0.0.1:0", "http_writes": "on", **settings}, folder=folder, port=port)


def page_url(daemon):
    """The address in the last line of the log that has one: that of the daemon's present life."""
    return wait_until(lambda: re.findall(r"http at (http://[^/ ]+)/", daemon.log()),
                      "the log says where the page is")[-1]


def access_file(path, **identities):
    """Writes the rules: for each identity (token, rules as TOML)."""
    with open(path, "w", encoding="utf-8") as file:
        for name, (token, rules) in identities.items():
            digest = hashlib.sha256(token.encode()).hexdigest()
            file.write(f'[identities.{name}]\ntokens = ["sha256:{digest}"]\nrules = [{rules}]\n')
    return path


class Worker:
    """Takes tickets of one semaphore by a stream of its own, and holds them until it is asked to end them."""

    def __init__(self, client, semaphore, holder="worker", tickets_max=1):
        self._requests = queue.Queue()
        self._sequence = itertools.count(1)
        self._requests.put(pb.WorkRequest(open=pb.OpenWork(
            client_id=uuid.uuid4().hex, semaphores=[semaphore], tickets_max=tickets_max,
            ttl_ms=TTL_MS, holder=holder)))
        self.call = client.stub.Work(iter(self._requests.get, None))
        self.reader = Reader(self.call)
        self._assigned = []

    def _read_until(self, condition, what):
        def look(message):
            self._assigned.extend(message.assignments)
            return condition(message)
        self.reader.until(look, what)

    def next(self):
        """An assignment that was not returned before."""
        if not self._assigned:
            self._read_until(lambda _: self._assigned, "a ticket")
        return self._assigned.pop(0)

    def reject(self, assignment, reason):
        finished = pb.FinishTicket(sequence=next(self._sequence), lease_id=assignment.lease.lease_id)
        finished.rejected.reason = reason
        self._requests.put(pb.WorkRequest(finished=[finished]))
        results = []

        def look(message):
            results.extend(message.results)
            return results
        self._read_until(look, "its end")
        assert not results[0].HasField("error"), results[0]

    def close(self):
        self._requests.put(pb.WorkRequest(tickets_max=0, close=True))
        self._requests.put(None)
        self.reader.end()
