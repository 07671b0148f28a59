"""The context of a run: the request context that applies, its scope, and the payloads that it can see."""

import pytest
from msgspec.structs import replace

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from threadcast.agent_loop.history.request import build_request
from threadcast.chat.owner_state import OwnerState
from threadcast.profiles.context import context_of, interaction_of, payloads_of, wanted_scope
from threadcast.profiles.profile import ChatTools, Profile, Profiles, ScopeTable
from threadcast.tools.base import Payload
from threadcast_protocol.wire.commands import Interaction, Regenerate, SetParams, UserMessage
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import Principal


def asked(request_id: str, context: JsonObject | None = None, interaction: Interaction | None = None) -> UserMessage:
    return UserMessage(client_request_id=request_id, content="hi", context=context or {}, interaction=interaction)


def answered(*messages: UserMessage) -> PureChat:
    chat = PureChat()
    for message in messages:
        chat.command(message)
        chat.finish()
    return chat


@pytest.mark.row("CTX-1")
def test_the_latest_context_holds_for_its_run_alone_and_is_stored_with_its_message() -> None:
    chat = PureChat(
        table(), SetParams(client_request_id="p", patch={"context": {"from": "thread"}}), asked("a", {"n": 1})
    )
    assert context_of(chat.state, {}) == {"n": 1}
    chat.finish()
    chat.command(asked("b", {"n": 2}))
    assert context_of(chat.state, {}) == {"n": 2}
    chat.finish()
    chat.command(asked("c"))
    assert context_of(chat.state, {}) == {"from": "thread"}
    stored = [node.context for node in chat.state.nodes.values() if node.role == "user"]
    assert stored == [{"n": 1}, {"n": 2}, {}]


@pytest.mark.row("CTX-1")
def test_messages_that_wait_are_answered_each_in_its_own_context_or_together_without_one() -> None:
    chat = PureChat(table(), say("a"))
    for message in (say("b"), say("c"), asked("d", {"n": 4}), asked("e", {"n": 5}), say("f")):
        chat.command(message)
    seen: list[JsonObject] = []
    for _ in range(4):
        chat.finish()
        seen.append(context_of(chat.state, {}))
    assert seen == [{}, {"n": 4}, {"n": 5}, {}]


@pytest.mark.row("CTX-1")
def test_an_answer_that_is_made_again_has_the_context_of_its_question() -> None:
    chat = answered(asked("a", {"scope": ["reports"]}, Interaction(type="value_selected")))
    chat.command(Regenerate(client_request_id="r"))
    assert context_of(chat.state, {}) == {"scope": ["reports"]}
    assert wanted_scope(chat.state, {}) == ("reports",)
    assert interaction_of(chat.state) == {"type": "value_selected"}


@pytest.mark.row("CMD-18")
def test_the_interaction_is_that_of_the_last_message_of_the_user() -> None:
    chat = answered(asked("a", None, Interaction(type="action_selected", action="save", data={"n": 1})))
    assert interaction_of(chat.state) == {"type": "action_selected", "action": "save", "data": {"n": 1}}
    chat.command(say("b"))
    assert interaction_of(chat.state) is None


@pytest.mark.parametrize(
    ("context", "thread", "scope"),
    [
        ({"scope": ["a", "b"]}, ["c"], ("a", "b")),
        ({"scope": "a/b"}, ["c"], ("a", "b")),
        ({"scope": []}, ["c"], ()),
        ({"scope": ["no name"]}, ["c"], ("c",)),
        ({"scope": {"a": 1}}, ["c"], ("c",)),
        ({"other": 1}, ["c", "d"], ("c", "d")),
        ({}, ["c"], ("c",)),
        ({}, ["not/one"], ()),
        ({}, None, ()),
    ],
)
def test_the_scope_is_that_of_the_context_when_it_is_one_else_that_of_the_thread(
    context: JsonObject, thread: list[str] | None, scope: tuple[str, ...]
) -> None:
    chat = PureChat(table(), SetParams(client_request_id="p", patch={"scope": thread}), asked("a", context))
    assert wanted_scope(chat.state, {}) == scope


