"""A real daemon for the process tests: started on a free port with a folder of its own, stopped by
process id.

Environment: SEMAPHORED_BIN_DIR, the folder of the binaries; SEMAPHORED_STUBS_DIR, the generated
stubs.
Every wait in here has a bound; none is a sleep that hopes to be long enough.
"""

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

BIN_DIR = os.environ.get("SEMAPHORED_BIN_DIR", "build/release/bin")
STUBS_DIR = os.environ.get("SEMAPHORED_STUBS_DIR", "build/release/python_stubs")
sys.path.insert(0, STUBS_DIR)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "engines"))

import grpc  # noqa: E402  the stubs' folder has to be on the path first

from google.rpc import error_details_pb2, status_pb2  # noqa: E402
from semaphore.v1 import semaphore_pb2 as pb  # noqa: E402
from semaphore.v1 import semaphore_pb2_grpc as pb_grpc  # noqa: E402

from ports import free_port  # noqa: E402,F401  the tests' files take it from here

# Long enough for a loaded machine, short enough to fail a test rather than a whole run.
BOUND_S = 40.0
# Signals by which a process ends by a mistake of its own.
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
TTL_MIN_MS = 1000


def wait_until(condition, what, bound_s=BOUND_S):
    """Asks until `condition()` is true and returns its value; fails with `what`, a text or what makes it, after the bound."""
    deadline = time.monotonic() + bound_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {bound_s} s: {what() if callable(what) else what}")
        time.sleep(0.02)


def slots_of(ranges):
    """The single slots, as a list, of the ranges in a message."""
    return [slot for each in ranges for slot in range(each.first, each.last + 1)]


def ranges_of(slots):
    """For a message: a range for each of these slots."""
    return [pb.SlotRange(first=slot, last=slot) for slot in slots]


def numbered(client_id, sequence):
    return pb.RequestId(numbered=pb.NumberedRequestId(client_id=client_id, sequence=sequence))


def result_of(response):
    """Of an AdministerResponse: the result of its act."""
    return getattr(response, response.WhichOneof("result"))


def error_detail(error, kind):
    """The detail of this kind of a failed call, out of its trailing metadata, or None."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return detail_of(status_pb2.Status.FromString(value), kind)
    return None


def detail_of(status, kind):
    """The detail of this kind of a google.rpc.Status, such as a session's result has, or None."""
    for detail in status.details:
        found = kind()
        if detail.Unpack(found):
            return found
    return None


def reason_of(status):
    """Of a google.rpc.Status: the reason of its ErrorInfo, or ""."""
    info = detail_of(status, error_details_pb2.ErrorInfo)
    return info.reason if info is not None else ""


def error_info(error):
    """The google.rpc.ErrorInfo of a failed call, or None."""
    return error_detail(error, error_details_pb2.ErrorInfo)


def wrong_fields(error):
    """The paths of the fields that a failed call's google.rpc.BadRequest names."""
    bad = error_detail(error, error_details_pb2.BadRequest)
    return [each.field for each in bad.field_violations] if bad is not None else []


class Daemon:
    """One daemon. A context manager: leaving it stops the daemon and removes its folder."""

    def __init__(self, settings=None, folder=None, port=None, store=None):
        """`settings` are keys of the configuration, handed over in the environment. `store` is a
        URL; if there is none, a file in the daemon's folder."""
        # Of several daemons on a machine, one could have the address of HTTP that is chosen by default.
        self.settings = {"node_id": "e2e", "http_listen": "off", **(settings or {})}
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._own_folder = folder is None
        self.folder = folder or tempfile.mkdtemp(prefix="semaphored-e2e-")
        self.store_path = os.path.join(self.folder, "state.db")
        self.store = store or f"sqlite://{self.store_path}"
        self.log_path = os.path.join(self.folder, "daemon.log")
        if not self._own_folder:
            self.log_path = tempfile.mktemp(prefix="semaphored-e2e-", suffix=".log")
        self.environment = dict(os.environ)  # It is given, besides its settings.
        self.process = None
        self._channels = []

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind, value, trace):
        if kind is not None:
            sys.stderr.write(f"---- the daemon's log:\n{self.log()[-8000:]}\n----\n")
        self.close()

    def start(self):
        self.spawn()
        self.wait_healthy()
        return self

    def spawn(self):
        environment = dict(self.environment)
        for key, value in self.settings.items():
            environment["SEMAPHORED_" + key.upper()] = str(value)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(BIN_DIR, "semaphored"), "--store", self.store,
                 "--listen", self.address],
                stdout=log, stderr=log, env=environment, stdin=subprocess.DEVNULL)

    def wait_healthy(self, bound_s=BOUND_S):
        """Waits for the standard health service to answer SERVING."""
        def serving():
            if self.process.poll() is not None:
                raise AssertionError(
                    f"the daemon ended with {self.process.returncode}:\n{self.log()[-4000:]}")
            return self.is_serving()
        wait_until(serving, "the daemon serves", bound_s)

    def is_serving(self):
        with grpc.insecure_channel(self.address) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            try:
                return check(b"", timeout=1.0) == b"\x08\x01"
            except grpc.RpcError:
                return False

    def signal(self, number):
        self.process.send_signal(number)

    def kill9(self):
        self.process.kill()
        self.process.wait(BOUND_S)

    def terminate(self, bound_s=BOUND_S):
        """SIGTERM; returns the exit code."""
        self.process.terminate()
        return self.process.wait(bound_s)

    def wait_exit(self, bound_s=BOUND_S):
        return self.process.wait(bound_s)

    def log(self):
        try:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                return log.read()
        except FileNotFoundError:
            return ""

    def wait_log(self, text):
        """Waits for a line with this text: the daemon writes its log behind what it does."""
        wait_until(lambda: text in self.log(), f"the log has {text!r}")

    def channel(self, address=None, options=()):
        """A connection of its own: Python's gRPC would share one between equal channels."""
        unique = ("grpc.primary_user_agent", uuid.uuid4().hex)
        channel = grpc.insecure_channel(
            address or self.address,
            options=(unique, ("grpc.use_local_subchannel_pool", 1), *options))
        self._channels.append(channel)
        return channel

    def client(self, address=None):
        return Client(self.channel(address))

    def close(self):
        for channel in self._channels:
            channel.close()
        self._channels.clear()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(BOUND_S)
            except subprocess.TimeoutExpired:
                self.kill9()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.log_path)
        if self.process is not None and -(self.process.returncode or 0) in CRASHES:
            raise AssertionError(f"the daemon crashed: {signal.Signals(-self.process.returncode).name}")


