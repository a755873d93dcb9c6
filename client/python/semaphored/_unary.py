"""Calls with one answer, at whichever endpoint gives it. UNAVAILABLE means that nothing is known to
have been done: the same request is sent again, to the next endpoint, until the time is over."""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import Any, Callable, Dict, Optional, Tuple

import grpc

from ._backoff import Backoff
from ._calls import Options
from ._credentials import Credentials
from ._process import OwnProcess
from ._stream import make_stub
from ._time import MS_NS, SECOND_NS, now_ns
from .errors import Error, from_rpc_error, unreachable
from .v1 import semaphore_pb2 as pb

_PAUSE_FIRST_NS = 50 * MS_NS
_PAUSE_MOST_NS = 1_000 * MS_NS
# An attempt that lasted this long had reached a daemon, and waited there.
_REACHED_NS = 1_000 * MS_NS
_CHANNEL_OPTIONS = (("grpc.initial_reconnect_backoff_ms", 50),
                    ("grpc.min_reconnect_backoff_ms", 50),
                    ("grpc.max_reconnect_backoff_ms", 1000))


class _Attempts:
    """Decides after each failure."""

    def __init__(self, endpoints: int, patience_ns: int) -> None:
        self._endpoints = endpoints
        self._patience_ns = patience_ns
        self._backoff = Backoff(_PAUSE_FIRST_NS, _PAUSE_MOST_NS)
        self._count = 0
        self._reached_ns = self._begun_ns = now_ns()

    def begin(self) -> None:
        self._count += 1
        self._begun_ns = now_ns()

    def pause_after(self, error: Error, endpoint: str) -> float:
        """Seconds until the next attempt; raises the error if there shall be none."""
        if error.code != grpc.StatusCode.UNAVAILABLE:
            raise error
        now = now_ns()
        if now - self._begun_ns >= _REACHED_NS:
            self._reached_ns = now
        if now - self._reached_ns >= self._patience_ns:
            if error.reason:
                raise error  # a daemon said why
            raise unreachable(f"no endpoint could be reached; {endpoint} said: {error.message}")
        return self._backoff.next_ns() / SECOND_NS if self._count % self._endpoints == 0 else 0.0


class UnaryCaller:
    """Any thread may call it."""

    def __init__(self, options: Options, credentials: Credentials, process: OwnProcess) -> None:
        self._options = options
        self._process = process
        self._credentials = credentials
        self._lock = threading.Lock()
        self._current = 0
        self._channels: Dict[int, Tuple[Any, Any, Any]] = {}  # channel, stub, stamp
        self._closed = threading.Event()
        self._client_id = ""  # until the first request: a client may pass a fork before it
        self._sequence = 0

    def next_id(self) -> pb.RequestId:
        """What makes a repeated request have one effect."""
        self._process.enter()
        with self._lock:
            self._client_id = self._client_id or str(uuid.uuid4())
            self._sequence += 1
            return pb.RequestId(numbered=pb.NumberedRequestId(
                client_id=self._client_id, sequence=self._sequence))

    def _attempts(self) -> _Attempts:
        return _Attempts(len(self._options.endpoints), self._options.connect_timeout_ns)

    def _pick(self, method: str) -> Tuple[int, Any]:
        self._process.enter()
        stamp = self._credentials.stamp()
        with self._lock:
            index = self._current
            known = self._channels.get(index)
            if known is None or known[2] != stamp:
                # A channel that is replaced ends with its last call.
                channel = self._credentials.channel(self._options.endpoints[index],
                                                    _CHANNEL_OPTIONS)
                known = (channel, make_stub(channel), stamp)
                self._channels[index] = known
        return index, getattr(known[1], method)

    def _failed(self, attempts: _Attempts, index: int, error: Error) -> float:
        if error.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            with self._lock:
                self._current = (index + 1) % len(self._options.endpoints)
        return attempts.pause_after(error, self._options.endpoints[index])

    def timeout_s(self, wait_s: float = 0) -> float:
        """Of one attempt, for a call that the daemon may let wait so long."""
        return wait_s + self._options.connect_timeout_ns / SECOND_NS

    def call(self, method: str, request: Any, wait_s: float = 0) -> Any:
        attempts = self._attempts()
        while True:
            index, rpc = self._pick(method)
            attempts.begin()
            try:
                return rpc(request, timeout=self.timeout_s(wait_s),
                           metadata=self._credentials.metadata())
            except grpc.RpcError as failure:
                error = from_rpc_error(failure)
            self._closed.wait(self._failed(attempts, index, error))

    async def call_async(self, method: str, request: Any, wait_s: float = 0) -> Any:
        attempts = self._attempts()
        while True:
            index, rpc = self._pick(method)
            attempts.begin()
            try:
                return await _as_awaitable(rpc.future(request, timeout=self.timeout_s(wait_s),
                                                      metadata=self._credentials.metadata()))
            except grpc.RpcError as failure:
                error = from_rpc_error(failure)
            await asyncio.sleep(self._failed(attempts, index, error))

    def close(self) -> None:
        if not self._process.is_own():
            return
        self._closed.set()
        with self._lock:
            channels, self._channels = self._channels, {}
        for channel, _, _ in channels.values():
            channel.close()


async def _as_awaitable(call: Any) -> Any:
    """Of a call of gRPC, which is answered on a thread of its own. It is cancelled with the task."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not done.done():
            done.set_result(None)

    def answered(_: Any) -> None:
        post_to_loop(loop, wake)
    call.add_done_callback(answered)
    try:
        await done
    except asyncio.CancelledError:
        call.cancel()
        raise
    return call.result()


def post_to_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., Optional[object]],
                 *arguments: Any) -> None:
    """From any thread. A loop that is closed runs nothing any more."""
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:
        pass
