"""Writes traces to the store: a bounded queue, and one task that empties it.

The loop and the writer offer records, which `agent_loop/tracing.py` defines. The task masks secrets in them, cuts and
compresses them in a thread, and stores the records of a chat together. A run never waits for its trace, and a failed
trace never fails the run; records that cannot be stored are dropped and counted. When the chat is at rest, `rests.py`
has its records combined.
"""

import secrets
from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import TypeVar

import anyio
import anyio.to_thread
import structlog
from msgspec.structs import replace

from threadcast.agent_loop.tracing import EndTrace, OperationsTrace, RoundRecord, Trace, characters_of
from threadcast.base.boundary import pass_on
from threadcast.base.redaction import Redactor
from threadcast.base.telemetry import Metrics
from threadcast.store.ports import TraceRecord, TraceRecords
from threadcast.store.trace_records import RECORD_MAX_BYTES, RECORD_TEXT_MAX_BYTES, combined
from threadcast.store.trace_records import compose as stored_form
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.errors import Failed
from threadcast_protocol.wire.messages import JsonObject, Message

__all__ = ["Traces", "compose"]

_log = structlog.get_logger()
_T = TypeVar("_T")

QUEUE_MAX_COUNT = 1_000
"""The maximum number of records that may wait for the store; a busy worker produces this number in some seconds. The
records refer to the messages of the chats' states, so they need little additional memory."""

PUT_MAX_COUNT = 32
"""The maximum number of records in one call to the store: at most 2 MB, which take the store 1 to 2 ms."""

COMBINED_MAX_COUNT = 64
"""The number of newest records that are read when a chat is at rest, at most 4 MB."""

OPERATIONS_MAX_COUNT = 100
"""The maximum number of a durable agent's operations in one record."""

GATHER_SECONDS = 0.2
"""Seconds that records wait for further records of their run, with which they are stored in one call. The record of the
run's end is stored at once, with all that wait."""

PUT_SECONDS = 5.0
"""Maximum seconds of a call, including the store's own retries; after this time the records of the call are dropped."""

CLOSE_SECONDS = 1.0
"""Seconds that a stopping worker takes to store waiting records."""

_CUTS = ((16_000, 200), (2_000, 60), (400, 20), (60, 5))
"""Pairs of limits that are tried in turn until a record fits: the characters of a text, and the elements of a list."""


class Traces:
    """The traces of one worker. `run` stores them until it is cancelled, and `aclose` stores the rest."""

    def __init__(self, store: TraceRecords, metrics: Metrics, redactor: Redactor, *, ttl_seconds: int) -> None:
        self._store = store
        self._metrics = metrics
        self._redactor = redactor
        self._ttl_seconds = ttl_seconds
        self._queue: deque[tuple[str, str, Trace]] = deque()
        self._has_some = anyio.Event()
        self._is_urgent = anyio.Event()

    def offer(self, chat_id: str, owner: str, record: Trace) -> None:
        """Keep `record` if there is room; never waits, never raises."""
        if isinstance(record, OperationsTrace) and self._joins_last(chat_id, owner, record):
            return
        if len(self._queue) >= QUEUE_MAX_COUNT:
            self._drop("full", 1)
            return
        self._queue.append((chat_id, owner, record))
        self._has_some.set()
        if isinstance(record, EndTrace):
            self._is_urgent.set()

    def _joins_last(self, chat_id: str, owner: str, record: OperationsTrace) -> bool:
        """Add the operations to the last waiting record, if that record has operations of the same run and room for
        more."""
        last_chat_id, last_owner, last = self._queue[-1] if self._queue else ("", "", None)
        if (
            not isinstance(last, OperationsTrace)
            or (last_chat_id, last_owner, last.run_id) != (chat_id, owner, record.run_id)
            or last.operations_count + record.operations_count > OPERATIONS_MAX_COUNT
        ):
            return False
        last.operations += record.operations
        last.operations_count += record.operations_count
        return True

    async def run(self) -> None:
        while True:
            await self._has_some.wait()
            with anyio.move_on_after(GATHER_SECONDS):
                await self._is_urgent.wait()
            self._has_some, self._is_urgent = anyio.Event(), anyio.Event()
            await self._put_all()

    async def aclose(self) -> None:
        """Store the waiting records, within a second."""
        with anyio.move_on_after(CLOSE_SECONDS):
            await self._put_all()

    async def _put_all(self) -> None:
        while self._queue:
            chat_id, owner, first = self._queue.popleft()
            records = [first]
            while self._queue and self._queue[0][:2] == (chat_id, owner) and len(records) < PUT_MAX_COUNT:
                records.append(self._queue.popleft()[2])
            await self._put(chat_id, owner, records)

    async def _put(self, chat_id: str, owner: str, records: list[Trace]) -> None:
        try:
            with anyio.fail_after(PUT_SECONDS):
                ready = await anyio.to_thread.run_sync(compose, records, self._redactor, abandon_on_cancel=True)
                await self._store.put_traces(chat_id, owner, ready, self._ttl_seconds)
        except (Failed, TimeoutError) as trouble:
            self._drop("store", len(records))
            _log.warning("trace.not_kept", chat_id=chat_id, records=len(records), error=str(trouble))
        except BaseException as wrong:  # the boundary of tracing: a bug in it must not fail a run
            pass_on(wrong)
            self._drop("internal", len(records))
            _log.exception("trace.crashed", chat_id=chat_id)

    async def combine(self, chat_id: str, owner: str) -> None:
        """Combine the newest records of a chat at rest. Raises Failed."""
        found = await self._store.newest_traces(chat_id, owner, COMBINED_MAX_COUNT)
        fewer = await anyio.to_thread.run_sync(together, found)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(found, fewer, strict=False)))
        if same < len(found):
            replaces = [each.key for each in found[same:]]
            await self._store.put_traces(chat_id, owner, fewer[same:], self._ttl_seconds, replaces)

    def _drop(self, why: str, count: int) -> None:
        self._metrics.traces_dropped.labels(why).inc(count)


