"""Permits of named, counting semaphores, kept by a semaphored daemon.

    import semaphored

    with semaphored.Client("127.0.0.1:7420") as client:
        with client.permit("team/db", limit=5) as permit:
            work(permit.slot, permit.token)

`semaphored.aio` has the same for asyncio. `semaphored.v1` has the generated messages and stub.
"""

from . import aio
from ._client import Client, Permit, PermitContext
from ._lease import QueuePlace, Recall
from ._permit import Verdict
from .errors import (AbortedError, AlreadyExistsError, CancelledError, DeadlineExceededError, Error,
                     FailedPreconditionError, Full, InternalError, InvalidArgumentError, Loss,
                     LossCause, LostError, NotFoundError, PermissionDeniedError,
                     ResourceExhaustedError, UnauthenticatedError, UnavailableError,
                     UnimplementedError, Unreachable, WaitExpired)

__version__ = "0.1.0"

__all__ = [
    "AbortedError", "AlreadyExistsError", "CancelledError", "Client", "DeadlineExceededError",
    "Error", "FailedPreconditionError", "Full", "InternalError", "InvalidArgumentError", "Loss",
    "LossCause", "LostError", "NotFoundError", "Permit", "PermitContext", "PermissionDeniedError",
    "QueuePlace", "Recall", "ResourceExhaustedError", "UnauthenticatedError", "UnavailableError",
    "UnimplementedError", "Unreachable", "Verdict", "WaitExpired", "aio",
]
