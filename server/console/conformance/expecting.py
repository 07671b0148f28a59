"""Matches what comes on a stream with the lists of a transcript, in order, waiting for what is to come.

`Cursor` matches the events of one chat (`expect`); `BlockCursor` matches blocks of any stream as they stand on the wire
(`frames`).

In `expect`, what the wire lets stand anywhere is passed over unless it is asked for: `thread_updated`, a `tool_status`
on the way, a `runtime_updated` that leaves the state as it was. A run of `stream_delta` is one thing: its texts joined,
since where a server cuts them is its own business.
"""

import contextlib
import json

from protocol.events import FINAL_TOOL_STATUSES
from protocol.messages import JsonObject
from server.console.conformance.framing import Block
from server.console.conformance.patterns import Names, mismatch, shown
from server.console.conformance.stream import Stream
from server.console.conformance.wire import ORDERLY_END, Wire

__all__ = ["BlockCursor", "Cursor", "Failed", "Hung"]

GAP = "..."
"""In a list: anything may stand here."""

END = "end"
"""In `frames`: the stream ends here."""

ANY_ORDER = "$in_any_order"
LAST_SHOWN_COUNT = 6


class Failed(Exception):
    """The server did something else; the sentence says what."""


class Hung(Failed):
    """The server did nothing within the time that a transcript waits."""


