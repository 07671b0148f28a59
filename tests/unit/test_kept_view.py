"""A `KeptView` only saves time: view, request and trace are the same as without it, whatever has happened to the chat
since the view was kept."""

import gc
import tracemalloc
from collections.abc import Sequence
from typing import Any, NamedTuple

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from msgspec.structs import replace

from tests.unit.pure_chat import PureChat
from tests.unit.test_reducer import chats
from tests.unit.test_tree import EDITS, edit_of, talk
from threadcast.agent_loop.history.attachments import resolve
from threadcast.agent_loop.history.kept_view import KEPT_MIN_COUNT, KeptView
from threadcast.agent_loop.history.request import build_request
from threadcast.agent_loop.history.view import View, messages_of, view_of
from threadcast.agent_loop.tracing import referred
from threadcast.chat.entry_codec import decode_state, encode_state
from threadcast.chat.owner_state import OwnerState, Run, empty_owner_state
from threadcast.providers.base import Request
from threadcast.providers.openai.body_pieces import BodyPieces, encoded_body
from threadcast.providers.openai.chat_wire import request_body
from threadcast.providers.unchanged import PIECES_MAX_COUNT, Encoded
from threadcast_protocol.fold.growing_text import GrowingText
from threadcast_protocol.fold.state import Draft
from threadcast_protocol.wire.blobs import Blob
from threadcast_protocol.wire.messages import FunctionCall, ImagePart, ImageUrl, Message, Part, TextPart, ToolCall
from threadcast_protocol.wire.principal import LOCAL
from threadcast_protocol.wire.thread import Thread

CALL_IDS = ["c0", "c1", "c2"]


def same_with(kept: KeptView, state: OwnerState) -> int:
    """Compares all values that are made from the view, and returns how many messages were unchanged."""
    defaults: dict[str, object] = {}
    plain, found = view_of(state, defaults), view_of(state, defaults, kept)
    assert replace(found, unchanged=None) == plain
    messages = messages_of(state, found)
    assert referred(messages, state, found.unchanged) == referred(messages_of(state, plain), state)
    request = Request(model="m", messages=messages, unchanged=found.unchanged)
    for back in (True, False):  # as for two providers
        assert sent(request, back) == sent(replace(request, unchanged=None), back)
    return found.unchanged.count if found.unchanged is not None else 0


def sent(request: Request, send_reasoning_back: bool) -> object:
    """Returns the request's body as a model's server decodes it."""

    async def fetch(hash: str) -> Blob | None:
        return None

    resolved = anyio.run(resolve, request, None, fetch)
    body = encoded_body(request_body(resolved, max_tokens_field="max_tokens", send_reasoning_back=send_reasoning_back))
    if isinstance(body, BodyPieces):
        assert body.size_bytes == len(body.read())
        body = body.read()
    return msgspec.json.decode(body)


class Moment(NamedTuple):
    """A moment of a chat; all messages of the chat exist from the beginning."""

    path_length: int
    first_index: int | None
    changed: frozenset[int]
    withheld: frozenset[int]
    hidden: frozenset[str]
    drafted: int | None
    history_tools: str


@st.composite
def message(draw: DrawFn, number: int) -> Message:
    role = draw(st.sampled_from(["user", "user", "assistant", "assistant", "tool", "system", "error"]))
    calls = draw(st.lists(st.sampled_from(CALL_IDS), unique=True, max_size=2)) if role == "assistant" else []
    image: list[Part] = [TextPart("look"), ImagePart(ImageUrl("data:image/png;base64,AA=="))]
    texts: list[str | list[Part]] = ["", "text", image] if role == "user" else ["", "text"]
    return Message(
        role=role,
        content=draw(st.sampled_from(texts)),
        message_id=f"m{number}",
        parent_id=f"m{number - 1}" if number else None,
        tool_calls=[ToolCall(each, index, FunctionCall("f", "{}")) for index, each in enumerate(calls)],
        tool_call_id=draw(st.sampled_from(CALL_IDS)) if role == "tool" else None,
        reasoning_content="thought" if role == "assistant" and number % 3 else None,
    )


