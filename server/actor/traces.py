"""Traces on their way to the store: a bounded queue that nobody waits for, and one task that empties it.

The loop and the writer offer records; this masks secrets in them, cuts and compresses them in a thread, and lays those
of a chat down together. What a record says is `server/agent/tracing.py`'s business, where it lies the store's. The one
rule: a run never waits for its trace and never fails by it; what cannot be kept is dropped and counted.
"""

import secrets
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec
import structlog
import zstandard
from msgspec.structs import replace

from protocol.codec import encode
from protocol.errors import Failed
from protocol.messages import JsonObject
from server.agent.tracing import RoundRecord, Trace
from server.foreign import pass_on
from server.redaction import Redactor
from server.store.port import Store, TraceRecord
from server.telemetry import Metrics

__all__ = ["RECORD_MAX_BYTES", "Traces", "compose", "decompose"]

_log = structlog.get_logger()
_T = TypeVar("_T")

QUEUE_MAX_COUNT = 1_000
"""Records that wait for the store: some seconds of a busy worker. They share their messages with the chats' states."""

PUT_MAX_COUNT = 32
"""Records in one call to the store: 2 MB at most, 1 to 2 ms of its time."""

PUT_SECONDS = 5.0
"""How long a put may take, the store's own patience included; then its records are dropped."""

CLOSE_SECONDS = 1.0
"""What a stopping worker gives the records that still wait."""

RECORD_MAX_BYTES = 64 * 1_024
"""Compressed: about 250 kB of JSON, a request that fills a window of 60,000 tokens. Larger ones lose their middles."""

TEXT_MAX_BYTES = 8 * 1_024 * 1_024
"""Of a record's JSON, read back: what decompressing one may cost. Redundant text compresses a hundredfold."""

_CUTS = ((16_000, 200), (2_000, 60), (400, 20), (60, 5))
"""Tried one after the other until a record fits: characters of a text, elements of a list."""

LEVEL = 3
"""As checkpoints are compressed; the measurements stand in `server/store/checkpoint.py`."""


class Traces:
    """One worker's traces. `run` empties the queue until it is cancelled; `aclose` once nobody offers any more."""

    def __init__(self, store: Store, metrics: Metrics, redactor: Redactor, *, ttl_seconds: int) -> None:
        self._store = store
        self._metrics = metrics
        self._redactor = redactor
        self._ttl_seconds = ttl_seconds
        self._queue: deque[tuple[str, str, Trace]] = deque()
        self._has_some = anyio.Event()

    def offer(self, chat_id: str, owner: str, record: Trace) -> None:
        """Keep `record` if there is room; never waits, never raises."""
        if len(self._queue) >= QUEUE_MAX_COUNT:
            self._drop("full", 1)
            return
        self._queue.append((chat_id, owner, record))
        self._has_some.set()

    async def run(self) -> None:
        while True:
            await self._has_some.wait()
            self._has_some = anyio.Event()
            await self._put_all()

    async def aclose(self) -> None:
        """Lay down what still waits, within a second."""
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
        except BaseException as wrong:  # the boundary of tracing: a mistake in it must not reach a run
            pass_on(wrong)
            self._drop("internal", len(records))
            _log.exception("trace.crashed", chat_id=chat_id)

    def _drop(self, why: str, count: int) -> None:
        self._metrics.traces_dropped.labels(why).inc(count)


def compose(records: Sequence[Trace], redactor: Redactor) -> list[TraceRecord]:
    """As they lie in the store: JSON with secrets masked, cut to size, compressed."""
    return [TraceRecord(each.run_id, secrets.token_hex(8), _fitted(redactor.text(_json(each)))) for each in records]


def decompose(data: bytes) -> JsonObject:
    """What `compose` made of a record.

    Raises:
        ValueError: this is no record.
    """
    try:
        if zstandard.frame_content_size(data) > TEXT_MAX_BYTES:  # the frame's own word goes before `max_output_size`
            raise ValueError(f"a stored trace is larger than {TEXT_MAX_BYTES} bytes")
        found: JsonObject = msgspec.json.decode(
            zstandard.ZstdDecompressor().decompress(data, max_output_size=TEXT_MAX_BYTES), type=JsonObject
        )
        return found
    except (zstandard.ZstdError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise ValueError(f"a stored trace cannot be read: {wrong}") from None


def _json(record: Trace) -> str:
    return encode(_bounded(record)).decode()


def _bounded(record: Trace) -> Trace:
    """Return `record` without its middle messages if they are too large to be encoded: encoding a request of 1 GiB
    would block the process for a minute. `_fitted` would leave out as many."""
    list_max = _CUTS[0][1]
    if not isinstance(record, RoundRecord) or len(record.messages) <= list_max:
        return record
    sizes = (len(each.content) for each in record.messages if isinstance(each.content, str))
    if sum(sizes) <= TEXT_MAX_BYTES:
        return record
    return replace(record, messages=_ends_of(record.messages, list_max), cut=["messages"])


def _ends_of(items: list[_T], count: int) -> list[_T]:
    """Return `count` of the items, more from the end than from the beginning."""
    first = count // 4
    return [*items[:first], *items[len(items) - (count - first) :]]


def _compressed(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return zstandard.ZstdCompressor(level=LEVEL).compress(data)


def _fitted(text: str) -> bytes:
    data = _compressed(text)
    if len(data) <= RECORD_MAX_BYTES and len(text) <= TEXT_MAX_BYTES // 4:
        return data
    whole: JsonObject = msgspec.json.decode(text)
    for text_max, list_max in _CUTS:
        cut: list[str] = list(whole.get("cut", []))
        smaller = {key: _cut(value, text_max, list_max, key, cut) for key, value in whole.items()}
        data = _compressed(encode({**smaller, "cut": sorted(set(cut))}))
        if len(data) <= RECORD_MAX_BYTES:
            return data
    few = {key: value for key, value in whole.items() if isinstance(value, int | None) or key in ("kind", "run_id")}
    return _compressed(encode({**few, "cut": ["all"]}))


def _cut(value: object, text_max: int, list_max: int, where: str, cut: list[str]) -> object:
    """`value` with the middles of long texts and lists left out; `cut` learns where. Lists keep more of their end."""
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
