"""The Store port: everything the house asks of its store, as one small protocol with two implementations.

`redis_store.RedisStore` speaks to Redis ≥ 7.0 or Valkey through the Lua scripts beside it; `memory.MemoryStore` keeps
the same promises in process memory, for unit tests and simulation. The semantics are DISPATCH §2–§6, step by step;
`tests/integration/test_store_contract*.py` hold both to them. Payloads are JSON bytes made by `protocol/codec.py`; the
store never looks inside.

Every method may raise `protocol.errors.Unavailable` (no answer in time, or writes refused). Every method is safe to
repeat with the same arguments. None retries a write by itself, except to load a script that the server forgot.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Literal, NamedTuple, Protocol

import msgspec

from protocol.blobs import Blob, BlobFacts
from protocol.entries import RawEntry
from protocol.ids import EntryId
from server.store.notice import AtOnce, Notice
from server.store.standing import Standing

__all__ = [
    "AppendRequest",
    "Appended",
    "Beat",
    "BlobOutcome",
    "BlobPut",
    "ChatMeta",
    "ChatPage",
    "Claimed",
    "DueBell",
    "Fenced",
    "InboxEntry",
    "Loaded",
    "Lost",
    "Notice",
    "Place",
    "PostKind",
    "PostOutcome",
    "PostRequest",
    "Posted",
    "Released",
    "Store",
    "Taken",
    "TraceRecord",
    "TurnSpent",
    "shelf_of",
]

PostKind = Literal["normal", "exempt", "refusal", "import"]


class Fenced(Exception):
    """The head is not what the caller thought: somebody else wrote. Forget everything, then `take` again."""


class Lost(Exception):
    """The chat is not this worker's any more. Forget everything."""


class PostOutcome(Enum):
    ACCEPTED = "ACCEPTED"
    DUPLICATE = "DUPLICATE"
    MISMATCH = "MISMATCH"
    FULL = "FULL"
    FOREIGN = "FOREIGN"
    GONE = "GONE"
    UNKNOWN = "UNKNOWN"


class PostRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`nonce` is one per HTTP request and the same for all its own retries. `creates`: may make the chat.

    Bounds: normal 100 in inbox and queue together; exempt and import 1,000, refusal 20 in the inbox. `about` is the
    request id that a refusal speaks of: if that one was accepted before, the refusal is a DUPLICATE and says nothing.
    """

    chat_id: str
    owner: str
    principal: bytes
    request_id: str
    digest: str
    nonce: str
    body: bytes
    kind: PostKind = "normal"
    creates: bool = True
    about: str = ""


class Posted(msgspec.Struct, frozen=True):
    outcome: PostOutcome
    inbox_id: str | None = None


class Claimed(msgspec.Struct, frozen=True):
    """`previous` is the worker that held the chat and did not give it back, or ''."""

    chat_id: str
    previous: str


class Taken(msgspec.Struct, frozen=True):
    """What `take` wrote: the fence's head, what came before it ('' for a new chat), the store's clock."""

    head: str
    previous: str
    owner: str
    time_ms: int


class AppendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One atomic commit. `consumed` are (inbox id, request id) pairs that must still lie in the inbox.

    `events`, `facts` and `acks` are JSON arrays ('' for none). `checkpoint` (the bare state; the store compresses it)
    replaces the stored one, `checkpoint_version` is the largest version folded into it. `trim` drops entries before
    that id, never beyond the checkpoint. `lifetime`: 'expire' gives the chat's keys one day, 'persist' takes that
    back, '' leaves it; an accepted post takes it back too, so a chat without messages says 'expire' every time.
    `meta` is written into the chat's index only when not empty; with it comes `last_active` and the feed.
    `parent` is the chat that began this one: it stands on that chat's shelf instead of in its owner's list.
    `blobs`, hashes that the entry refers to, live from here on as long as the chat; unknown ones are passed over.
    """

    chat_id: str
    expected: str
    head: str
    version: int
    events: bytes
    facts: bytes = b""
    acks: bytes = b""
    consumed: tuple[tuple[str, str], ...] = ()
    checkpoint: bytes | None = None
    checkpoint_version: int = 1
    trim: EntryId | None = None
    meta: tuple[tuple[str, str], ...] = ()
    lifetime: Literal["", "expire", "persist"] = ""
    owner: str = ""
    parent: str = ""
    blobs: tuple[str, ...] = ()


class Appended(Enum):
    """DUP: the entry is already there, its first answer was lost."""

    OK = "OK"
    DUP = "DUP"