@st.composite
def moments(draw: DrawFn) -> tuple[list[Message], list[Moment]]:
    count = draw(st.integers(1, 12))
    numbers = st.integers(0, count - 1)
    moment = st.builds(
        Moment,
        st.integers(0, count),
        st.none() | st.integers(0, count),
        st.frozensets(numbers, max_size=1),
        st.frozensets(numbers, max_size=2),
        st.frozensets(st.sampled_from(CALL_IDS), max_size=1),
        st.none() | numbers,
        st.sampled_from(["full", "full", "none"]),
    )
    return [draw(message(number)) for number in range(count)], draw(st.lists(moment, min_size=2, max_size=6))


def state_at(messages: list[Message], at: Moment) -> OwnerState:
    nodes = {
        each.message_id: replace(each, content="changed") if number in at.changed else each
        for number, each in enumerate(messages)
    }
    path = tuple(nodes)[: at.path_length]
    state = empty_owner_state("c")
    run = Run(run_id="r", principal=LOCAL, request_ids=[], started_at_ms=0, first_index=at.first_index or 0)
    private = replace(
        state.private,
        run=None if at.first_index is None else run,
        withheld={f"m{number}": f"withheld {number}" for number in at.withheld},
        hidden_arguments=dict.fromkeys(at.hidden, '{"hidden": 1}'),
    )
    draft = None
    if at.drafted is not None and at.drafted < at.path_length:
        draft = Draft(messages[at.drafted], GrowingText(), GrowingText())
    thread = Thread(id="c", history_tools=at.history_tools)
    return replace(state, nodes=nodes, path=path, private=private, draft=draft, thread=thread)


ASKED = Moment(5, 4, frozenset(), frozenset(), frozenset(), None, "full")


@pytest.mark.parametrize(
    "then",
    [
        ASKED._replace(changed=frozenset({3})),
        ASKED._replace(withheld=frozenset({2})),
        ASKED._replace(hidden=frozenset({"c0"})),
        ASKED._replace(history_tools="none"),
        ASKED._replace(path_length=6),
        ASKED._replace(path_length=7, first_index=6),
        ASKED._replace(path_length=3, first_index=2),
    ],
)
def test_a_kept_view_sees_every_change_of_what_it_has_kept(then: Moment) -> None:
    """The chat: a question, a call, its result, an answer, a question, a second result of that call, a question."""
    call = ToolCall("c0", 0, FunctionCall("f", "{}"))
    messages = [
        Message(role="user", content="u", message_id="m0"),
        Message(role="assistant", content="", message_id="m1", tool_calls=[call], parent_id="m0"),
        Message(role="tool", content="r", message_id="m2", tool_call_id="c0", parent_id="m1"),
        Message(role="assistant", content="a", message_id="m3", parent_id="m2"),
        Message(role="user", content="u", message_id="m4", parent_id="m3"),
        Message(role="tool", content="s", message_id="m5", tool_call_id="c0", parent_id="m4"),
        Message(role="user", content="u", message_id="m6", parent_id="m5"),
    ]
    kept = KeptView(min_count=0)
    assert same_with(kept, state_at(messages, ASKED)) == 4
    for at in (then, ASKED, then):
        same_with(kept, state_at(messages, at))


@given(moments())
def test_a_kept_view_gives_the_same_for_any_chat_at_any_moment(told: tuple[list[Message], list[Moment]]) -> None:
    messages, all_moments = told
    kept = KeptView(min_count=0)
    for at in all_moments:
        same_with(kept, state_at(messages, at))


@given(chats())
def test_a_kept_view_gives_the_same_through_runs_aborts_and_summaries(chat: PureChat) -> None:
    kept = KeptView(min_count=0)
    for state in chat.states:
        same_with(kept, state)


@given(EDITS)
def test_a_kept_view_gives_the_same_through_edits(edits: list[tuple[str, int]]) -> None:
    chat, kept = talk("one"), KeptView(min_count=0)
    for number, (kind, pick) in enumerate(edits):
        keys = list(chat.state.nodes) or ["none"]
        chat.command(edit_of(kind, f"e{number}", keys[pick % len(keys)], pick % (len(chat.state.path) + 1), pick))
        same_with(kept, chat.state)
        same_with(kept, decode_state(encode_state(chat.state)))  # messages that are equal and are different objects
        if not chat.is_waiting:
            chat.says(f"a{number}")


