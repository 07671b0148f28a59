"""A tool flagged `hide_input`: clients see the name and id of its calls, while the tool and the model see the whole
call (EVT-8)."""

import itertools

import msgspec
import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from threadcast.agent_loop.answer.assembler import Assembler
from threadcast.agent_loop.calls.gates import effect_hash, input_hash
from threadcast.agent_loop.calls.hiding import hides
from threadcast.agent_loop.calls.permissions import digest_of
from threadcast.agent_loop.history.view import model_view
from threadcast.agent_loop.outcomes import Answer, finish, tool_done
from threadcast.agent_loop.steps import CallModel, RunTool
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.providers.base import ToolCallDelta
from threadcast.tools.base import ToolResult
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.commands import BranchFromChat, ToolDecision
from threadcast_protocol.wire.deltas import SetToolCalls
from threadcast_protocol.wire.events import ToolStatus

SECRET = "the-word-nobody-sees"
ARGUMENTS = f'{{"word":"{SECRET}"}}'


def chat_with(tool: FakeTool, *calls: str, chat_id: str = "c1") -> PureChat:
    """Return a chat whose model has called `tool` once for each id."""
    chat = PureChat(table({tool.name: tool}), say("q", "go"), chat_id=chat_id)
    assert isinstance(chat.step, CallModel)
    step = chat.step
    answer = Answer(calls=[call(each, tool.name, ARGUMENTS) for each in calls])

    def end(builder: EntryBuilder) -> None:
        chat.step = finish(builder, step, answer, chat.tools)

    chat.write(end)
    return chat


def is_unseen(chat: PureChat) -> bool:
    return SECRET not in encode(chat.events).decode()


@pytest.mark.row("EVT-8")
def test_hidden_arguments_are_never_streamed_however_they_are_cut() -> None:
    tools = table({"keep": FakeTool(name="keep", hide_input=True), "open": FakeTool(name="open")})
    ids = itertools.count()
    assembler = Assembler((), lambda: f"c{next(ids)}", hides=lambda name: hides(tools, name))
    ops = [assembler.feed(ToolCallDelta(0, id="a", name="keep"))]
    ops += [assembler.feed(ToolCallDelta(0, arguments=each)) for each in ARGUMENTS]
    ops.append(assembler.feed(ToolCallDelta(1, id="b", name="open", arguments='{"x":1}')))
    shown = [op for op in ops if op is not None]
    assert all(isinstance(op, SetToolCalls) and op.tool_calls[0].function.arguments == "{}" for op in shown)
    assert len(shown) == 2, "nothing is said of what is not shown, its length neither"
    assert isinstance(shown[-1], SetToolCalls) and shown[-1].tool_calls[1].function.arguments == '{"x":1}'
    assert assembler.answer().calls[0].function.arguments == ARGUMENTS


@pytest.mark.row("EVT-8")
def test_the_tool_and_the_next_request_have_what_no_event_shows() -> None:
    chat = chat_with(FakeTool(name="keep", hide_input=True), "a", "b")
    for _ in range(2):
        assert isinstance(chat.step, RunTool) and chat.step.arguments == ARGUMENTS
        chat.tool_answers("kept")
    asking = next(message for message in model_view(chat.state, {}) if message.tool_calls)
    assert [each.function.arguments for each in asking.tool_calls] == [ARGUMENTS, ARGUMENTS]
    assert [s.input for s in chat.events if isinstance(s, ToolStatus) and s.status == "running"] == [None, None]
    assert is_unseen(chat)


@pytest.mark.row("EVT-8")
def test_a_question_is_bound_to_the_true_arguments() -> None:
    chat = chat_with(FakeTool(name="keep", hide_input=True, policy="ask"), "a")
    run = chat.state.private.run
    assert run is not None
    (reason,) = chat.state.runtime.pause_reasons
    tool = chat.tools.get("keep")
    assert tool is not None
    arguments = msgspec.json.decode(ARGUMENTS)
    assert reason.input_hash == input_hash("c1", run.run_id, "a", arguments, digest_of(tool))
    chat.command(ToolDecision(client_request_id="d", tool_call_id="a", accepted=True))
    assert isinstance(chat.step, RunTool) and chat.step.arguments == ARGUMENTS
    assert is_unseen(chat)


@pytest.mark.row("EVT-8", "EVT-10", "CMD-12")
def test_the_model_of_a_fork_reads_what_the_model_of_its_source_does() -> None:
    old = chat_with(FakeTool(name="keep", hide_input=True), "a")
    assert isinstance(old.step, RunTool)
    asked = old.step.call
    old.write(lambda builder: tool_done(builder, asked, ToolResult(content="hidden"), 1, old.tools, withheld=SECRET))
    new = PureChat(old.tools, first_id=100, chat_id="c2")
    new.source = old.state
    new.command(BranchFromChat(client_request_id="b", source_chat_id="c1", up_to_message_id=old.state.path[2]))
    _, asking, result = model_view(new.state, {})
    assert asking.tool_calls[0].function.arguments == ARGUMENTS
    assert result.content == SECRET
    assert is_unseen(old) and is_unseen(new)


@pytest.mark.row("EVT-8")
def test_what_broke_off_is_known_by_the_true_arguments() -> None:
    chat = chat_with(FakeTool(name="keep", hide_input=True), "a")
    chat.crash()
    assert chat.state.private.unknown_outcomes == (effect_hash("keep", msgspec.json.decode(ARGUMENTS)),)
    assert is_unseen(chat)
