"""One subscription of the runner: every frame as it came, the state they fold to, and what of the law was broken.

It folds with the one reducer (`protocol/reducer.py`) and counts positions itself, so ids stay opaque. Event types that
it does not know count and are skipped, as PROTOCOL §5 asks of clients. The player waits here for what it expects.
"""

import json
from collections.abc import Callable

import anyio
import httpx2
import msgspec

from protocol.codec import decode_event, decode_snapshot, encode
from protocol.errors import TooLarge
from protocol.events import Event
from protocol.messages import JsonObject
from protocol.reducer import reduce
from protocol.snapshot import snapshot_of, state_from_snapshot
from protocol.sse import EventFrame, FrameParser
from protocol.state import ChatState, empty_state
from server.console.conformance.law import Law

__all__ = ["Stream", "as_snapshot", "difference"]

_KNOWN = frozenset(str(each.__struct_config__.tag) for each in Event.__args__)


class Stream:
    """`feed` it bytes; or let `take` have frames that were parsed already."""

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.frames: list[JsonObject] = []
        self.ids: list[str] = []
        self.state: ChatState = empty_state(chat_id)
        self.law = Law(chat_id)
        self.ended: str | None = None
        """Why nothing more will come."""
        self._parser = FrameParser()
        self._changed = anyio.Event()

    def feed(self, chunk: bytes) -> None:
        for frame in self._parser.feed(chunk):
            if isinstance(frame, EventFrame):
                self.take(frame.data, frame.last_event_id)

    def take(self, data: str, event_id: str) -> None:
        try:
            frame = json.loads(data)
            assert isinstance(frame, dict)
        except (ValueError, AssertionError):
            self.law.broken.append(f"an event that is no JSON object: {data[:100]!r}")
            return
        if "seq" not in frame:
            return  # transient (PROTOCOL §4)
        self.frames.append(frame)
        fresh_id = event_id if event_id not in self.ids[-1:] else ""  # a parser repeats the last id it saw
        self.ids.append(event_id)
        self.law.see(frame, fresh_id, self.state if self._fold(frame) else None)
        self._notify()

    def _fold(self, frame: JsonObject) -> bool:
        kind = frame.get("type")
        raw = json.dumps({key: value for key, value in frame.items() if key not in ("chat_id", "seq")}).encode()
        position = self.state.position + 1
        try:
            if kind == "snapshot":
                self.state = state_from_snapshot(self.chat_id, decode_snapshot(raw), position)
            elif kind in _KNOWN:
                self.state = reduce(self.state, position, decode_event(raw))
            else:
                self.state = msgspec.structs.replace(self.state, position=position)
        except msgspec.DecodeError as wrong:
            self.law.broken.append(f"{kind} has another shape than PROTOCOL §5 says: {wrong}")
            self.state = msgspec.structs.replace(self.state, position=position)
            return False
        return True

    def end(self, why: str) -> None:
        self.ended = why
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def until(self, wanted: Callable[[], object], seconds: float) -> bool:
        """Wait until `wanted` holds; False when it does not within so many seconds, or the stream has ended."""
        with anyio.move_on_after(seconds):
            while not wanted():
                if self.ended is not None:
                    return False
                await self._changed.wait()
            return True
        return bool(wanted())

    async def read(self, response: httpx2.Response) -> None:
        """Feed it the bytes of a response until they end."""
        try:
            async for chunk in response.aiter_bytes():
                self.feed(chunk)
        except (httpx2.TransportError, TooLarge) as wrong:
            self.end(f"the stream broke: {wrong}")
        else:
            self.end("the server ended the stream")


def as_snapshot(state: ChatState) -> JsonObject:
    """What a client holds, as the JSON of a snapshot."""
    found: JsonObject = json.loads(encode(snapshot_of(state)))
    return found


def difference(mine: object, theirs: object, path: str = "") -> str | None:
    """Where two values of JSON differ first, as a path; None when they are equal."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for key in [*mine, *(key for key in theirs if key not in mine)]:
            if key not in mine or key not in theirs:
                return f"{path}/{key}"
            if (found := difference(mine[key], theirs[key], f"{path}/{key}")) is not None:
                return found
        return None
    if isinstance(mine, list) and isinstance(theirs, list):
        for index, (one, other) in enumerate(zip(mine, theirs, strict=False)):
            if (found := difference(one, other, f"{path}/{index}")) is not None:
                return found
        return None if len(mine) == len(theirs) else f"{path}/{min(len(mine), len(theirs))}"
    return None if mine == theirs else path or "/"
