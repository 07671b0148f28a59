"""One chat on one event stream: keeps its frames in order, folds them to the chat's state, and checks the rules for
them.

The frames are folded by the protocol's own reducer, so the state equals that of every client. `wire.py` splits the
bytes of a stream into blocks and passes each block to the stream of its chat.
"""

import json

import msgspec

from threadcast.console.conformance.law import Law
from threadcast_protocol.fold.reducer import reduce
from threadcast_protocol.fold.snapshot import snapshot_of, state_from_snapshot
from threadcast_protocol.fold.state import ChatState, empty_state
from threadcast_protocol.framing.codec import decode_event, decode_snapshot, encode
from threadcast_protocol.wire.events import Event
from threadcast_protocol.wire.ids import Position
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Stream", "as_snapshot", "difference"]

_KNOWN = frozenset(str(each.__struct_config__.tag) for each in Event.__args__)


class Stream:
    """The events of one chat on one stream. Call `take` for each frame.

    `has_plain_ids`: the stream carries only this chat and has no name, so ids have the form
    `<epoch>-<position>-<base>` (PROTOCOL §4). `is_resumed`: the stream need not begin with a snapshot; its frames are
    folded from the first snapshot on.
    """

    def __init__(self, chat_id: str, *, has_plain_ids: bool = True, is_resumed: bool = False) -> None:
        self.chat_id = chat_id
        self.frames: list[JsonObject] = []
        self.ids: list[str] = []
        self.state: ChatState = empty_state(chat_id)
        self.law = Law(chat_id, has_plain_ids=has_plain_ids, is_resumed=is_resumed)
        self._has_plain_ids = has_plain_ids
        self._has_snapshot = False

    def take(self, frame: JsonObject, event_id: str) -> None:
        """Take the next frame: an event of the chat's log, or a snapshot."""
        self.frames.append(frame)
        self.ids.append(event_id)
        self.law.see(frame, event_id, self.state if self._fold(frame, event_id) else None)

    def state_after(self, index: int) -> ChatState:
        """Return the state after the frame at an index: the fold of the frames since the snapshot before it."""
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
                stream_position = Position.parse(event_id) if self._has_plain_ids else None
                base = stream_position.position if stream_position is not None else position
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
            self.law.broken.append(f"{kind} has another shape than in PROTOCOL §5: {wrong}")
            self.state = msgspec.structs.replace(self.state, position=position)
            return False
        return True


def as_snapshot(state: ChatState) -> JsonObject:
    """Return a state as the JSON of a snapshot."""
    found: JsonObject = json.loads(encode(snapshot_of(state)))
    return found


def difference(mine: object, theirs: object, path: str = "") -> str | None:
    """Return the path of the first difference between two JSON values; None if they are equal."""
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
