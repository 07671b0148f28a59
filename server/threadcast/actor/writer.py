"""The writer of one owned chat: it combines many small deltas into few appends. No other module appends to logs.

The writer holds the folded state, which differs from the log by at most the append that is under way. One append is
outstanding at a time. A cancelled caller does not cancel this append, so the writer always knows whether the append was
carried out. An append without an answer is repeated with the same arguments (DESIGN §4.2). If the log has another head
than expected, the writer has ended, and all its callers get Fenced.

Pace (DESIGN §6): the first delta of an answer is appended at once, and so is a delta after 30 ms without an append.
Otherwise the next append starts when the last append is answered, and either 30 ms have passed since the last append
was sent or 1 kB of text waits. The pace is slower when many chats stream (`base/append_pace.py`), and chats append
together (`append_group.py`).
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

import anyio
import structlog
from msgspec.structs import replace

from threadcast.actor.agent_operations import tell_operations
from threadcast.actor.append import Appending
from threadcast.actor.append_group import AppendGroup, wake
from threadcast.actor.append_request import Meta, Prepared, entry_append, is_indexed, text_append
from threadcast.actor.checkpoint_policy import CheckpointPolicy
from threadcast.actor.copy_parts import builder_of, copy_parts
from threadcast.actor.traces import Traces
from threadcast.agent_loop.calls.client_events import Emitted
from threadcast.agent_loop.history.kept_view import KeptView
from threadcast.agent_loop.tracing import end_trace
from threadcast.base.append_pace import PACE
from threadcast.base.telemetry import Metrics
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.owner_state import OwnerState
from threadcast.store.ports import Appended, AppendRequest, Fenced, InboxEntry, Store
from threadcast_protocol.framing.codec import Relayed, encode
from threadcast_protocol.wire.deltas import (
    OPS_MAX_COUNT,
    OPS_MAX_TEXT_BYTES,
    AppendContent,
    AppendReasoning,
    DeltaOp,
    SetToolCalls,
)
from threadcast_protocol.wire.events import AgentData, RuntimeUpdated, StreamDelta, ToolStatus
from threadcast_protocol.wire.ids import EntryId, Head, NewId
from threadcast_protocol.wire.messages import JsonObject, Usage, add_usage

__all__ = ["Writer"]

_log = structlog.get_logger()
_T = TypeVar("_T")

PACE_BYTES = 1_024
Item: TypeAlias = DeltaOp | ToolStatus | Emitted | AgentData
"""Items that can be offered between two commits."""

OTHER_BYTES = 200  # the approximate size of an operation without text
BUFFER_MAX_BYTES = 1_000_000
"""The maximum bytes of deltas that may wait for the store; at this limit the worker stops reading the model's stream
(DESIGN §4.8)."""


class Writer:
    """Writes the log of one chat. `state` must be folded up to this worker's own fence. `owner` is the id of the
    principal that owns the chat. `checkpoint_policy` holds the size of the log; without a policy the log counts as new.
    `profile_params` returns the defaults of the chat's profile. `before_end` completes the answers of a run that ends.
    `clock_ahead_ms` is the time by which the store's clock, which deadlines use, is ahead of this machine's clock. All
    writers of a process share an `append_group`. `kept_view` is a view of this state that was cached with it."""

    def __init__(
        self,
        store: Store,
        worker: str,
        state: OwnerState,
        *,
        owner: str,
        new_id: NewId,
        metrics: Metrics,
        checkpoint_policy: CheckpointPolicy | None = None,
        profile_params: Callable[[OwnerState], JsonObject] = lambda _: {},
        before_end: Callable[[EntryBuilder], None] | None = None,
        clock_ahead_ms: int = 0,
        traces: Traces | None = None,
        append_group: AppendGroup | None = None,
        kept_view: KeptView | None = None,
    ) -> None:
        self.state = state
        self.kept_view = kept_view or KeptView()
        self._entry_id = Head.parse(state.head).entry_id
        self._append_group = append_group or AppendGroup()
        if state.draft is not None:
            self._append_group.begin(self)
        self._traces = traces
        self._profile_params = profile_params
        self._before_end = before_end
        self._clock_ahead_ms = clock_ahead_ms
        self.checkpoint_policy = checkpoint_policy or CheckpointPolicy()
        self._worker = worker
        self.owner = owner
        self._new_id = new_id
        self._metrics = metrics
        self._lock = asyncio.Lock()  # costs half as much as anyio's lock, in every append
        self._buffer: deque[Item] = deque()
        self._buffer_bytes = 0
        self._dirty = asyncio.Event()  # costs a fraction of anyio's event, and so does the future below
        self._full: asyncio.Future[None] | None = None
        self._room = anyio.Event()
        self._changed = asyncio.Event()
        self._last_append_at = -math.inf
        self._is_over = False
        self._appending = Appending(store, metrics)
        self._meta: Meta = ()
        self._is_indexed = False
        """Whether the store has this chat's meta, and text changes nothing but the log."""

    async def commit(self, write: Callable[[EntryBuilder], _T], consumed: tuple[InboxEntry, ...] = ()) -> _T:
        """Append one entry: first the items passed to `offer` since the last append, then the events that `write` adds.
        Returns the result of `write` after the entry is durable. `write` gets a builder with the current state, and
        must not wait. A large copy of a chat becomes several entries (`copy_parts.py`).

        Raises:
            Fenced: another worker owns the log; nothing was written, or the first parts of a large copy.
        """
        async with self._lock:
            builder = EntryBuilder(self.state, self.now_ms(), self._new_id, self._profile_params, self._before_end)
            self._drain_into(builder)
            result = write(builder)
            if builder.is_empty and not consumed:
                return result
            if self._is_over:
                raise Fenced
            if builder.copied_for:
                builder = await self._append_all_but_the_last(builder)
            before = self.state
            request, entry_id, after = self._request(builder, consumed)
            await self._append(request, entry_id, after, len(builder.events))
            self._take_over(builder, request, before)
        return result

    async def _append_all_but_the_last(self, entry: EntryBuilder) -> EntryBuilder:
        """Append the parts of a copy except for the last one, whose builder is returned. Raises Fenced."""
        *parts, last = copy_parts(entry)
        for part in parts:
            builder = builder_of(part, self.state, entry)
            request, entry_id, after = self._request(builder, ())
            request = replace(request, lifetime="persist", expire_seconds=0)  # for the command, which waits
            await self._append(request, entry_id, after, len(builder.events))
        if not parts:
            return entry
        rest = builder_of(last, self.state, entry)
        rest.acks = entry.acks
        return rest

    async def _append(self, request: AppendRequest, entry_id: EntryId, after: OwnerState, events_count: int) -> None:
        """Append the entry, and continue from the state `after` it. Raises Fenced."""
        loop = asyncio.get_running_loop()
        sent_at = loop.time()  # the pace uses the same clock
        try:
            answer = await self._appending.until_answered(request)
        except Fenced:
            self._is_over = True
            self._append_group.end(self)
            self._room.set()
            self._metrics.fenced.inc()
            raise
        seconds = loop.time() - sent_at
        PACE.note_store_delay(seconds)
        if answer is Appended.DUP:
            _log.info("append.repeated", chat_id=request.chat_id, head=request.head)
        self._last_append_at = sent_at
        self._metrics.append_seconds.observe(seconds)
        self._metrics.appends.inc()
        self.state, self._entry_id = after, entry_id
        self.checkpoint_policy.add(entry_id, events_count, len(request.events) + len(request.facts))
        if request.checkpoint is not None:
            self.checkpoint_policy.move_checkpoint(entry_id, len(request.checkpoint), request.trim)

    def give_up(self) -> None:
        """Stop waiting for the store. The next owner reads from the log whether an unanswered append was carried out.
        Cancelling a commit does not have this effect, because commits ignore cancellation."""
        self._appending.give_up()

    async def changed(self) -> None:
        """Wait for the next entry that changes `state.private`. Read `state` first, without an await in between."""
        await self._changed.wait()

    def now_ms(self) -> int:
        """Return the approximate time of the store's clock in Unix milliseconds."""
        return int(time.time() * 1000) + self._clock_ahead_ms

    def offer(self, item: Item) -> None:
        """Put a delta of the open answer, a progress report, or an event of a tool or an agent into one of the next
        appends."""
        last = self._buffer[-1] if self._buffer else None
        if isinstance(item, Relayed) and self._buffer_bytes >= BUFFER_MAX_BYTES:
            return  # a picture of a browser; another picture will follow
        if isinstance(item, AppendContent) and isinstance(last, AppendContent) and len(last.text) < PACE_BYTES:
            self._buffer[-1] = AppendContent(last.text + item.text)
            self._buffer_bytes += len(item.text.encode())
        elif isinstance(item, AppendReasoning) and isinstance(last, AppendReasoning) and len(last.text) < PACE_BYTES:
            self._buffer[-1] = AppendReasoning(last.text + item.text)
            self._buffer_bytes += len(item.text.encode())
        elif isinstance(item, ToolStatus):
            others = [o for o in self._buffer if not isinstance(o, ToolStatus) or o.tool_call_id != item.tool_call_id]
            self._buffer_bytes += OTHER_BYTES * (1 + len(others) - len(self._buffer))
            self._buffer = deque([*others, item])
        elif isinstance(item, SetToolCalls) and isinstance(last, SetToolCalls):
            self._buffer[-1] = item
            self._buffer_bytes += _weight(item) - _weight(last)
        else:
            self._buffer.append(item)
            self._buffer_bytes += _weight(item)
        self._dirty.set()
        if self._buffer_bytes >= PACE_BYTES and self._full is not None:
            wake(self._full)

    async def has_room(self) -> None:
        """Wait while the buffer is full. The caller does not read the model's stream meanwhile."""
        while self._buffer_bytes >= BUFFER_MAX_BYTES and not self._is_over:
            self._room = anyio.Event()
            await self._room.wait()

    async def flush_forever(self) -> None:
        """Append the offered items at the writer's pace, until cancelled. Raises Fenced."""
        while True:
            if not self._dirty.is_set():
                await self._dirty.wait()
            due_at = self._append_group.due_at(self._last_append_at)
            if self._buffer_bytes < PACE_BYTES and not self._append_group.is_near(due_at):
                await self._gather(due_at)
            async with self._lock:
                text = self._text_request()  # nearly all entries have only text and need no builder
                if text is not None and self._is_over:
                    raise Fenced
                if text is not None:
                    await self._append(*text, 1)
            if text is None:
                await self.commit(lambda _: None)

    async def _gather(self, due_at: float) -> None:
        """Wait until `due_at`, or until enough text was offered."""
        self._full = full = asyncio.get_running_loop().create_future()
        self._append_group.wake_at(due_at, full)
        try:
            await full
        finally:
            self._full = None

    def _drain_into(self, builder: EntryBuilder) -> None:
        """Add the offered items to `builder` in order. Texts are joined; an event has at most 128 operations and 64 KiB
        of text."""
        items = self._empty_buffer()
        draft = builder.state.draft
        ops: list[DeltaOp] = []
        text_bytes = 0
        for item in (piece for offered in items for piece in _pieces(offered)):
            if isinstance(item, ToolStatus):
                if any(call.tool_call_id == item.tool_call_id for call in builder.state.runtime.tools):
                    builder.say(item)
                continue
            if isinstance(item, Emitted | AgentData):
                builder.say(item)
                continue
            if draft is None:  # the answer to which the delta belongs has ended
                continue
            size = _text_bytes(item)
            if ops and (len(ops) >= OPS_MAX_COUNT or text_bytes + size > OPS_MAX_TEXT_BYTES):
                builder.say(StreamDelta(draft.message.message_id, ops))
                ops, text_bytes = [], 0
            text_bytes += size
            last = ops[-1] if ops else None
            if isinstance(item, AppendContent) and isinstance(last, AppendContent):
                ops[-1] = AppendContent(last.text + item.text)
            elif isinstance(item, AppendReasoning) and isinstance(last, AppendReasoning):
                ops[-1] = AppendReasoning(last.text + item.text)
            else:
                ops.append(item)
        if ops and draft is not None:
            builder.say(StreamDelta(draft.message.message_id, ops))

    def _take_over(self, builder: EntryBuilder, request: AppendRequest, before: OwnerState) -> None:
        """Report the changes of an entry. `before` is the state before the entry."""
        after = self.state
        if after.draft is None and before.draft is not None:
            self._append_group.end(self)
        elif after.draft is not None and before.draft is None:
            self._append_group.begin(self)
            self._last_append_at = -math.inf  # the first delta of an answer is appended at once
        if after.private is not before.private:
            self._changed.set()  # this wakes the callers that wait now
            self._changed.clear()
        self._meta = request.meta or self._meta
        self._is_indexed = is_indexed(after)
        if builder.facts:
            tell_operations(self._traces, self._metrics, self.owner, before, after, builder.facts, builder.now_ms)
        for event in builder.events:
            if isinstance(event, RuntimeUpdated) and event.outcome is not None:
                self._tell_finished(before, event, builder.now_ms)

    def _tell_finished(self, before: OwnerState, end: RuntimeUpdated, now_ms: int) -> None:
        """Log the run's full line, and offer the end of its trace."""
        run = before.private.run
        if run is None or run.run_id != end.run_id:
            run = None  # the run began in this entry
        if self._traces is not None:
            self._traces.offer(before.chat_id, self.owner, end_trace(before, self.state, end, now_ms))
        spent: Usage | None = None
        for key in self.state.path[run.first_index :] if run is not None else ():
            spent = add_usage(spent, self.state.nodes[key].usage)
        self._metrics.runs_finished.labels(end.outcome).inc()
        _log.info(
            "run.finished",
            chat_id=before.chat_id,
            run_id=end.run_id,
            outcome=end.outcome,
            rounds=None if end.round is None else end.round + 1,
            tools_used=end.tools_used,
            calls=run.calls_count if run is not None else 0,
            operations=len(run.agent.journal) if run is not None and run.agent is not None else None,
            prompt_tokens=spent.prompt_tokens if spent is not None else None,
            completion_tokens=spent.completion_tokens if spent is not None else None,
            cost=getattr(spent, "cost", None),
            duration_ms=now_ms - run.started_at_ms if run is not None else 0,
        )

    def _request(self, builder: EntryBuilder, consumed: tuple[InboxEntry, ...]) -> Prepared:
        """Return the append of the entry in `builder`."""
        return entry_append(
            self.state,
            self._entry_id,
            builder,
            consumed,
            worker=self._worker,
            owner=self.owner,
            meta_before=self._meta,
            policy=self.checkpoint_policy,
        )

    def _text_request(self) -> Prepared | None:
        """If the buffer holds only one text, take it and return its append."""
        item = self._buffer[0] if len(self._buffer) == 1 else None
        if not isinstance(item, AppendContent | AppendReasoning):
            return None
        if not self._is_indexed or self._buffer_bytes > OPS_MAX_TEXT_BYTES:
            return None
        prepared = text_append(
            self.state,
            self._entry_id,
            item,
            worker=self._worker,
            owner=self.owner,
            policy=self.checkpoint_policy,
        )
        if prepared is not None:
            self._empty_buffer()
        return prepared

    def _empty_buffer(self) -> "deque[Item]":
        """Return the offered items, and begin a new buffer."""
        self._dirty.clear()
        items, self._buffer, self._buffer_bytes = self._buffer, deque(), 0
        self._room.set()
        return items


def _text_bytes(op: DeltaOp) -> int:
    return len(op.text.encode()) if isinstance(op, AppendContent | AppendReasoning) else 0


def _weight(item: Item) -> int:
    """Return approximately how many bytes `item` adds to an append."""
    if isinstance(item, SetToolCalls):
        return OTHER_BYTES + sum(len(call.function.arguments) for call in item.tool_calls)
    if isinstance(item, Relayed | AgentData):
        return len(encode(item))
    return len(item.text.encode()) if isinstance(item, AppendContent | AppendReasoning) else OTHER_BYTES


def _pieces(item: Item) -> Iterable[Item]:
    """Return `item`, cut into pieces if its text is too long for one event."""
    if not isinstance(item, AppendContent | AppendReasoning) or _text_bytes(item) <= OPS_MAX_TEXT_BYTES:
        return (item,)
    step = OPS_MAX_TEXT_BYTES // 4  # in characters, which have at most four bytes each
    return [type(item)(item.text[start : start + step]) for start in range(0, len(item.text), step)]
