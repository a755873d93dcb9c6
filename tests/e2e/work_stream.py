"""A worker that is nothing but the generated stub, and enqueues what others carry out."""

import collections
import itertools
import queue
import threading

from daemon import BOUND_S, Reader, pb


def enqueue(client, semaphore, payload, **fields):
    """The ticket's id."""
    fields.setdefault("limit", 1)
    request = pb.EnqueueRequest(request_id=client.next_id(), semaphore=semaphore, payload=payload,
                                **fields)
    return client.stub.Enqueue(request, timeout=BOUND_S).ticket_id


class WorkStream:
    """A Work stream with its pings. Closing it is no clean end: what it has stays for the TTL."""

    def __init__(self, client, ttl_ms=2000, **open_fields):
        self._requests = queue.Queue()
        self._sequence = itertools.count(1)
        self._assignments = collections.deque()
        self._results = {}  # By sequence.
        self._ended = threading.Event()
        self.client_id = open_fields.setdefault("client_id", client.client_id)
        self.send(open=pb.OpenWork(ttl_ms=ttl_ms, **open_fields))
        self._call = client.stub.Work(iter(self._requests.get, None))
        self.reader = Reader(self._call)
        self.session_id = self.reader.until(lambda m: m.HasField("opened"),
                                            "opened").opened.session_id
        self._pings = threading.Thread(target=self._ping, args=(ttl_ms / 4000,), daemon=True)
        self._pings.start()

    def _ping(self, pause_s):
        while not self._ended.wait(pause_s):
            self.send(ping=pb.SessionPing())

    def send(self, **fields):
        self._requests.put(pb.WorkRequest(**fields))

    def _read_until(self, condition, what, bound_s):
        """Keeps what else comes meanwhile: one message may have a result and the next ticket."""
        while not condition():
            message = self.reader.until(lambda m: m.assignments or m.results, what, bound_s)
            self._assignments.extend(message.assignments)
            self._results.update({each.sequence: each for each in message.results})

    def assignment(self, bound_s=BOUND_S):
        self._read_until(lambda: self._assignments, "an assignment", bound_s)
        return self._assignments.popleft()

    def finish(self, assignment, **result):
        """Says what has become of it; the answer, which is no refusal."""
        sequence = next(self._sequence)
        self.send(finished=[pb.FinishTicket(sequence=sequence, lease_id=assignment.lease.lease_id,
                                            **(result or {"done": pb.TicketDone()}))])
        self._read_until(lambda: sequence in self._results, f"result {sequence}", BOUND_S)
        found = self._results.pop(sequence)
        if found.HasField("error"):
            raise AssertionError(f"refused: {found.error}")
        return found

    def close(self):
        self._ended.set()
        self._pings.join(BOUND_S)
        self._call.cancel()
        self._requests.put(None)
