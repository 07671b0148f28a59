"""Tests summaries of long histories: the text that the model reads after a summary, on each branch, and the effects of
a failed summary (HIST-4)."""

from collections.abc import AsyncGenerator

import anyio
import pytest

from tests.unit.actor_harness import Harness, params
from tests.unit.actor_harness import say as ask
from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from tests.unit.test_fallback import Moody
from tests.unit.test_history import history
from threadcast.agent_loop import loop
from threadcast.agent_loop.history.compaction import ATTACHED_TOKENS, tokens_of
from threadcast.agent_loop.history.summaries import (
    HEADING,
    MESSAGE_MAX_CHARACTERS,
    TRANSCRIPT_MAX_CHARACTERS,
    summary_request,
)
from threadcast.agent_loop.history.view import model_view
from threadcast.agent_loop.steps import CallModel, Summarize
from threadcast.chat.facts import ResultWithheld
from threadcast.chat.runtime import say_runtime
from threadcast.profiles.profile import Profile
from threadcast.providers.base import Delta, Request, TextDelta
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.commands import Abort, Regenerate, SelectBranch, SetParams
from threadcast_protocol.wire.events import ErrorHappened, RuntimeUpdated, ThreadUpdated
from threadcast_protocol.wire.messages import FilePart, Message, Part, TextPart, Usage

TOOLS = {"clock": FakeTool(name="clock")}


def chat_with(max_messages: int, *questions: str, max_rounds: int = 20) -> PureChat:
    """Return a chat that is summarized above this number of messages; it has these questions and their answers."""
    chat = PureChat(
        table(TOOLS, max_rounds, summarizer="demo/short"),
        SetParams(client_request_id="p", patch={"max_history_messages": max_messages}),
    )
    for question in questions:
        talk(chat, question)
    return chat


def talk(chat: PureChat, question: str) -> None:
    chat.command(say(question, question))
    chat.says(f"re {question}")


def read(chat: PureChat) -> list[str]:
    return [str(m.content).removeprefix(HEADING) for m in model_view(chat.state, {})]


def told(chat: PureChat) -> list[object]:
    return [e.compaction for e in chat.events if isinstance(e, ThreadUpdated) and isinstance(e.compaction, dict)]


@pytest.mark.row("HIST-4", "HIST-6", "HIST-2")
def test_before_a_round_that_is_too_long_the_rest_is_summed_up_and_nothing_is_deleted() -> None:
    chat = chat_with(3, "one", "two")
    chat.command(say("three", "three"))
    assert chat.state.runtime.is_compressing
    assert isinstance(chat.step, Summarize)
    assert chat.step.model == "demo/short"
    assert (chat.step.first, chat.step.last) == chat.state.path[:2]
    chat.summarizer_answers("they spoke of one", Usage(7, 3, 10))
    assert [e.is_compressing for e in chat.events if isinstance(e, RuntimeUpdated)][-2:] == [True, False]
    assert read(chat) == ["they spoke of one", "two", "re two", "three"]
    assert told(chat) == [{"strategy": "summarize", "before": 5, "after": 4, "covered": 2, "elapsed_ms": 1}]
    assert chat.state.thread.usage == Usage(7, 3, 10)
    assert len(chat.state.path) == 6
    assert b"they spoke" not in encode(snapshot_of(chat.state)), "a summary may repeat what clients must not see"
    summary = model_view(chat.state, {})[0]
    assert (summary.role, summary.kind, summary.hidden) == ("user", "summary", True)


@pytest.mark.row("HIST-4")
def test_the_summarizer_is_asked_for_little_and_reads_what_the_model_reads() -> None:
    chat = chat_with(3)
    chat.command(say("one", "one"))
    chat.asks(call("c1", "clock", '{"zone":"utc"}'))
    chat.tool_answers("noon")
    chat.says("it is noon")
    result = chat.state.path[2]
    chat.write(lambda builder: builder.note(ResultWithheld(message_id=result, content="noon in Utrecht")))
    chat.command(say("two", "two"))
    request = summary_request(chat.state, {}, "short")
    assert (request.params.max_tokens, request.params.temperature, request.model) == (500, 0.2, "short")
    (transcript,) = request.messages
    assert str(transcript.content).split("\n\n") == [
        "[user]\none",
        '[assistant]\ncalls clock {"zone":"utc"}',
        "[tool]\nnoon in Utrecht",
        "[assistant]\nit is noon",
    ]
    assert request.tools == []


