"""The agent's next step as a function of the log: rounds, limits, gates, and the work of the next owner after a
crash."""

import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from threadcast.agent_loop.history.request import build_request
from threadcast.agent_loop.history.view import model_view
from threadcast.agent_loop.steps import CallModel, RunTool
from threadcast.chat.params import effective
from threadcast.profiles.profile import ChatTools, Profile
from threadcast_protocol.wire.commands import SetParams, ToolDecision, UserMessage
from threadcast_protocol.wire.deltas import AppendContent, SetToolCalls
from threadcast_protocol.wire.events import ErrorHappened, RuntimeUpdated, ToolStatus
from threadcast_protocol.wire.messages import FunctionCall, ToolCall

TOOLS = {
    "clock": FakeTool(name="clock", retry="safe"),
    "once": FakeTool(name="once", retry="once"),
    "wipe": FakeTool(name="wipe", policy="deny"),
}


def asked(*calls: tuple[str, str], max_rounds: int = 20) -> PureChat:
    """Return a chat whose model has just asked for these (id, tool) calls."""
    chat = PureChat(table(TOOLS, max_rounds=max_rounds), say("a"))
    ask(chat, *calls)
    return chat


def ask(chat: PureChat, *calls: tuple[str, str]) -> None:
    made = [ToolCall(id=i, index=n, function=FunctionCall(name, "{}")) for n, (i, name) in enumerate(calls)]
    chat.stream(AppendContent("let me see"), SetToolCalls(made))
    chat.finish()


@pytest.mark.row("LOOP-1", "LOOP-3", "LOOP-4")
def test_calls_run_in_call_order_then_the_model_goes_on_until_it_asks_no_more() -> None:
    chat = asked(("c0", "clock"), ("c1", "once"))
    order = []
    while isinstance(chat.step, RunTool):
        order.append(chat.step.call.id)
        chat.tool_answers()
    assert order == ["c0", "c1"]
    assert isinstance(chat.step, CallModel)
    chat.says("done")
    assert [chat.state.nodes[key].role for key in chat.state.path] == ["user", "assistant", "tool", "tool", "assistant"]
    assert chat.state.runtime.outcome == "complete"
    assert chat.state.runtime.tools_used == ["clock", "once"]


def test_a_denied_tool_is_never_run_and_the_loop_goes_on() -> None:
    chat = asked(("c0", "wipe"))
    assert isinstance(chat.step, CallModel)
    assert "denied by policy" in str(chat.state.nodes[chat.state.path[-2]].content)
    assert [spec.name for spec in chat.tools.specs()] == ["clock", "once"]


def test_after_max_rounds_the_calls_are_still_run_and_the_run_stops() -> None:
    chat = asked(("c0", "clock"), max_rounds=2)
    chat.tool_answers()
    ask(chat, ("c1", "clock"))
    chat.tool_answers()
    assert chat.is_waiting
    errors = [(e.code, e.fatal) for e in chat.events if isinstance(e, ErrorHappened)]
    assert errors == [("max_tool_rounds", False)]
    assert (chat.state.runtime.state, chat.state.runtime.outcome) == ("idle", "limit")
    assert chat.types().count("stream_started") == 2


def test_at_the_limit_summarize_runs_one_round_without_tools() -> None:
    chat = asked(("c0", "clock"), max_rounds=1)
    chat.command(SetParams(client_request_id="p", patch={"on_limit": "summarize"}))
    chat.tool_answers()
    assert isinstance(chat.step, CallModel)
    assert not chat.step.with_tools
    chat.says("in short")
    assert chat.state.runtime.outcome == "limit"


def test_at_the_limit_ask_pauses_and_accepting_grants_as_many_again() -> None:
    chat = asked(("c0", "clock"), max_rounds=1)
    chat.command(SetParams(client_request_id="p", patch={"on_limit": "ask"}))
    chat.tool_answers()
    (reason,) = chat.state.runtime.pause_reasons
    assert (reason.type, reason.tool_call_id) == ("round_limit", f"limit-{chat.state.runtime.run_id}")
    chat.command(ToolDecision(client_request_id="d", tool_call_id=reason.tool_call_id, accepted=True))
    ask(chat, ("c1", "clock"))
    chat.tool_answers()
    (reason,) = chat.state.runtime.pause_reasons
    chat.command(ToolDecision(client_request_id="e", tool_call_id=reason.tool_call_id, accepted=False))
    assert chat.state.runtime.outcome == "limit"


@pytest.mark.row("SES-4")
def test_a_broken_answer_is_taken_back_and_asked_for_again_in_the_same_round() -> None:
    chat = PureChat(table(TOOLS), say("a"))
    chat.stream(AppendContent("half"))
    broken = chat.state.path[-1]
    since = len(chat.events)
    chat.crash()
    assert chat.types(since) == ["message_removed", "stream_started"]
    assert isinstance(chat.step, CallModel)
    assert chat.step.message_id != broken
    assert not chat.step.continuing
    assert chat.state.private.run is not None
    assert chat.state.private.run.round == 0


@pytest.mark.row("SES-4")
def test_a_provider_that_can_continue_goes_on_after_what_was_shown() -> None:
    chat = PureChat(table(TOOLS), say("a"))
    chat.stream(AppendContent("half"))
    since = len(chat.events)
    chat.crash(can_continue=True)
    assert chat.types(since) == []
    assert isinstance(chat.step, CallModel)
    assert chat.step.continuing


@pytest.mark.row("SES-4")
def test_on_owner_loss_stop_ends_the_run_and_keeps_what_was_shown() -> None:
    chat = PureChat(table(TOOLS), SetParams(client_request_id="p", patch={"on_owner_loss": "stop"}), say("a"))
    chat.stream(AppendContent("half"))
    chat.crash(can_continue=True)
    assert chat.state.runtime.outcome == "interrupted"
    assert chat.state.nodes[chat.state.path[-1]].content == "half"


