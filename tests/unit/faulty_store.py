"""The in-memory store with an unreliable connection to it.

Calls are refused, held, or carried out without an answer; publishes, inbox signals and bells vanish. A test sets each
failure before it happens; without failures the store behaves as `MemoryStore`. The store never sleeps: a test holds a
call, waits until the call was entered, acts, and then releases the call.
"""

from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal, Self, TypeAlias, TypeVar

import anyio
import anyio.lowlevel

from threadcast.chat.entries import RawEntry
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import (
    Appended,
    AppendRequest,
    AtOnce,
    Beat,
    BlobOutcome,
    BlobPut,
    BucketStatus,
    ChatMeta,
    Claimed,
    Compacted,
    DueBell,
    EndedLeases,
    InboxEntry,
    Loaded,
    LogMessage,
    Messages,
    Posted,
    PostRequest,
    Released,
    Taken,
    WorkerSignals,
)
from threadcast_protocol.wire.blobs import Blob
from threadcast_protocol.wire.errors import Internal, Unavailable
from threadcast_protocol.wire.ids import EntryId

__all__ = ["DEADLINE_SECONDS", "Clock", "FaultyStore", "Hold"]

_T = TypeVar("_T")

DEADLINE_SECONDS = 30.0
"""Maximum seconds of every wait in these tests; a wait normally takes milliseconds."""


class Clock:
    """Unix milliseconds of a day long ago. The store's clock stands still, so a lease ends only when a test advances
    the clock."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


class Hold:
    """Holds one call before it is carried out, or with `reply_only` after that, so that only its answer is late."""

    def __init__(self, *, reply_only: bool) -> None:
        self.reply_only = reply_only
        self._entered = anyio.Event()
        self._gate = anyio.Event()

    def let_go(self) -> None:
        self._gate.set()

    async def entered(self) -> None:
        """Wait until the call has begun."""
        with anyio.fail_after(DEADLINE_SECONDS):
            await self._entered.wait()

    async def pass_through(self) -> None:
        self._entered.set()
        with anyio.fail_after(2 * DEADLINE_SECONDS):  # a failed test does not release the call
            await self._gate.wait()


Trouble: TypeAlias = Literal["refused", "lost reply", "broken reply"]
Fault: TypeAlias = Trouble | Hold


class _Sieve:
    """A subscriber's messages, without the messages that vanish. `Any` allows both kinds of messages."""

    def __init__(self, messages: Messages[Any], is_lost: Callable[[Any], bool]) -> None:
        self._messages = messages
        self._is_lost = is_lost

    @property
    def is_empty(self) -> bool:
        return bool(self._messages.is_empty)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:  # Any: see the class
        while True:
            message = await self._messages.__anext__()
            if not self._is_lost(message):
                return message


class _SievedSignals(_Sieve):
    def __init__(self, signals: WorkerSignals, is_lost: Callable[[Any], bool]) -> None:  # Any: as above
        super().__init__(signals, is_lost)
        self.heard_since = signals.heard_since


