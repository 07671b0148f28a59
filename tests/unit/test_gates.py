"""Approvals: a round with a pending call waits for people, the first decision takes effect, and the pause is a fact in
the log."""

import json

import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, acks, call, say, table
from threadcast.agent_loop.steps import CallModel, RunTool
from threadcast.chat.approval_rules import ApprovalRules
from threadcast.chat.decisions import requesters
from threadcast.chat.internal_commands import AnswerQuestion, ForgetTool
from threadcast.profiles.profile import ChatTools, Profile
from threadcast.tools.traits import Traits
from threadcast_protocol.fold.snapshot import active_path
from threadcast_protocol.wire.commands import (
    Abort,
    BrowserContextDecision,
    Decision,
    Regenerate,
    SetParams,
    ToolDecision,
    ToolDecisions,
)
from threadcast_protocol.wire.deltas import SetToolCalls
from threadcast_protocol.wire.events import MessageAdded, ToolStatus
from threadcast_protocol.wire.principal import Principal

ASK = {"mail": FakeTool(name="mail", policy="ask"), "clock": FakeTool(name="clock")}


def paused_chat(*names: str) -> PureChat:
    chat = PureChat(table(ASK), say("a"))
    chat.asks(*[call(f"c{i}", name) for i, name in enumerate(names)])
    return chat


@pytest.mark.row("GATE-1")
def test_a_tool_that_asks_pauses_the_round_before_anything_runs() -> None:
    chat = PureChat(table(ASK), say("a"))
    chat.stream(SetToolCalls([call("c0", "clock"), call("c1", "mail", '{"to":"x"}')]))
    since = len(chat.events)
    chat.finish()
    assert chat.types(since) == [
        "stream_finished",
        "message_added",
        "runtime_updated",
        "tool_status",
        "pause_required",
        "runtime_updated",
    ]
    assert chat.is_waiting
    (reason,) = chat.state.runtime.pause_reasons
    assert (reason.type, reason.tool_call_id, reason.input) == ("confirmation", "c1", {"to": "x"})
    assert chat.state.runtime.paused


def test_while_paused_messages_wait() -> None:
    chat = paused_chat("mail")
    chat.command(say("b"))
    assert chat.state.runtime.queue_size == 1
    assert chat.state.runtime.state == "paused"


def test_a_partial_decision_asks_again_for_what_is_left() -> None:
    chat = paused_chat("mail", "mail")
    events = chat.command(ToolDecision(client_request_id="d", tool_call_id="c0", accepted=True))
    assert [str(type(e).__name__) for e in events] == ["PauseRequired", "Ack"]
    chat.command(ToolDecision(client_request_id="e", tool_call_id="c1", accepted=True))
    assert isinstance(chat.step, RunTool)
    assert chat.step.call.id == "c0"


@pytest.mark.row("GATE-2")
def test_a_rejected_call_is_answered_and_the_others_run() -> None:
    chat = paused_chat("mail", "clock")
    chat.command(ToolDecision(client_request_id="d", tool_call_id="c0", accepted=False, note="not today"))
    answer = next(m for m in chat.state.nodes.values() if m.tool_call_id == "c0")
    assert answer.tool_failed is True
    assert answer.content == "The call was denied by user. Note: not today"
    assert answer.extra == {"outcome": "denied"}
    assert isinstance(chat.step, RunTool)
    chat.tool_answers("noon")
    assert next(m for m in chat.state.nodes.values() if m.tool_call_id == "c1").extra == {"elapsed_ms": 1}
    assert isinstance(chat.step, CallModel)


def test_on_deny_stop_ends_the_run_after_the_round() -> None:
    chat = PureChat(table(ASK), SetParams(client_request_id="p", patch={"on_deny": "stop"}), say("a"))
    chat.asks(call("c0", "mail"))
    chat.command(ToolDecision(client_request_id="d", tool_call_id="c0", accepted=False))
    assert chat.state.runtime.outcome == "aborted"


def test_several_decisions_at_once_apply_to_what_is_pending_and_name_what_is_not() -> None:
    chat = paused_chat("mail", "mail")
    decisions = [Decision(tool_call_id=name, accepted=True) for name in ("c0", "c1", "c9")]
    events = chat.command(ToolDecisions(client_request_id="d", decisions=decisions))
    assert acks(events) == [("d", True, {"queued": True, "not_pending": ["c9"]})]
    assert isinstance(chat.step, RunTool)


