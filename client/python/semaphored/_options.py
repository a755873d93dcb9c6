"""Checks what the user gives. A value that is wrong is an InvalidArgumentError that names it."""

from __future__ import annotations

import math
import os
import socket
from typing import Optional, Sequence, Union

from ._calls import AcquireCall, Options
from ._time import to_ns
from .errors import invalid
from .v1 import semaphore_pb2 as pb

_ENDPOINTS_MAX = 64
_HOLDER_BYTES_MAX = 256
_UINT32_MAX = (1 << 32) - 1


def make_options(endpoints: Union[str, Sequence[str]], *, ttl: Optional[float], margin: float,
                 holder: str, connect_timeout: float, reconnect_timeout: float,
                 release_timeout: float, operations_max: int, fail_open: bool,
                 release_on_disconnect: bool) -> Options:
    several = (endpoints,) if isinstance(endpoints, str) else tuple(endpoints)
    if not 1 <= len(several) <= _ENDPOINTS_MAX:
        raise invalid("endpoints: 1 to 64 of them, each HOST:PORT")
    if not all(isinstance(endpoint, str) and endpoint for endpoint in several):
        raise invalid("endpoints: each is HOST:PORT, and none may be empty")
    if ttl is not None and not (_is_time(ttl) and ttl > 0):
        raise invalid("ttl: seconds, more than 0; None for the daemon's default")
    if not (_is_time(margin) and margin >= 0):
        raise invalid("margin: seconds, not negative")
    if ttl is not None and margin * 2 >= ttl:
        raise invalid("margin: less than half of the ttl")
    for name, value in (("connect_timeout", connect_timeout), ("release_timeout", release_timeout),
                        ("reconnect_timeout", reconnect_timeout)):
        if not (_is_time(value) and value > 0):
            raise invalid(f"{name}: seconds, more than 0")
    if operations_max < 1:
        raise invalid("operations_max: at least 1")
    holder = holder or f"{socket.gethostname()}:{os.getpid()}"
    if len(holder.encode()) > _HOLDER_BYTES_MAX:
        raise invalid("holder: at most 256 bytes")
    return Options(
        endpoints=several, holder=holder, ttl_ns=to_ns(ttl or 0), margin_ns=to_ns(margin),
        connect_timeout_ns=to_ns(connect_timeout), reconnect_timeout_ns=to_ns(reconnect_timeout),
        release_timeout_ns=to_ns(release_timeout), operations_max=operations_max,
        fail_open=fail_open, release_on_disconnect=release_on_disconnect)


def make_call(semaphore: str, *, limit: int, adopt_limit: bool, permits: int,
              wait: Optional[float], priority: int, holder: str) -> AcquireCall:
    """What the daemon checks is left to the daemon; here only what could not be written down."""
    if not isinstance(semaphore, str):
        raise invalid("semaphore: a name, as text")
    for name, value in (("limit", limit), ("permits", permits)):
        if not 0 <= value <= _UINT32_MAX:
            raise invalid(f"{name}: a whole number from 0 to {_UINT32_MAX}")
    if not -(1 << 31) <= priority < 1 << 31:
        raise invalid("priority: a whole number from -1000 to 1000")
    if wait is not None and not (_is_time(wait) and wait >= 0):
        raise invalid("wait: seconds, not negative; None for ever, 0 not at all")
    request = pb.SessionAcquire(
        semaphore=semaphore, permits=permits, limit=limit, priority=priority, holder=holder,
        limit_mismatch=pb.LIMIT_MISMATCH_ADOPT if adopt_limit else pb.LIMIT_MISMATCH_FAIL)
    return AcquireCall(request, None, None if wait is None else to_ns(wait))


def _is_time(value: float) -> bool:
    """A number of seconds that fits into the protocol's milliseconds."""
    return isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < 1e9
