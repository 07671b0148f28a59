"""The writer of one owned chat: many small deltas into few appends; the only place that appends.

It holds the folded state, so that what stands in the log and what the actor thinks can never differ by more than the
append that is in flight. One append is outstanding at a time, and a cancelled caller does not cancel it: afterwards
everybody knows whether it happened. An append that gets no answer is repeated with the same arguments (DESIGN §4.2);
when the head is another than expected, the writer is over and says Fenced to everybody.

Pace (DESIGN §6): the first delta of an answer goes at once, as does one after 30 ms without an append; else the next
append starts when the last one is answered and 30 ms after it left or 1 kB are reached; longer where many stream
(`server/pace.py`), and together with those of other chats (`pace.py` here).
"""

import asyncio
import hashlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias, TypeVar

import anyio
import structlog

from protocol.blobs import blob_hashes
from protocol.codec import encode, encode_state
from protocol.deltas import OPS_MAX_COUNT, OPS_MAX_TEXT_BYTES, AppendContent, AppendReasoning, DeltaOp, SetToolCalls
from protocol.entries import FORMAT_VERSION
from protocol.events import Relayed, RuntimeUpdated, StreamDelta, ToolStatus
from protocol.ids import EntryId, Head, NewId
from protocol.ledger import Ledger
from protocol.messages import JsonObject, Usage, add_usage
from protocol.state import ChatState
from server.actor.append import Appending
from server.actor.pace import Pace
from server.actor.traces import Traces
from server.actor.upkeep import Upkeep
from server.agent.calls.client_events import Emitted
from server.agent.tracing import end_trace
from server.store.port import Appended, AppendRequest, Fenced, InboxEntry, Store
from server.telemetry import Metrics

__all__ = ["Writer"]

_log = structlog.get_logger()
_T = TypeVar("_T")

PACE_BYTES = 1_024
Item: TypeAlias = DeltaOp | ToolStatus | Emitted
"""What may be offered between two commits."""

OTHER_BYTES = 200  # about what an operation without text weighs
BUFFER_MAX_BYTES = 1_000_000
"""Deltas that wait for the store; then the model's stream is not read further (DESIGN §4.8)."""


def _no_params(_: ChatState) -> JsonObject:
    return {}


