"""The history that the model receives: it is shortened on request, is never cut between a call and its result, and
tells the model that messages are missing (HIST-1..7)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from tests.unit.test_reducer import chats
from threadcast.agent_loop.history.compaction import cut_point, shorten, tokens_of
from threadcast.agent_loop.history.view import model_view
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.fact_fold import ASIDES_KEPT, RAW_ANSWERS_KEPT, WITHHELD_KEPT, fold_fact
from threadcast.chat.facts import AnswerCleaned, ResultWithheld, SetAside
from threadcast.chat.owner_state import Aside, Private, RawAnswer, empty_owner_state
from threadcast.chat.runtime import RECENT_MESSAGES, context_use
from threadcast_protocol.fold.snapshot import active_path
from threadcast_protocol.wire.commands import Regenerate, SetParams
from threadcast_protocol.wire.deltas import AppendContent, SetToolCalls
from threadcast_protocol.wire.events import ThreadUpdated
from threadcast_protocol.wire.messages import FunctionCall, Message, ToolCall, Usage
from threadcast_protocol.wire.thread import Thread


def history(shape: str) -> list[Message]:
    """U: user, A: answer, c: answer with a call, r: its result."""
    made: list[Message] = []
    for number, kind in enumerate(shape):
        key = f"m{number}"
        if kind == "c":
            asks = ToolCall(id=f"call{number}", index=0, function=FunctionCall("clock", "{}"))
            made.append(Message(role="assistant", content="", message_id=key, tool_calls=[asks]))
        elif kind == "r":
            made.append(Message(role="tool", content="x", message_id=key, tool_call_id=f"call{number - 1}"))
        else:
            made.append(Message(role="user" if kind == "U" else "assistant", content=kind, message_id=key))
    return made


@pytest.mark.row("HIST-3", "HIST-5")
@pytest.mark.parametrize(
    ("shape", "most", "left"),
    [("UAUA", 2, "UA"), ("UcrA", 2, "A"), ("UcrUA", 3, "UA"), ("UA", 5, "UA"), ("AAAA", 2, "AA")],
)
def test_the_view_begins_with_a_question_where_it_can(shape: str, most: int, left: str) -> None:
    assert shape[shorten(history(shape), most) :] == left


@pytest.mark.row("HIST-3")
@given(st.lists(st.sampled_from(["UA", "UcrA", "UcrcrA", "U"]), max_size=8), st.integers(1, 20))
def test_a_result_never_comes_without_its_call_and_the_question_never_goes(turns: list[str], most: int) -> None:
    shape = "".join(turns)
    messages = history(shape)
    question = shape.rfind("U")
    at = shorten(messages, most, keep_from=max(0, question))
    kept = messages[at:]
    called = {c.id for m in kept for c in m.tool_calls}
    assert all(m.tool_call_id in called for m in kept if m.role == "tool")
    assert question < 0 or at <= question


@pytest.mark.row("HIST-3", "HIST-5")
@given(
    st.lists(st.sampled_from(["UA", "UcrA", "UcrcrA", "U", "AA"]), max_size=8),
    st.integers(0, 9),
    st.integers(0, 12),
    st.integers(0, 20),
)
def test_the_oldest_messages_go_until_both_bounds_are_kept(turns: list[str], most: int, tokens: int, back: int) -> None:
    messages = history("".join(turns))
    keep_from = max(0, len(messages) - back)
    state = replace(empty_owner_state("c"), thread=Thread(id="c", max_history_messages=most, max_history_tokens=tokens))
    at = shorten(messages, most, keep_from=keep_from) if most else 0
    while tokens and at < keep_from and sum(map(tokens_of, messages[at:])) > tokens:
        at = shorten(messages, len(messages) - at - 1, keep_from=keep_from)
    assert cut_point(state, {}, messages, keep_from) == at


def talk(chat: PureChat, *questions: str) -> None:
    for question in questions:
        chat.command(say(question[:9], question))
        chat.says(f"re {question}")


@pytest.mark.row("HIST-2", "HIST-6", "EVT-17")
def test_a_shortened_view_is_announced_once_and_nothing_is_deleted() -> None:
    chat = PureChat(table(), SetParams(client_request_id="p", patch={"max_history_messages": 3}))
    talk(chat, "one", "two")
    since = len(chat.events)
    chat.command(say("three", "three"))
    assert [m.content for m in model_view(chat.state, {})] == ["two", "re two", "three"]
    told = [
        e.compaction for e in chat.events[since:] if isinstance(e, ThreadUpdated) and isinstance(e.compaction, dict)
    ]
    assert told == [{"strategy": "truncate", "before": 5, "after": 3, "covered": 2, "elapsed_ms": 0}]
    assert len(chat.state.path) == 6


def test_a_bound_in_tokens_drops_whole_turns_but_never_the_question() -> None:
    chat = PureChat(table(), SetParams(client_request_id="p", patch={"max_history_tokens": 1000}))
    talk(chat, "a" * 3000, "b" * 3000)
    chat.command(say("q", "c" * 9000))
    assert [str(m.content)[0] for m in model_view(chat.state, {})] == ["c"]


@pytest.mark.row("HIST-1")
@pytest.mark.parametrize(
    ("wish", "roles", "calls"),
    [
        ("none", ["user", "assistant", "assistant", "user", "assistant", "tool"], [0, 0, 0, 0, 1, 0]),
        ("full", ["user", "assistant", "tool", "assistant", "user", "assistant", "tool"], [0, 1, 0, 0, 0, 1, 0]),
        (None, ["user", "assistant", "tool", "assistant", "user", "assistant", "tool"], [0, 1, 0, 0, 0, 1, 0]),
    ],
)
def test_tool_messages_of_earlier_runs_are_shown_unless_they_are_not_wanted(
    wish: str | None, roles: list[str], calls: list[int]
) -> None:
    chat = PureChat(table({"clock": FakeTool(name="clock")}))
    if wish is not None:
        chat.command(SetParams(client_request_id="p", patch={"history_tools": wish}))
    for name in ("one", "two"):
        chat.command(say(name, name))
        chat.stream(AppendContent("wait"), SetToolCalls([call(f"c{name}", "clock")]))
        chat.finish()
        chat.tool_answers("noon")
        if name == "one":
            chat.says("done")
    view = model_view(chat.state, {})
    assert [m.role for m in view] == roles
    assert [len(m.tool_calls) for m in view] == calls


@pytest.mark.row("HIST-1")
def test_a_model_reads_the_active_path_and_no_other_branch() -> None:
    chat = PureChat(table(), say("q", "question"))
    chat.says("first answer")
    chat.command(Regenerate(client_request_id="again"))
    chat.says("second answer")
    chat.command(say("more", "and more"))
    assert [m.content for m in model_view(chat.state, {})] == ["question", "second answer", "and more"]


@pytest.mark.row("HIST-7")
def test_use_of_the_window_is_shown_and_warned_about() -> None:
    chat = PureChat(table(windows={"demo/echo": 100}), say("q"))
    chat.says("x", usage=Usage(60, 9, 69))
    use = chat.state.runtime.context
    assert use is not None
    assert (use.used, use.total) == (69, 100)
    assert chat.state.nodes[chat.state.path[-1]].warning is None
    chat.command(say("r"))
    chat.says("y", usage=Usage(65, 5, 70))
    assert "window" in (chat.state.nodes[chat.state.path[-1]].warning or "")
    assert chat.state.thread.usage == Usage(125, 14, 139)


@pytest.mark.row("EVT-12")
def test_the_threads_usage_counts_every_round_of_every_run() -> None:
    chat = PureChat(table({"clock": FakeTool(name="clock")}))
    for number in (1, 2):
        chat.command(say(f"q{number}"))
        chat.stream(SetToolCalls([call(f"c{number}", "clock")]))
        chat.finish(usage=Usage(10, 1, 11))
        chat.tool_answers("noon")
        chat.says("done", usage=Usage(20, 2, 22))
    assert chat.state.thread.usage == Usage(60, 6, 66)


@pytest.mark.row("HIST-7")
def test_a_profile_says_when_a_window_is_nearly_full() -> None:
    chat = PureChat(table(windows={"demo/echo": 100}, context_warn_ratio=0.3), say("q"))
    chat.says("x", usage=Usage(25, 5, 30))
    assert chat.state.nodes[chat.state.path[-1]].warning


def test_what_only_the_model_reads_stands_in_its_places_and_never_between_a_call_and_its_result() -> None:
    chat = PureChat(table({"lookup": FakeTool(name="lookup")}), say("q", "one"))
    chat.asks(call("c1", "lookup"))
    chat.tool_answers("short")
    chat.says("done")
    _, asking, result, answer = chat.state.path

    def note(builder: EntryBuilder) -> None:
        builder.note(ResultWithheld(message_id=result, content="the whole result"))
        for after, words in ((asking, "between"), (answer, "last"), ("gone", "nowhere")):
            builder.note(SetAside(aside=Aside(Message(role="user", content=words, message_id=words), after)))

    chat.write(note)
    shown = ["one", "", "the whole result", "between", "done", "last"]
    assert [m.content for m in model_view(chat.state, {})] == shown
    assert [m.content for m in active_path(chat.state)] == ["one", "", "short", "done"], "clients see none of it"


@settings(max_examples=150, deadline=None)
@given(chats())
def test_whatever_has_happened_a_model_reads_the_question_and_whole_pairs_and_nothing_twice(chat: PureChat) -> None:
    view = model_view(chat.state, {})
    called: list[str] = []
    for message in view:
        if message.role == "tool":
            assert message.tool_call_id in called, "a result without its call before it"
        else:
            called = [call.id for call in message.tool_calls]
    ids = [message.message_id for message in view]
    assert len(ids) == len(set(ids))
    assert sum(message.kind == "summary" for message in view) <= 1
    run = chat.state.private.run
    if run is not None and run.continues is None:
        question = [key for key in chat.state.path[run.first_index :] if chat.state.nodes[key].role == "user"]
        assert set(question) <= set(ids), "the question of the open run went missing"


def test_what_only_the_owner_remembers_is_bounded_the_oldest_go_first() -> None:
    private = Private()
    for number in range(WITHHELD_KEPT + 2):
        private = fold_fact(private, ResultWithheld(message_id=f"m{number}", content="x"))
        private = fold_fact(private, AnswerCleaned(message_id=f"m{number}", raw=RawAnswer("x")))
        private = fold_fact(private, SetAside(aside=Aside(Message(role="user", content="x", message_id=str(number)))))
    kept = (len(private.withheld), len(private.raw_answers), len(private.asides))
    assert kept == (WITHHELD_KEPT, RAW_ANSWERS_KEPT, ASIDES_KEPT)
    assert "m1" not in private.withheld and f"m{WITHHELD_KEPT + 1}" in private.withheld
    assert private.asides[-1].message.message_id == str(WITHHELD_KEPT + 1)


@pytest.mark.row("HIST-7")
@pytest.mark.parametrize(("later_count", "used"), [(RECENT_MESSAGES - 1, 69), (RECENT_MESSAGES, None)])
def test_token_counts_that_are_many_messages_old_do_not_tell_the_use_of_the_window(
    later_count: int, used: int | None
) -> None:
    counted = Message(role="assistant", content="x", message_id="counted", usage=Usage(60, 9, 69))
    later = [Message(role="user", content="y", message_id=f"m{number}") for number in range(later_count)]
    nodes = {message.message_id: message for message in (counted, *later)}
    use = context_use(replace(empty_owner_state("c"), nodes=nodes, path=tuple(nodes)))
    assert (use.used if use is not None else None) == used
