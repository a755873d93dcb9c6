"""What goes into the machine, and what comes out of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Callable, List, Optional, Tuple, Union

from ._lease import LeaseState, OnRecall, QueuePlace, Recall
from ._time import MS_NS, NEVER_NS
from .errors import Error, Loss
from .v1 import semaphore_pb2 as pb

AcquireDone = Callable[[Union[LeaseState, Error]], None]
ReleaseDone = Callable[[Optional[Error]], None]


@dataclass(frozen=True)
class Options:
    """Checked by options.py. Times in nanoseconds."""

    endpoints: Tuple[str, ...]
    holder: str = ""
    ttl_ns: int = 0
    margin_ns: int = 50 * MS_NS
    connect_timeout_ns: int = 5_000 * MS_NS
    reconnect_timeout_ns: int = 60_000 * MS_NS
    release_timeout_ns: int = 5_000 * MS_NS
    operations_max: int = 200_000
    release_on_disconnect: bool = False
    fail_open: bool = False


@dataclass
class AcquireCall:
    """The wait in `request` is filled in when it is first sent. `wait_ns` None: for ever."""

    request: pb.SessionAcquire
    done: Optional[AcquireDone]
    wait_ns: Optional[int] = None
    on_queued: Optional[Callable[[QueuePlace], None]] = None
    on_lost: Optional[Callable[[Loss], None]] = None
    on_recall: Optional[OnRecall] = None
    # Of the machine, for its cancel(). 0: it does not know the call, or has refused it.
    number: int = 0


class Kind(enum.Enum):
    ACQUIRE = 1
    RELEASE = 2
    CANCEL = 3


@dataclass
class Operation:
    kind: Kind
    called_ns: int
    # Its sequence is 0 until it is sent.
    command: pb.SessionCommand = field(default_factory=pb.SessionCommand)
    wait_end_ns: int = NEVER_NS  # by the caller's wish
    local_end_ns: int = NEVER_NS  # when we stop to wait for the daemon's answer
    unavailable_since_ns: int = NEVER_NS
    retrying: bool = False  # it is sent again after a pause
    pause_ns: int = 0  # before a release is sent again whose caller has an error
    queued: bool = False  # the daemon said so
    abandoned: bool = False  # the caller was answered; a grant that still comes is given back
    reissued: bool = False  # under a new number, since the daemon has forgotten the old one
    acquire: Optional[AcquireCall] = None
    release_done: Optional[ReleaseDone] = None


@dataclass(frozen=True)
class Recalled:
    """A recall of which the application is to hear, for SessionMachine.acknowledge()."""

    lease: LeaseState
    recall: Recall
    recall_id: int  # 0: it cannot be acknowledged
    stream_number: int


@dataclass
class Effects:
    """What is to be done outside, without a lock held."""

    # Answers to callers, in order. They do not block.
    results: List[Callable[[], None]] = field(default_factory=list)
    # The same for losses: they only set events, so that no callback can hold one up.
    losses: List[Callable[[], None]] = field(default_factory=list)
    # Callbacks of the user, which may take their time.
    callbacks: List[Callable[[], None]] = field(default_factory=list)
    recalls: List[Recalled] = field(default_factory=list)
    # The stream is given up: cancel it, and report nothing of it any more.
    drop_stream: bool = False

    def take(self) -> Effects:
        taken = Effects(self.results, self.losses, self.callbacks, self.recalls, self.drop_stream)
        self.results, self.losses, self.callbacks, self.recalls = [], [], [], []
        self.drop_stream = False
        return taken
