"""Tools that a client carries out: published, parked, claimed, answered by any client, or too late (PROTOCOL §12)."""

import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, acks, call, say, table
from threadcast.agent_loop.history.view import model_view
from threadcast.agent_loop.plan import is_parked, next_deadline_ms
from threadcast.agent_loop.steps import CallModel, RunTool
from threadcast.chat.ide import CLAIM_MS
from threadcast.tools.base import Tool
from threadcast.tools.client import ClientTool
from threadcast_protocol.fold.snapshot import active_path
from threadcast_protocol.wire.commands import Abort, DeclaredTool, IdeToolClaim, IdeToolResult, UserMessage
from threadcast_protocol.wire.deltas import AppendContent, SetToolCalls
from threadcast_protocol.wire.events import IdeToolRequired, RuntimeUpdated, StreamStarted

TOOLS: dict[str, Tool] = {
    "open_file": ClientTool("open_file", "Opens a file in the editor."),
    "clock": FakeTool(name="clock"),
    "mail": FakeTool(name="mail", policy="ask"),
}


def asked(*calls: tuple[str, str], arguments: str = '{"path":"a.py"}') -> PureChat:
    chat = PureChat(table(TOOLS), say("q"))
    chat.stream(AppendContent("let me see"), SetToolCalls([call(key, name, arguments) for key, name in calls]))
    chat.finish()
    return chat


def result(key: str, content: str = "text", *, tool_failed: bool = False) -> IdeToolResult:
    request_id = f"res-{key}-{content}"
    return IdeToolResult(client_request_id=request_id, tool_call_id=key, content=content, tool_failed=tool_failed)


@pytest.mark.row("CMD-14")
def test_a_client_call_is_published_and_its_result_lets_the_model_go_on() -> None:
    chat = asked(("c0", "open_file"))
    required = next(e for e in chat.events if isinstance(e, IdeToolRequired))
    assert (required.tool_call_id, required.tool_name, required.args) == ("c0", "open_file", {"path": "a.py"})
    assert chat.state.runtime.state == "waiting_ide"
    assert is_parked(chat.state)
    assert chat.is_waiting
    events = chat.command(result("c0", "print(1)"))
    assert acks(events)[-1][1]
    assert chat.state.runtime.ide_calls == []
    answered = chat.state.nodes[chat.state.path[-2]]
    assert (answered.role, answered.content, answered.tool_failed) == ("tool", "print(1)", False)
    assert isinstance(chat.step, CallModel)


@pytest.mark.row("CMD-14")
def test_a_result_for_no_open_call_is_refused_and_only_the_first_counts() -> None:
    chat = asked(("c0", "open_file"), ("c1", "open_file"))
    assert [a for _, a, _ in acks(chat.command(result("zz")))] == [False]
    chat.command(result("c0", "first"))
    assert [(a, r["code"]) for _, a, r in acks(chat.command(result("c0", "second")))] == [
        (False, "no_pending_decision")
    ]
    assert chat.state.runtime.state == "waiting_ide"
    chat.command(result("c1", "broken", tool_failed=True))
    assert isinstance(chat.step, CallModel)
    last = chat.state.nodes[chat.state.path[-2]]
    assert (last.content, last.tool_failed) == ("broken", True)


@pytest.mark.row("LOOP-3")
def test_results_that_came_in_any_order_are_read_in_the_order_of_the_calls() -> None:
    chat = asked(("c0", "open_file"), ("c1", "open_file"), ("c2", "clock"), arguments="{}")
    chat.tool_answers("noon")
    for key in ("c1", "c0"):
        chat.command(result(key))
    assert [m.tool_call_id for m in active_path(chat.state) if m.role == "tool"] == ["c2", "c1", "c0"]
    assert [m.tool_call_id for m in model_view(chat.state, {}) if m.role == "tool"] == ["c0", "c1", "c2"]


def test_server_calls_of_the_round_run_while_the_client_works() -> None:
    chat = asked(("c0", "open_file"), ("c1", "clock"), arguments="{}")
    assert isinstance(chat.step, RunTool)
    assert chat.step.call.id == "c1"
    chat.command(result("c0"))
    assert isinstance(chat.step, RunTool)
    chat.tool_answers("noon")
    assert isinstance(chat.step, CallModel)


