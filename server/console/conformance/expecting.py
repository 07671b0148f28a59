"""Matches the events of one chat with the `expect` lists of its transcript, in order, waiting for what is to come.

What the wire lets stand anywhere is passed over unless it is asked for: `thread_updated`, a `tool_status` on the way,
a `runtime_updated` that leaves the state as it was. A run of `stream_delta` is one thing: its texts joined, since
where a server cuts them is its own business.
"""

from protocol.events import FINAL_TOOL_STATUSES
from protocol.messages import JsonObject
from server.console.conformance.patterns import Names, mismatch, shown
from server.console.conformance.stream import Stream

__all__ = ["Cursor", "Failed"]

GAP = "..."
"""In a list: anything may stand here."""

ANY_ORDER = "$in_any_order"
LAST_SHOWN_COUNT = 6


class Failed(Exception):
    """The server did something else; the sentence says what."""


class Cursor:
    """Where in a stream a transcript has come to. It begins after the first snapshot."""

    def __init__(self, stream: Stream, names: Names, wait_seconds: float) -> None:
        self.stream = stream
        self._names = names
        self._wait_seconds = wait_seconds
        self._at = 1
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
        if not await stream.until(lambda: len(stream.frames) > self._at, self._wait_seconds):
            why = stream.ended or f"nothing more came in {self._wait_seconds:g} s"
            last = ", ".join(str(frame.get("type")) for frame in stream.frames[-LAST_SHOWN_COUNT:])
            raise Failed(f"{wanted}; {why}. The last events: {last}")
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