def compose(records: Sequence[Trace], redactor: Redactor) -> list[TraceRecord]:
    """Return the records as they are stored: JSON with masked secrets, cut to size and compressed; small records are
    stored together."""
    ready = [TraceRecord(each.run_id, secrets.token_hex(8), _fitted(redactor.text(_json(each)))) for each in records]
    return together(ready)


def together(records: Sequence[TraceRecord]) -> list[TraceRecord]:
    """Return the same records in fewer stored records. A stored record that is not combined is the same object."""
    rest = iter(records)
    return [_shared(list(islice(rest, count)), data) for count, data in combined([each.data for each in records])]


def _shared(parts: Sequence[TraceRecord], data: bytes) -> TraceRecord:
    if len(parts) == 1:
        return parts[0]
    run_ids = {each.run_id for each in parts}
    return TraceRecord(run_ids.pop() if len(run_ids) == 1 else "", secrets.token_hex(8), data)


def _json(record: Trace) -> str:
    return encode(_bounded(record)).decode()


def _bounded(record: Trace) -> Trace:
    """Return `record` without its middle messages if they are too large to be encoded: encoding a request of 1 GiB
    would block the process for a minute. `_fitted` would leave out the same messages."""
    list_max = _CUTS[0][1]
    if not isinstance(record, RoundRecord) or len(record.messages) <= list_max:
        return record
    sizes = (characters_of(each) for each in record.messages if isinstance(each, Message))
    if sum(sizes) <= RECORD_TEXT_MAX_BYTES:
        return record
    return replace(record, messages=_ends_of(record.messages, list_max), cut=["messages"])


def _ends_of(items: list[_T], count: int) -> list[_T]:
    """Return `count` of the items: a quarter from the beginning and the others from the end."""
    first = count // 4
    return [*items[:first], *items[len(items) - (count - first) :]]


def _fitted(text: str) -> bytes:
    data = stored_form(text.encode())
    if len(data) <= RECORD_MAX_BYTES and len(text) <= RECORD_TEXT_MAX_BYTES // 4:
        return data
    whole: JsonObject = decode_any(text)
    for text_max, list_max in _CUTS:
        cut: list[str] = list(whole.get("cut", []))
        smaller = {key: _cut(value, text_max, list_max, key, cut) for key, value in whole.items()}
        data = stored_form(encode({**smaller, "cut": sorted(set(cut))}))
        if len(data) <= RECORD_MAX_BYTES:
            return data
    few = {key: value for key, value in whole.items() if isinstance(value, int | None) or key in ("kind", "run_id")}
    return stored_form(encode({**few, "cut": ["all"]}))


def _cut(value: object, text_max: int, list_max: int, where: str, cut: list[str]) -> object:
    """Return `value` without the middles of long texts and lists, and append the names of shortened fields to `cut`.
    Lists keep more elements at their end than at their beginning."""
    if isinstance(value, str):
        if len(value) <= text_max:
            return value
        cut.append(where)
        half = text_max // 2
        return f"{value[:half]}… [{len(value) - 2 * half} characters cut] …{value[-half:]}"
    if isinstance(value, dict):
        return {key: _cut(inner, text_max, list_max, where, cut) for key, inner in value.items()}
    if isinstance(value, list):
        if len(value) > list_max:
            cut.append(where)
            value = _ends_of(value, list_max)
        return [_cut(inner, text_max, list_max, where, cut) for inner in value]
    return value