class Writer:
    """`state` must be folded up to this worker's own fence; `owner` is whose chat it is. `upkeep` is what is
    known of the log's size; without one the log is new. `profile_params` gives the defaults of the chat's profile,
    `before_end` has the last word on a run that ends; `clock_ahead_ms` is how far the store's clock is ahead of this
    machine's: deadlines are kept by the store's. `pace` is shared by the writers of a process."""

    def __init__(
        self,
        store: Store,
        worker: str,
        state: ChatState,
        *,
        owner: str,
        new_id: NewId,
        metrics: Metrics,
        upkeep: Upkeep | None = None,
        profile_params: Callable[[ChatState], JsonObject] = _no_params,
        before_end: Callable[[Ledger], None] | None = None,
        clock_ahead_ms: int = 0,
        traces: Traces | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.state = state
        self._entry_id = Head.parse(state.head).entry_id
        self._pace = pace or Pace()
        if state.draft is not None:
            self._pace.begin(self)
        self._traces = traces
        self._profile_params = profile_params
        self._before_end = before_end
        self._clock_ahead_ms = clock_ahead_ms
        self.upkeep = upkeep or Upkeep()
        self._worker = worker
        self.owner = owner
        self._new_id = new_id
        self._metrics = metrics
        self._lock = asyncio.Lock()  # at half the cost of anyio's, in every append
        self._buffer: deque[Item] = deque()
        self._buffer_bytes = 0
        self._dirty = asyncio.Event()  # at a fraction of the cost of anyio's, as is the next one
        self._full: asyncio.Future[None] | None = None
        self._room = anyio.Event()
        self._changed = asyncio.Event()
        self._last_append_at = -math.inf
        self._is_over = False
        self._appending = Appending(store, metrics)
        self._meta: tuple[tuple[str, str], ...] = ()

    async def commit(self, write: Callable[[Ledger], _T], consumed: tuple[InboxEntry, ...] = ()) -> _T:
        """Everything offered so far, then what `write` adds, as one entry; returns what `write` returned once the
        entry is durable. `write` sees the state of that moment and must not wait.

        Raises:
            Fenced: somebody else owns the log now; nothing was written.
        """
        async with self._lock:
            ledger = Ledger(self.state, self.now_ms(), self._new_id, self._profile_params, self._before_end)
            self._drain_into(ledger)
            result = write(ledger)
            if not ledger.is_empty or consumed:
                await self._append(ledger, consumed)
        return result

    def give_up(self) -> None:
        """Wait for the store no longer: what it has not answered is left to the next owner, who reads how far it came.
        A commit heeds no cancellation, since nobody would know whether it was written."""
        self._appending.give_up()

    async def changed(self) -> None:
        """Wait for the next entry that changes what is private; look at `state` before, without waiting in between."""
        await self._changed.wait()

    def now_ms(self) -> int:
        """The store's clock, as far as we know it: Unix milliseconds."""
        return int(time.time() * 1000) + self._clock_ahead_ms

    def offer(self, item: Item) -> None:
        """Put a delta of the open answer, a progress report or a tool's event into one of the next appends."""
        last = self._buffer[-1] if self._buffer else None
        if isinstance(item, Relayed) and self._buffer_bytes >= BUFFER_MAX_BYTES:
            return  # pictures of a browser: the next one will do
        if isinstance(item, AppendContent) and isinstance(last, AppendContent) and len(last.text) < PACE_BYTES:
            self._buffer[-1] = AppendContent(last.text + item.text)
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
            _wake(self._full)

    async def offer_and_wait(self, op: DeltaOp) -> None:
        """`offer`, but waits first while the buffer is full: the model's stream is then not read."""
        while self._buffer_bytes >= BUFFER_MAX_BYTES and not self._is_over:
            self._room = anyio.Event()
            await self._room.wait()
        self.offer(op)

    async def flush_forever(self) -> None:
        """Append what was offered, at the writer's pace, until cancelled or fenced."""
        while True:
            await self._dirty.wait()
            due_at = self._pace.due_at(self._last_append_at)
            if self._buffer_bytes < PACE_BYTES and not self._pace.is_near(due_at):
                await self._gather(due_at)
            await self.commit(_nothing)

    async def _gather(self, due_at: float) -> None:
        """Wait until then, or until enough was offered."""
        self._full = full = asyncio.get_running_loop().create_future()
        self._pace.wake_at(due_at, full)
        try:
            await full
        finally:
            self._full = None

    def _drain_into(self, ledger: Ledger) -> None:
        """Say what was offered, in order, text joined, in events of at most 128 operations and 64 KiB of text."""
        self._dirty.clear()
        items, self._buffer, self._buffer_bytes = self._buffer, deque(), 0
        self._room.set()
        draft = ledger.state.draft
        ops: list[DeltaOp] = []
        text_bytes = 0
        for item in (piece for offered in items for piece in _pieces(offered)):
            if isinstance(item, ToolStatus):
                if any(call.tool_call_id == item.tool_call_id for call in ledger.state.runtime.tools):
                    ledger.say(item)
                continue
            if isinstance(item, Emitted):
                ledger.say(item)
                continue
            size = _text_bytes(item)
            if ops and (len(ops) >= OPS_MAX_COUNT or text_bytes + size > OPS_MAX_TEXT_BYTES):
                _say_delta(ledger, ops)
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
            _say_delta(ledger, ops)

    async def _append(self, ledger: Ledger, consumed: tuple[InboxEntry, ...]) -> None:
        if self._is_over:
            raise Fenced
        before = self.state
        request, entry_id, after = self._request(ledger, consumed)
        loop = asyncio.get_running_loop()  # its clock is the pace's
        started_at = loop.time()
        try:
            answer = await self._appending.until_answered(request)
        except Fenced:
            self._is_over = True
            self._pace.end(self)
            self._room.set()
            self._metrics.fenced.inc()
            raise
        self._last_append_at = started_at
        self._metrics.append_seconds.observe(loop.time() - started_at)
        self._metrics.appends.inc()
        if answer is Appended.DUP:
            _log.info("append.repeated", chat_id=before.chat_id, head=request.head)
        self.state, self._entry_id = after, entry_id
        if after.draft is None and before.draft is not None:
            self._pace.end(self)
        elif after.draft is not None and before.draft is None:
            self._pace.begin(self)
            self._last_append_at = -math.inf  # the first piece of an answer waits for nothing
        if after.private is not before.private:
            self._changed.set()  # for those who wait now
            self._changed.clear()
        self.upkeep.add(entry_id, len(ledger.events), len(request.events) + len(request.facts))
        if request.checkpoint is not None:
            self.upkeep.move_checkpoint(entry_id, len(request.checkpoint), request.trim)
        self._meta = request.meta or self._meta
        for event in ledger.events:
            if isinstance(event, RuntimeUpdated) and event.outcome is not None:
                self._tell_finished(before, event, ledger.now_ms)

    def _tell_finished(self, before: ChatState, end: RuntimeUpdated, now_ms: int) -> None:
        """The run's one full line, and the end of its trace."""
        run = before.private.run
        if run is None or run.run_id != end.run_id:
            run = None  # it began in this very entry, and did nothing
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
            prompt_tokens=spent.prompt_tokens if spent is not None else None,
            completion_tokens=spent.completion_tokens if spent is not None else None,
            cost=getattr(spent, "cost", None),
            duration_ms=now_ms - run.started_at_ms if run is not None else 0,
        )

    def _request(self, ledger: Ledger, consumed: tuple[InboxEntry, ...]) -> tuple[AppendRequest, EntryId, ChatState]:
        """The append, frozen: a repeat sends the very same bytes (DISPATCH trap 16)."""
        before = self.state
        events = encode(ledger.events)
        facts = encode(ledger.facts) if ledger.facts else b""
        acks = encode(ledger.acks) if ledger.acks else b""
        entry_id = EntryId(self._entry_id.epoch, self._entry_id.n + 1)
        head = str(Head(entry_id, self._digest(before.head, events, facts), before.position + len(ledger.events)))
        after = ledger.as_committed(head, entry_id.epoch)
        is_importing = after.private.importing is not None
        is_due = self.upkeep.is_due(len(events) + len(facts), at_rest=after.is_at_rest, is_importing=is_importing)
        checkpoint = encode_state(after) if is_due else None
        # A chat whose import has not come to its end is in no list, and goes after a day if that never comes.
        meta = () if after.private.importing else _meta_of(after)
        lifetime: Literal["", "expire", "persist"] = ""
        if not after.nodes or after.private.importing:
            lifetime = "expire"
        elif not before.nodes or before.private.importing:
            lifetime = "persist"
        request = AppendRequest(
            chat_id=before.chat_id,
            expected=before.head,
            head=head,
            version=FORMAT_VERSION,
            events=events,
            facts=facts,
            acks=acks,
            consumed=tuple((entry.inbox_id, entry.request_id) for entry in consumed),
            checkpoint=checkpoint,
            checkpoint_version=after.version,
            trim=self.upkeep.trim_before() if is_due else None,
            meta=meta if meta != self._meta else (),
            lifetime=lifetime,
            owner=self.owner,
            parent=_parent_of(after),
            blobs=blob_hashes(events, facts),
        )
        return request, entry_id, after

    def _digest(self, before: str, events: bytes, facts: bytes) -> str:
        """8 bytes over the previous head, the payload and the worker: a chain (DISPATCH §3)."""
        chain = hashlib.blake2b(before.encode(), digest_size=8)
        for piece in (events, facts, self._worker.encode()):
            chain.update(b"\0")
            chain.update(piece)
        return chain.hexdigest()


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def _text_bytes(op: DeltaOp) -> int:
    return len(op.text.encode()) if isinstance(op, AppendContent | AppendReasoning) else 0


