"""Interactions between parts of the agent: wakes with previews, markers with sub-chats, the guard with branches."""

import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from tests.unit.pure_family import begun, calling, opened, outbound_of
from tests.unit.test_tree import check_law
from threadcast.agent_loop.history.request import prompt_context
from threadcast.agent_loop.history.view import model_view
from threadcast.agent_loop.steps import CallModel, RunTool
from threadcast.chat.internal_commands import SubchatFinished
from threadcast.chat.owner_state import Commit
from threadcast.chat.subchats import Wanted, open_child
from threadcast.profiles.payload_types import PayloadType
from threadcast.profiles.reply_guard import ReplyGuard
from threadcast.tools.preview import Preview
from threadcast.tools.traits import Traits
from threadcast_protocol.wire.commands import Abort, Regenerate, ToolDecision
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.events import PayloadAdded, ThreadUpdated

CHINESE = "这个问题很有意思"

TOOLS = {
    "propose": FakeTool(name="propose", policy="preview", traits=Traits(commit_tool="save")),
    "save": FakeTool(name="save", retry="idempotent"),
    "delegate": FakeTool(name="delegate"),
}


def accepted_while_an_agent_works() -> tuple[PureChat, str]:
    """Return a chat in its run's last round, with a running background agent that will wake the chat, and an accepted
    preview in the queue."""
    chat = PureChat(table(TOOLS), say("q"))
    chat.asks(call("c0", "propose"), call("c1", "delegate"))
    events = chat.tool_answers(preview=Preview("New", {"title": "Tides"}))
    payload_id = next(event.payload_id for event in events if isinstance(event, PayloadAdded))
    children: list[str] = []
    wanted = Wanted("c1", "look", is_background=True, wakes=True)
    chat.write(lambda builder: children.append(open_child(builder, wanted).chat_id))
    chat.tool_answers("started")
    chat.command(ToolDecision(client_request_id="d", payload_id=payload_id, accepted=True))
    return chat, children[0]


def ended(agent: str) -> SubchatFinished:
    return SubchatFinished(client_request_id="f", subchat_id=agent, outcome="complete", text="the tide is high")


def commit_of(chat: PureChat) -> Commit | None:
    return chat.state.private.run.commit if chat.state.private.run is not None else None


@pytest.mark.parametrize("dies", [False, True])
def test_a_wake_that_meets_a_preview_to_be_carried_out_waits_for_it_and_is_not_lost(dies: bool) -> None:
    chat, agent = accepted_while_an_agent_works()
    chat.command(ended(agent))
    chat.says("Have a look.")
    assert commit_of(chat) is not None
    if dies:
        chat.crash()
    chat.tool_answers("saved")
    assert isinstance(chat.step, CallModel) and commit_of(chat) is None
    assert any("the tide is high" in str(message.content) for message in model_view(chat.state, {}))
    chat.finish()
    assert chat.is_waiting and chat.state.private.relations.wake is None
    check_law(chat)


def test_a_wake_that_waits_for_a_preview_ends_with_an_abort_and_one_during_it_follows_it() -> None:
    chat, agent = accepted_while_an_agent_works()
    chat.command(ended(agent))
    chat.finish()
    chat.command(Abort(client_request_id="stop"))
    assert chat.is_waiting and chat.state.private.relations.wake is None

    chat, agent = accepted_while_an_agent_works()
    chat.finish()
    assert commit_of(chat) is not None
    chat.command(ended(agent))
    chat.tool_answers("saved")
    assert isinstance(chat.step, CallModel) and commit_of(chat) is None


def test_a_parent_reads_its_childs_answer_without_the_markers() -> None:
    parent = calling()
    opened(parent)
    child = begun(parent)
    child.tools = table(payload_types=[PayloadType(name="article", marker="ARTICLE")])
    child.says('Written.\nARTICLE: {"title": "Moss"}\nSUGGESTED_VALUES: ["more"]')
    (command,) = outbound_of(child)
    assert isinstance(command, SubchatFinished) and command.text == "Written."
    check_law(child)


def test_what_a_guard_said_stays_on_the_branch_of_the_answer_that_it_refused() -> None:
    guard = ReplyGuard(forbid_scripts=["Han"], instruction="In English.")
    chat = PureChat(table(reply_guard=guard), say("q"))
    for words in (CHINESE, "Fine."):
        chat.says(words)
    assert chat.is_waiting
    assert [m.content for m in model_view(chat.state, {})][1:3] == [CHINESE, "In English."]
    chat.command(Regenerate(client_request_id="again", message_id=chat.state.path[1]))
    assert isinstance(chat.step, CallModel)
    assert [m.content for m in model_view(chat.state, {})] == ["hi"]
    chat.says(CHINESE)
    assert isinstance(chat.step, CallModel), "the other branch's retries are not this run's"
    check_law(chat)


def test_a_preview_decided_while_an_answer_is_asked_for_again_is_read_and_the_guard_still_counts() -> None:
    chat = PureChat(
        table(TOOLS, reply_guard=ReplyGuard(forbid_scripts=["Han"], instruction="In English.", max_retries=2)), say("q")
    )
    chat.asks(call("c0", "propose"))
    events = chat.tool_answers(preview=Preview("New", {"title": "Tides"}))
    payload_id = next(event.payload_id for event in events if isinstance(event, PayloadAdded))
    chat.says(CHINESE)
    assert isinstance(chat.step, CallModel)
    chat.command(ToolDecision(client_request_id="d", payload_id=payload_id, accepted=True))
    for _ in range(2):
        assert isinstance(chat.step, CallModel)
        chat.says(CHINESE)
    assert isinstance(chat.step, RunTool) and chat.step.call.function.name == "save"
    chat.tool_answers("saved")
    assert chat.is_waiting
    view = [str(m.content) for m in model_view(chat.state, {})]
    assert sum(words == "In English." for words in view) == 2
    assert sum("accepted the preview" in words for words in view) == 1
    check_law(chat)


def test_markers_in_a_persons_words_and_in_a_tools_result_stay_where_they_are() -> None:
    chat = PureChat(table(TOOLS))
    words = 'SUGGESTED_VALUES: ["a"]'
    chat.command(say("q", words))
    chat.asks(call("c1", "delegate"))
    chat.tool_answers(words)
    chat.says("It offers answers.")
    assert [chat.state.nodes[key].content for key in chat.state.path] == [words, "", words, "It offers answers."]
    assert chat.state.private.raw_answers == {}
    check_law(chat)


def test_an_answer_that_came_whole_is_progress_even_before_its_calls_have_run() -> None:
    chat = PureChat(table(TOOLS), say("q"))
    chat.stream(AppendContent("I ask"))
    chat.crash(can_continue=True)
    assert chat.state.private.attempts == 1
    chat.asks(call("c1", "delegate"))
    assert isinstance(chat.step, RunTool) and chat.state.private.attempts == 0


def test_sections_of_the_prompt_read_the_threads_metadata() -> None:
    chat = PureChat(table())
    assert prompt_context(chat.state, chat.tools, [], "").metadata == {}
    chat.write(lambda builder: builder.say(ThreadUpdated(metadata={"book": "Tides"})))
    assert prompt_context(chat.state, chat.tools, [], "").metadata == {"book": "Tides"}
