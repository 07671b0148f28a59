"""Matches the events of a stream with the lists of a transcript, in order, and waits for events that have not arrived.

`Cursor` matches the events of one chat (`expect`); `BlockCursor` matches blocks of any stream as they are on the wire
(`frames`).

Some events may occur anywhere on the wire: `thread_updated`, `agent_step`, a `tool_status` between beginning and end,
and a `runtime_updated` that does not change the state. `expect` skips these unless the list names them. Consecutive
`stream_delta` events count as one event with the joined text, because a server may cut a text anywhere.
"""

import contextlib
import json
from collections.abc import Sequence
from typing import Protocol, TypeVar

from threadcast.console.conformance.framing import Block
from threadcast.console.conformance.patterns import Names, mismatch, shown, value_at
from threadcast.console.conformance.stream import Stream
from threadcast.console.conformance.wire import ORDERLY_END, Wire
from threadcast_protocol.wire.events import FINAL_TOOL_STATUSES
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["BlockCursor", "Cursor", "Failed", "Hung"]

GAP = "..."
"""An item of a list that matches any number of events."""

END = "end"
"""An item of `frames` that matches the end of the stream."""

ANY_ORDER = "$in_any_order"
LAST_SHOWN_COUNT = 6


class Failed(Exception):
    """The server did not do what the transcript expects. The message describes the difference."""


class Hung(Failed):
    """The server did nothing within the time that a transcript waits."""


_Item = TypeVar("_Item")


class _Expects(Protocol):
    async def __call__(self, item: object, where: str, *, may_skip: bool) -> None: ...


async def _expect_all(items: list[object], kind: str, expect: _Expects) -> None:
    """Call `expect` for each item of a list, in order. After a `GAP`, `may_skip` is true."""
    may_skip = False
    for number, item in enumerate(items, 1):
        if item != GAP:
            await expect(item, f"{kind} {number}: ", may_skip=may_skip)
        may_skip = item == GAP


async def _item_at(wire: Wire, items: Sequence[_Item], at: int, seconds: float, wanted: str, last: str = "") -> _Item:
    """Wait for the item at an index of a growing list. `wanted` and `last` begin and end the error message.

    Raises:
        Failed: the stream has ended.
        Hung: the item does not arrive within `seconds`.
    """
    if not await wire.until(lambda: len(items) > at, seconds):
        why = wire.ended or f"nothing more came in {seconds:g} s"
        raise (Failed if wire.ended else Hung)(f"{wanted}; {why}{last}")
    return items[at]