def test_an_edit_of_the_arguments_is_what_runs() -> None:
    chat = paused_chat("mail")
    chat.command(ToolDecision(client_request_id="d", tool_call_id="c0", accepted=True, edited_input={"to": "y"}))
    assert isinstance(chat.step, RunTool)
    assert chat.step.arguments == '{"to":"y"}'


@pytest.mark.row("GATE-6")
def test_a_remembered_tool_is_not_asked_again() -> None:
    chat = paused_chat("mail")
    chat.command(ToolDecision(client_request_id="d", tool_call_id="c0", accepted=True, remember="tool"))
    chat.tool_answers()
    chat.asks(call("c5", "mail"))
    assert isinstance(chat.step, RunTool)


def allowed(chat: PureChat) -> list[str]:
    return list(chat.state.private.allowed_tools)


def test_a_remembered_tool_that_is_forgotten_is_asked_again_and_can_be_remembered_again() -> None:
    chat = paused_chat("mail")
    chat.command(ToolDecision(client_request_id="d", tool_call_id="c0", accepted=True, remember="tool"))
    assert allowed(chat) == ["mail"]
    chat.command(ForgetTool(client_request_id="forget:1", tool_name="mail"))
    chat.command(ForgetTool(client_request_id="forget:2", tool_name="mail"))
    assert allowed(chat) == []
    chat.tool_answers()
    chat.asks(call("c5", "mail"))
    assert chat.state.runtime.state == "paused"
    chat.command(ToolDecision(client_request_id="e", tool_call_id="c5", accepted=True, remember="tool"))
    assert allowed(chat) == ["mail"]


@pytest.mark.parametrize("key", ["autonomous_no_confirm", "auto_approve_editing_tools"])
def test_wholesale_approval_by_the_thread(key: str) -> None:
    chat = PureChat(
        table({"write": FakeTool(name="write", policy="ask", category="editing")}, allows_autonomous=True),
        SetParams(client_request_id="p", patch={key: True}),
        say("a"),
    )
    chat.asks(call("c0", "write"))
    assert isinstance(chat.step, RunTool)


def test_autonomous_mode_has_no_effect_in_a_profile_that_does_not_allow_it() -> None:
    chat = PureChat(table(ASK), SetParams(client_request_id="p", patch={"autonomous_no_confirm": True}), say("a"))
    chat.asks(call("c0", "mail"))
    assert chat.state.thread.autonomous_no_confirm
    assert chat.state.runtime.paused


NEEDS_HASH = ApprovalRules(requires_input_hash=True)


def test_where_the_hash_is_required_only_an_acceptance_without_it_is_refused() -> None:
    tools = ChatTools(Profile(name="agent"), ASK, frozenset(), "demo/echo", rules=NEEDS_HASH)
    chat = PureChat(tools, say("a"))
    chat.asks(call("c0", "mail"), call("c1", "mail"))
    decisions = [Decision(tool_call_id="c0", accepted=False), Decision(tool_call_id="c1", accepted=True)]
    events = chat.command(ToolDecisions(client_request_id="d", decisions=decisions))
    assert [(a, r["code"]) for _, a, r in acks(events)] == [(False, "bad_request")]
    assert len(chat.state.runtime.pause_reasons) == 2, "a refused command decides nothing"
    chat.command(ToolDecision(client_request_id="e", tool_call_id="c0", accepted=False))
    (left,) = chat.state.runtime.pause_reasons
    chat.command(ToolDecision(client_request_id="f", tool_call_id="c1", accepted=True, input_hash=left.input_hash))
    assert isinstance(chat.step, RunTool)


@pytest.mark.row("CMD-13")
def test_a_decision_on_nothing_pending_is_refused_and_only_the_first_wins() -> None:
    chat = paused_chat("mail")
    decision = ToolDecision(client_request_id="d", tool_call_id="c0", accepted=True)
    chat.command(decision)
    second = chat.command(ToolDecision(client_request_id="e", tool_call_id="c0", accepted=False))
    assert [(a, r["code"]) for _, a, r in acks(second)] == [(False, "no_pending_decision")]


def test_a_decision_with_another_input_hash_is_refused_and_the_pause_stays() -> None:
    chat = paused_chat("mail")
    events = chat.command(
        ToolDecision(client_request_id="d", tool_call_id="c0", accepted=True, input_hash="something else")
    )
    assert [(a, r["code"]) for _, a, r in acks(events)] == [(False, "conflict")]
    assert chat.state.runtime.paused


