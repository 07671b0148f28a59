"""Phases: every state of a runtime maps to one of five phases, and events and snapshots give the same phase."""

import pytest

from threadcast_protocol.fold.phase import PhaseReader, is_busy, phase_of
from threadcast_protocol.wire.events import AT_REST

STATES = {
    "idle": "idle",
    "completed": "idle",
    "waiting_user_input": "idle",
    "error": "stopped",
    "executing_tools": "waiting",
    "waiting_ide": "waiting",
    "paused": "paused",
}


@pytest.mark.parametrize(("state", "phase"), STATES.items())
def test_a_state_is_one_phase_whatever_was_streamed_before(state: str, phase: str) -> None:
    for is_answering in (False, True):
        found = phase_of(state, None, is_answering=is_answering)
        assert found == phase
        assert is_busy(found) is (state not in AT_REST)


def test_generating_is_waiting_until_the_answer_begins() -> None:
    assert phase_of("generating", None, is_answering=False) == "waiting"
    assert phase_of("generating", None, is_answering=True) == "streaming"


def test_an_abort_is_a_stop_until_the_next_run() -> None:
    reader = PhaseReader()
    assert reader.feed({"type": "runtime_updated", "state": "idle", "outcome": "aborted"}) == "stopped"
    assert reader.feed({"type": "thread_updated", "title": "x"}) == "stopped"
    assert reader.feed({"type": "runtime_updated", "state": "generating", "round": 0}) == "waiting"


def test_a_snapshot_in_the_middle_of_an_answer_is_streaming() -> None:
    def snapshot(**leaf: str) -> dict[str, object]:
        return {"type": "snapshot", "runtime": {"state": "generating"}, "messages": [{"role": "assistant", **leaf}]}

    assert PhaseReader().feed(snapshot()) == "streaming"
    assert PhaseReader().feed(snapshot(finish_reason="tool_calls")) == "waiting"
    assert PhaseReader().feed({"type": "snapshot", "runtime": {"state": "generating"}, "messages": []}) == "waiting"