class Loaded(msgspec.Struct, frozen=True):
    """Checkpoint (head string, format version, state) if there is one, the entries after it, the head now. `is_whole`:
    the entries reach up to that head; else they are a first page, and `read_log` gives the others."""

    checkpoint: tuple[str, int, bytes] | None
    entries: list[RawEntry]
    head: str
    is_whole: bool = True


class BlobOutcome(Enum):
    """KEPT: there, also when it was there before. FULL: the chat holds as many, or as much, as it may."""

    KEPT = "KEPT"
    FULL = "FULL"
    FOREIGN = "FOREIGN"
    GONE = "GONE"


class BlobPut(msgspec.Struct, frozen=True, kw_only=True):
    """Lay `blob` beside a chat for `ttl_seconds`, or until an append refers to it.

    The chat need not be there yet: its blobs are then `owner`'s, and are dropped when somebody else makes the chat and
    puts one of his own. `revives`: also into a deleted chat, for an import that comes after.
    """

    chat_id: str
    owner: str
    blob: Blob
    ttl_seconds: int
    revives: bool = False


class TraceRecord(msgspec.Struct, frozen=True):
    """A piece of a run's trace. `key` is unlike that of any other record, so that one laid down twice is read once;
    `data` is the writer's own, compressed."""

    run_id: str
    key: str
    data: bytes


class TurnSpent(msgspec.Struct, frozen=True):
    """What a quota says of a turn. `is_new`: it counts from now on, and `return_turn` takes it back. `wait_ms` above 0:
    it was not counted, and there is room for one more in so many milliseconds."""

    is_new: bool
    wait_ms: int = 0


class InboxEntry(msgspec.Struct, frozen=True):
    inbox_id: str
    request_id: str
    principal: bytes
    body: bytes


class Beat(Enum):
    MINE = "."
    MAIL = "M"
    LOST = "L"


class Released(Enum):
    """MORE: a command lies in the inbox; read it instead of leaving."""

    OK = "OK"
    MORE = "MORE"


class ChatMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What lists, feeds and refusals need. Times are Unix milliseconds. `deleted_at` is the last delete's and stays in
    the life after it; epochs up to `floor` are of lives that were ended by a delete."""

    chat_id: str
    owner: str
    title: str = ""
    state: str = "idle"
    model: str = ""
    mode: str = ""
    message_count: int = 0
    queue: int = 0
    parent: str = ""
    created_at: int = 0
    last_active: int = 0
    deleted: bool = False
    deleted_at: int = 0
    floor: int = 0


def shelf_of(owner: str, parent: str) -> str:
    """Whose list a chat stands in: its owner's, or, begun by the tool of another chat, that chat's own shelf. For
    `list_chats` and `count_chats` a shelf is an owner like any other; no feed tells of it."""
    return f"{owner}\n{parent}" if parent else owner


class Place(NamedTuple):
    """Where a chat stands in its owner's list: newest first, among equal times the greater id first."""

    last_active: int
    chat_id: str


class ChatPage(msgspec.Struct, frozen=True):
    """A part of an owner's list, in its order. `next` is the place after which to go on, None at the end."""

    chats: list[ChatMeta]
    next: Place | None


class DueBell(Protocol):
    """Tells a worker which buckets to look at."""

    async def wait(self, timeout_seconds: float) -> int | None:
        """The bucket whose bell rang, or None when the time is up."""

    async def put_back(self, bucket: int) -> None:
        """Ring again for others: the caller popped a token and will not look (it is draining, or full)."""


