"""Today's code folds every chat that a release wrote to the same state as the release did, and gives clients the same
snapshot. A failure here means that a deploy would lose or change something: raise FORMAT_VERSION (decision 0005) if old
processes cannot read the new data, and continue to read the old.
"""

import json
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import pytest

from tests.releases.recording import DIRECTORY, Recording, fold, plain
from tests.releases.recording import read as read_file
from threadcast.chat.entries import FORMAT_VERSION
from threadcast.chat.entry_codec import decode_state, encode_state
from threadcast.chat.facts import Fact
from threadcast_protocol.framing.codec import decode_snapshot
from threadcast_protocol.wire.events import Event
from threadcast_protocol.wire.messages import JsonObject

FILES = sorted(DIRECTORY.glob("*/*.json"))

NOT_RECORDED = {
    "provider_call_id": "made by models of other providers that repeat an id; the recorder has the demo models alone",
    "import_goes_on": "made by imports of more messages than one command takes; the recorder's chats are small",
    "agent_data": "made by agents of an operator's file; the recorder has none",
    "agent_step": "made by durable agents of an operator's file; the recorder has none",
    "tools_declared": "made by messages with tools of their sender; the recorder's commands have none",
    "agent_started": "made by durable agents of an operator's file; the recorder has none",
    "operation_recorded": "made by durable agents, like `agent_started`",
    "agent_parked": "made by durable agents, like `agent_started`",
    "agent_restarted": "made by durable agents, like `agent_started`",
    "agent_missing": "made by durable agents, like `agent_started`",
    "provider_data_kept": "made by Anthropic's and Google's signed thinking; the recorder has the demo models alone",
}
"""Types that no recording holds, each with the reason."""


@cache
def read(path: Path) -> Recording:
    return read_file(path)


@pytest.fixture(params=FILES, ids=[f"{path.parent.name}/{path.stem}" for path in FILES])
def recording(request: pytest.FixtureRequest) -> Recording:
    return read(request.param)


def holds(now: object, then: object) -> bool:
    """Return whether everything in `then` is still present; new fields may have been added."""
    if isinstance(then, dict) and isinstance(now, dict):
        return all(key in now and holds(now[key], value) for key, value in then.items())
    if isinstance(then, list) and isinstance(now, list):
        return len(now) == len(then) and all(holds(mine, its) for mine, its in zip(now, then, strict=True))
    return now == then


def test_a_log_folds_to_the_state_that_its_release_made_of_it(recording: Recording) -> None:
    folded = fold(recording.chat_id, recording.raw_entries())
    # Today's code encodes both states, so a field that is newer than the release has its default value in each.
    assert encode_state(folded) == encode_state(decode_state(_json(recording.state)))
    assert holds(_parsed(encode_state(folded)), recording.state), "something that the release wrote is gone"


def test_a_checkpoint_of_the_release_is_read_and_the_rest_of_the_log_goes_on_from_it(recording: Recording) -> None:
    entries, count = recording.raw_entries(), recording.checkpoint_entries
    checkpoint = decode_state(_json(recording.checkpoint))
    assert encode_state(fold(recording.chat_id, entries[:count])) == encode_state(checkpoint)
    folded = fold(recording.chat_id, entries[count:], checkpoint)
    assert encode_state(folded) == encode_state(fold(recording.chat_id, recording.raw_entries()))


def test_clients_are_shown_what_the_release_showed_them(recording: Recording) -> None:
    shown = plain(fold(recording.chat_id, recording.raw_entries()))
    assert holds(shown, recording.snapshot)
    decode_snapshot(_json(recording.snapshot))


def test_no_log_is_of_a_newer_format_than_this_code() -> None:
    assert {entry.version for path in FILES for entry in read(path).entries} <= set(range(FORMAT_VERSION + 1))


def test_every_type_of_event_and_fact_stands_in_a_recording_or_says_why_not() -> None:
    """A new type is recorded with the release that adds it: `python -m tests.releases.record`."""
    members = (*get_args(Event), *get_args(Fact))
    known = {str(member.__struct_config__.tag) for member in members}
    recorded: set[str] = set().union(*(read(path).types() for path in FILES))
    assert known - recorded == set(NOT_RECORDED), "record it, or give the reason why it cannot be"
    assert recorded <= known, "an old type is not known any more: its logs cannot be folded"


def test_the_current_release_has_recordings() -> None:
    assert (DIRECTORY / version("threadcast")).is_dir(), "python -m tests.releases.record"


def _json(value: JsonObject) -> bytes:
    return json.dumps(value).encode()


def _parsed(data: bytes) -> object:
    parsed: object = json.loads(data)
    return parsed
