"""What can go wrong, by gRPC's canonical codes. The daemon explains each error by a
google.rpc.ErrorInfo; its reason and details are kept, also for the errors that the client finds itself."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple, Type

import grpc
from google.protobuf.message import DecodeError

from ._wording import in_options, with_options
from .v1 import error_details_pb2, status_pb2

_DETAILS_KEY = "grpc-status-details-bin"
_CODES: Dict[int, Any] = {code.value[0]: code for code in grpc.StatusCode}


class Error(Exception):
    """Any failure of a call. Which one is said by the class, by `code` (a grpc.StatusCode) and, more
    finely, by `reason`: a name of the Reason enum of the .proto without REASON_, such as "FULL", or
    "UNREACHABLE" when no endpoint answered; "" if none was given. `details` may have "semaphore",
    "adapter" and "advice"."""

    def __init__(self, code: Any, message: str, reason: str = "",
                 details: Optional[Mapping[str, str]] = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        self.details: Dict[str, str] = dict(details or {})

    def __reduce__(self) -> Tuple[Any, ...]:
        # An exception is otherwise rebuilt from its text alone, which is not what classes here take.
        return _rebuilt, (type(self), self.args), self.__dict__

    def __str__(self) -> str:
        name = self.reason or self.code.name
        return f"{name}: {self.message}"


def _rebuilt(kind: Type[Error], args: Tuple[Any, ...]) -> Error:
    error = kind.__new__(kind)
    error.args = args
    return error


class InvalidArgumentError(Error, ValueError):
    """A value is wrong; the message names it and says what would be right."""


class NotFoundError(Error):
    """There is no such semaphore, lease or ticket."""


class AlreadyExistsError(Error):
    """It exists, and is another than the one to create."""


class FailedPreconditionError(Error):
    """LIMIT_MISMATCH, EXCEEDS_LIMIT, PAUSED, DESTROYED, IN_USE …"""


class ResourceExhaustedError(Error):
    """A limit was met: FULL, HOLDER_CAP, or LIMIT_REACHED for one of the daemon's or the client's."""


class Full(ResourceExhaustedError):
    """With wait=0: the permits are not free at this moment."""


class AbortedError(Error):
    """REQUEST_TOO_OLD or REVISION_MISMATCH: nothing was done."""


class DeadlineExceededError(Error):
    """The time for it has passed."""


class WaitExpired(DeadlineExceededError, TimeoutError):
    """`wait` passed before the permits came free."""


class UnavailableError(Error):
    """Nothing is known to have been done: try again."""


class Unreachable(UnavailableError):
    """No endpoint answered in time."""


class UnimplementedError(Error):
    """The daemon, or its engine, cannot do this; the message names the engine."""


class UnauthenticatedError(Error):
    """The daemon does not know who asks."""


class PermissionDeniedError(Error):
    """Who asks may not do this."""


class CancelledError(Error):
    """The wait was given up, or the client was closed."""


class InternalError(Error):
    """Something that should not happen has happened."""


class LossCause(enum.Enum):
    """Why a permit that was not given back is held no more."""

    NO_CONTACT = "no contact with a daemon"
    EXPIRED = "expired"
    REVOKED = "revoked"
    RECALLED = "recalled and not given back in time"
    DESTROYED = "the semaphore was destroyed"
    DISCONNECTED = "the connection broke"
    ENGINE_LOST = "taken back by the engine"
    MOVED = "moved to another session"
    CLOSED = "the client was closed"
    UNKNOWN = "not known to the daemon"


@dataclass(frozen=True)
class Loss:
    cause: LossCause
    message: str = ""


class LostError(NotFoundError):
    """The permits were lost while they were needed. `loss` says why."""

    def __init__(self, loss: Loss) -> None:
        message = loss.message or loss.cause.value
        super().__init__(grpc.StatusCode.NOT_FOUND, f"the permits were lost: {message}", "NOT_HELD")
        self.loss = loss


_BY_CODE: Dict[Any, Type[Error]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.UNIMPLEMENTED: UnimplementedError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.CANCELLED: CancelledError,
    grpc.StatusCode.INTERNAL: InternalError,
}
_BY_REASON: Dict[Tuple[Any, str], Type[Error]] = {
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "FULL"): Full,
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "HOLDER_CAP"): Full,
    (grpc.StatusCode.DEADLINE_EXCEEDED, "WAIT_EXPIRED"): WaitExpired,
    (grpc.StatusCode.UNAVAILABLE, "UNREACHABLE"): Unreachable,
}


def make_error(code: Any, message: str, reason: str = "",
               details: Optional[Mapping[str, str]] = None) -> Error:
    """The error of the class that fits; Error itself for a code that has no class."""
    kind: Type[Error] = _BY_CODE.get(code, Error)
    return _BY_REASON.get((code, reason), kind)(code, message, reason, details)


def invalid(message: str) -> Error:
    return make_error(grpc.StatusCode.INVALID_ARGUMENT, message, "INVALID_FIELD")


def unreachable(message: str) -> Error:
    return make_error(grpc.StatusCode.UNAVAILABLE, message, "UNREACHABLE")


def from_status(status: status_pb2.Status) -> Error:
    """Of one command of a stream."""
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    if code == grpc.StatusCode.OK:
        return make_error(grpc.StatusCode.INTERNAL, "the daemon sent an error without a code")
    return _explained(code, status.message, status)


def from_rpc_error(error: Any) -> Error:
    """Of a whole call: a grpc.RpcError with a code, details and trailing metadata."""
    status = status_pb2.Status()
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY:
            try:
                status.ParseFromString(value)
            except DecodeError:  # Garbled details must not hide the error itself.
                status.Clear()
    return _explained(error.code(), error.details() or "", status)


def _explained(code: Any, message: str, status: status_pb2.Status) -> Error:
    """In the words of the package, with the reason and the details that are in `status`."""
    info = _detail(status, error_details_pb2.ErrorInfo())
    details = dict(info.metadata)
    if info.reason != "LIMIT_REACHED":  # There the name is that of a setting of the daemon.
        message = in_options(message, details.get("semaphore", ""))
        if "advice" in details:
            details["advice"] = with_options(details["advice"])
    return make_error(code, message, info.reason, details)


def _detail(status: status_pb2.Status, kind: Any) -> Any:
    """`kind` as it is in the details; empty if it is not there or garbled."""
    for detail in status.details:
        try:
            if detail.Unpack(kind):
                break
        except DecodeError:
            kind.Clear()
    return kind
