"""Checks what the user gives. A value that is wrong is an InvalidArgumentError that names it."""

from __future__ import annotations

import math
import os
import re
import socket
from typing import Optional, Sequence, Tuple, Union

from ._calls import AcquireCall, Options
from ._time import MS_NS, to_ns
from .errors import invalid
from .v1 import semaphore_pb2 as pb

_ENDPOINTS_MAX = 64
_RIGHT = "HOST:PORT, [HOST]:PORT or unix:PATH, such as 127.0.0.1:7420"
_HOLDER_BYTES_MAX = 256
_UINT32_MAX = (1 << 32) - 1
_DURATION_MAX_S = _UINT32_MAX // 1000


def make_options(endpoints: Union[str, Sequence[str]], *, ttl: Optional[float], margin: float,
                 holder: str, connect_timeout: float, reconnect_timeout: float,
                 release_timeout: float, operations_max: int, fail_open: bool,
                 release_on_disconnect: bool) -> Options:
    several = (endpoints,) if isinstance(endpoints, str) else tuple(endpoints)
    _check_endpoints(several)
    if ttl is not None and not (_is_duration(ttl) and ttl > 0):
        raise invalid(f"ttl: seconds, more than 0 and at most {_DURATION_MAX_S}; None for the "
                      "daemon's default")
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
    if len(holder.encode()) > _HOLDER_BYTES_MAX:
        raise invalid("holder: at most 256 bytes")
    return Options(
        endpoints=several, holder=holder, ttl_ns=to_ns(ttl or 0), margin_ns=to_ns(margin),
        connect_timeout_ns=to_ns(connect_timeout), reconnect_timeout_ns=to_ns(reconnect_timeout),
        release_timeout_ns=to_ns(release_timeout), operations_max=operations_max,
        fail_open=fail_open, release_on_disconnect=release_on_disconnect)


def own_holder() -> str:
    """The default for `holder`: of the process that calls this."""
    return f"{socket.gethostname()}:{os.getpid()}"


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
    if wait is not None and not _is_duration(wait):
        raise invalid(f"wait: seconds, 0 to {_DURATION_MAX_S}; None for ever, 0 not at all")
    request = pb.SessionAcquire(
        semaphore=semaphore, permits=permits, limit=limit, priority=priority, holder=holder,
        limit_mismatch=pb.LIMIT_MISMATCH_ADOPT if adopt_limit else pb.LIMIT_MISMATCH_FAIL)
    return AcquireCall(request, None, None if wait is None else to_ns(wait))


def to_ms(name: str, seconds: float) -> int:
    """For a field of the protocol."""
    if not _is_duration(seconds):
        raise invalid(f"{name}: seconds, 0 to {_DURATION_MAX_S}")
    return to_ns(seconds) // MS_NS


def _check_endpoints(endpoints: Tuple[str, ...]) -> None:
    """The same rules and words as in the clients of other languages."""
    if not 1 <= len(endpoints) <= _ENDPOINTS_MAX:
        raise invalid(f"endpoints: give 1 to {_ENDPOINTS_MAX}, each {_RIGHT}")
    for endpoint in endpoints:
        wrong = _wrong_with(endpoint) if isinstance(endpoint, str) else "is no text"
        if wrong:
            raise invalid(f"endpoints: '{endpoint}' {wrong}; give {_RIGHT}")


def _wrong_with(endpoint: str) -> str:
    """What is wrong with it; empty if nothing is."""
    if not endpoint:
        return "is empty"
    if endpoint.startswith(("unix:", "unix-abstract:")):
        return "" if endpoint.split(":", 1)[1] else "has no path"
    address = re.sub(r"^(dns:///|dns:|ipv4:|ipv6:)", "", endpoint)
    scheme = re.match(r"[^/]*://", address)
    if scheme:
        return f"begins with {scheme[0]}, which is left out"
    if re.search(r"[ \t/]", address):
        return "has a blank or a slash"
    host, colon, port = address.rpartition(":")
    bracketed = address.startswith("[")
    if not colon or (bracketed and address.endswith("]")):
        return "has no port"
    if not host:
        return "has no host"
    if bracketed != host.endswith("]") or (not bracketed and ":" in host):
        return "has an IPv6 address that is not in [ ]"
    if not port:
        return "has no port"
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        return f"has the port {port}, which is not one of 1 to 65535"
    return ""


def _is_time(value: float) -> bool:
    """A number of seconds that can be counted in nanoseconds."""
    return isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < 1e9


def _is_duration(value: float) -> bool:
    """One that fits into the 32 bits of the protocol's milliseconds."""
    return _is_time(value) and 0 <= value <= _DURATION_MAX_S
