"""Turns recorded logs, and some steps of durable agents, into the streams that a client receives, to test the reducer
in TypeScript.

Each stream has the events of one chat with their positions, and after each event the snapshot of the reducer in Python.
A branch switch is sent as a snapshot (PROTOCOL §5), so it is a snapshot here too.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.releases.recording import DIRECTORY, Recording, read
from threadcast_protocol.fold.reducer import reduce
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.fold.state import AGENT_STEPS_KEPT, ChatState, empty_state
from threadcast_protocol.framing.codec import decode_events, encode
from threadcast_protocol.wire.events import AgentStep, BranchSelected, Event, RuntimeUpdated
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["recorded_streams"]


def recorded_streams() -> list[JsonObject]:
    """Return `{chat_id, items}` of each recording, and of the steps of agents. An item is `{position, event?,
    snapshot}`; the snapshot has the state after the item."""
    recordings = [read(path) for path in sorted(Path(DIRECTORY).glob("*/*.json"))]
    return [*(_stream(it.chat_id, _events(it)) for it in recordings), _stream("steps", agent_steps())]


def agent_steps() -> Iterator[Event]:
    """Yield the events of two durable runs: the first run has more steps than a state keeps. After that run, the ends
    of two steps arrive; the state still has one of these steps."""
    for number in range(AGENT_STEPS_KEPT + 5):
        yield _step("r1", number, "running")
        if number % 3 == 0:
            yield _step("r1", number, "done", elapsed_ms=number)
    yield RuntimeUpdated(state="idle", run_id="r1", outcome="complete")
    yield _step("r1", 50, "failed", error="ValueError")
    yield _step("r1", 2, "cancelled")
    yield RuntimeUpdated(state="generating", run_id="r2")
    yield _step("r2", 0, "waiting", until=9)
    yield _step("r2", 1, "running", subchat_id="c2")


def _step(run_id: str, number: int, status: str, **more: Any) -> AgentStep:  # Any: each field has its own type
    step_id = f"3.{number}"
    return AgentStep(
        run_id=run_id, step_id=step_id, kind="step", name=f"step {number}", status=status, started_at=number, **more
    )


def _events(recording: Recording) -> Iterator[Event]:
    for entry in recording.raw_entries():
        yield from decode_events(entry.events)


def _stream(chat_id: str, events: Iterable[Event]) -> JsonObject:
    state = empty_state(chat_id)
    items: list[JsonObject] = [{"position": 0, "snapshot": _snapshot(state)}]
    for event in events:
        state = reduce(state, state.position + 1, event)
        item: JsonObject = {"position": state.position, "snapshot": _snapshot(state)}
        if not isinstance(event, BranchSelected):
            item["event"] = json.loads(msgspec.json.encode(event))
        items.append(item)
    return {"chat_id": chat_id, "items": items}


def _snapshot(state: ChatState) -> JsonObject:
    found: JsonObject = json.loads(encode(snapshot_of(state)))
    return found