def long_chat(count: int) -> OwnerState:
    nodes = {
        f"m{number}": Message(
            role="assistant" if number % 2 else "user",
            content=f"text {number}",
            message_id=f"m{number}",
            parent_id=f"m{number - 1}" if number else None,
        )
        for number in range(count)
    }
    return replace(empty_owner_state("c"), nodes=nodes, path=tuple(nodes))


def cut(state: OwnerState, length: int) -> OwnerState:
    return replace(state, path=state.path[:length])


def test_only_the_new_messages_of_a_long_chat_are_worked_on() -> None:
    state, kept = long_chat(KEPT_MIN_COUNT + 9), KeptView()
    assert same_with(kept, cut(state, KEPT_MIN_COUNT - 1)) == 0, "a short chat keeps nothing"
    assert kept.size_bytes == 0
    assert same_with(kept, cut(state, KEPT_MIN_COUNT + 1)) == KEPT_MIN_COUNT
    seen: list[int] = []

    def count(before: int, more: Sequence[Message]) -> int:
        seen.append(len(more))
        return before + len(more)

    def counted(view: View) -> int:
        assert view.unchanged is not None
        return view.unchanged.fold("counts", messages_of(state, view), 0, count)

    first = view_of(cut(state, KEPT_MIN_COUNT + 3), {}, kept)
    later = view_of(cut(state, KEPT_MIN_COUNT + 7), {}, kept)
    assert [counted(view) for view in (first, first, later)] == [KEPT_MIN_COUNT + n for n in (2, 2, 6)]
    assert seen == [KEPT_MIN_COUNT + 2, 4]
    assert counted(first) == KEPT_MIN_COUNT + 2, "an earlier request may be made again"


def chat_with_tools(questions: int, text: str, *, has_secrets: bool) -> OwnerState:
    """A chat of questions, each with a call, its result, and an answer; and one more question."""
    state, nodes, withheld, hidden = empty_owner_state("c"), dict[str, Message](), dict[str, str](), dict[str, str]()

    def add(role: str, content: str, **fields: Any) -> str:  # Any: fields of a message
        key = f"msg_{len(nodes):020x}"
        nodes[key] = Message(role=role, content=content, message_id=key, parent_id=[None, *nodes][-1], **fields)
        return key

    for number in range(questions):
        call_id = f"call_{number:020x}"
        add("user", f"{number} {text}")
        add("assistant", "", tool_calls=[ToolCall(call_id, 0, FunctionCall("f", "{}"))])
        result = add("tool", f"result {text}", tool_call_id=call_id)
        if has_secrets:
            withheld[result], hidden[call_id] = f"withheld {number}", '{"a": 1}'
        add("assistant", f"answer {text}")
    add("user", "and now?")
    private = replace(state.private, withheld=withheld, hidden_arguments=hidden)
    return replace(state, nodes=nodes, path=tuple(nodes), private=private)


@pytest.mark.parametrize("has_secrets", [False, True])
@pytest.mark.parametrize("text", ["x", "x" * 500])
def test_the_size_of_a_kept_view_is_what_python_holds_within_a_fifth(text: str, has_secrets: bool) -> None:
    state = chat_with_tools(1_000, text, has_secrets=has_secrets)
    gc.collect()
    tracemalloc.start()
    kept = KeptView()
    request = build_request(state, PureChat().tools, "demo", "m", with_tools=True, kept=kept)
    referred(request.messages, state, request.unchanged)
    request_body(request, max_tokens_field="max_tokens", send_reasoning_back=True)
    assert request.unchanged is not None and request.unchanged.count == 4_000
    del request
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 0.8 < kept.size_bytes / held < 1.25


def test_pieces_of_encoded_messages_are_joined_when_there_are_many() -> None:
    encoded = Encoded()
    for number in range(1_000):
        encoded = encoded.plus(b"%d" % number).plus(b"")
        assert len(encoded.pieces) < PIECES_MAX_COUNT
    assert b",".join(encoded.pieces) == b",".join(b"%d" % number for number in range(1_000))
