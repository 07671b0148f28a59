"""The translation of Chat Completions, without a server: bodies, histories, ids of calls, and chunks."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from threadcast.compat.base import OutFrame
from threadcast.compat.foreign_ids import call_id_of, read_call_id
from threadcast.compat.openai.chunks import PAUSE_MARK, ROUND_SEPARATOR, OpenAIChunks
from threadcast.compat.openai.histories import relation_of, turns_of_path, turns_of_request
from threadcast.compat.openai.requests import MESSAGES_MAX_COUNT, CompletionsRequest, read_completions
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.events import (
    Event,
    IdeToolRequired,
    PauseRequired,
    RuntimeUpdated,
    StreamDelta,
    StreamFinished,
    StreamStarted,
)
from threadcast_protocol.wire.messages import JsonObject, Message

CHAT = "c-1"
WORDS = st.text(min_size=1, max_size=20)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=5)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
PIECES = st.lists(st.tuples(st.sampled_from(["text", "reasoning"]), WORDS), max_size=5)
ROUNDS = st.lists(PIECES, min_size=1, max_size=4)


def chunks(*, tools: tuple[str, ...] = ()) -> OpenAIChunks:
    return OpenAIChunks(
        CHAT, "chatcmpl-1", model="m", created_seconds=1, with_usage=True, tools=tools, link="http://x/c/c-1"
    )


def events_of(rounds: list[list[tuple[str, str]]]) -> list[Event]:
    """Return the events of the rounds, without the end of their run."""
    events: list[Event] = []
    for number, pieces in enumerate(rounds):
        key = f"msg_{number}"
        events.append(StreamStarted(message_id=key, run_id="run_1", round=number, model="m"))
        for kind, text in pieces:
            op = AppendContent(text) if kind == "text" else AppendReasoning(text)
            events.append(StreamDelta(message_id=key, ops=[op]))
        events.append(StreamFinished(message_id=key, finish_reason="stop"))
    return events


def streamed(projection: OpenAIChunks, events: list[Event]) -> list[ChatCompletionChunk]:
    """Return the chunks, each read by the package's own type."""
    frames: list[OutFrame] = projection.begin()
    for event in events:
        frames += projection.feed(event)
    assert projection.is_done and frames[-1].data == "[DONE]"
    assert [frame.data for frame in frames].count("[DONE]") == 1
    return [ChatCompletionChunk.model_validate_json(frame.data) for frame in frames[:-1]]


def text_in(found: list[ChatCompletionChunk], key: str = "content") -> str:
    deltas = [each.choices[0].delta for each in found if each.choices]
    return "".join(getattr(delta, key, None) or "" for delta in deltas)


@given(ROUNDS)
def test_the_chunks_of_an_answer_make_its_one_body(rounds: list[list[tuple[str, str]]]) -> None:
    projection = chunks()
    found = streamed(projection, [*events_of(rounds), RuntimeUpdated(state="idle", outcome="complete")])
    body = ChatCompletion.model_validate({**projection.body(), "usage": None})
    texts = ["".join(text for kind, text in pieces if kind == "text") for pieces in rounds]
    assert text_in(found) == (body.choices[0].message.content or "") == ROUND_SEPARATOR.join(filter(None, texts))
    reasoning = "".join(text for pieces in rounds for kind, text in pieces if kind == "reasoning")
    assert text_in(found, "reasoning_content") == reasoning
    assert [each.choices[0].finish_reason for each in found if each.choices][-1] == "stop"
    assert not found[-1].choices, "the last chunk has the usage"


