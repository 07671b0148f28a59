"""An answer whose stream broke is kept if it has text, reasoning or a whole call, and is otherwise removed (ERR-3,
LOOP-9)."""

import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from threadcast.agent_loop.outcomes import Answer, break_off
from threadcast.agent_loop.steps import CallModel, RunTool
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning, DeltaOp, SetToolCalls
from threadcast_protocol.wire.failures import Failure

BROKEN = Failure(code="stream_error", message="It broke.")


def asked() -> PureChat:
    return PureChat(table({"clock": FakeTool(name="clock")}), say("q"))


@pytest.mark.row("ERR-3", "LOOP-9")
@pytest.mark.parametrize(
    ("ops", "left"),
    [
        ([AppendContent("half")], ("half", "")),
        ([AppendReasoning("hm")], ("", "hm")),
        ([AppendReasoning("hm"), AppendContent("half")], ("half", "hm")),
    ],
    ids=["text", "reasoning alone", "both"],
)
def test_a_broken_answer_keeps_what_was_shown_of_it(ops: list[DeltaOp], left: tuple[str, str]) -> None:
    chat = asked()
    chat.stream(*ops)
    chat.break_off()
    last = chat.state.nodes[chat.state.path[-1]]
    assert (last.role, last.status, last.finish_reason) == ("assistant", "error", "error")
    assert (last.content, last.reasoning_content or "") == left
    assert chat.state.runtime.outcome == "error"


@pytest.mark.row("ERR-3", "LOOP-8")
@pytest.mark.parametrize("ops", [[], [SetToolCalls([call("c0", "clock", '{"half')])]], ids=["nothing", "half a call"])
def test_a_broken_answer_that_holds_nothing_whole_leaves_no_trace(ops: list[DeltaOp]) -> None:
    chat = asked()
    chat.stream(*ops)
    since = len(chat.events)
    chat.break_off()
    assert chat.types(since)[-1] == "runtime_updated" and "message_removed" in chat.types(since)
    assert [chat.state.nodes[key].role for key in chat.state.path] == ["user"]


@pytest.mark.row("ERR-3", "LOOP-9")
def test_a_whole_call_of_a_broken_answer_is_kept_and_carried_out() -> None:
    chat = asked()
    calls = [call("c0", "clock")]
    chat.stream(SetToolCalls(calls))
    step = chat.step
    assert isinstance(step, CallModel)
    chat.write(lambda builder: break_off(builder, step, Answer(calls=calls), BROKEN, chat.tools))
    last = chat.state.nodes[chat.state.path[-1]]
    assert (last.status, [each.id for each in last.tool_calls]) == ("error", ["c0"])
    running = [tool.tool_call_id for tool in chat.state.runtime.tools if tool.status == "running"]
    assert running == ["c0"]


def test_the_step_after_a_whole_call_of_a_broken_answer_runs_it() -> None:
    chat = asked()
    step = chat.step
    assert isinstance(step, CallModel)
    calls = [call("c0", "clock")]
    following: list[object] = []
    chat.stream(SetToolCalls(calls))
    chat.write(lambda builder: following.append(break_off(builder, step, Answer(calls=calls), BROKEN, chat.tools)))
    assert isinstance(following[0], RunTool) and following[0].call.id == "c0"
