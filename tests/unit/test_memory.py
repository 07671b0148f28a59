"""The memory of tools in a chat is private and limited, expires by the log's clock, and survives a crash unchanged."""

import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from threadcast.agent_loop.calls.memory import recall
from threadcast.agent_loop.steps import RunTool
from threadcast.chat.owner_state import Remembered
from threadcast.tools.base import MEMORY_MAX_BYTES
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import encode


def calling(times: int = 1) -> PureChat:
    """Return a chat in which a tool runs, and will run this many times."""
    chat = PureChat(table({"note": FakeTool(name="note")}), say("a"))
    chat.asks(*[call(f"c{n}", "note") for n in range(times)])
    return chat


def test_what_one_call_keeps_the_next_one_finds_and_no_client_sees() -> None:
    chat = calling(2)
    chat.tool_answers(memory_patch={"draft": {"secret plan": 1}})
    assert isinstance(chat.step, RunTool)
    assert recall(chat.state, chat.step.at_ms) == {"draft": {"secret plan": 1}}
    assert b"secret plan" not in encode(snapshot_of(chat.state))
    chat.tool_answers(memory_patch={"other": 2, "draft": None})
    assert recall(chat.state, chat.now_ms) == {"other": 2}


def test_it_is_forgotten_when_its_time_is_over_and_then_leaves_the_state() -> None:
    chat = calling(2)
    chat.tool_answers(memory_patch={"draft": 1}, memory_ttl_seconds=600.0)
    kept_at = chat.now_ms
    assert recall(chat.state, kept_at + 599_999) == {"draft": 1}
    assert recall(chat.state, kept_at + 600_000) == {}
    chat.now_ms += 600_000
    chat.tool_answers(memory_patch={"other": 2})
    assert chat.state.private.memory == {"other": Remembered(2)}


def test_what_a_crash_interrupts_finds_again_what_it_found() -> None:
    chat = calling(2)
    chat.tool_answers(memory_patch={"draft": 1}, memory_ttl_seconds=600.0)
    before = chat.state.private.memory
    chat.crash()
    assert chat.state.private.memory == before


def test_a_chat_remembers_only_so_much_and_the_model_is_told() -> None:
    chat = calling(2)
    chat.tool_answers(memory_patch={"a": "x" * (MEMORY_MAX_BYTES // 2)})
    chat.tool_answers("kept", memory_patch={"b": "x" * (MEMORY_MAX_BYTES // 2)})
    answer = next(m for m in chat.state.nodes.values() if m.tool_call_id == "c1")
    assert not answer.tool_failed, "it has had its effect"
    assert str(answer.content).startswith("kept\n") and str(MEMORY_MAX_BYTES) in str(answer.content)
    assert list(chat.state.private.memory) == ["a"]


@pytest.mark.parametrize("value", [{}, [], 0, False, ""])
def test_any_value_but_null_is_one(value: object) -> None:
    chat = calling()
    chat.tool_answers(memory_patch={"k": value})
    assert recall(chat.state, chat.now_ms) == {"k": value}