def test_a_later_summary_covers_the_earlier_one_and_stands_alone() -> None:
    chat = chat_with(2, "one")
    chat.command(say("two", "two"))
    chat.summarizer_answers("of one")
    chat.says("re two")
    chat.command(say("three", "three"))
    assert isinstance(chat.step, Summarize)
    assert chat.step.first == chat.state.path[0]
    words = str(summary_request(chat.state, {}, "m").messages[0].content)
    assert words.startswith(f"[summary of what came before]\n{HEADING}of one\n\n[user]\ntwo")
    chat.summarizer_answers("of one and two")
    assert read(chat) == ["of one and two", "three"]
    assert told(chat)[-1] == {"strategy": "summarize", "before": 4, "after": 2, "covered": 3, "elapsed_ms": 1}


@pytest.mark.row("HIST-3", "HIST-5")
@pytest.mark.parametrize(
    ("shape", "most", "shown"),
    [("UAcrAUA", 2, "SUA"), ("UcrUA", 3, "SUA"), ("UAUA", 2, "SUA"), ("UA", 5, "UA"), ("UAUcr", 2, "SUcr")],
)
def test_a_summary_ends_before_a_question_and_leaves_pairs_together(shape: str, most: int, shown: str) -> None:
    """S stands for the summary; the last question is the question that the next round answers, or has answered."""
    chat = chat_with(0)
    chat.write(lambda builder: builder.begin_with(history(shape), "r"))
    chat.command(SetParams(client_request_id="q", patch={"max_history_messages": most}))
    chat.command(Regenerate(client_request_id="r") if shape[-1] == "A" else say("r", "U"))
    while isinstance(chat.step, Summarize):
        chat.summarizer_answers("S")
    words = "".join({"assistant": "A", "tool": "r", "user": "U"}[m.role] for m in model_view(chat.state, {}))
    assert isinstance(chat.step, CallModel)
    expected = shown.replace("S", "U").removesuffix("A") if shape[-1] == "A" else "UU"
    assert words == expected


def test_a_summary_holds_only_where_the_path_leads_through_what_it_covers() -> None:
    chat = chat_with(3, "one", "two")
    chat.command(say("three", "three"))
    chat.summarizer_answers("of one")
    chat.says("re three")
    leaf = chat.state.path[-1]
    answer_to_one = chat.state.path[1]
    chat.command(Regenerate(client_request_id="again", message_id=answer_to_one))
    assert read(chat) == ["one"]
    chat.says("another")
    assert read(chat) == ["one", "another"]
    chat.command(SelectBranch(client_request_id="back", message_id=leaf))
    assert read(chat) == ["of one", "three", "re three"]


@pytest.mark.row("HIST-5")
def test_when_it_fails_the_oldest_messages_go_unsummed_and_it_is_tried_again_only_by_the_next_run() -> None:
    chat = chat_with(2, "one")
    chat.command(say("two", "two"))
    chat.summarizer_answers("")
    assert isinstance(chat.step, CallModel)
    assert read(chat) == ["two"]
    assert told(chat) == [{"strategy": "truncate", "before": 3, "after": 1, "covered": 2, "elapsed_ms": 0}]
    assert not [event for event in chat.events if isinstance(event, ErrorHappened)]
    chat.asks(call("c1", "clock"))
    chat.tool_answers("noon")
    assert isinstance(chat.step, CallModel), "not tried again in this run"
    chat.says("re two")
    chat.command(say("three", "three"))
    assert isinstance(chat.step, Summarize)