class Store(Protocol):
    """One store. `buckets` is fixed at first start and never changes."""

    @property
    def buckets(self) -> int: ...

    def bucket_of(self, chat_id: str) -> int: ...

    async def ping(self) -> Standing:
        """Raises Unavailable unless the store answers and accepts writes; of several nodes, unless one does."""

    async def now_ms(self) -> int: ...

    # the way in
    async def post(self, request: PostRequest) -> Posted: ...

    async def meta(self, chat_id: str) -> ChatMeta | None:
        """None for a chat that never was; `deleted` is set for one that was deleted."""

    async def list_chats(self, owner: str, limit: int, after: Place | None = None) -> ChatPage:
        """The next `limit` chats after that place. One deleted meanwhile leaves a gap, never an early end. Each chat's
        `last_active` is that of its place."""

    async def listed(self, owner: str, chat_ids: Sequence[str]) -> list[ChatMeta]:
        """Those of the chats that stand in the owner's list, as they are now."""

    async def count_chats(self, owner: str) -> int: ...

    async def delete(self, chat_id: str, owner: str, nonce: str) -> bool:
        """True when gone (also the second time); False when unknown or somebody else's."""

    # ownership
    async def claim(self, bucket: int, worker: str, limit: int, lease_ms: int) -> list[Claimed]: ...

    async def take(self, chat_id: str, worker: str, why: str) -> Taken:
        """Append a fence. Raises Lost."""

    async def beat(self, worker: str, lease_ms: int, chats: Sequence[str]) -> dict[str, Beat]:
        """Any number of chats of any buckets; at most 200 a script call."""

    async def release(self, chat_id: str, worker: str, head: str, when_ms: int | None) -> Released:
        """Raises Lost, Fenced."""

    async def handover(self, chat_id: str, worker: str, delay_ms: int) -> None:
        """Raises Lost."""

    async def quarantine(self, chat_id: str, worker: str, until_ms: int) -> None:
        """Park a chat whose log cannot be folded: not owned, due far ahead, nothing deleted. Raises Lost."""

    # the log
    async def append(self, request: AppendRequest) -> Appended:
        """Raises Fenced."""

    async def load(self, chat_id: str) -> Loaded:
        """Return the chat as of one moment, with at most LOG_PAGE_BYTES of entries. `load.py` reads longer logs."""

    async def read_entry(self, chat_id: str, entry_id: EntryId) -> RawEntry | None:
        """One entry with its head string; None when trimmed or deleted."""

    async def read_log(
        self,
        chat_id: str,
        through: EntryId | None = None,
        *,
        after: EntryId | None = None,
        newest: bool = False,
    ) -> list[RawEntry]:
        """Return a page of the entries still held, after `after` and up to and including `through`, oldest first: at
        most LOG_PAGE_BYTES of the oldest of them (of the newest, if so asked), but at least one entry if any is left.
        Entries between two pages may be trimmed meanwhile, so compare each entry's `before`."""

    async def read_inbox(self, chat_id: str, limit: int) -> list[InboxEntry]:
        """The oldest commands not yet consumed."""

    async def dead_letter(self, chat_id: str, entry: InboxEntry, reason: str) -> None: ...

    async def heads(self, chat_ids: Sequence[str]) -> list[str]:
        """The head string of each chat ('' for none), in one pipeline."""

    # blobs
    async def put_blob(self, request: BlobPut) -> BlobOutcome: ...

    async def hold_blobs(
        self, chat_id: str, owner: str, hashes: Sequence[str], ttl_seconds: int
    ) -> dict[str, BlobFacts]:
        """Those of `hashes` that `owner`'s chat holds; from now on for `ttl_seconds` at least."""

    async def get_blob(self, chat_id: str, owner: str, hash: str) -> Blob | None:
        """None when it is not there, or when the chat, or the blobs of a chat not yet made, are somebody else's."""

    # traces
    async def put_traces(self, chat_id: str, owner: str, records: Sequence[TraceRecord], ttl_seconds: int) -> bool:
        """Lay records beside the owner's chat, all of them for another `ttl_seconds`; the oldest beyond the bound go.
        False when there is no such chat."""

    async def read_traces(self, chat_id: str, owner: str) -> list[TraceRecord]:
        """All records of the owner's chat that are still held, oldest first."""

    # quotas
    async def spend_turn(self, principal_id: str, turn: str, per_hour: int, per_day: int) -> TurnSpent:
        """Count `turn` unless it is counted already, or the last hour or day is full; 0 is no bound."""

    async def return_turn(self, principal_id: str, turn: str) -> None:
        """Take back what `spend_turn` counted: nothing came of it."""

    # listening
    def bell(self) -> AbstractAsyncContextManager[DueBell]: ...

    def mail(self, worker: str) -> AbstractAsyncContextManager[AsyncIterator[str | None]]:
        """Chat ids with new commands for this worker; None: rebuilt, anything may have been missed."""

    def follow(self, chat_id: str, at_once: AtOnce | None = None) -> AbstractAsyncContextManager[AsyncIterator[Notice]]:
        """The chat's log channel. Entering waits for the subscription's confirmation (DISPATCH §6). While none waits to
        be read, one may be offered to `at_once`, which neither waits nor raises; True: it is done with."""

    def follow_feed(self, owner: str) -> AbstractAsyncContextManager[AsyncIterator[str | None]]:
        """Ids of the owner's chats whose meta changed, or that were deleted; None: rebuilt, any may have been missed.
        Entering waits for the subscription's confirmation."""

    async def watchers(self, chat_id: str) -> int:
        """How many processes follow the chat's log channel."""

    # whispers: between web processes, stored nowhere, lost when nobody listens
    async def whisper(self, topic: str, payload: bytes) -> int:
        """Tell those who overhear `topic`, in any process; 0 when there is nobody."""

    def overhear(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[bytes | None]]:
        """What is whispered about `topic` from now on; None: something may have been missed."""
