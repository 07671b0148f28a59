"""Recorded logs as the streams that a client would be given: what the reducer in TypeScript is held against.

Each stream is the events of one chat with their positions, and the snapshot that the reducer in Python has after each.
A branch switch is a snapshot on the wire (PROTOCOL §5), so it is one here.
"""

import json
from pathlib import Path

import msgspec

from protocol.codec import decode_events, encode
from protocol.events import BranchSelected
from protocol.messages import JsonObject
from protocol.reducer import reduce
from protocol.snapshot import snapshot_of
from protocol.state import ChatState, empty_state
from tests.releases.recording import DIRECTORY, Recording, read

__all__ = ["recorded_streams"]


def recorded_streams() -> list[JsonObject]:
    """`{chat_id, items}` of each recording; an item is `{position, event?, snapshot}`, where the snapshot is what the
    state is after the item."""
    return [_stream(read(path)) for path in sorted(Path(DIRECTORY).glob("*/*.json"))]


def _stream(recording: Recording) -> JsonObject:
    state = empty_state(recording.chat_id)
    items: list[JsonObject] = [{"position": 0, "snapshot": _snapshot(state)}]
    for entry in recording.raw_entries():
        for event in decode_events(entry.events):
            state = reduce(state, state.position + 1, event)
            item: JsonObject = {"position": state.position, "snapshot": _snapshot(state)}
            if not isinstance(event, BranchSelected):
                item["event"] = json.loads(msgspec.json.encode(event))
            items.append(item)
    return {"chat_id": recording.chat_id, "items": items}


def _snapshot(state: ChatState) -> JsonObject:
    found: JsonObject = json.loads(encode(snapshot_of(state)))
    return found