class Client:
    """The generated stub, with the request ids that a careful client sends."""

    def __init__(self, channel):
        self.channel = channel
        self.stub = pb_grpc.SemaphoreServiceStub(channel)
        self.client_id = uuid.uuid4().hex
        self.sequence = 0

    def next_id(self):
        self.sequence += 1
        return numbered(self.client_id, self.sequence)

    def acquire_request(self, semaphore, **fields):
        fields.setdefault("request_id", self.next_id())
        return pb.AcquireRequest(semaphore=semaphore, **fields)

    def acquire(self, semaphore, **fields):
        request = self.acquire_request(semaphore, **fields)
        return self.stub.Acquire(request, timeout=BOUND_S).lease

    def acquire_later(self, semaphore, **fields):
        """An Acquire that waits; returns the call, a future."""
        fields.setdefault("wait_forever", "wait_ms" not in fields)
        return self.stub.Acquire.future(self.acquire_request(semaphore, **fields), timeout=60)

    def release(self, lease_id, slots=()):
        return self.stub.Release(
            pb.ReleaseRequest(request_id=self.next_id(), lease_id=lease_id,
                              slots=ranges_of(slots)), timeout=BOUND_S)

    def verify(self, lease_id):
        return self.stub.Verify(pb.VerifyRequest(lease_id=lease_id), timeout=BOUND_S)

    def administer(self, semaphore, **act):
        """The result of the act."""
        return result_of(self.stub.Administer(pb.AdministerRequest(
            request_id=self.next_id(), semaphore=semaphore, **act), timeout=BOUND_S))

    def describe_rows(self, semaphore, page_size=0):
        """The semaphore, with its leases and waiters beside it: the first page of them."""
        return self.stub.Administer(pb.AdministerRequest(
            semaphore=semaphore, describe=pb.DescribeSemaphore(page_size=page_size)),
            timeout=BOUND_S).describe

    def describe(self, semaphore):
        return self.describe_rows(semaphore).semaphore

    def waiting(self, semaphore):
        """The length of the queue; 0 for a semaphore that does not exist."""
        try:
            return self.describe(semaphore).waiting
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND:
                return 0
            raise

    def wait_for_queue(self, semaphore, length, bound_s=BOUND_S):
        wait_until(lambda: self.waiting(semaphore) == length,
                   f"{length} waiters for {semaphore}", bound_s)


class Reader:
    """Reads a stream on a thread of its own, so that one can wait for each message with a bound."""

    END = "end"

    def __init__(self, call):
        self.call = call
        self._messages = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        try:
            for message in self.call:
                self._messages.put(message)
            self._messages.put((self.END, None))
        except grpc.RpcError as error:
            self._messages.put((self.END, error))
        except Exception as error:  # pylint: disable=broad-except  the channel was closed below us
            self._messages.put((self.END, error))

    def next(self, bound_s=BOUND_S):
        """The next message, or (END, error or None). Fails after the bound."""
        try:
            return self._messages.get(timeout=bound_s)
        except queue.Empty:
            raise AssertionError(f"nothing came within {bound_s} s") from None

    def until(self, condition, what, bound_s=BOUND_S):
        """The first message for which `condition` is true; others are passed over."""
        deadline = time.monotonic() + bound_s
        while True:
            message = self.next(max(0.01, deadline - time.monotonic()))
            if isinstance(message, tuple):
                raise AssertionError(f"the stream ended before {what}: {message[1]}")
            if condition(message):
                return message

    def end(self, bound_s=BOUND_S):
        """Passes over the rest; returns the error that ended the stream, or None for OK."""
        deadline = time.monotonic() + bound_s
        while True:
            message = self.next(max(0.01, deadline - time.monotonic()))
            if isinstance(message, tuple):
                return message[1]


class Session:
    """A Session stream: commands go in, messages come out of `reader`."""

    def __init__(self, client, **open_fields):
        self.client = client
        self._requests = queue.Queue()
        open_fields.setdefault("client_id", client.client_id)
        self.send(open=pb.OpenSession(**open_fields))
        self.reader = Reader(client.stub.Session(iter(self._requests.get, None)))

    def send(self, **fields):
        self._requests.put(pb.SessionRequest(**fields))

    def opened(self):
        """With the leases of all its pages."""
        leases = []
        while True:
            opened = self.reader.until(lambda m: m.HasField("opened"), "opened").opened
            leases += opened.leases
            if not opened.more:
                del opened.leases[:]
                opened.leases.extend(leases)
                return opened

    def command(self, sequence, **fields):
        self.send(commands=[pb.SessionCommand(sequence=sequence, **fields)])

    def result(self, sequence):
        """The result of one command; those of others in the same message are passed over."""
        message = self.reader.until(
            lambda m: any(r.sequence == sequence for r in m.results), f"result {sequence}")
        return next(r for r in message.results if r.sequence == sequence)

    def half_close(self):
        self._requests.put(None)