class FaultyStore(MemoryStore):
    """`calls` counts the calls. `requests` has all appends as they were sent, repeats included, and `followed` has the
    chats whose logs were followed. `away` names the calls that are refused until the test removes them; `broken` names
    the calls that get malformed replies."""

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(self.clock)
        self.calls: Counter[str] = Counter()
        self.order: list[str] = []
        self.followed: list[str] = []
        self.requests: list[AppendRequest] = []
        self.away: set[str] = set()
        self.broken: set[str] = set()
        self.loses_inbox_signals = False
        self.loses_bells = False
        self.loses_publishes = False
        self.loses_deletes = False
        self._lost_heads: set[str] = set()
        self._faults: dict[str, deque[Fault]] = {}
        self._called = anyio.Event()

    def fail(self, call: str, *faults: Trouble) -> None:
        """Make the next calls fail: they are not carried out, are carried out without an answer, or get a malformed
        answer."""
        self._faults.setdefault(call, deque()).extend(faults)

    def hold(self, call: str, *, reply_only: bool = False) -> Hold:
        held = Hold(reply_only=reply_only)
        self._faults.setdefault(call, deque()).append(held)
        return held

    def roll_back(self, chat_id: str, entries: int) -> None:
        """Simulate a failover to a replica that was behind: only this many entries of the log are left, and no
        command."""
        chat = self._chats[chat_id]
        chat.log = chat.log[:entries]
        chat.head = chat.log[-1].head if chat.log else ""
        chat.snap = None
        chat.inbox.clear()

    def lose_entry(self, chat_id: str, number: int) -> None:
        """Simulates damage: removes an entry of the log, counted from 0."""
        del self._chats[chat_id].log[number]

    def publish_again(self, chat_id: str) -> None:
        """Publish the last entry a second time."""
        self._publish(chat_id, self._chats[chat_id].log[-1])

    async def called(self, call: str, times: int) -> None:
        """Wait until `call` was made this many times in all."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while self.calls[call] < times:
                await self._called.wait()

    async def _through(self, call: str, step: Callable[[], Awaitable[_T]]) -> _T:
        self.calls[call] += 1
        self.order.append(call)
        called, self._called = self._called, anyio.Event()
        called.set()
        planned = self._faults.get(call)
        fault = planned.popleft() if planned else None
        if isinstance(fault, Hold) and not fault.reply_only:
            await fault.pass_through()
        if fault == "refused" or call in self.away:
            raise Unavailable("the store does not answer")
        if call in self.broken:
            raise Internal("the store answered with an error: ERR no such thing")
        answer = await step()
        if isinstance(fault, Hold) and fault.reply_only:
            await fault.pass_through()
        if fault == "broken reply":
            raise Internal("the store answered what no version of it would")
        if fault == "lost reply":
            raise Unavailable("the store did not answer in time")
        return answer

    async def append(self, request: AppendRequest) -> Appended:
        self.requests.append(request)
        if self.loses_publishes:
            self._lost_heads.add(request.head)
        return await self._through("append", partial(super().append, request))

    async def take(self, chat_id: str, worker: str, why: str) -> Taken:
        return await self._through("take", partial(super().take, chat_id, worker, why))

    async def load(self, chat_id: str) -> Loaded:
        return await self._through("load", partial(super().load, chat_id))

    async def check_buckets(self, buckets: Sequence[int]) -> list[BucketStatus]:
        return await self._through("check_buckets", partial(super().check_buckets, buckets))

    async def claim(self, bucket: int, worker: str, limit: int, lease_ms: int, waited_ms: int = 0) -> list[Claimed]:
        return await self._through("claim", partial(super().claim, bucket, worker, limit, lease_ms, waited_ms))

    async def silent_owners(self, bucket: int, worker: str) -> list[str]:
        return await self._through("silent_owners", partial(super().silent_owners, bucket, worker))

    async def end_leases(self, bucket: int, worker: str, owner: str, cursor: str) -> EndedLeases:
        return await self._through("end_leases", partial(super().end_leases, bucket, worker, owner, cursor))

    async def beat(self, worker: str, lease_ms: int, chats: Sequence[str]) -> dict[str, Beat]:
        return await self._through("beat", partial(super().beat, worker, lease_ms, chats))

    async def release(
        self, chat_id: str, worker: str, head: str, when_ms: int | None, left_ms: int | None = None
    ) -> Released:
        return await self._through("release", partial(super().release, chat_id, worker, head, when_ms, left_ms))

    async def compact(self, chat_id: str, head: str, compacted: Compacted | None) -> bool:
        return await self._through("compact", partial(super().compact, chat_id, head, compacted))

    async def handover(self, chat_id: str, worker: str, delay_ms: int) -> None:
        await self._through("handover", partial(super().handover, chat_id, worker, delay_ms))

    async def quarantine(self, chat_id: str, worker: str, until_ms: int) -> None:
        await self._through("quarantine", partial(super().quarantine, chat_id, worker, until_ms))

    async def read_inbox(self, chat_id: str, limit: int) -> list[InboxEntry]:
        return await self._through("read_inbox", partial(super().read_inbox, chat_id, limit))

    async def read_log(
        self,
        chat_id: str,
        through: EntryId | None = None,
        *,
        after: EntryId | None = None,
        newest: bool = False,
    ) -> list[RawEntry]:
        step = partial(super().read_log, chat_id, through, after=after, newest=newest)
        return await self._through("read_log", step)

    async def read_entry(self, chat_id: str, entry_id: EntryId) -> RawEntry | None:
        return await self._through("read_entry", partial(super().read_entry, chat_id, entry_id))

    async def heads(self, chat_ids: Sequence[str]) -> list[str]:
        return await self._through("heads", partial(super().heads, chat_ids))

    async def post(self, request: PostRequest) -> Posted:
        return await self._through("post", partial(super().post, request))

    async def put_blob(self, request: BlobPut) -> BlobOutcome:
        return await self._through("put_blob", partial(super().put_blob, request))

    async def get_blob(self, chat_id: str, owner: str, hash: str) -> Blob | None:
        return await self._through("get_blob", partial(super().get_blob, chat_id, owner, hash))

    async def delete(self, chat_id: str, owner: str, nonce: str) -> bool:
        return await self._through("delete", partial(super().delete, chat_id, owner, nonce))

    async def meta(self, chat_id: str) -> ChatMeta | None:
        return await self._through("meta", partial(super().meta, chat_id))

    def ring(self, bucket: int) -> None:
        if not self.loses_bells:
            super().ring(bucket)

    @asynccontextmanager
    async def bell(self) -> AsyncIterator[DueBell]:
        await self._through("bell", anyio.lowlevel.checkpoint)
        async with super().bell() as bell:
            yield bell

    @asynccontextmanager
    async def inbox_signals(self, worker: str) -> AsyncIterator[WorkerSignals]:
        await self._through("mail", anyio.lowlevel.checkpoint)
        async with super().inbox_signals(worker) as signals:
            yield _SievedSignals(signals, lambda _: self.loses_inbox_signals)

    @asynccontextmanager
    async def follow(
        self, chat_id: str, at_once: AtOnce | None = None, woken: Callable[[], None] | None = None
    ) -> AsyncIterator[Messages[LogMessage]]:
        self.followed.append(chat_id)
        await self._through("follow", anyio.lowlevel.checkpoint)

        def offered(log_message: LogMessage) -> bool:
            if at_once is None or "notice" in self.away:
                return False
            return self._is_lost(log_message) or at_once(log_message)

        async with super().follow(chat_id, offered, woken) as log_messages:
            yield _Sieve(log_messages, self._is_lost)

    def _is_lost(self, log_message: LogMessage) -> bool:
        if "notice" in self.away:
            raise Unavailable("the store does not answer")
        return log_message.head in self._lost_heads or (self.loses_deletes and log_message.kind == "deleted")