@given(ROUNDS)
def test_a_pause_ends_the_answer_with_its_notice(rounds: list[list[tuple[str, str]]]) -> None:
    projection = chunks()
    found = streamed(projection, [*events_of(rounds), PauseRequired([])])
    assert text_in(found).endswith(f"{PAUSE_MARK}http://x/c/c-1]") and projection.is_waiting
    assert projection.feed(RuntimeUpdated(state="idle", outcome="complete")) == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["own", "servers"]), st.dictionaries(WORDS, LEAVES, max_size=2)),
        min_size=1,
        max_size=5,
    )
)
def test_only_calls_of_the_callers_tools_are_handed_over(asked: list[tuple[str, JsonObject]]) -> None:
    projection = chunks(tools=("own",))
    events: list[Event] = [
        IdeToolRequired(tool_call_id=f"call_{at}", tool_name=name, args=args) for at, (name, args) in enumerate(asked)
    ]
    events += [RuntimeUpdated(state="waiting_ide"), RuntimeUpdated(state="idle", outcome="complete")]
    found = streamed(projection, events)
    calls = [call for each in found if each.choices for call in each.choices[0].delta.tool_calls or []]
    own = [(f"call_{at}", args) for at, (name, args) in enumerate(asked) if name == "own"]
    functions = [call.function for call in calls if call.function is not None]
    arguments = [json.loads(function.arguments or "") for function in functions]
    shown = list(zip((read_call_id(call.id or "") for call in calls), arguments, strict=True))
    assert shown == [((key, CHAT), args) for key, args in own]
    assert [call.index for call in calls] == list(range(len(own)))
    reason = [each.choices[0].finish_reason for each in found if each.choices][-1]
    assert reason == ("tool_calls" if own else "stop")


@given(st.text(), st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True))
def test_the_id_of_a_call_names_the_chat_and_comes_back(call_id: str, chat_id: str) -> None:
    assert read_call_id(call_id_of(chat_id, call_id)) == (call_id, chat_id)


TURNS = st.lists(WORDS.filter(str.strip), min_size=1, max_size=6)


def path_of(texts: list[str]) -> list[Message]:
    roles = ("user", "assistant")
    return [Message(role=roles[at % 2], content=text, message_id=f"msg_{at}") for at, text in enumerate(texts)]


def history_of(texts: list[str]) -> list[JsonObject]:
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


@given(TURNS, st.integers(0, 6), st.booleans())
def test_a_history_is_known_by_its_turns(texts: list[str], length: int, trims: bool) -> None:
    given_texts = [text.strip() if trims else text for text in texts[:length]]
    path = turns_of_path(path_of(texts))
    relation = relation_of(turns_of_request(history_of(given_texts)), path)
    if length >= len(texts):
        assert relation == "same"
    else:  # the request replaces the next turn, a user's; or the history is cut at an unusual place
        assert relation == ("earlier" if given_texts and length % 2 == 0 else "other")
    changed = [*given_texts[:-1], given_texts[-1] + "!"] if given_texts else ["!"] * (len(texts) + 1)
    assert relation_of(turns_of_request(history_of(changed)), path) == "other"


@given(TURNS, st.text(max_size=20))
def test_without_a_history_only_the_first_question_is_known(texts: list[str], other: str) -> None:
    path = turns_of_path(path_of(texts))
    assert relation_of([], path, texts[0]) == relation_of([], path, [{"type": "text", "text": texts[0]}]) == "earlier"
    assert relation_of([], path, other) == ("earlier" if other.strip() == texts[0].strip() else "other")


@given(TURNS, st.text(min_size=1, max_size=20).filter(str.strip))
def test_an_answer_goes_on_behind_the_notice_that_its_caller_read(texts: list[str], more: str) -> None:
    question, answer = texts[0], "".join(texts)
    notice = f"{answer}{ROUND_SEPARATOR}{PAUSE_MARK}http://x/c/c-1]"
    path = turns_of_path(path_of([question, answer + ROUND_SEPARATOR + more]))
    assert relation_of(turns_of_request(history_of([question, notice])), path) == "same"


KEYS = sorted(CompletionsRequest.__struct_fields__)


@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4))
def test_a_body_is_read_or_refused_with_its_place(more: JsonObject) -> None:
    body: Any = {"messages": [{"role": "user", "content": "x"}], **more}
    try:
        wish = read_completions(json.dumps(body).encode())
    except BadRequest as refused:
        assert refused.path is not None
    else:
        assert wish.content is not None or wish.results
        assert wish.is_stream == (more.get("stream") is True)


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest):
        read_completions(body)


def test_a_request_has_a_bounded_number_of_messages() -> None:
    message = {"role": "user", "content": "x"}
    read_completions(json.dumps({"messages": [message] * MESSAGES_MAX_COUNT}).encode())
    with pytest.raises(BadRequest) as refused:
        read_completions(json.dumps({"messages": [message] * (MESSAGES_MAX_COUNT + 1)}).encode())
    assert refused.value.path == "/messages"