def test_a_scope_that_nobody_declared_is_the_nearest_one_around_it() -> None:
    profile = Profile(name="agent", scopes={("a", "b"): ScopeTable(system_prompt="In b.")})
    profiles = Profiles({"agent": profile}, {}, "m")
    chat = PureChat(table(), asked("a", {"scope": "a/b/c"}))
    assert profiles.tools_of(chat.state).scope == ("a", "b")
    assert profiles.tools_of(chat.state).profile.system_prompt == "In b."
    chat.finish()
    chat.command(asked("b", {"scope": "elsewhere/b"}))
    assert profiles.tools_of(chat.state).scope == ()


SECRET = "planted-secret-data"


def with_payload() -> PureChat:
    """Return a payload that a tool showed, in its own branch."""
    chat = PureChat(table({"chart": FakeTool(name="chart")}), say("a"))
    chat.asks(call("c0", "chart"))
    payload = Payload(type="chart", data={"bars": [SECRET]}, summary="Rain in May")
    chat.tool_answers("drawn", payloads=[payload])
    chat.finish()
    return chat


@pytest.mark.row("PAY-7", "PAY-8")
def test_the_prompt_lists_the_payloads_of_the_path_and_no_data_of_theirs_is_in_the_request() -> None:
    chat = with_payload()
    chat.command(say("b"))
    (payload_id,) = payloads_of(chat.state)
    request = build_request(chat.state, chat.tools, "demo", "m", with_tools=True)
    assert f"- {payload_id} (chart): Rain in May" in request.system
    assert SECRET not in repr(request)


@pytest.mark.row("PAY-7")
def test_payloads_of_another_branch_are_not_listed() -> None:
    chat = with_payload()
    chat.command(Regenerate(client_request_id="r"))
    assert chat.state.payloads and payloads_of(chat.state) == {}
    request = build_request(chat.state, chat.tools, "demo", "m", with_tools=True)
    assert "# Payloads" not in request.system


@pytest.mark.row("CTX-6", "CTX-7")
def test_a_request_has_the_instructions_of_profile_and_thread_and_the_roles_of_who_asks() -> None:
    profile = Profile(name="agent", custom_instructions="From the profile.")
    chat = PureChat(
        ChatTools(profile, {}, frozenset(), "m"),
        SetParams(client_request_id="p", patch={"custom_instructions": "From the thread."}),
    )
    ann = Principal("ann", roles=("editor", "reviewer"))
    chat.command(asked("a", {"roles": ["admin"]}), by=ann)
    prompt = build_request(chat.state, chat.tools, "demo", "m", with_tools=True).system
    assert "# Instructions\n\nFrom the profile.\n\nFrom the thread." in prompt
    assert "The user's roles, by authentication: editor, reviewer\n" in prompt


def test_the_summary_after_the_last_round_is_not_told_of_tools_that_it_cannot_call() -> None:
    chat = with_payload()
    assert isinstance(chat.state, OwnerState)
    tools = ChatTools(
        chat.tools.profile, {"get_payload": FakeTool(name="get_payload")}, frozenset(), "m", has_payloads=True
    )
    told = [build_request(chat.state, tools, "demo", "m", with_tools=each).system for each in (True, False)]
    assert ["get_payload" in text for text in told] == [True, False]


def test_a_chat_folded_again_is_in_the_same_place() -> None:
    chat = PureChat(table(), asked("a", {"scope": "a/b"}, Interaction(type="form_submitted", data={"x": 1})))
    chat.crash()
    folded = replace(chat.state, recent_acks=())
    assert (wanted_scope(folded, {}), interaction_of(folded)) == (
        ("a", "b"),
        {"type": "form_submitted", "data": {"x": 1}},
    )
