"""Real daemons on a real RabbitMQ, a view of its queues that is not ours, and holders of permits
that write down what they are told, and when."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "engines"))

from daemon import BIN_DIR, BOUND_S, Daemon, grpc, pb, wait_until  # noqa: E402
from rabbitmq import RabbitServer  # noqa: E402  the folder has to be on the path first

import pika  # noqa: E402

HEARTBEAT_S = 2  # With the least, 1, a daemon that gets no processor for a second has lost all permits.
OPTIONS = f"?layout=tokens&heartbeat_s={HEARTBEAT_S}"
# What others have changed is looked for every second.
SETTINGS = {"sweep_interval": "1s", "node_ttl": "5s"}
TTL_MS = 60000


def start_broker(clean_up, settings="", advanced="[]."):
    """A broker of its own; `clean_up` is the addCleanup of what it is for."""
    folder = tempfile.mkdtemp(prefix="semaphored-e2e-")
    clean_up(shutil.rmtree, folder, ignore_errors=True)
    server = RabbitServer(folder, settings, advanced)
    clean_up(server.remove)
    return server.start()


def daemon_on(server, name, settings=None, options=OPTIONS):
    """Not started yet. `name` is its node id."""
    return Daemon({**SETTINGS, **(settings or {}), "node_id": name},
                  store=server.url(options=options))


def token_queue(semaphore):
    return semaphore + ".semaphore"


@contextlib.contextmanager
def foreign(server):
    """A channel of a client that is none of ours."""
    connection = pika.BlockingConnection(pika.URLParameters(server.url()))
    try:
        yield connection.channel()
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()


def free_tokens(server, semaphore):
    """How many messages of the queue nobody has."""
    with foreign(server) as channel:
        declared = channel.queue_declare(token_queue(semaphore), passive=True)
        return declared.method.message_count


def semctl(daemon, *arguments):
    """Of semctl, when it has ended: its code and what it printed."""
    return subprocess.run([os.path.join(BIN_DIR, "semctl"), "--server", daemon.address, *arguments],
                          text=True, capture_output=True, timeout=60, check=False,
                          stdin=subprocess.DEVNULL)


class Holder:
    """A Hold stream. `until` is the time until which its messages said that the lease is good,
    `heard` has (when it came, until when it was good then) for each, `lost` and `lost_at` what it
    was told at last."""

    def __init__(self, client, semaphore, **fields):
        fields.setdefault("ttl_ms", TTL_MS)
        self.lease = self.lost = self.error = None
        self.until = self.lost_at = self.granted_at = self.ended_at = 0.0
        self.queued = False
        self.heard = []
        self._client = client
        self._request = pb.HoldRequest(
            acquire=client.acquire_request(semaphore, **fields), beat_interval_ms=100)
        self._start()

    def _start(self):
        self._sent = time.monotonic()
        self._call = self._client.stub.Hold(self._request)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for event in self._call:
                self._take(event, time.monotonic())
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed below us.
            self.error = error
        self.ended_at = time.monotonic()

    def _take(self, event, now):
        kind = event.WhichOneof("event")
        if kind == "queued":
            self.queued = True
        elif kind == "granted":
            self.granted_at = now
            self._hear(event.granted.validity, now)
            self.lease = event.granted.lease
        elif kind == "beat":
            self._hear(event.beat, now)
        elif kind == "lost":
            self.lost_at = now
            self.lost = event.lost

    def _hear(self, validity, now):
        self.until = self._sent + (validity.elapsed_ms + validity.valid_for_ms) / 1000
        self.heard.append((now, self.until))

    def granted(self, bound_s=BOUND_S):
        """The lease."""
        wait_until(lambda: self.lease is not None or self.ended_at, "granted", bound_s)
        assert self.lease is not None, self.error
        return self.lease

    def waits(self):
        wait_until(lambda: self.queued or self.ended_at, "queued")
        assert self.queued, self.error
        return self

    def told(self, bound_s=BOUND_S):
        """The cause for which it was lost."""
        wait_until(lambda: self.lost is not None or self.ended_at, "told that it is lost", bound_s)
        assert self.lost is not None, f"the stream ended without a word: {self.error}"
        return self.lost.cause

    def again(self):
        """The same request in a new stream, when the old one has ended."""
        self.error, self.ended_at = None, 0.0
        self._start()
        return self

    def cancel(self):
        self._call.cancel()
