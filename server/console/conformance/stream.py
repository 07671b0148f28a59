"""One chat on one event stream: its frames in order, the state that they fold to, and the law that they keep.

The folding is the protocol's own reducer, so a state here is what any client holds. `wire.py` splits a stream's bytes
into blocks and hands each chat its own.
"""

import json

import msgspec

from protocol.codec import decode_event, decode_snapshot, encode
from protocol.events import Event
from protocol.ids import Position
from protocol.messages import JsonObject
from protocol.reducer import reduce
from protocol.snapshot import snapshot_of, state_from_snapshot
from protocol.state import ChatState, empty_state
from server.console.conformance.law import Law

__all__ = ["Stream", "as_snapshot", "difference"]

_KNOWN = frozenset(str(each.__struct_config__.tag) for each in Event.__args__)


class Stream:
    """`take` its frames. `has_plain_ids`: the stream carries this chat alone and has no name, so ids are
    `<epoch>-<position>-<base>` (PROTOCOL §4). `is_resumed`: it may go on without a snapshot; it is folded from the
    first snapshot on, if one comes."""

    def __init__(self, chat_id: str, *, has_plain_ids: bool = True, is_resumed: bool = False) -> None:
        self.chat_id = chat_id
        self.frames: list[JsonObject] = []
        self.ids: list[str] = []
        self.state: ChatState = empty_state(chat_id)
        self.law = Law(chat_id, has_plain_ids=has_plain_ids, is_resumed=is_resumed)
        self._has_plain_ids = has_plain_ids
        self._has_snapshot = False

    def take(self, frame: JsonObject, event_id: str) -> None:
        """One event of this chat's log, or a snapshot."""
        self.frames.append(frame)
        self.ids.append(event_id)
        self.law.see(frame, event_id, self.state if self._fold(frame, event_id) else None)

    def state_after(self, index: int) -> ChatState:
        """Return the state of a client after the frame at that index: the fold since the last snapshot before it."""
        begin = max(i for i, frame in enumerate(self.frames[: index + 1]) if frame.get("type") == "snapshot")
        then = Stream(self.chat_id, has_plain_ids=self._has_plain_ids)
        for frame, event_id in zip(self.frames[begin : index + 1], self.ids[begin : index + 1], strict=True):
            then.take(frame, event_id)
        return then.state

    def _fold(self, frame: JsonObject, event_id: str) -> bool:
        kind = frame.get("type")
        raw = json.dumps({key: value for key, value in frame.items() if key not in ("chat_id", "seq")}).encode()
        position = self.state.position + 1
        try:
            if kind == "snapshot":
                place = Position.parse(event_id) if self._has_plain_ids else None
                base = place.position if place is not None else position
                self.state = state_from_snapshot(self.chat_id, decode_snapshot(raw), base)
                self._has_snapshot = True
            elif not self._has_snapshot:
                decode_event(raw)
                return False
            elif kind in _KNOWN:
                self.state = reduce(self.state, position, decode_event(raw))
            else:
                self.state = msgspec.structs.replace(self.state, position=position)
        except msgspec.DecodeError as wrong:
            self.law.broken.append(f"{kind} has another shape than PROTOCOL §5 says: {wrong}")
            self.state = msgspec.structs.replace(self.state, position=position)
            return False
        return True


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