def test_only_who_may_approve_can_decide() -> None:
    chat = paused_chat("mail")
    decision = ToolDecision(client_request_id="d", tool_call_id="c0", accepted=True)
    events = chat.command(decision, by=Principal("guest"))
    assert [(a, r["code"]) for _, a, r in acks(events)] == [(False, "forbidden")]


@pytest.mark.row("GATE-7")
def test_abort_while_paused_answers_the_calls_and_clears_the_pause() -> None:
    chat = paused_chat("mail", "mail")
    since = len(chat.events)
    chat.command(Abort(client_request_id="x"))
    assert chat.types(since) == [
        *["message_added", "tool_status"] * 2,
        "pause_cleared",
        "message_updated",
        "thread_updated",
        "runtime_updated",
        "ack",
    ]
    assert not chat.state.runtime.paused
    answers = [event.message for event in chat.events[since:] if isinstance(event, MessageAdded)]
    assert [(each.tool_call_id, each.tool_failed, each.content) for each in answers] == [
        (call_id, True, "Aborted by the user before it finished.") for call_id in ("c0", "c1")
    ]
    statuses = [event for event in chat.events[since:] if isinstance(event, ToolStatus)]
    assert [(each.tool_call_id, each.status) for each in statuses] == [("c0", "aborted"), ("c1", "aborted")]
    assert chat.state.runtime.outcome == "aborted"


@pytest.mark.row("GATE-7")
def test_a_message_that_comes_during_a_pause_waits_in_the_queue_and_decides_nothing() -> None:
    chat = paused_chat("mail")
    chat.command(say("b", "and then?"))
    assert [item.client_request_id for item in chat.state.runtime.queued_items] == ["b"]
    assert [reason.tool_call_id for reason in chat.state.runtime.pause_reasons] == ["c0"]
    chat.command(ToolDecision(client_request_id="d", tool_call_id="c0", accepted=True))
    chat.tool_answers("sent")
    chat.finish()
    assert [message.content for message in active_path(chat.state) if message.role == "user"] == ["hi", "and then?"]


def test_a_pause_outlives_its_worker() -> None:
    chat = paused_chat("mail")
    chat.crash()
    assert chat.state.runtime.paused
    chat.command(ToolDecision(client_request_id="d", tool_call_id="c0", accepted=True))
    assert isinstance(chat.step, RunTool)


def test_who_may_not_approve_may_not_switch_approvals_off() -> None:
    chat = PureChat(table(ASK))
    body = SetParams(client_request_id="p", patch={"autonomous_no_confirm": True})
    assert [(a, r["code"]) for _, a, r in acks(chat.command(body, by=Principal("guest")))] == [(False, "forbidden")]
    assert chat.state.thread.autonomous_no_confirm is False


BROWSER = {"look": FakeTool(name="look", policy="ask", category="browser")}


def browsing() -> PureChat:
    chat = PureChat(table(BROWSER), say("a"))
    chat.asks(call("c0", "look", '{"url":"x"}'))
    return chat


@pytest.mark.row("CMD-16")
def test_what_of_a_browser_is_shared_joins_the_arguments_of_the_call_that_asked() -> None:
    chat = browsing()
    (reason,) = chat.state.runtime.pause_reasons
    assert (reason.type, reason.tool_call_id) == ("browser_context", "c0")
    decision = BrowserContextDecision(
        client_request_id="b", pending_message_id="c0", include_screenshot=False, last_n_console=5
    )
    assert acks(chat.command(decision)) == [("b", True, {"queued": True})]
    assert isinstance(chat.step, RunTool)
    arguments = json.loads(chat.step.arguments)
    assert arguments["url"] == "x"
    assert (arguments["include_screenshot"], arguments["include_actions"], arguments["last_n_console"]) == (
        False,
        True,
        5,
    )
    assert "last_n_actions" not in arguments


def test_a_browser_decision_keeps_the_hidden_arguments_and_is_bound_to_them() -> None:
    tool = FakeTool(name="look", policy="ask", category="browser", hide_input=True)
    tools = ChatTools(Profile(name="agent"), {"look": tool}, frozenset(), "demo/echo", rules=NEEDS_HASH)
    chat = PureChat(tools, say("a"))
    chat.asks(call("c0", "look", '{"url":"x"}'))
    (reason,) = chat.state.runtime.pause_reasons
    assert (reason.input, reason.hides_input) == ({}, True)
    blind = BrowserContextDecision(client_request_id="b", pending_message_id="c0")
    assert [r["code"] for _, _, r in acks(chat.command(blind))] == ["bad_request"]
    seen = BrowserContextDecision(client_request_id="c", pending_message_id="c0", input_hash=reason.input_hash)
    chat.command(seen)
    assert isinstance(chat.step, RunTool)
    assert json.loads(chat.step.arguments)["url"] == "x"


