"""A relay follows one watched chat in this process. The relay folds each entry, encodes each event once, and sends the
bytes to all subscribers.

The relay subscribes to the log's channel before it loads the log, so that it misses no entry. Entries that the relay
already has are recognised by their id and dropped (`log_tail.py`). After a gap, a rebuilt channel or a failed position
check, the relay reads the log again (DESIGN §5, DISPATCH §6). If the log continues the relay's state, readers get the
missing events. Otherwise readers get a snapshot.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol

import anyio
import structlog

from threadcast.base.lean_event import LeanEvent
from threadcast.base.telemetry import Metrics
from threadcast.chat.entries import RawEntry
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.fanout.connection import EndReason
from threadcast.fanout.recent_frames import RecentFrames, frames_of
from threadcast.fanout.subscriber import Subscriber
from threadcast.log_tail import Missed, carried_entry, entries_after, next_entry
from threadcast.store.load import NewerVersion, fold_checked, fold_whole
from threadcast.store.ports import Index, Loaded, Log, LogMessage, Messages
from threadcast_protocol.fold.reducer import Gap
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.framing.sse import Frame, snapshot_frame
from threadcast_protocol.wire.errors import Failed, Unavailable
from threadcast_protocol.wire.events import BranchSelected
from threadcast_protocol.wire.ids import Position

__all__ = ["NEWER_VERSION", "OWNER_SECONDS", "Relay"]

_log = structlog.get_logger()

NEWER_VERSION = "a newer version of this server wrote this chat; ask another process of it"

STORE_PAUSE_SECONDS = 0.5

AT_ONCE_READERS = 16
"""The maximum number of subscribers that are served without waking a task. With more subscribers, waking a task costs
little compared with the writes. Writing to this number of subscribers delays the task that delivers log messages by at
most a fifth of a millisecond."""

LOADS_AT_ONCE = 8
"""The maximum number of concurrent loads of all relays of a process. This number is large enough to keep the store
busy. It is small enough that reconnects after a restart do not read thousands of chats into memory at the same time."""

OWNER_SECONDS = 1.0
"""Seconds for which `Relay.owner_lately` is valid. When many readers reconnect, one read of the chat's owner a second
serves all of them; each read takes a quarter of the CPU of a join (`bench.join`). If this process misses the message
that another process has deleted the chat, the chat can still be joined for this time."""

LOAD_SECONDS = 10.0
"""Seconds after which a load, including its time in the queue, counts as an unanswered request and is repeated. A
resuming reader also waits at most this long for missed frames, and then begins with a snapshot."""


class RelayStore(Index, Log, Protocol):
    """The ports of the store that a relay needs: the log, and the meta that shows whether the chat was deleted."""


class Relay:
    """Follows `chat_id` until it is closed (`shared.py`). `ready` is set when the state has been loaded, or when the
    state cannot be loaded and `trouble` has the reason."""

    def __init__(
        self,
        chat_id: str,
        store: RelayStore,
        metrics: Metrics,
        loads: anyio.CapacityLimiter | None = None,
        *,
        stored_as: str = "",
    ) -> None:
        """`loads` limits how many relays load at once. `stored_as` is the id under which the relay reads from the
        store, if it is not `chat_id`. A relay for readers of a hidden chat reads an id that no chat can have."""
        self.chat_id = chat_id
        self.stored_as = stored_as or chat_id
        self.ready = LeanEvent()
        self.trouble: EndReason | None = None
        self.subscribers: dict[Subscriber, None] = {}  # in the order of joining, which is their order in memory
        self.hidden: dict[Subscriber, None] = {}
        """Readers that see an unknown chat, because the chat of this id belongs to another principal."""
        self.changed_at = time.monotonic()
        self.checked_at = time.monotonic()
        self.seen_at = -math.inf
        """The last time at which the chat certainly existed: the time of an entry that continued the log, of a read of
        the chat's record, or of a position check that found the same head."""
        self.wake: Callable[[], None] = _not_woken
        self._following: AbstractAsyncContextManager[Messages[LogMessage]] | None = None
        self._messages: Messages[LogMessage] | None = None
        self._store = store
        self._metrics = metrics
        self._state = empty_owner_state(chat_id)
        self._owner: str | None = None
        self._loads = loads or anyio.CapacityLimiter(LOADS_AT_ONCE)
        self._frames = RecentFrames(chat_id, store, self._loads, lambda: self._state)
        self._snapshot: tuple[bytes, int] | None = None
        self._wrong: Exception | None = None  # the error of `_take_at_once`
        self._lock = asyncio.Lock()  # one fold or load at a time: an older load must never replace a newer entry

    @property
    def head(self) -> str:
        return self._state.head

    @property
    def is_at_rest(self) -> bool:
        return self._state.is_at_rest

    def owner_lately(self, since: float) -> str | None:
        """Return the chat's owner, if this relay has seen the chat exist within `OWNER_SECONDS`, and after `since`.
        Otherwise returns None."""
        return self._owner if self.seen_at > max(since, time.monotonic() - OWNER_SECONDS) else None

    async def run(self) -> bool:
        """Handle the log messages of the chat. Returns True when no message is left, and False when the chat cannot be
        shown. An error of the store pauses the relay, which then loads the log again. With more than AT_ONCE_READERS
        readers this method continues to wait for messages, because `_take_at_once` then delivers no entries."""
        while True:
            try:
                log_messages = self._messages or await self._open()
                while not log_messages.is_empty or len(self.subscribers) > AT_ONCE_READERS:
                    log_message = await anext(log_messages)
                    async with self._lock:
                        await self._take(log_message)
                return True
            except Failed as failed:
                await self.close()
                if not isinstance(failed, Unavailable):
                    _log.error("relay.failed", chat_id=self.chat_id, error=str(failed))
                if not self.ready.is_set():
                    self.trouble = "store"
                    self.ready.set()
                await anyio.sleep(STORE_PAUSE_SECONDS)
            except (NewerVersion, Gap) as trouble:
                self._fail(trouble)
                return False

    async def close(self) -> None:
        """End the subscription."""
        following, self._following, self._messages = self._following, None, None
        if following is not None:
            await following.__aexit__(None, None, None)

    async def _open(self) -> Messages[LogMessage]:
        following = self._store.follow(self.stored_as, self._take_at_once, self.wake)
        messages = await following.__aenter__()
        self._following, self._messages = following, messages
        async with self._lock:
            await self._load("open")
        self.trouble = None
        self.ready.set()
        return messages

    def refusal(self) -> str:
        """Return the error message for a reader that this relay cannot serve."""
        return NEWER_VERSION if self.trouble == "newer_version" else "the chat cannot be read at the moment; try again"

    def log_crash(self) -> None:
        """Log the exception that `run` has raised."""
        _log.exception("relay.crashed", chat_id=self.chat_id)

    def end_all(self, reason: EndReason) -> None:
        """End the streams of all readers."""
        for subscriber in list(self.subscribers):
            subscriber.end(reason)
        self.subscribers.clear()
        for subscriber in list(self.hidden):  # `reason` would reveal that a chat of this id exists
            subscriber.end(reason if self._is_nothing else "own_now")
        self.hidden.clear()

    def snapshot(self) -> tuple[bytes, int]:
        """Return the block of a snapshot of the present state, and the position of this state. The block is made once
        per state and shared by all readers."""
        if self._snapshot is None:
            self._snapshot = _snapshot_block(self._state)
        return self._snapshot

    async def join(self, subscriber: Subscriber, stream_position: Position | None) -> None:
        """Begin to serve a subscriber. The subscriber gets the frames after `stream_position` if all of them are still
        available, and otherwise a snapshot."""
        missed: Sequence[Frame] | None = None
        owner = self._owner
        if stream_position is not None:
            with anyio.move_on_after(LOAD_SECONDS):  # concurrent resuming readers share one read of the log
                missed = await self._frames.after(stream_position)
        if self.trouble is not None:  # the relay failed while this reader joined
            subscriber.end(self.trouble)
            return
        if self._owner is None and owner is not None:  # the chat was deleted while this reader joined
            subscriber.end("not_found")
            return
        if self._owner not in (None, subscriber.principal_id):  # another principal has just created the chat
            self._hide(subscriber)
            subscriber.start_with_snapshot()
            return
        (self.hidden if self._is_nothing else self.subscribers)[subscriber] = None
        if stream_position is None or missed is None:
            subscriber.start_with_snapshot()
        else:
            subscriber.start_at(stream_position, missed)

    def leave(self, subscriber: Subscriber) -> None:
        self.subscribers.pop(subscriber, None)
        self.hidden.pop(subscriber, None)

    async def reload_from(self, head: str) -> None:
        """Read the log again, because a position check found that the store's head differs from `head`. Does nothing if
        the relay's head is no longer `head`."""
        async with self._lock:
            if self._state.head == head:
                try:
                    await self._load("position_check")
                except (NewerVersion, Gap) as trouble:
                    self._fail(trouble)

    def _fail(self, trouble: Exception) -> None:
        """End the streams of all readers, because this process cannot show the log. During a deploy the readers
        reconnect, because another process may have the version that wrote the log."""
        self.trouble = "newer_version" if isinstance(trouble, NewerVersion) else "unfoldable"
        if self.trouble == "newer_version":
            _log.warning("relay.newer_version", chat_id=self.chat_id, error=str(trouble))
        else:
            _log.error("relay.unfoldable", chat_id=self.chat_id, error=str(trouble))
        self.ready.set()
        self.end_all(self.trouble)

    def _take_at_once(self, log_message: LogMessage) -> bool:
        """Deliver the entry in `log_message` without waking a task, if it is the next entry and there are few readers.
        A message about the latest entry is dropped. Returns False for any other message, which `run` then handles."""
        if log_message.head == self._state.head and log_message.head:
            return True  # the worker in this process delivered the same entry before publishing it
        entry = carried_entry(self._state.head, log_message)
        if (
            entry is None
            or self._owner is None
            or self._wrong is not None
            or self._lock.locked()
            or len(self.subscribers) > AT_ONCE_READERS
        ):
            return False
        try:
            self._show(entry)
        except Exception as wrong:  # the delivering task must not get this error; `run` raises it
            self._wrong = wrong
            return False
        return True

    async def _take(self, log_message: LogMessage) -> None:
        if self._wrong is not None:
            wrong, self._wrong = self._wrong, None
            raise wrong
        try:
            entry = await next_entry(self._store, self._state.head, log_message)
        except Missed as missed:
            if missed.reason == "deleted" and self._owner is not None:
                self._owner = None
                for subscriber in list(self.subscribers):
                    subscriber.end("not_found")
                self.subscribers.clear()
            elif missed.reason == "deleted":  # this relay has not yet seen an entry of the chat
                await self._know_owner()
            await self._load(missed.reason)
        else:
            if entry is not None:
                await self._know_owner()
                self._show(entry)

    async def _load(self, reason: str) -> None:
        """Read the entries of the log after this relay's head. Readers continue with these entries. If the log no
        longer contains the head, or has more than one page after it, the chat is loaded again and readers get a
        snapshot."""
        try:
            with anyio.fail_after(LOAD_SECONDS):
                async with self._loads:
                    found = await self._read_on()
        except TimeoutError:
            raise Unavailable("the store is too slow; try again") from None
        self.checked_at = time.monotonic()
        if self._state.head and found:
            self._metrics.relay_reloads.labels(reason).inc()
        if isinstance(found, list):
            if found:
                await self._know_owner()
            for entry in found:
                self._show(entry)
        elif found.head != self._state.head:
            async with self._loads:
                state, _ = await fold_whole(self._store, self.chat_id, found, with_facts=False)
            # The owner is read before the state changes. If the store fails here, the next load must find again that
            # readers need a snapshot.
            self._owner = None  # another user may have created a chat of this id meanwhile
            await self._know_owner()
            self._state = state
            self._begin_history("lost_position")

    async def _read_on(self) -> list[RawEntry] | Loaded:
        if self._state.head:
            with suppress(Missed):
                return await entries_after(self._store, self.chat_id, self._state.head, pages_max=1)
        return await self._store.load(self.stored_as)

    def _show(self, entry: RawEntry) -> None:
        """Fold an entry, encode its events once and write them to all readers. Raises Gap, NewerVersion."""
        self._state, events = fold_checked(self._state, entry, with_facts=False)
        self._snapshot = None
        self.changed_at = self.seen_at = time.monotonic()
        if not events:
            return
        if BranchSelected in map(type, events):
            self._begin_history("branch_selected")
            return
        if len(events) == 1:  # in nearly all cases: the event is the text between the brackets
            frames = [Frame(self.chat_id, entry.events[1:-1], entry.entry_id.epoch, entry.position)]
        else:
            frames = frames_of(self.chat_id, entry)
        self._frames.keep(frames, len(entry.events) // len(frames))
        blocks: dict[int, bytes] = {}  # by base: readers with the same base share the bytes of all frames
        for subscriber in list(self.subscribers):
            if subscriber.is_one_of_many:
                subscriber.write_frames(frames)
            elif not subscriber.needs_snapshot:
                base = subscriber.base
                block = blocks.get(base)
                if block is None:
                    one = frames[0].for_base(base)  # in nearly all cases there is only one frame
                    block = one if len(frames) == 1 else b"".join(frame.for_base(base) for frame in frames)
                    blocks[base] = block
                subscriber.connection.write(block, subscriber)
        self._metrics.append_to_send_seconds.observe(max(0.0, time.time() - entry.time_ms / 1000))

    def _begin_history(self, reason: str) -> None:
        """Give all readers a snapshot, because the state does not continue the frames that were sent."""
        self._frames.forget()
        self._snapshot = None
        self.changed_at = time.monotonic()
        for subscriber in list(self.subscribers):
            subscriber.resync(reason)

    async def _know_owner(self) -> None:
        """Read the chat's owner, if the owner is not known yet. A reader may have watched an id before another
        principal created a chat with this id. Such a reader must not see the chat, and must not notice that the chat
        exists."""
        if self._owner is not None:
            return
        asked_at = time.monotonic()
        meta = await self._store.meta(self.stored_as)
        self._owner = None if meta is None or meta.deleted else meta.owner
        self.seen_at = asked_at
        if meta is None:  # no chat yet, or an expired chat: its owner is read again later
            return
        for subscriber in list(self.subscribers):
            if subscriber.principal_id != meta.owner:
                self._hide(subscriber)
                if self._state.head:  # the reader's own chat has expired, so the reader sees an unknown chat
                    subscriber.start_with_snapshot()
            elif meta.deleted:
                subscriber.end("not_found")
                self.subscribers.pop(subscriber, None)

    @property
    def _is_nothing(self) -> bool:
        """True if this relay follows an id that no chat can have."""
        return self.stored_as != self.chat_id

    def _hide(self, subscriber: Subscriber) -> None:
        """Show the reader an unknown chat from now on. The reader gets no more frames of the present chat."""
        self.subscribers.pop(subscriber, None)
        self.hidden[subscriber] = None
        subscriber.hide(_Nothing(self.chat_id))


def _not_woken() -> None:
    return None


class _Nothing:
    """The snapshots of a chat that does not exist."""

    def __init__(self, chat_id: str) -> None:
        self._chat_id = chat_id

    def snapshot(self) -> tuple[bytes, int]:
        return _snapshot_block(empty_owner_state(self._chat_id))


def _snapshot_block(state: OwnerState) -> tuple[bytes, int]:
    """Return the block of a snapshot of `state`, and the position of `state`."""
    block = snapshot_frame(state.chat_id, encode(snapshot_of(state)), state.epoch, state.position)
    return block, state.position