@pytest.mark.row("SES-4")
def test_a_started_tool_runs_again_only_if_it_is_declared_safe() -> None:
    chat = asked(("c0", "clock"))
    chat.crash()
    assert isinstance(chat.step, RunTool)
    chat = asked(("c0", "once"))
    chat.crash()
    answer = next(m for m in chat.state.nodes.values() if m.tool_call_id == "c0")
    assert answer.tool_failed is True
    assert "unknown" in str(answer.content)
    assert [e.status for e in chat.events if isinstance(e, ToolStatus)][-1] == "outcome_unknown"
    assert isinstance(chat.step, CallModel)


def test_a_call_with_an_unknown_outcome_needs_a_person_to_run_again() -> None:
    chat = asked(("c0", "once"))
    chat.crash()
    ask(chat, ("c1", "once"))
    (reason,) = chat.state.runtime.pause_reasons
    assert reason.type == "outcome_unknown"
    chat.command(ToolDecision(client_request_id="d", tool_call_id="c1", accepted=True))
    assert isinstance(chat.step, RunTool)


def test_finished_tools_are_never_run_again_after_a_crash() -> None:
    chat = asked(("c0", "once"), ("c1", "clock"))
    chat.tool_answers("result")
    chat.crash()
    assert isinstance(chat.step, RunTool)
    assert chat.step.call.id == "c1"


def test_takeovers_are_counted_until_there_is_progress() -> None:
    chat = PureChat(table(TOOLS), say("a"))
    chat.stream(AppendContent("x"))
    for _ in range(3):
        chat.crash(can_continue=True)
        chat.stream(AppendContent("y"))
    assert chat.state.private.attempts == 3
    chat.command(say("b"))
    assert chat.state.private.attempts == 0


@pytest.mark.row("ERR-4", "LOOP-8")
def test_a_model_that_cannot_start_leaves_no_trace_but_the_error_and_the_next_command_runs() -> None:
    chat = PureChat(table(TOOLS), say("a"))
    since = len(chat.events)
    chat.break_off("auth_failed")
    assert chat.types(since) == [
        "error",
        "message_removed",
        "message_updated",
        "thread_updated",
        "runtime_updated",
    ]
    assert (chat.state.runtime.state, chat.state.runtime.error) == ("error", "The model failed.")
    chat.command(say("b", "again"))
    assert chat.state.runtime.error is None
    assert isinstance(chat.step, CallModel)


def test_the_model_sees_neither_a_replaced_answer_nor_pass_through_roles() -> None:
    chat = asked(("c0", "clock"))
    chat.tool_answers("noon")
    view = model_view(chat.state, {})
    assert [message.role for message in view] == ["user", "assistant", "tool"]
    request = build_request(chat.state, chat.tools, "demo", "m", with_tools=True)
    assert [tool.name for tool in request.tools] == ["clock", "once"]
    assert request.system


@pytest.mark.row("SET-1")
def test_parameters_are_layered_command_before_thread_before_profile_before_server() -> None:
    chat = PureChat(
        ChatTools(Profile(name="agent", params={"top_p": 0.1, "max_tokens": 9}), {}, frozenset(), "m"),
        SetParams(client_request_id="p", patch={"temperature": 1, "top_p": 0.5}),
        UserMessage(client_request_id="a", content="hi", params={"temperature": 0}),
    )
    params = build_request(chat.state, chat.tools, "demo", "m", with_tools=False).params
    assert (params.temperature, params.top_p, params.max_tokens, params.presence_penalty) == (0.0, 0.5, 9, None)
    layers = {key: effective(chat.state, key, chat.tools.profile.params).layer for key in LAYERED}
    assert layers == {"temperature": "command", "top_p": "thread", "max_tokens": "profile", "on_limit": "server"}


LAYERED = ["temperature", "top_p", "max_tokens", "on_limit"]


def test_a_persons_false_is_not_overruled_and_a_round_limit_of_the_profile_holds() -> None:
    chat = PureChat(ChatTools(Profile(name="agent", params={"max_rounds": 1}), TOOLS, frozenset(), "m"), say("a"))
    chat.asks(call("c0", "clock"))
    chat.tool_answers("noon")
    assert chat.state.runtime.outcome == "limit"


@pytest.mark.parametrize("why", ["tools are off", "the last word"])
def test_calls_of_a_model_that_was_offered_no_tools_are_answered_and_not_run(why: str) -> None:
    limits: dict[str, object] = (
        {"tool_use": "none"} if why == "tools are off" else {"max_rounds": 1, "on_limit": "summarize"}
    )
    chat = PureChat(table(TOOLS), SetParams(client_request_id="p", patch=limits), say("a"))
    if why == "the last word":
        chat.asks(call("c0", "clock"))
        chat.tool_answers("noon")
    assert isinstance(chat.step, CallModel)
    assert not chat.step.with_tools
    chat.asks(call("c9", "clock"))
    assert not isinstance(chat.step, RunTool)
    answered = next(m for m in chat.state.nodes.values() if m.tool_call_id == "c9")
    assert answered.content == "No tools are offered now; answer without them."
    assert answered.tool_failed


@pytest.mark.row("EVT-13")
def test_status_text_names_the_running_tool_and_is_cleared_at_the_end() -> None:
    chat = asked(("c0", "clock"))
    assert chat.state.runtime.status_text == "running clock"
    chat.tool_answers()
    updates = [e.status_text for e in chat.events if isinstance(e, RuntimeUpdated)]
    assert updates[-1] is None