def test_that_it_is_being_written_is_said_even_when_nothing_else_changes() -> None:
    chat = chat_with(0)
    chat.command(say("one", "one"))
    since = len(chat.events)
    chat.write(lambda builder: say_runtime(builder, "generating", is_compressing=True))
    chat.write(lambda builder: say_runtime(builder, "generating"))
    chat.write(lambda builder: say_runtime(builder, "generating"))
    assert [e.is_compressing for e in chat.events[since:] if isinstance(e, RuntimeUpdated)] == [True, False]


def test_a_crash_while_it_is_written_begins_it_again_and_an_abort_ends_it() -> None:
    chat = chat_with(2, "one")
    chat.command(say("two", "two"))
    step = chat.step
    chat.crash()
    assert chat.step == step
    chat.command(Abort(client_request_id="stop"))
    assert chat.state.runtime.outcome == "aborted"
    assert not chat.state.runtime.is_compressing


def test_at_the_limit_the_history_is_summed_up_before_the_last_word_and_the_limit_said_once() -> None:
    chat = chat_with(0, "one", max_rounds=1)
    chat.command(SetParams(client_request_id="q", patch={"on_limit": "summarize"}))
    chat.command(say("two", "two"))
    chat.asks(call("c1", "clock"))
    chat.command(SetParams(client_request_id="r", patch={"max_history_messages": 3}))
    chat.tool_answers("noon")
    assert isinstance(chat.step, Summarize)
    chat.summarizer_answers("of one")
    assert isinstance(chat.step, CallModel)
    assert not chat.step.with_tools
    errors = [event.code for event in chat.events if isinstance(event, ErrorHappened)]
    assert errors == ["max_tool_rounds"]


def test_what_a_model_reads_is_counted_whatever_it_is_made_of() -> None:
    def of(content: str | list[Part]) -> int:
        return tokens_of(Message(role="user", content=content, message_id="m"))

    assert of("four") == 2
    assert of("字" * 4) == 4, "three bytes for a letter"
    assert of([TextPart("four"), FilePart(name="a.pdf", mime="application/pdf", data="x")]) == 2 + ATTACHED_TOKENS
    pictured = Message(role="tool", content="four", message_id="m", attachments=[{"type": "image_url"}])
    assert tokens_of(pictured) == 2 + ATTACHED_TOKENS


def test_a_transcript_is_bounded_whatever_the_chat_holds() -> None:
    chat = chat_with(2)
    long = [Message(role="user", content="x" * 2 * MESSAGE_MAX_CHARACTERS, message_id=f"m{n}") for n in range(90)]
    chat.write(lambda builder: builder.begin_with(long, "r"))
    chat.command(say("last", "last"))
    words = str(summary_request(chat.state, {}, "m").messages[0].content)
    assert len(words) < 1.1 * TRANSCRIPT_MAX_CHARACTERS
    assert words.count("[…]") > 80


class Silent(Moody):
    """Takes the request and does not answer."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        await anyio.sleep_forever()
        yield TextDelta("never")


@pytest.mark.anyio
@pytest.mark.row("HIST-5")
@pytest.mark.parametrize("trouble", ["server_error", "silent", "gone"])
async def test_a_summarizer_in_trouble_costs_the_run_nothing(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SUMMARY_SECONDS", 0.05)
    broken = Silent("short") if trouble == "silent" else Moody("short", "server_error")
    model = "nobody/m" if trouble == "gone" else "short/m"
    harness = Harness(providers=[broken], profile=Profile(name="agent", summarizer=model))
    await harness.own("w1", params(max_history_messages=2), ask("one"))
    await harness.own("w1", ask("two"))
    events = await harness.events()
    assert [e.outcome for e in events if isinstance(e, RuntimeUpdated) and e.outcome] == ["complete", "complete"]
    (said,) = [e.compaction for e in events if isinstance(e, ThreadUpdated) and isinstance(e.compaction, dict)]
    assert said["strategy"] == "truncate"
