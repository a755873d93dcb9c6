"""One Session stream to one endpoint: a channel of its own, and a thread that reads."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import Any, Callable, Iterator, Optional

import grpc

from ._credentials import Credentials
from .errors import Error, from_rpc_error, make_error
from .v1 import semaphore_pb2 as pb
from .v1 import semaphore_pb2_grpc as pb_grpc

_LOG = logging.getLogger("semaphored")


def make_stub(channel: Any) -> Any:
    """The generated stub, which has no types."""
    return pb_grpc.SemaphoreServiceStub(channel)  # type: ignore[no-untyped-call]


class StreamListener:
    """Called on threads of the stream, without locks held."""

    def next_message(self, stream: Stream) -> Optional[pb.SessionRequest]:
        """Blocks until there is one; None when the stream is not wanted any more."""
        raise NotImplementedError

    def on_message(self, stream: Stream, message: pb.SessionResponse) -> None:
        raise NotImplementedError

    def post(self, callback: Callable[[], None]) -> None:
        """Runs what may block, such as a handler of the log, on another thread."""
        raise NotImplementedError

    def on_stream_end(self, stream: Stream, error: Optional[Error]) -> None:
        """Exactly once for each stream that was started. None: it ended with OK."""
        raise NotImplementedError


class Stream:

    def __init__(self, endpoint: str, credentials: Credentials, listener: StreamListener) -> None:
        self._endpoint = endpoint
        self._credentials = credentials
        self._listener = listener
        self._lock = threading.Lock()
        self._call: Any = None
        self._cancelled = False

    def start(self) -> None:
        """Does not block."""
        thread = threading.Thread(target=self._run, name="semaphored-stream", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is about to end
            self._listener.on_stream_end(
                self, make_error(grpc.StatusCode.UNAVAILABLE, f"no thread could start: {error}"))

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            call = self._call
        if call is not None:
            call.cancel()

    def _run(self) -> None:
        error: Optional[Error] = None
        try:
            channel = self._credentials.channel(self._endpoint, warn=self._warn)
            try:
                self._read(channel)
            finally:
                channel.close()
        except grpc.RpcError as failure:
            error = from_rpc_error(failure)
        except Exception as failure:  # pylint: disable=broad-except  the session must go on
            self._listener.post(partial(_LOG.error, "the session's stream to %s failed",
                                        self._endpoint, exc_info=failure))
            error = make_error(grpc.StatusCode.UNAVAILABLE, f"the stream failed: {failure}")
        self._listener.on_stream_end(self, error)

    def _read(self, channel: Any) -> None:
        call = make_stub(channel).Session(self._requests(),
                                          metadata=self._credentials.metadata(self._warn))
        with self._lock:
            self._call = call
            cancelled = self._cancelled
        if cancelled:
            call.cancel()
        for message in call:
            self._listener.on_message(self, message)

    def _warn(self, *message: object) -> None:
        self._listener.post(partial(_LOG.warning, *message))

    def _requests(self) -> Iterator[pb.SessionRequest]:
        """Run by gRPC, on a thread of its own; it asks for the next one when the last is on its way."""
        while True:
            message = self._listener.next_message(self)
            if message is None:
                return
            yield message