def _weight(item: Item) -> int:
    """About how many bytes it adds to an append."""
    if isinstance(item, SetToolCalls):
        return OTHER_BYTES + sum(len(call.function.arguments) for call in item.tool_calls)
    if isinstance(item, Relayed):
        return len(encode(item))
    return len(item.text.encode()) if isinstance(item, AppendContent | AppendReasoning) else OTHER_BYTES


def _pieces(item: Item) -> Iterable[Item]:
    """`item`, cut where one event could not hold its text."""
    if not isinstance(item, AppendContent | AppendReasoning) or _text_bytes(item) <= OPS_MAX_TEXT_BYTES:
        return (item,)
    step = OPS_MAX_TEXT_BYTES // 4  # characters, of at most four bytes each
    return [type(item)(item.text[start : start + step]) for start in range(0, len(item.text), step)]


def _say_delta(ledger: Ledger, ops: list[DeltaOp]) -> None:
    draft = ledger.state.draft
    if draft is not None:
        ledger.say(StreamDelta(draft.message.message_id, ops))


def _meta_of(state: ChatState) -> tuple[tuple[str, str], ...]:
    """What lists and refusals need to know without reading the log."""
    return (
        ("state", state.runtime.state),
        ("title", state.thread.title),
        ("model", state.thread.model),
        ("mode", state.thread.mode),
        ("message_count", str(len(state.path))),
        ("queue", str(state.runtime.queue_size)),
        *((("parent", parent),) if (parent := _parent_of(state)) else ()),
    )


def _parent_of(state: ChatState) -> str:
    """By what the server knows; a thread's `parent_id` is whatever its client says."""
    parent = state.private.relations.parent
    return parent.chat_id if parent is not None else ""


def _nothing(_: Ledger) -> None:
    return None