def test_silence_past_the_deadline_is_an_error_result() -> None:
    chat = asked(("c0", "open_file"))
    deadline = next_deadline_ms(chat.state)
    assert deadline is not None
    chat.wake(deadline - 100)
    assert chat.state.runtime.state == "waiting_ide"
    chat.wake(deadline)
    late = chat.state.nodes[chat.state.path[-2]]
    assert (late.content, late.tool_failed) == ("No client answered this call within 600 s.", True)
    assert isinstance(chat.step, CallModel)
    assert [a for _, a, _ in acks(chat.command(result("c0")))] == [False]


@pytest.mark.parametrize(
    ("own", "on_timeout", "outcome"), [(True, "stop", "aborted"), (True, None, None), (False, "stop", None)]
)
def test_with_stop_a_missing_result_of_the_messages_own_tool_ends_the_run(
    own: bool, on_timeout: str | None, outcome: str | None
) -> None:
    short = {"short": ClientTool("short", "Answers soon.", timeout_seconds=1)}
    declared = [DeclaredTool(name="short", description="Answers soon.")] if own else []
    message = UserMessage(
        client_request_id="q",
        content="hi",
        tools=declared,
        params={"on_client_timeout": on_timeout} if on_timeout else {},
    )
    chat = PureChat(table({**TOOLS, **short}), message)
    calls = [call("c0", "short"), call("c1", "open_file", '{"path":"a.py"}')]
    chat.stream(AppendContent("let me see"), SetToolCalls(calls))
    chat.finish()
    deadline = next_deadline_ms(chat.state)
    assert deadline is not None and chat.state.runtime.state == "waiting_ide"
    before = len(chat.events)
    chat.wake(deadline)
    assert not any(isinstance(event, StreamStarted) for event in chat.events[before:])
    ended = [event.outcome for event in chat.events[before:] if isinstance(event, RuntimeUpdated) and event.outcome]
    assert ended == ([outcome] if outcome else [])
    answered = {m.tool_call_id: m.content for m in active_path(chat.state) if m.role == "tool"}
    assert answered["c0"] == "No client answered this call within 1 s."
    assert ("c1" in answered) == (outcome is not None)
    assert chat.is_waiting and (chat.state.private.run is None) == (outcome is not None)


def test_one_client_claims_and_others_hear_so_until_the_claim_lapses() -> None:
    chat = asked(("c0", "open_file"))

    def claim(request_id: str, claimer: str | None = None) -> tuple[bool, str | None]:
        events = chat.command(IdeToolClaim(client_request_id=request_id, tool_call_id="c0", claimer=claimer))
        _, accepted, outcome = acks(events)[-1]
        return accepted, outcome.get("code")

    assert claim("a") == (True, None)
    assert claim("b") == (False, "already_claimed")
    assert chat.state.runtime.ide_calls[0].claimed_by == "a"
    chat.now_ms += CLAIM_MS + 1
    assert claim("c", "window-1") == (True, None)
    assert claim("d", "window-1") == (True, None)
    assert claim("e", "window-2") == (False, "already_claimed")
    assert acks(chat.command(result("c0")))[-1][1]
    assert claim("f", "window-1") == (False, "no_pending_decision")


def test_abort_answers_the_open_client_calls_as_aborted() -> None:
    chat = asked(("c0", "open_file"))
    chat.command(Abort(client_request_id="x"))
    assert chat.state.runtime.state == "idle"
    assert chat.state.runtime.ide_calls == []
    assert chat.state.nodes[chat.state.path[-1]].content == "Aborted by the user before it finished."


def test_a_new_owner_finds_the_call_waiting_and_publishes_it_no_second_time() -> None:
    chat = asked(("c0", "open_file"))
    chat.crash()
    assert chat.state.runtime.state == "waiting_ide"
    assert sum(isinstance(e, IdeToolRequired) for e in chat.events) == 1
    chat.command(result("c0"))
    assert isinstance(chat.step, CallModel)


def test_questions_come_first_and_the_client_is_asked_meanwhile() -> None:
    chat = asked(("c0", "mail"), ("c1", "open_file"), arguments="{}")
    assert chat.state.runtime.paused
    assert [waiting.tool_call_id for waiting in chat.state.runtime.ide_calls] == ["c1"]
    chat.command(result("c1"))
    assert chat.state.runtime.paused


def test_arguments_that_are_no_object_are_answered_and_published_to_nobody() -> None:
    chat = asked(("c0", "open_file"), arguments="[1]")
    assert not any(isinstance(e, IdeToolRequired) for e in chat.events)
    assert isinstance(chat.step, CallModel)
