"""The leases of chats: which worker owns which chat, and how workers learn that a chat has work."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Protocol

import msgspec

from threadcast.store.ports.log import Messages
from threadcast_protocol.wire.ids import EntryId

__all__ = [
    "Beat",
    "Claimed",
    "Claims",
    "Compacted",
    "DueBell",
    "EndedLeases",
    "Leases",
    "Lost",
    "Released",
    "Taken",
    "WaitingRun",
    "WorkerSignals",
]


class Lost(Exception):
    """This worker no longer owns the chat. Discard the chat's state."""


class WaitingRun(msgspec.Struct, frozen=True):
    """An open run that waits until its principal has fewer runs at work. `rank` is the run's rank among the principal's
    waiting runs, as the `meta` of the append gave it."""

    principal_id: str
    rank: str


class Claimed(msgspec.Struct, frozen=True):
    """A claimed chat. `previous` is the worker that held the chat without releasing it, or ''. `waiting` is set if the
    chat needs a worker only for a waiting run, and the inbox has no command. `has_begun` is False if `previous` claimed
    the chat and wrote no fence. For `lease_left_ms` that worker may still believe that it owns the chat, because its
    leases were ended early."""

    chat_id: str
    previous: str
    waiting: WaitingRun | None = None
    has_begun: bool = True
    lease_left_ms: int = 0


class EndedLeases(msgspec.Struct, frozen=True):
    """The number of chats that one call of `end_leases` made due, and the cursor of the next call; '' at the end."""

    count: int
    cursor: str


class Taken(msgspec.Struct, frozen=True):
    """The result of `take`: the fence's head, the head before it ('' for a new chat), and the store's clock."""

    head: str
    previous: str
    owner: str
    time_ms: int


class Beat(Enum):
    MINE = "."
    INBOX = "M"
    LOST = "L"


class Released(Enum):
    """The result of a release. MORE: the inbox holds a command; the owner must handle the command instead of releasing
    the chat."""

    OK = "OK"
    MORE = "MORE"


class Compacted(msgspec.Struct, frozen=True):
    """The short form of a log up to its head, which replaces the log when the chat is released (DESIGN §2).

    `checkpoint` is the state at the head, `version` the largest format version in it. The entries are kept for
    RESUME_SECONDS more, for readers that resume; those before `trim` are dropped at once. `part` is added to the
    history, or with `replaces_last` takes the place of its last part; `drop_first` counts the oldest parts to delete.
    An empty `part` leaves the history as it is.
    """

    checkpoint: bytes
    version: int
    trim: EntryId | None = None
    part: bytes = b""
    replaces_last: bool = False
    drop_first: int = 0


class DueBell(Protocol):
    """Tells a worker which buckets have due chats."""

    async def wait(self, timeout_seconds: float) -> int | None:
        """Return the bucket whose bell rang, or None after the timeout."""

    async def put_back(self, bucket: int) -> None:
        """Ring again for another worker, because the caller popped a token and cannot use the token (the caller is
        draining, or full)."""


class WorkerSignals(Messages[str | None], Protocol):
    """A worker's subscription: iterates over the ids of its chats with new commands. None means that the subscription
    was rebuilt and ids may be missing."""

    def heard_since(self, bucket: int) -> float | None:
        """Return the time since which the subscription has had no interruption, in seconds of the monotonic clock; None
        while the connection for this bucket is lost."""


class Claims(Protocol):
    """Tells workers which chats need one, and gives each chat to one worker."""

    async def claim(self, bucket: int, worker: str, limit: int, lease_ms: int, waited_ms: int = 0) -> list[Claimed]:
        """Take up to `limit` due chats of a bucket. If more are due, the principals get one chat each in turn, so that
        thousands of chats of one principal do not delay the others. With `waited_ms`, take only chats that have been
        due for at least that time, and chats that another worker held without releasing them."""

    async def claim_chat(self, chat_id: str, worker: str, lease_ms: int) -> bool:
        """Take this chat before its time, because its waiting run may continue. Returns False if the chat has an owner
        or is at rest."""

    async def silent_owners(self, bucket: int, worker: str) -> list[str]:
        """Return the workers that own chats in this bucket and no longer listen for inbox signals. If a bucket has many
        owners, only some of the calls check them, and the other calls return no owner. Returns no owner unless `worker`
        itself listens at the server that answers."""

    async def end_leases(self, bucket: int, worker: str, owner: str, cursor: str) -> EndedLeases:
        """Make chats of `owner` in this bucket due at once, if its inbox signals have no listener and those of `worker`
        have one. Looks at some 200 owned chats; the first cursor is "0". Only one worker does this at a time."""

    def bell(self) -> AbstractAsyncContextManager[DueBell]: ...


class Leases(Protocol):
    """Keeps claimed chats for their workers until they are given back."""

    async def take(self, chat_id: str, worker: str, why: str) -> Taken:
        """Append a fence. Raises Lost."""

    async def beat(self, worker: str, lease_ms: int, chats: Sequence[str]) -> dict[str, Beat]:
        """Renew the leases of any number of chats of any buckets, with at most 200 per script call."""

    async def release(
        self, chat_id: str, worker: str, head: str, when_ms: int | None, compacted: Compacted | None = None
    ) -> Released:
        """Release the chat; it is due again at `when_ms`. With `compacted`, which must belong to this head, the same
        step compacts the log. Raises Lost, Fenced."""

    async def handover(self, chat_id: str, worker: str, delay_ms: int) -> None:
        """Raises Lost."""

    async def quarantine(self, chat_id: str, worker: str, until_ms: int) -> None:
        """Suspend a chat whose log cannot be folded: the chat loses its owner and becomes due far in the future;
        nothing is deleted. Raises Lost."""

    def inbox_signals(self, worker: str) -> AbstractAsyncContextManager[WorkerSignals]:
        """Subscribe to the signals for this worker. While it owns chats, a worker must be subscribed: others take over
        the chats of an owner without a listener."""
