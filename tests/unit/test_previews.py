"""Previews are shown before anything is saved, may be decided at any later time, and are carried out once (PROTOCOL
§11)."""

import json

import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, acks, call, say, table
from threadcast.agent_loop.calls.previews import PREVIEW_SENT
from threadcast.agent_loop.calls.telling import tell
from threadcast.agent_loop.history.view import model_view
from threadcast.agent_loop.outcomes import tool_done
from threadcast.agent_loop.steps import CallModel, RunTool
from threadcast.profiles.payload_types import PayloadType
from threadcast.tools.base import Payload, Policy, Retry, ToolResult
from threadcast.tools.preview import Preview
from threadcast.tools.traits import NO_TRAITS, Traits
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.wire.commands import Abort, Command, Decision, ToolDecision, ToolDecisions
from threadcast_protocol.wire.events import Event, PayloadAdded, PayloadUpdated, RuntimeUpdated, ToolStatus
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import LOCAL, Principal

ARTICLE = PayloadType(
    name="article",
    schema={"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
    summary="{title}",
)
ANN = Principal("ann", ("approve",))
PROPOSED = Preview("A new article", {"title": "Tides", "body": "They come."})


def harness(
    *, commit_tool: str = "save", retry: Retry = "once", policy: Policy = "auto", traits: Traits = NO_TRAITS
) -> PureChat:
    """Yield a harness; `retry`, `policy` and `traits` are settings of the commit tool."""
    tools = {
        "propose": FakeTool(
            name="propose", policy="preview", traits=Traits(payload_type="article", commit_tool=commit_tool)
        ),
        "mail": FakeTool(name="mail", policy="ask"),
        "save": FakeTool(name="save", retry=retry, policy=policy, traits=traits),
    }
    return PureChat(table(tools, payload_types=[ARTICLE]))


def proposing(chat: PureChat, *names: str) -> PureChat:
    chat.command(say("q"))
    chat.asks(*[call(f"c{at}", name) for at, name in enumerate(names or ("propose",))])
    return chat


def previewed(
    preview: Preview = PROPOSED,
    *,
    commit_tool: str = "save",
    retry: Retry = "once",
    policy: Policy = "auto",
    traits: Traits = NO_TRAITS,
) -> tuple[PureChat, PayloadAdded]:
    """Return a chat at rest with one undecided preview."""
    chat = proposing(harness(commit_tool=commit_tool, retry=retry, policy=policy, traits=traits))
    events = chat.tool_answers("ignored", preview=preview)
    added = next(event for event in events if isinstance(event, PayloadAdded))
    chat.says("Have a look.")
    return chat, added


def decision(payload_id: str | None, accepted: bool = True, **more: object) -> Command:
    fields: JsonObject = {"client_request_id": f"d-{payload_id}-{accepted}", **more}
    return ToolDecision(payload_id=payload_id, accepted=accepted, **fields)


def approvals(events: list[Event]) -> list[str | None]:
    return [event.approval for event in events if isinstance(event, PayloadUpdated)]


def test_an_edited_preview_that_does_not_fit_its_type_is_not_carried_out() -> None:
    chat, shown = previewed()
    events = chat.command(decision(shown.payload_id, edited_input={"title": 7}))
    assert approvals(events) == ["accepted", "commit_failed"]
    assert chat.is_waiting and "/title" in read_by_model(chat)[-1]


def test_the_model_reads_of_a_commit_what_clients_may_not_see() -> None:
    chat, shown = previewed(traits=Traits(visibility="hidden"))
    chat.command(decision(shown.payload_id))
    step = chat.step
    assert isinstance(step, RunTool)
    told = tell(ToolResult(content="saved as a-1"), chat.tools.commit_tool("save"))
    chat.write(lambda it: tool_done(it, step.call, told.result, 1, chat.tools, None, told.withheld))
    assert read_by_model(chat)[-1].endswith("Its result: saved as a-1]")


def read_by_model(chat: PureChat) -> list[str]:
    return [str(message.content) for message in model_view(chat.state, {}) if message.hidden]


@pytest.mark.row("GATE-3")
def test_a_preview_is_shown_the_model_is_told_that_nothing_was_saved_and_the_run_goes_on() -> None:
    chat = proposing(harness())
    events = chat.tool_answers("the tool's own words", preview=PROPOSED, payloads=[Payload("other", {}, "x")])
    (added,) = [event for event in events if isinstance(event, PayloadAdded)]
    assert (added.source, added.approval, added.payload_type, added.summary) == (
        *("preview", "pending", "article"),
        "Tides",
    )
    tool_message = chat.state.nodes[added.message_id]
    assert (tool_message.content, tool_message.tool_failed) == (PREVIEW_SENT, False)
    assert tool_message.payloads == [added.payload_id]
    assert isinstance(chat.step, CallModel)
    assert snapshot_of(chat.state).payloads[0].approval == "pending"


@pytest.mark.row("GATE-3")
@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"content": "title is missing", "failed": True}, "title is missing"),
        ({"content": "", "preview": Preview("x", {"title": 3})}, "/title"),
        ({"content": "done and saved"}, "made no preview"),
    ],
    ids=["the tool says so", "the schema says so", "no preview at all"],
)
def test_what_is_not_valid_is_not_shown_and_the_model_reads_why(result: JsonObject, words: str) -> None:
    chat = proposing(harness())
    events = chat.tool_answers(**result)
    assert not any(isinstance(event, PayloadAdded) for event in events)
    (answer,) = [message for message in chat.state.nodes.values() if message.role == "tool"]
    assert answer.tool_failed and words in str(answer.content)
    assert not chat.state.private.previews


