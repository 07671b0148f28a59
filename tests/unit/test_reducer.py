"""The law, by random chats: state(i) + events(i..j) == state(j), for a client, a relay and an owner."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from msgspec import convert
from msgspec.structs import replace

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, table
from threadcast.agent_loop.steps import CallModel, RunTool, Summarize
from threadcast.chat.entries import RawEntry
from threadcast.chat.entry_codec import decode_state, encode_state
from threadcast.chat.entry_fold import fold_entry
from threadcast.chat.internal_commands import CancelQueued
from threadcast.chat.owner_state import empty_owner_state, resume_is_possible
from threadcast.profiles.reply_guard import ReplyGuard
from threadcast_protocol.fold.reducer import (
    Gap,
    reduce,
    reduce_added,
    reduce_event,
    reduce_payloads,
)
from threadcast_protocol.fold.snapshot import snapshot_of, state_from_snapshot
from threadcast_protocol.fold.state import AGENT_STEPS_KEPT
from threadcast_protocol.framing.codec import decode_event, decode_snapshot, encode
from threadcast_protocol.wire.commands import (
    Abort,
    Regenerate,
    SetParams,
    ToolDecision,
    UserMessage,
)
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning, MergeExtra, SetToolCalls
from threadcast_protocol.wire.events import (
    AgentStep,
    MessageAdded,
    MessageRemoved,
    MessagesTruncated,
    PayloadAdded,
    PayloadUpdated,
    QueueUpdated,
    RuntimeUpdated,
    StreamFinished,
    StreamStarted,
    ToolStatus,
)
from threadcast_protocol.wire.ids import EntryId
from threadcast_protocol.wire.messages import FunctionCall, Message, ToolCall

TOOLS = {
    "clock": FakeTool(name="clock", retry="safe"),
    "mail": FakeTool(name="mail", policy="ask"),
    "wipe": FakeTool(name="wipe", policy="deny"),
    "once": FakeTool(name="once"),
    "read": FakeTool(name="read", retry="safe"),
}


def _steps(run_id: str, first: int, count: int, status: str = "running") -> list[AgentStep]:
    return [
        AgentStep(run_id=run_id, step_id=str(number), kind="step", name="s", status=status, started_at=number)
        for number in range(first, first + count)
    ]


@st.composite
def chats(draw: DrawFn) -> PureChat:
    """Return a chat after up to 25 random steps of people, models, tools and crashes."""
    chat = PureChat(
        table(
            TOOLS,
            draw(st.integers(1, 4)),
            max_history_messages=draw(st.integers(0, 3)),
            summarizer=draw(st.sampled_from(["", "demo/echo"])),
            reply_guard=draw(st.sampled_from([ReplyGuard(), ReplyGuard(forbid_scripts=["Latin"])])),
        )
    )
    for number in range(draw(st.integers(1, 25))):
        choice = draw(st.integers(0, 12))
        request_id = f"r{number}"
        if choice <= 2 and isinstance(chat.step, CallModel):
            text = draw(st.text(max_size=8) | st.just("refused"))
            chat.stream(AppendContent(text), AppendReasoning(text), MergeExtra({"k": text}))
        elif choice <= 4 and isinstance(chat.step, CallModel):
            if draw(st.booleans()):
                names = draw(st.lists(st.sampled_from([*TOOLS, "unknown"]), min_size=1, max_size=3))
                calls = [
                    ToolCall(
                        id=f"call{number}{i}", index=i, function=FunctionCall(name, draw(st.sampled_from(["{}", "["])))
                    )
                    for i, name in enumerate(names)
                ]
                chat.stream(SetToolCalls(calls))
            chat.finish()
        elif choice <= 5 and isinstance(chat.step, RunTool):
            chat.tool_answers(draw(st.text(max_size=5)), failed=draw(st.booleans()))
        elif choice <= 5 and isinstance(chat.step, Summarize):
            chat.summarizer_answers(draw(st.sampled_from(["", "in short"])))
        elif choice == 6:
            chat.command(Abort(client_request_id=request_id, clear_queue=draw(st.booleans())))
        elif choice == 7:
            chat.command(Regenerate(client_request_id=request_id, priority=draw(st.booleans())))
        elif choice == 8:
            patch = draw(
                st.sampled_from(
                    [
                        {"max_history_messages": 2},
                        {"on_abort": "discard"},
                        {"on_limit": "ask"},
                        {"on_limit": "summarize"},
                        {"title": "x"},
                    ]
                )
            )
            chat.command(SetParams(client_request_id=request_id, patch=patch))
        elif choice == 9:
            pending = chat.state.runtime.pause_reasons
            call_id = pending[0].tool_call_id if pending else "nothing"
            accepted = draw(st.booleans())
            chat.command(ToolDecision(client_request_id=request_id, tool_call_id=call_id, accepted=accepted))
        elif choice == 10:
            chat.crash(can_continue=draw(st.booleans()))
        elif choice == 11:
            told = _steps(draw(st.sampled_from("ab")), draw(st.integers(0, 120)), draw(st.sampled_from([1, 2, 70])))
            chat.write(lambda builder, told=told: [builder.say(step) for step in told])  # type: ignore[misc]
        elif isinstance(chat.step, CallModel) and draw(st.booleans()):
            chat.break_off()
        elif draw(st.booleans()):
            chat.command(CancelQueued(client_request_id=f"cancel:{number}", target=f"r{number - 1}"))
        else:
            priority, interrupt = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
            text = draw(st.text(max_size=5))
            chat.command(
                UserMessage(client_request_id=request_id, content=text, priority=priority, interrupt=interrupt)
            )
    return chat


@pytest.mark.row("EVT-2", "FE-9")
@settings(max_examples=150, deadline=None)
@given(chats(), st.data())
def test_snapshot_plus_the_events_after_it_equals_every_later_snapshot(chat: PureChat, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(chat.states) - 1))
    begun = chat.states[start]
    client = state_from_snapshot("c1", decode_snapshot(encode(snapshot_of(begun))), begun.position)
    for owner, entry in zip(chat.states[start + 1 :], chat.entries[start:], strict=True):
        first = owner.position - len(chat.events[client.position : owner.position]) + 1
        for position, event in enumerate(chat.events[client.position : owner.position], start=first):
            client = reduce(client, position, decode_event(encode(event)))
        assert snapshot_of(client) == snapshot_of(owner), entry


@settings(max_examples=50, deadline=None)
@given(chats(), st.data())
def test_a_checkpoint_plus_the_entries_after_it_equals_the_owners_state(chat: PureChat, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(chat.entries)))
    state = decode_state(encode_state(chat.states[start]))
    for entry in chat.entries[start:]:
        state, _ = fold_entry(state, entry, with_facts=True)
    assert state == chat.state


@settings(max_examples=50, deadline=None)
@given(chats())
def test_a_relay_that_never_saw_a_private_fact_shows_the_same_snapshot(chat: PureChat) -> None:
    state = empty_owner_state("c1")
    for entry in chat.entries:
        state, _ = fold_entry(state, entry, with_facts=False)
    assert snapshot_of(state) == snapshot_of(chat.state)
    assert state.private == empty_owner_state("c1").private


@settings(max_examples=50, deadline=None)
@given(chats())
def test_every_position_of_this_history_can_be_resumed_and_none_beyond_it(chat: PureChat) -> None:
    state = chat.state
    for earlier in chat.states[1:]:
        assert resume_is_possible(state, earlier.epoch, earlier.position)
    assert not resume_is_possible(state, state.epoch, state.position + 1)
    assert not resume_is_possible(state, state.epoch + 1, state.position)


@settings(max_examples=80, deadline=None)
@given(chats())
@pytest.mark.row("EVT-15")
def test_every_run_ends_once_at_rest_and_every_answer_is_closed(chat: PureChat) -> None:
    chat.command(Abort(client_request_id="last", clear_queue=True))
    assert chat.state.is_at_rest
    assert chat.state.private.run is None
    assert chat.state.draft is None
    ends = [e.run_id for e in chat.events if isinstance(e, RuntimeUpdated) and e.outcome is not None]
    assert len(ends) == len(set(ends))
    for started in [e.message_id for e in chat.events if isinstance(e, StreamStarted)]:
        finished = [e for e in chat.events if isinstance(e, StreamFinished) and e.message_id == started]
        removed = [e for e in chat.events if isinstance(e, MessageRemoved) and e.message_id == started]
        assert len(finished) <= 1
        assert finished or removed


@settings(max_examples=80, deadline=None)
@given(chats())
def test_every_tool_call_on_the_path_is_answered_when_the_chat_rests(chat: PureChat) -> None:
    chat.command(Abort(client_request_id="last", clear_queue=True))
    path = [chat.state.nodes[key] for key in chat.state.path]
    asked = [call.id for message in path for call in message.tool_calls]
    answered = [message.tool_call_id for message in path if message.role == "tool"]
    assert sorted(asked) == sorted(answer for answer in answered if answer)


def test_an_event_seen_before_is_skipped_and_a_gap_is_refused() -> None:
    state = reduce(empty_owner_state("c1"), 1, QueueUpdated(0, []))
    assert reduce(state, 1, QueueUpdated(5, [])) is state
    with pytest.raises(Gap):
        reduce(state, 3, QueueUpdated(0, []))


def test_an_entry_that_does_not_continue_the_history_is_refused() -> None:
    chat = PureChat(table(), UserMessage(client_request_id="a", content="hi"))
    with pytest.raises(Gap):
        fold_entry(empty_owner_state("c1"), chat.entries[-1], with_facts=True)


@pytest.mark.parametrize("off_by", [-1, 1])
@pytest.mark.parametrize("with_facts", [True, False])
def test_an_entry_whose_position_does_not_count_its_events_is_refused(off_by: int, with_facts: bool) -> None:
    chat = PureChat(table(), UserMessage(client_request_id="a", content="hi"))
    state = empty_owner_state("c1")
    for entry in chat.entries[:-1]:
        state, _ = fold_entry(state, entry, with_facts=with_facts)
    last = chat.entries[-1]
    assert fold_entry(state, last, with_facts=with_facts)[0].position == last.position
    with pytest.raises(Gap, match="ends at position"):
        fold_entry(state, replace(last, position=last.position + off_by), with_facts=with_facts)


def test_a_message_may_be_inserted_in_the_middle_of_the_path() -> None:
    state = empty_owner_state("c1")
    for position, (name, index) in enumerate([("a", 0), ("c", 1), ("b", 1)], start=1):
        message = Message(role="user", content=name, message_id=name)
        state = reduce(state, position, MessageAdded(message, index))
    assert state.path == ("a", "b", "c")


@pytest.mark.row("EVT-9", "EVT-2")
def test_progress_of_a_call_leaves_what_it_was_begun_with() -> None:
    def told(status: str, **more: object) -> ToolStatus:
        words = {"tool_call_id": "t", "name": "n", "message_id": "m", "index": 0, "status": status}
        return convert({**words, **more}, ToolStatus)

    begun = told("running", input={"start": 3}, label="three")
    events = [begun, told("progress", progress=0.5), told("progress", message="soon"), told("running", input={})]
    state, seen = empty_owner_state("c1"), []
    for position, event in enumerate(events, start=1):
        state = reduce(state, position, event)
        seen.append(state.runtime.tools)
    assert seen == [
        [begun],
        [told("progress", progress=0.5, input={"start": 3}, label="three")],
        [told("progress", message="soon", input={"start": 3}, label="three")],
        [told("running", input={}, label="three")],
    ]
    assert reduce(state, 5, told("done")).runtime.tools == []


def test_a_step_replaces_itself_in_its_place_and_only_the_newest_are_kept() -> None:
    state = empty_owner_state("c1")
    for step in _steps("r1", 0, AGENT_STEPS_KEPT + 20):
        state = reduce_event(state, step)
    assert state.runtime.agent_steps == _steps("r1", 20, AGENT_STEPS_KEPT)
    (done,) = _steps("r1", 30, 1, "done")
    state = reduce_event(state, done)
    assert state.runtime.agent_steps[10] == done
    assert [step.step_id for step in state.runtime.agent_steps] == [str(number) for number in range(20, 120)]


def test_the_steps_of_a_run_stay_after_its_end_until_the_first_step_of_another_run() -> None:
    state = empty_owner_state("c1")
    assert b"agent_steps" not in encode(snapshot_of(state))
    for step in _steps("r1", 0, 2):
        state = reduce_event(state, step)
    state = reduce_event(state, RuntimeUpdated(state="idle", run_id="r1", outcome="complete"))
    assert state.runtime.agent_steps == _steps("r1", 0, 2)
    state = reduce_event(state, RuntimeUpdated(state="generating", run_id="r2"))
    assert state.runtime.agent_steps == _steps("r1", 0, 2)
    state = reduce_event(state, *_steps("r2", 0, 1))
    assert state.runtime.agent_steps == _steps("r2", 0, 1)


def test_long_answers_grow_in_linear_time_by_sharing_their_parts() -> None:
    chat = PureChat(table(), UserMessage(client_request_id="a", content="hi"))
    before = chat.state
    for _ in range(2_000):
        chat.stream(AppendContent("x"))
    assert before.draft is not None and str(before.draft.content) == ""
    assert chat.state.draft is not None and str(chat.state.draft.content) == "x" * 2_000


_GROWTH = st.lists(
    st.tuples(st.sampled_from("acs"), st.integers(0, 9)), max_size=30
)  # add at the end, cut the path, or set an existing message


@given(_GROWTH, _GROWTH)
def test_messages_and_cuts_of_one_entry_fold_to_what_they_fold_to_one_by_one(
    before: list[tuple[str, int]], together: list[tuple[str, int]]
) -> None:
    state, events = empty_owner_state("c1"), list[MessageAdded | MessagesTruncated]()
    path: list[str] = []
    for number, (kind, at) in enumerate([*before, *together]):
        event: MessageAdded | MessagesTruncated
        if kind == "c":
            event = MessagesTruncated(at)
            del path[at:]
        else:
            name = path[at % len(path)] if kind == "s" and path else f"m{number}"
            index = path.index(name) if name in path else len(path)
            event = MessageAdded(Message(role="user", content=str(number), message_id=name), index)
            path[index : index + 1] = [name]
        if number < len(before):
            state = reduce_event(state, event)
        else:
            events.append(event)
    one_by_one = state
    for event in events:
        one_by_one = reduce_event(one_by_one, event)
    assert reduce_added(state, events) == one_by_one
    assert one_by_one.path == tuple(path)


def _payload(name: int, number: int) -> PayloadAdded:
    return PayloadAdded(
        payload_id=f"p{name}", payload_type="t", data={"n": number}, summary="s", source="tool", message_id="m"
    )


_PAYLOADS = st.lists(st.tuples(st.sampled_from("aaaaumc"), st.integers(0, 4)), max_size=30)


@pytest.mark.row("EVT-2")
@given(_PAYLOADS, _PAYLOADS)
def test_payloads_of_one_entry_fold_to_what_they_fold_to_one_by_one(
    before: list[tuple[str, int]], together: list[tuple[str, int]]
) -> None:
    """Payloads are added (sometimes under an existing id) and updated, with messages and cuts between them."""

    def event_of(number: int, kind: str, name: int) -> PayloadAdded | PayloadUpdated | MessageAdded | MessagesTruncated:
        if kind == "m":
            return MessageAdded(Message(role="user", content="x", message_id=f"m{number}"), 0)
        if kind == "c":
            return MessagesTruncated(name)
        added = _payload(name, number)
        return added if kind == "a" else PayloadUpdated(**{key: getattr(added, key) for key in added.__struct_fields__})

    state = empty_owner_state("c1")
    for number, (kind, name) in enumerate(before):
        state = reduce_event(state, event_of(number, kind, name))
    events = [event_of(100 + number, kind, name) for number, (kind, name) in enumerate(together)]
    one_by_one = state
    for event in events:
        one_by_one = reduce_event(one_by_one, event)
    added = [event for event in events if isinstance(event, PayloadAdded)]
    assert reduce_payloads(state, added).payloads == (*state.payloads, *added)
    entry = RawEntry(
        entry_id=EntryId(0, 1),
        head="h",
        before=state.head,
        position=len(events),
        time_ms=1,
        version=1,
        events=encode(events),
    )
    folded, _ = fold_entry(state, entry, with_facts=False)
    assert folded == replace(one_by_one, head="h", version=max(state.version, 1), position=len(events))
