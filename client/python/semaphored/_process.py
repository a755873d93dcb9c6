"""A client belongs to the process that used it first: threads and connections do not pass a fork."""

from __future__ import annotations

import os
from typing import Optional

import grpc

from .errors import make_error


class OwnProcess:
    """Takes no lock: another thread may have held it at the fork."""

    def __init__(self) -> None:
        self._pid: Optional[int] = None

    def is_own(self) -> bool:
        return self._pid is None or self._pid == os.getpid()

    def enter(self) -> None:
        """From now on the client belongs to this process. Raises if it is another one's."""
        if self._pid is None:
            self._pid = os.getpid()
        elif self._pid != os.getpid():
            raise make_error(grpc.StatusCode.FAILED_PRECONDITION,
                             "this client was used before the fork, and belongs to the parent; gRPC "
                             "does not survive a fork: use it only after, or start a new program",
                             "FORKED")