@pytest.mark.row("GATE-4")
def test_the_data_names_an_object_only_where_one_is_changed_and_errors_have_a_type_of_their_own() -> None:
    _, new = previewed()
    assert new.data == {"description": "A new article", "object": PROPOSED.object, "is_update": False}
    _, changed = previewed(Preview("Better", {"title": "Tides"}, "a-1"))
    assert changed.data == {
        "description": "Better",
        "object": {"title": "Tides"},
        "is_update": True,
        "object_id": "a-1",
    }
    _, compared = previewed(Preview("Better", {"title": "Tides"}, "a-1", before={"title": "Waves"}))
    assert compared.data == {**changed.data, "before": {"title": "Waves"}}
    chat = proposing(harness())
    errors = Payload("article_validation_error", {"title": "too short"}, "one error")
    events = chat.tool_answers("The title is too short.", failed=True, payloads=[errors])
    (added,) = [event for event in events if isinstance(event, PayloadAdded)]
    assert (added.payload_type, added.approval, added.unregistered) == ("article_validation_error", None, False)


@pytest.mark.row("GATE-5")
def test_a_rejected_preview_is_known_to_the_next_run_and_nothing_runs() -> None:
    chat, preview = previewed()
    since = len(chat.events)
    events = chat.command(decision(preview.payload_id, False, note="shorter please"), by=ANN)
    assert chat.types(since) == ["payload_updated", "ack"]
    updated = next(event for event in events if isinstance(event, PayloadUpdated))
    assert (updated.approval, updated.by, updated.data) == ("rejected", "ann", preview.data)
    assert chat.is_waiting
    chat.command(say("next"))
    (note,) = read_by_model(chat)
    assert "rejected" in note and preview.payload_id in note and "Tides" in note and "shorter please" in note
    assert all("rejected" not in str(message.content) for message in snapshot_of(chat.state).messages)