class Cursor:
    """The position of a transcript in the events of one chat on one stream. `begins_at`: 1 passes over the first
    snapshot."""

    def __init__(self, wire: Wire, stream: Stream, names: Names, wait_seconds: float, begins_at: int = 1) -> None:
        self.stream = stream
        self._wire = wire
        self._names = names
        self._wait_seconds = wait_seconds
        self._at = begins_at
        self._state = "idle"
        """The last `runtime_updated.state` that was passed."""
        self._deltas: tuple[JsonObject, JsonObject] | None = None
        """The pattern and the run of deltas that satisfied it last; more of the run may come."""

    async def expect(self, items: list[object]) -> None:
        """All of these events, in this order. Raises Failed."""
        may_skip = False
        for number, item in enumerate(items, 1):
            where = f"event {number}: "
            if item == GAP:
                may_skip = True
                continue
            if isinstance(item, dict) and ANY_ORDER in item:
                await self._in_any_order(item[ANY_ORDER], where, may_skip=may_skip)
            else:
                await self._one_of([item], where, may_skip=may_skip)
            may_skip = False

    async def _in_any_order(self, items: list[object], where: str, *, may_skip: bool) -> None:
        left = list(items)
        while left:
            left.remove(await self._one_of(left, where, may_skip=may_skip))

    async def _one_of(self, patterns: list[object], where: str, *, may_skip: bool) -> object:
        """Go on to the next event that is one of these; returns which."""
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
                raise Failed(f"{where}expected {shown(patterns[0])}, came {shown(frame)}{nearest and f': {wrong}'}")
            self._pass(frame)

    async def _next(self, wanted: str) -> JsonObject:
        stream = self.stream
        if not await self._wire.until(lambda: len(stream.frames) > self._at, self._wait_seconds):
            why = self._wire.ended or f"nothing more came in {self._wait_seconds:g} s"
            last = ", ".join(str(frame.get("type")) for frame in stream.frames[-LAST_SHOWN_COUNT:])
            raise (Failed if self._wire.ended else Hung)(f"{wanted}; {why}. The last events: {last}")
        return stream.frames[self._at]

    async def _try(self, pattern: object, frame: JsonObject) -> str | None:
        names = dict(self._names)
        if isinstance(pattern, dict) and pattern.get("type") == "stream_delta" == frame.get("type"):
            return await self._try_deltas(pattern, frame)
        if (wrong := mismatch(pattern, frame, names)) is None:
            self._names.update(names)
            self._pass(frame)
        return wrong

    async def _try_deltas(self, pattern: JsonObject, frame: JsonObject) -> str | None:
        """Take deltas of one message until they satisfy the pattern; none if they never do."""
        begun_at = self._at
        run = _run_of(frame)
        while True:
            self._at += 1
            names = dict(self._names)
            wrong = mismatch(pattern, run, names)
            if wrong is None:
                self._names.update(names)
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
        """More of the deltas that the last pattern took, as long as they are still what it means."""
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
            case "thread_updated":
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
    """A run of deltas and the next one: `content`, `reasoning` joined; `tool_calls` the latest."""
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
    """The position of a transcript in the blocks of a stream."""

    def __init__(self, wire: Wire, names: Names, wait_seconds: float) -> None:
        self._wire = wire
        self._names = names
        self._wait_seconds = wait_seconds
        self._at = 0

    async def expect(self, items: list[object]) -> None:
        """Expect all of these blocks, in this order. Raises Failed."""
        may_skip = False
        for number, item in enumerate(items, 1):
            where = f"frame {number}: "
            if item == GAP:
                may_skip = True
                continue
            if item == END:
                await self._end(where, may_skip=may_skip)
            elif isinstance(item, dict) and "many" in item:
                await self._many(item, where, may_skip=may_skip)
            else:
                await self._one(item, where, may_skip=may_skip)
            may_skip = False

    async def _one(self, pattern: object, where: str, *, may_skip: bool) -> Block:
        """Go on to the next block that matches, and pass it."""
        nearest = ""
        while True:
            block = await self._next(f"{where}waited for {shown(pattern)}{nearest}")
            self._at += 1
            names = dict(self._names)
            if (wrong := mismatch(pattern, _seen(pattern, block), names)) is None:
                self._names.update(names)
                return block
            if not may_skip:
                raise Failed(f"{where}expected {shown(pattern)}, came {shown(block._asdict())}: {wrong}")
            if not nearest or "/type should" not in wrong:
                nearest = f"; the nearest was {shown(block._asdict())}: {wrong}"

    async def _many(self, item: JsonObject, where: str, *, may_skip: bool) -> None:
        """Expect blocks in a row that match `many`; the texts at the pointer `join`, joined, match `to`."""
        pattern, pointer = item["many"], str(item["join"])
        texts = [_text_at(_seen(pattern, await self._one(pattern, where, may_skip=may_skip)), pointer)]
        while await self._wire.until(lambda: len(self._wire.blocks) > self._at, self._wait_seconds):
            block = self._wire.blocks[self._at]
            if mismatch(pattern, _seen(pattern, block), dict(self._names)) is not None:
                break
            texts.append(_text_at(_seen(pattern, block), pointer))
            self._at += 1
        if (wrong := mismatch(item["to"], "".join(texts), self._names)) is not None:
            raise Failed(f"{where}the texts of {len(texts)} frames, joined: {wrong}")

    async def _end(self, where: str, *, may_skip: bool) -> None:
        wire = self._wire
        before = len(wire.blocks) if may_skip else self._at
        await wire.until(lambda: wire.ended or (not may_skip and len(wire.blocks) > before), self._wait_seconds)
        if not may_skip and len(wire.blocks) > before:
            raise Failed(f"{where}the stream should end, came {shown(wire.blocks[before]._asdict())}")
        if wire.ended is None:
            raise Hung(f"{where}the stream did not end within {self._wait_seconds:g} s")
        if wire.ended != ORDERLY_END:
            raise Failed(f"{where}the stream should end in good order, but {wire.ended}")
        if wire.has_said_goodbye:
            raise Failed(f"{where}the stream ended with a `retry`, though there is nothing to come back for")

    async def _next(self, wanted: str) -> Block:
        wire = self._wire
        if not await wire.until(lambda: len(wire.blocks) > self._at, self._wait_seconds):
            why = wire.ended or f"nothing more came in {self._wait_seconds:g} s"
            raise (Failed if wire.ended else Hung)(f"{wanted}; {why}")
        return wire.blocks[self._at]


def _seen(pattern: object, block: Block) -> JsonObject:
    """Return a block in the form that patterns match: `data` is JSON where the pattern is an object, else text."""
    data: object = block.data
    wanted = pattern.get("data") if isinstance(pattern, dict) else None
    if isinstance(wanted, dict) and not any(key.startswith("$") for key in wanted):
        with contextlib.suppress(ValueError):
            data = json.loads(block.data)
    return {"data": data, "id": block.id, "event": block.event}


def _text_at(value: object, pointer: str) -> str:
    for key in pointer.split("/")[1:]:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
    return value if isinstance(value, str) else ""
