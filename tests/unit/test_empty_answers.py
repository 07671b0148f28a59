"""After an empty answer the model is asked once more; a second empty answer ends the run with the error
`empty_answer`."""

import pytest
from msgspec.structs import replace

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from threadcast.agent_loop.answer import empty
from threadcast.agent_loop.answer.assembler import Assembler
from threadcast.agent_loop.history.view import model_view
from threadcast.agent_loop.steps import CallModel
from threadcast.providers.base import Finished, ToolCallDelta
from threadcast_protocol.wire.commands import Abort, Regenerate, SetParams
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning
from threadcast_protocol.wire.events import ErrorHappened, MessageRemoved, RuntimeUpdated
from threadcast_protocol.wire.messages import Message


def asked(**params: object) -> PureChat:
    chat = PureChat(table({"clock": FakeTool(name="clock")}, **params))  # type: ignore[arg-type]  # the test's words
    chat.command(say("q"))
    return chat


def errors(chat: PureChat) -> list[tuple[str, bool]]:
    return [(event.code, event.fatal) for event in chat.events if isinstance(event, ErrorHappened)]


def shown(chat: PureChat) -> list[tuple[str, str]]:
    return [(chat.state.nodes[key].role, str(chat.state.nodes[key].content)) for key in chat.state.path]


@pytest.mark.row("ERR-2", "LOOP-14")
def test_an_empty_answer_is_asked_for_once_more_and_leaves_no_trace_when_the_second_is_good() -> None:
    chat = asked()
    since = len(chat.events)
    chat.finish(words="")
    assert chat.types(since) == ["message_removed", "runtime_updated", "stream_started"]
    assert isinstance(chat.step, CallModel)
    view = model_view(chat.state, {})
    assert [(m.role, m.content) for m in view] == [("user", "hi"), ("user", empty.NOTHING)]
    notes = [event.status_text for event in chat.events if isinstance(event, RuntimeUpdated)]
    assert "asking again: the answer was empty" in notes
    chat.finish(words="Here I am.")
    assert shown(chat) == [("user", "hi"), ("assistant", "Here I am.")]
    assert (chat.state.runtime.outcome, errors(chat)) == ("complete", [])


@pytest.mark.row("ERR-2", "ERR-4")
def test_a_second_empty_answer_ends_the_run_with_a_sentence_and_the_next_command_runs() -> None:
    chat = asked()
    chat.finish(words="")
    chat.finish(words="  \n")
    assert shown(chat) == [("user", "hi")]
    assert errors(chat) == [("empty_answer", True)]
    assert (chat.state.runtime.outcome, chat.state.runtime.error) == ("error", "The model answered with nothing.")
    chat.command(say("r"))
    chat.finish()
    assert chat.state.runtime.outcome == "complete"


def test_every_run_asks_once_more_and_no_more_than_once() -> None:
    chat = asked()
    chat.finish(words="")
    chat.finish(words="")
    chat.command(Regenerate(client_request_id="r"))
    chat.finish(words="")
    assert isinstance(chat.step, CallModel), "what an earlier run was told does not count"
    chat.asks(call("c0", "clock"))
    chat.tool_answers("noon")
    chat.finish(words="")
    assert errors(chat)[-1] == ("empty_answer", True)


@pytest.mark.parametrize("moment", ["before the second", "in the second"])
def test_that_it_was_asked_once_more_survives_a_crash(moment: str) -> None:
    chat = asked()
    chat.finish(words="")
    if moment == "in the second":
        chat.stream(AppendContent("   "))
    chat.crash()
    assert isinstance(chat.step, CallModel)
    assert [m.content for m in model_view(chat.state, {})] == ["hi", empty.NOTHING]
    chat.finish(words="")
    assert chat.is_waiting
    assert errors(chat) == [("empty_answer", True)]


@pytest.mark.row("ERR-3")
def test_reasoning_alone_is_no_answer_but_stays() -> None:
    chat = asked()
    chat.stream(AppendReasoning("hm"))
    thought = chat.state.path[-1]
    chat.finish(words="")
    assert chat.state.nodes[thought].reasoning_content == "hm"
    assert isinstance(chat.step, CallModel)
    assert chat.step.message_id != thought
    chat.crash()
    chat.stream(AppendReasoning("hm, hm"))
    chat.finish(words="")
    assert [chat.state.nodes[key].reasoning_content for key in chat.state.path[1:]] == ["hm", "hm, hm"]
    assert errors(chat) == [("empty_answer", True)]
    assert not [event for event in chat.events if isinstance(event, MessageRemoved) and event.message_id == thought]


def test_a_call_without_a_name_is_asked_for_once_more_and_words_beside_it_stand() -> None:
    chat = asked()
    chat.says("I will look.", has_nameless_calls=True)
    assert isinstance(chat.step, CallModel)
    assert [m.content for m in model_view(chat.state, {})] == ["hi", "I will look.", empty.NAMELESS]
    chat.says("I will look again.", has_nameless_calls=True)
    assert (chat.state.runtime.outcome, errors(chat)) == ("complete", [])
    assert [text for _, text in shown(chat)] == ["hi", "I will look.", "I will look again."]


def test_after_a_tool_the_question_is_whole_and_the_answer_is_asked_for_once_more() -> None:
    chat = asked()
    chat.asks(call("c0", "clock"))
    chat.tool_answers("noon")
    chat.finish(words="")
    assert [m.role for m in model_view(chat.state, {})] == ["user", "assistant", "tool", "user"]
    chat.finish(words="Noon.")
    assert shown(chat)[-1] == ("assistant", "Noon.")


def test_nothing_is_asked_beyond_the_last_round_or_while_a_new_message_waits_or_what_a_filter_held_back() -> None:
    chat = asked(max_rounds=1)
    chat.finish(words="")
    assert errors(chat) == [("empty_answer", True)]
    chat = asked()
    chat.finish("content_filter", words="")
    assert chat.state.runtime.error == "The model's provider held the whole answer back."
    chat = asked()
    chat.command(say("now", priority=True))
    chat.finish(words="")
    assert isinstance(chat.step, CallModel) and not chat.state.private.queue, "the new message is answered"


def test_an_abort_of_the_second_attempt_is_an_abort() -> None:
    chat = asked()
    chat.command(SetParams(client_request_id="p", patch={}))
    chat.finish(words="")
    chat.command(Abort(client_request_id="x"))
    assert (chat.state.runtime.outcome, errors(chat)) == ("aborted", [])


@pytest.mark.parametrize("name", [None, "", "  "])
def test_a_call_whose_name_is_missing_or_empty_is_noticed(name: str | None) -> None:
    assembler = Assembler(set(), lambda: "made")
    for delta in (ToolCallDelta(0, "c", name, "{}"), Finished("tool_calls")):
        assembler.feed(delta)
    assert assembler.answer().calls == [] and assembler.answer().has_nameless_calls
    sound = Assembler(set(), lambda: "made")
    for fragment in (ToolCallDelta(0, "c"), ToolCallDelta(0, None, "clock"), ToolCallDelta(0, None, None, "{}")):
        sound.feed(fragment)
    assert len(sound.answer().calls) == 1 and not sound.answer().has_nameless_calls


def test_what_the_providers_own_tools_made_is_an_answer() -> None:
    chat = asked()
    draft = chat.state.draft
    assert draft is not None
    made: Message = replace(draft.message, server_content_blocks=[{"type": "image"}])
    assert empty.objection_to(replace(draft, message=made), has_calls=False, has_nameless_calls=False) == ""