class Cursor:
    """The next event of one chat on one stream that a transcript expects.

    `begins_at`: the index of the first event to match; 1 skips the first snapshot.
    """

    def __init__(self, wire: Wire, stream: Stream, names: Names, wait_seconds: float, begins_at: int = 1) -> None:
        self.stream = stream
        self._wire = wire
        self._names = names
        self._wait_seconds = wait_seconds
        self._at = begins_at
        self._state = "idle"
        """The `state` of the last `runtime_updated` that was passed."""
        self._deltas: tuple[JsonObject, JsonObject] | None = None
        """The last pattern that matched deltas, and the joined deltas. Further deltas that match the same pattern may
        follow."""

    async def expect(self, items: list[object]) -> None:
        """Match all of these events, in this order. Raises Failed."""
        await _expect_all(items, "event", self._expect)

    async def _expect(self, item: object, where: str, *, may_skip: bool) -> None:
        left = list(item[ANY_ORDER]) if isinstance(item, dict) and ANY_ORDER in item else [item]
        while left:
            left.remove(await self._one_of(left, where, may_skip=may_skip))

    async def _one_of(self, patterns: list[object], where: str, *, may_skip: bool) -> object:
        """Advance to the next event that matches one of the patterns, and return that pattern."""
        nearest = ""
        while True:
            frame = await self._next(f"{where}waited for {shown(patterns[0])}{nearest}")
            if self._belongs_to_last_run(frame):
                continue
            for pattern in patterns:
                wrong = await self._try(pattern, frame)
                if wrong is None:
                    return pattern
                if isinstance(pattern, dict) and pattern.get("type") == frame.get("type"):
                    nearest = f"; the nearest was {shown(frame)}: {wrong}"
            if not may_skip and not self._may_stand_anywhere(frame):
                raise Failed(f"{where}expected {shown(patterns[0])}, received {shown(frame)}{nearest and f': {wrong}'}")
            self._pass(frame)

    async def _next(self, wanted: str) -> JsonObject:
        frames = self.stream.frames
        last = ", ".join(str(frame.get("type")) for frame in frames[-LAST_SHOWN_COUNT:])
        return await _item_at(self._wire, frames, self._at, self._wait_seconds, wanted, f". The last events: {last}")

    async def _try(self, pattern: object, frame: JsonObject) -> str | None:
        """Match one event and pass it. Returns the reason if it does not match, else None."""
        if isinstance(pattern, dict) and pattern.get("type") == "stream_delta" == frame.get("type"):
            return await self._try_deltas(pattern, frame)
        if (wrong := mismatch(pattern, frame, self._names)) is None:
            self._pass(frame)
        return wrong

    async def _try_deltas(self, pattern: JsonObject, frame: JsonObject) -> str | None:
        """Consume the deltas of one message until their joined text matches the pattern. If the joined text never
        matches, consume no delta."""
        begun_at = self._at
        run = _run_of(frame)
        while True:
            self._at += 1
            if (wrong := mismatch(pattern, run, self._names)) is None:
                self._deltas = (pattern, run)
                return None
            following = await self._next(f"waited for {shown(pattern)}: {wrong}")
            while self._may_stand_anywhere(following):
                self._pass(following)
                following = await self._next(f"waited for {shown(pattern)}: {wrong}")
            if following.get("type") != "stream_delta" or following.get("message_id") != run["message_id"]:
                self._at = begun_at
                return wrong
            run = _joined(run, following)

    def _belongs_to_last_run(self, frame: JsonObject) -> bool:
        """Pass a delta that continues the deltas of the last pattern, if the joined text still matches it."""
        if self._deltas is None or frame.get("type") != "stream_delta":
            return False
        pattern, run = self._deltas
        longer = _joined(run, frame)
        if frame.get("message_id") != run["message_id"] or mismatch(pattern, longer, dict(self._names)) is not None:
            return False
        self._deltas = (pattern, longer)
        self._at += 1
        return True

    def _may_stand_anywhere(self, frame: JsonObject) -> bool:
        match frame.get("type"):
            case "thread_updated" | "agent_step":
                return True
            case "tool_status":
                return frame.get("status") != "running" and frame.get("status") not in FINAL_TOOL_STATUSES
            case "runtime_updated":
                return frame.get("state") == self._state and frame.get("outcome") is None
            case _:
                return False

    def _pass(self, frame: JsonObject) -> None:
        self._at += 1
        if frame.get("type") == "runtime_updated":
            self._state = str(frame.get("state"))
        if frame.get("type") not in ("stream_delta", "thread_updated"):
            self._deltas = None


def _run_of(frame: JsonObject) -> JsonObject:
    empty = {"type": "stream_delta", "message_id": frame.get("message_id"), "content": "", "reasoning": ""}
    return _joined(empty, frame)


def _joined(run: JsonObject, frame: JsonObject) -> JsonObject:
    """Return a run of deltas with the next delta added: `content` and `reasoning` are joined, and `tool_calls` are
    replaced."""
    longer = dict(run)
    for op in frame.get("ops", ()):
        match op:
            case {"op": "append_content", "text": str() as text}:
                longer["content"] += text
            case {"op": "append_reasoning", "text": str() as text}:
                longer["reasoning"] += text
            case {"op": "set_reasoning", "text": str() as text}:
                longer["reasoning"] = text
            case {"op": "set_tool_calls", "tool_calls": list() as calls}:
                longer["tool_calls"] = calls
    return longer