@pytest.mark.row("GATE-5")
def test_an_accepted_preview_is_carried_out_by_its_commit_tool_in_a_run_of_its_own() -> None:
    chat, preview = previewed(Preview("Better", {"title": "Tides"}, "a-1"))
    since = len(chat.events)
    chat.command(decision(preview.payload_id))
    assert isinstance(chat.step, RunTool)
    assert chat.step.call.function.name == "save"
    assert json.loads(chat.step.arguments) == {"title": "Tides", "object_id": "a-1"}
    chat.tool_answers("saved as a-1")
    assert chat.types(since) == [
        *("payload_updated", "ack", "runtime_updated", "runtime_updated", "tool_status"),
        *("payload_updated", "tool_status", "thread_updated", "runtime_updated"),
    ]
    assert approvals(chat.events) == ["accepted", "committed"]
    statuses = [event for event in chat.events[since:] if isinstance(event, ToolStatus)]
    assert {status.tool_call_id for status in statuses} == {f"commit-{preview.payload_id}"}
    assert [status.status for status in statuses] == ["running", "done"]
    assert chat.is_waiting and chat.state.is_at_rest
    assert "saved as a-1" in read_by_model(chat)[-1]


@pytest.mark.row("GATE-5")
def test_a_preview_without_a_commit_tool_is_only_noted() -> None:
    chat, preview = previewed(commit_tool="")
    events = chat.command(decision(preview.payload_id))
    assert approvals(events) == ["accepted"]
    assert chat.is_waiting and "accepted" in read_by_model(chat)[0]


@pytest.mark.row("CMD-13", "GATE-5")
def test_only_the_first_decision_about_a_preview_counts() -> None:
    chat, preview = previewed()
    assert acks(chat.command(decision(preview.payload_id)))[0][1]
    for late in (decision(preview.payload_id, False), decision("pl_unknown"), decision(None)):
        assert [(a, r["code"]) for _, a, r in acks(chat.command(late))] == [(False, "no_pending_decision")]
    assert approvals(chat.events) == ["accepted"]


def test_only_who_may_approve_decides_a_preview_and_only_the_one_that_was_shown() -> None:
    chat, preview = previewed()
    refused = chat.command(decision(preview.payload_id), by=Principal("guest"))
    assert [r["code"] for _, _, r in acks(refused)] == ["forbidden"]
    other = chat.command(decision(preview.payload_id, input_hash="other"))
    assert [r["code"] for _, _, r in acks(other)] == ["conflict"]
    assert preview.input_hash
    assert acks(chat.command(decision(preview.payload_id, input_hash=preview.input_hash)))[0][1]


def test_an_edited_object_may_be_as_large_as_a_shown_one_and_no_larger() -> None:
    chat, preview = previewed()
    refused = chat.command(decision(preview.payload_id, edited_input={"title": "x" * 256_000}))
    assert [r["code"] for _, _, r in acks(refused)] == ["too_large"]
    assert acks(chat.command(decision(preview.payload_id, edited_input={"title": "x" * 200_000})))[0][1]


@pytest.mark.parametrize(("roles", "approval"), [((), "commit_failed"), (("editor",), "committed")])
def test_a_commit_tool_runs_only_for_somebody_with_its_role(roles: tuple[str, ...], approval: str) -> None:
    chat, preview = previewed(traits=Traits(required_role="editor"))
    chat.command(decision(preview.payload_id), by=Principal("ann", ("approve",), tuple(sorted(roles))))
    if isinstance(chat.step, RunTool):
        chat.tool_answers("saved")
    assert approvals(chat.events) == ["accepted", approval]


def test_an_edited_object_is_shown_and_is_what_the_commit_tool_gets() -> None:
    chat, preview = previewed()
    events = chat.command(decision(preview.payload_id, edited_input={"title": "Ebb"}))
    updated = next(event for event in events if isinstance(event, PayloadUpdated))
    assert updated.data["object"] == {"title": "Ebb"}
    assert isinstance(chat.step, RunTool) and json.loads(chat.step.arguments) == {"title": "Ebb"}
    assert "edited" in read_by_model(chat)[0]