@pytest.mark.row("CMD-16")
def test_a_browser_decision_that_nothing_waits_for_is_refused_and_a_plain_refusal_works() -> None:
    chat = browsing()
    wrong = BrowserContextDecision(client_request_id="b", pending_message_id="c9")
    assert [r["code"] for _, _, r in acks(chat.command(wrong))] == ["no_pending_decision"]
    chat.command(ToolDecision(client_request_id="d", tool_call_id="c0", accepted=False))
    assert isinstance(chat.step, CallModel)
    mail = paused_chat("mail")
    decision = BrowserContextDecision(client_request_id="b", pending_message_id="c0")
    assert [r["code"] for _, _, r in acks(mail.command(decision))] == ["no_pending_decision"]


OTHER = {"wire": FakeTool(name="wire", policy="ask", traits=Traits(approver="another"))}

ANN, BEN, CY = (Principal(name, ("approve",)) for name in ("ann", "ben", "cy"))


def wiring_by(*authors: Principal) -> PureChat:
    """Return a chat whose run answers the merged messages of `authors`, and waits for the approval of its call."""
    chat = PureChat(table({**ASK, **OTHER}))
    chat.command(say("0"), by=authors[0])
    for number, author in enumerate(authors, 1):
        chat.command(say(f"m{number}"), by=author)
    chat.says("Done.")
    chat.asks(call("c0", "wire"))
    return chat


def accepting(chat: PureChat, by: Principal) -> list[str]:
    """Return the codes with which an acceptance is refused, for both commands that clients can send."""
    (reason,) = chat.state.runtime.pause_reasons
    answer = AnswerQuestion(
        client_request_id=f"q{by.id}", tool_call_id=reason.tool_call_id, accepted=True, input_hash=reason.input_hash
    )
    plain = ToolDecision(client_request_id=f"t{by.id}", tool_call_id=reason.tool_call_id, accepted=True)
    refused = acks(chat.command(plain, by=by)) if by.id in requesters(chat.state) else []
    return [r["code"] for _, _, r in (*refused, *acks(chat.command(answer, by=by))) if "code" in r]


@pytest.mark.row("SEC-8")
def test_all_whose_messages_a_run_answers_are_requesters_and_cannot_approve() -> None:
    chat = wiring_by(ANN, BEN)
    assert requesters(chat.state) == {"ann", "ben"}
    for author in (ANN, BEN):
        assert accepting(chat, author) == ["other_approver_needed"] * 2
    assert accepting(chat, CY) == []
    assert isinstance(chat.step, RunTool)


def test_who_regenerates_or_edits_becomes_a_requester_beside_the_first_author() -> None:
    chat = wiring_by(ANN)
    chat.command(Abort(client_request_id="x"), by=ANN)
    chat.command(Regenerate(client_request_id="r"), by=BEN)
    chat.asks(call("c1", "wire"))
    assert [accepting(chat, each) for each in (ANN, BEN)] == [["other_approver_needed"] * 2] * 2
    assert accepting(chat, CY) == []


def test_a_requester_may_deny_and_no_permission_is_remembered() -> None:
    chat = wiring_by(ANN)
    chat.command(ToolDecision(client_request_id="d", tool_call_id="c0", accepted=False), by=ANN)
    chat.asks(call("c1", "wire"))
    (reason,) = chat.state.runtime.pause_reasons
    assert (reason.approver, reason.once) == ("another", True)
    remembering = ToolDecision(client_request_id="e", tool_call_id="c1", accepted=True, remember="tool")
    chat.command(remembering, by=CY)
    assert isinstance(chat.step, RunTool)
    assert allowed(chat) == []


def test_an_answer_of_a_stranger_counts_only_for_questions_that_need_another_approver() -> None:
    chat = PureChat(table({**ASK, **OTHER}))
    chat.command(say("a"), by=ANN)
    chat.asks(call("c0", "mail"))
    assert accepting(chat, CY) == ["no_pending_decision"]
    answer = AnswerQuestion(client_request_id="q", tool_call_id="c9", accepted=True, input_hash="")
    assert [r["code"] for _, _, r in acks(chat.command(answer, by=CY))] == ["no_pending_decision"]