class BlockCursor:
    """The next block of a stream that a transcript expects."""

    def __init__(self, wire: Wire, names: Names, wait_seconds: float) -> None:
        self._wire = wire
        self._names = names
        self._wait_seconds = wait_seconds
        self._at = 0

    async def expect(self, items: list[object]) -> None:
        """Match all of these blocks, in this order. Raises Failed."""
        await _expect_all(items, "frame", self._expect)

    async def _expect(self, item: object, where: str, *, may_skip: bool) -> None:
        if item == END:
            await self._end(where, may_skip=may_skip)
        elif isinstance(item, dict) and "many" in item:
            await self._many(item, where, may_skip=may_skip)
        else:
            await self._one(item, where, may_skip=may_skip)

    async def _one(self, pattern: object, where: str, *, may_skip: bool) -> Block:
        """Advance to the next block that matches, and pass it."""
        wire, nearest = self._wire, ""
        while True:
            wanted = f"{where}waited for {shown(pattern)}{nearest}"
            block = await _item_at(wire, wire.blocks, self._at, self._wait_seconds, wanted)
            self._at += 1
            if (wrong := mismatch(pattern, _seen(pattern, block), self._names)) is None:
                return block
            if not may_skip:
                raise Failed(f"{where}expected {shown(pattern)}, received {shown(block._asdict())}: {wrong}")
            if not nearest or "/type should" not in wrong:
                nearest = f"; the nearest was {shown(block._asdict())}: {wrong}"

    async def _many(self, item: JsonObject, where: str, *, may_skip: bool) -> None:
        """Match each of several consecutive blocks with the pattern `many`; join their texts at the path `join`, and
        match the joined text with `to`."""
        pattern, pointer = item["many"], str(item["join"])
        blocks = [await self._one(pattern, where, may_skip=may_skip)]
        while await self._wire.until(lambda: len(self._wire.blocks) > self._at, self._wait_seconds):
            block = self._wire.blocks[self._at]
            if mismatch(pattern, _seen(pattern, block), dict(self._names)) is not None:
                break
            blocks.append(block)
            self._at += 1
        texts = [value_at(_seen(pattern, block), pointer) for block in blocks]
        joined = "".join(text for text in texts if isinstance(text, str))
        if (wrong := mismatch(item["to"], joined, self._names)) is not None:
            raise Failed(f"{where}the joined texts of {len(texts)} frames: {wrong}")

    async def _end(self, where: str, *, may_skip: bool) -> None:
        wire = self._wire
        before = len(wire.blocks) if may_skip else self._at
        await wire.until(lambda: wire.ended or (not may_skip and len(wire.blocks) > before), self._wait_seconds)
        if not may_skip and len(wire.blocks) > before:
            raise Failed(f"{where}the stream should end, received {shown(wire.blocks[before]._asdict())}")
        if wire.ended is None:
            raise Hung(f"{where}the stream did not end within {self._wait_seconds:g} s")
        if wire.ended != ORDERLY_END:
            raise Failed(f"{where}the stream should end without an error, but {wire.ended}")
        if wire.has_said_goodbye:
            raise Failed(f"{where}the stream must not end with a `retry`, because it has no more events")


def _seen(pattern: object, block: Block) -> JsonObject:
    """Return a block in the form that patterns match: `data` is JSON if the pattern of `data` is an object, else
    text."""
    data: object = block.data
    wanted = pattern.get("data") if isinstance(pattern, dict) else None
    if isinstance(wanted, dict) and not any(key.startswith("$") for key in wanted):
        with contextlib.suppress(ValueError):
            data = json.loads(block.data)
    return {"data": data, "id": block.id, "event": block.event}
