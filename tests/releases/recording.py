"""One recorded chat: the entries of its log as a release wrote them, and the states to which that release folded them.

A file is one JSON object, with one entry per line. Events and facts are kept as JSON, so that a review shows a change
of a recorded file. Comparisons ignore white space. `checkpoint` is the state half-way, or just after a takeover, as
that release would have stored it. `record.py` writes the files and `test_releases.py` reads them. Once a release is
published, its files may be extended but never rewritten.
"""

import json
from pathlib import Path

import msgspec

from threadcast.chat.entries import Fence, RawEntry
from threadcast.chat.entry_codec import encode_state
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.store.load import fold_checked
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.ids import EntryId
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["DIRECTORY", "Recording", "fold", "plain", "read", "recorded_from", "write"]

DIRECTORY = Path(__file__).parent


class _Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: tuple[int, int]
    head: str
    before: str
    position: int
    time_ms: int
    version: int
    fence: Fence | None = None
    events: list[JsonObject] = []
    facts: list[JsonObject] = []
    acks: list[object] = []


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """`state` and `snapshot` are the release's results for all `entries`; `checkpoint` is its result for the first
    `checkpoint_entries` of them."""

    chat_id: str
    release: str
    entries: list[_Entry]
    checkpoint_entries: int
    checkpoint: JsonObject
    state: JsonObject
    snapshot: JsonObject

    def raw_entries(self) -> list[RawEntry]:
        """Return the entries in the form in which the store returns them."""
        return [_raw(entry) for entry in self.entries]

    def types(self) -> set[str]:
        """Return the types of all events and facts of the recording."""
        events = {str(event["type"]) for entry in self.entries for event in entry.events}
        return events | {str(fact["fact"]) for entry in self.entries for fact in entry.facts}


def fold(chat_id: str, entries: list[RawEntry], state: OwnerState | None = None) -> OwnerState:
    """Fold the entries with today's code, facts included. Raises Gap, NewerVersion."""
    folded = empty_owner_state(chat_id) if state is None else state
    for entry in entries:
        folded, _ = fold_checked(folded, entry, with_facts=True)
    return folded


def recorded_from(chat_id: str, release: str, entries: list[RawEntry]) -> Recording:
    half = _telling(entries)
    state = fold(chat_id, entries)
    return Recording(
        chat_id=chat_id,
        release=release,
        entries=[_plain(entry) for entry in entries],
        checkpoint_entries=half,
        checkpoint=json.loads(encode_state(fold(chat_id, entries[:half]))),
        state=json.loads(encode_state(state)),
        snapshot=plain(state),
    )


def _telling(entries: list[RawEntry]) -> int:
    """Return the number of entries in the checkpoint: all entries up to the last takeover, because the state shows a
    takeover only for a short time; without a takeover, half of the entries."""
    takeovers = [
        number for number, entry in enumerate(entries, start=1) if entry.fence and entry.fence.why == "takeover"
    ]
    return takeovers[-1] if takeovers else len(entries) // 2


def plain(state: OwnerState) -> JsonObject:
    """Return the snapshot that clients would get, as JSON."""
    found: JsonObject = json.loads(encode(snapshot_of(state)))
    return found


def write(path: Path, recording: Recording) -> None:
    fields = msgspec.to_builtins(recording)
    entries = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in fields.pop("entries"))
    rest = ",\n".join(f'"{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in fields.items())
    path.write_text(f'{{\n{rest},\n"entries": [\n{entries}\n]\n}}\n')


def read(path: Path) -> Recording:
    """Raises msgspec.ValidationError."""
    return msgspec.json.decode(path.read_bytes(), type=Recording)


def _plain(entry: RawEntry) -> _Entry:
    return _Entry(
        id=(entry.entry_id.epoch, entry.entry_id.n),
        head=entry.head,
        before=entry.before,
        position=entry.position,
        time_ms=entry.time_ms,
        version=entry.version,
        fence=entry.fence,
        events=json.loads(entry.events),
        facts=json.loads(entry.facts or b"[]"),
        acks=json.loads(entry.acks or b"[]"),
    )


def _raw(entry: _Entry) -> RawEntry:
    return RawEntry(
        entry_id=EntryId(*entry.id),
        head=entry.head,
        before=entry.before,
        position=entry.position,
        time_ms=entry.time_ms,
        version=entry.version,
        fence=entry.fence,
        events=msgspec.json.encode(entry.events),
        facts=msgspec.json.encode(entry.facts) if entry.facts else b"",
        acks=msgspec.json.encode(entry.acks) if entry.acks else b"",
    )