@pytest.mark.row("CMD-13")
def test_one_command_decides_calls_and_previews_and_the_commit_waits_for_the_run_to_end() -> None:
    chat = proposing(harness(), "propose")
    added = next(e for e in chat.tool_answers(preview=PROPOSED) if isinstance(e, PayloadAdded))
    chat.asks(call("c9", "mail"))
    assert chat.state.runtime.paused
    both = [
        Decision(payload_id=added.payload_id, accepted=True),
        Decision(tool_call_id="c9", accepted=True),
        Decision(payload_id="pl_none", accepted=True),
    ]
    events = chat.command(ToolDecisions(client_request_id="d", decisions=both))
    assert acks(events) == [("d", True, {"queued": True, "not_pending": ["pl_none"]})]
    assert isinstance(chat.step, RunTool) and chat.step.call.function.name == "mail"
    chat.tool_answers("sent")
    chat.command(say("later"))
    chat.says("Done.")
    assert isinstance(chat.step, RunTool) and chat.step.call.function.name == "save"
    chat.tool_answers("saved")
    assert isinstance(chat.step, CallModel), "what waited in the queue comes after it"


@pytest.mark.row("GATE-5")
@pytest.mark.parametrize(("retry", "runs_again"), [("once", False), ("idempotent", True)])
def test_a_commit_whose_owner_dies_runs_again_only_where_that_does_no_harm(retry: Retry, runs_again: bool) -> None:
    chat, preview = previewed(retry=retry)
    chat.command(decision(preview.payload_id))
    chat.crash()
    if runs_again:
        assert isinstance(chat.step, RunTool) and chat.step.call.id == f"commit-{preview.payload_id}"
        chat.tool_answers("saved")
        assert approvals(chat.events) == ["accepted", "committed"]
        return
    assert approvals(chat.events) == ["accepted", "outcome_unknown"]
    assert chat.is_waiting and chat.state.is_at_rest
    assert [e.status for e in chat.events if isinstance(e, ToolStatus)][-1] == "outcome_unknown"
    chat.crash()
    assert chat.is_waiting and "unknown" in read_by_model(chat)[-1]


def test_a_decided_preview_whose_owner_dies_before_its_turn_is_still_carried_out_once() -> None:
    chat = proposing(harness())
    added = next(e for e in chat.tool_answers(preview=PROPOSED) if isinstance(e, PayloadAdded))
    chat.command(decision(added.payload_id))
    assert isinstance(chat.step, CallModel), "the run goes on, the commit waits"
    chat.crash()
    chat.says("ok")
    assert isinstance(chat.step, RunTool) and chat.step.call.function.name == "save"
    chat.tool_answers("saved")
    assert chat.is_waiting and not chat.state.private.commits


def test_an_aborted_commit_ends_in_doubt_and_a_failed_one_says_so() -> None:
    chat, preview = previewed()
    chat.command(decision(preview.payload_id))
    chat.command(Abort(client_request_id="x"))
    assert approvals(chat.events) == ["accepted", "outcome_unknown"]
    assert chat.state.is_at_rest and chat.is_waiting
    chat, preview = previewed()
    chat.command(decision(preview.payload_id))
    chat.tool_answers("the disk is full", failed=True)
    assert approvals(chat.events) == ["accepted", "commit_failed"]
    assert "the disk is full" in read_by_model(chat)[-1]
    last = next(event for event in reversed(chat.events) if isinstance(event, RuntimeUpdated))
    assert (last.state, last.outcome) == ("idle", "complete")


@pytest.mark.parametrize("policy", ["deny", "client", "preview"])
def test_a_commit_tool_that_the_operator_has_taken_away_is_not_run(policy: Policy) -> None:
    chat, preview = previewed(policy=policy)
    chat.command(decision(preview.payload_id))
    assert chat.is_waiting
    assert approvals(chat.events) == ["accepted", "commit_failed"]


def test_a_commit_tool_is_not_offered_to_models() -> None:
    tools = harness().tools
    assert [spec.name for spec in tools.specs()] == ["propose", "mail"]
    assert tools.get("save") is None and tools.commit_tool("save") is not None


def test_what_was_decided_is_read_on_every_branch_that_shows_the_preview() -> None:
    chat, preview = previewed(commit_tool="")
    chat.command(say("more"))
    chat.command(decision(preview.payload_id), by=LOCAL)
    assert "accepted" in read_by_model(chat)[0]
    place = [message.hidden for message in model_view(chat.state, {})]
    assert place.index(True) == 4, "after the turn that made it, before what was said next"
