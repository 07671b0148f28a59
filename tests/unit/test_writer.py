"""The writer: the log and the actor's state never differ by more than the append in flight."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from tests.unit.actor_harness import CHAT, Harness, answering, begin_answer, is_as_the_log_says, nothing, params, title
from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.actor.writer import Writer
from threadcast.base.append_pace import PACE
from threadcast.chat.decider import decide
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.store.bounds import EMPTY_CHAT_TTL_SECONDS
from threadcast.store.ports import AppendRequest, Fenced
from threadcast_protocol.framing.codec import decode_events
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning, SetToolCalls
from threadcast_protocol.wire.events import StreamDelta, ThreadUpdated, ToolStatus
from threadcast_protocol.wire.ids import Head
from threadcast_protocol.wire.messages import FunctionCall, ToolCall
from threadcast_protocol.wire.principal import LOCAL

pytestmark = pytest.mark.anyio


def deltas(request: AppendRequest) -> list[StreamDelta]:
    return [event for event in decode_events(request.events) if isinstance(event, StreamDelta)]


def text_of(requests: list[AppendRequest]) -> str:
    ops = [op for request in requests for event in deltas(request) for op in event.ops]
    return "".join(op.text for op in ops if isinstance(op, AppendContent | AppendReasoning))


async def test_an_append_repeated_after_a_lost_reply_counts_as_done_and_nothing_is_written_twice(
    harness: Harness,
) -> None:
    writer = await harness.writer()
    waiting = tuple(await harness.store.read_inbox(CHAT, 1))
    harness.store.fail("append", "lost reply")
    await writer.commit(title("once"), waiting)
    first, second = harness.store.requests
    assert first == second
    assert len(await harness.store.read_log(CHAT)) == 2, "the fence and one entry"
    assert await harness.store.read_inbox(CHAT, 1) == []
    await is_as_the_log_says(harness, writer)
    await writer.commit(title("twice"))
    await is_as_the_log_says(harness, writer)


async def test_trap_16_a_repeat_sends_the_same_bytes_whatever_was_offered_meanwhile(harness: Harness) -> None:
    writer = await answering(harness)
    writer.offer(AppendContent("one "))
    held = harness.store.hold("append")
    harness.store.away.add("append")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.commit, nothing)
        await held.entered()
        held.let_go()
        await harness.store.called("append", 3)
        writer.offer(AppendContent("two"))
        harness.store.away.clear()
    _, *repeats = harness.store.requests
    assert len(repeats) >= 2 and all(request == repeats[0] for request in repeats)
    assert text_of(repeats[:1]) == "one "
    await writer.commit(nothing)
    await is_as_the_log_says(harness, writer)
    assert writer.state.draft is not None and str(writer.state.draft.content) == "one two"


async def test_fenced_ends_the_writer_for_every_caller_and_nothing_later_is_written(harness: Harness) -> None:
    writer = await answering(harness)
    before = writer.state
    held = harness.store.hold("append")
    ends: list[str] = []

    async def commit(name: str) -> None:
        with pytest.raises(Fenced):
            await writer.commit(title(name))
        ends.append(name)

    async def stream() -> None:
        await writer.has_room()
        writer.offer(AppendContent("x" * 2_000_000))
        await writer.has_room()
        writer.offer(AppendContent("never"))
        ends.append("stream")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(commit, "first")
        await held.entered()
        tasks.start_soon(commit, "second")
        tasks.start_soon(stream)
        await harness.store.take(CHAT, "w1", "retake")
        held.let_go()
    assert sorted(ends) == ["first", "second", "stream"]
    calls = harness.store.calls["append"]
    with pytest.raises(Fenced):
        await writer.commit(title("later"))
    assert harness.store.calls["append"] == calls, "a writer that is over does not even ask"
    assert (await harness.store.read_log(CHAT))[-1].fence is not None
    assert writer.state == before


async def test_a_stream_that_waits_for_room_is_let_go_when_the_writer_is_fenced(harness: Harness) -> None:
    writer = await answering(harness)
    held = harness.store.hold("append")

    async def commit() -> None:
        with pytest.raises(Fenced):
            await writer.commit(title("in flight"))

    async def stream() -> None:
        await writer.has_room()
        writer.offer(AppendContent("x" * 2_000_000))
        await writer.has_room()
        writer.offer(AppendContent("never"))

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit)
            await held.entered()
            tasks.start_soon(stream)
            await harness.store.take(CHAT, "w1", "retake")
            held.let_go()


@pytest.mark.parametrize("is_written", [False, True])
async def test_a_cancelled_caller_does_not_cancel_the_append_in_flight(harness: Harness, is_written: bool) -> None:
    writer = await harness.writer()
    held = harness.store.hold("append", reply_only=is_written)
    results: list[str] = []

    async def commit(name: str) -> None:
        await writer.commit(title(name))
        await anyio.lowlevel.checkpoint()
        results.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(commit, "in flight")
        await held.entered()
        tasks.start_soon(commit, "waits for the lock")
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
        held.let_go()
    assert results == [], "both were cancelled"
    await writer.commit(nothing)
    assert writer.state.thread.title == "in flight"
    await is_as_the_log_says(harness, writer)


@pytest.mark.parametrize("is_written", [False, True])
async def test_a_task_that_is_cancelled_once_during_an_append_ends_when_it_is_known(
    harness: Harness, is_written: bool
) -> None:
    """The append is cancelled once, as when a tool that opens a sub-chat is aborted: no scope of anyio cancels the
    append again."""
    writer = await harness.writer()
    held = harness.store.hold("append", reply_only=is_written)

    async def work() -> None:
        await writer.commit(title("in flight"))
        await anyio.sleep(2 * DEADLINE_SECONDS)

    task = asyncio.create_task(work())
    await held.entered()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=DEADLINE_SECONDS)
    assert done and task.cancelled() and task.cancelling() == 1
    assert writer.state.thread.title == "in flight"
    await is_as_the_log_says(harness, writer)


async def test_who_waits_for_an_append_that_is_given_up_hears_fenced_and_is_not_cancelled(harness: Harness) -> None:
    writer = await harness.writer()
    held = harness.store.hold("append")
    task = asyncio.create_task(writer.commit(title("in flight")))
    await held.entered()
    writer.give_up()
    writer.give_up()  # a beat says that the lease is lost, and the worker ends
    with pytest.raises(Fenced):
        await asyncio.wait_for(task, DEADLINE_SECONDS)
    assert task.cancelling() == 0


async def test_the_first_delta_goes_at_once_and_what_comes_meanwhile_is_one_append(harness: Harness) -> None:
    writer = await answering(harness)
    held = harness.store.hold("append")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.flush_forever)
        writer.offer(AppendContent("a"))
        await held.entered()
        for letter in "bcd":
            writer.offer(AppendContent(letter))
            await anyio.lowlevel.checkpoint()
        writer.offer(AppendReasoning("hm"))
        writer.offer(AppendReasoning("m"))
        held.let_go()
        await harness.store.called("append", 3)
        await writer.commit(nothing)  # cancel after this: an append with a cancelled caller is sent again
        tasks.cancel_scope.cancel()
    _, first, second = harness.store.requests
    assert [event.ops for event in deltas(first)] == [[AppendContent("a")]]
    assert [event.ops for event in deltas(second)] == [[AppendContent("bcd"), AppendReasoning("hmm")]]
    await writer.commit(nothing)
    await is_as_the_log_says(harness, writer)


async def test_the_first_delta_of_an_answer_does_not_wait_for_the_append_that_began_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PACE, "seconds", lambda _: 3_600.0)
    writer = await harness.writer()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.flush_forever)
        await begin_answer(harness, writer)
        writer.offer(AppendContent("a"))
        with anyio.fail_after(DEADLINE_SECONDS):
            await harness.store.called("append", 2)
            await writer.commit(nothing)  # after this, as above
        tasks.cancel_scope.cancel()
    assert text_of(harness.store.requests) == "a"


async def test_an_event_holds_at_most_128_operations_and_64_kib_of_text(harness: Harness) -> None:
    writer = await answering(harness)
    said = ""
    for number in range(300):
        op = (AppendContent, AppendReasoning)[number % 2](str(number))
        said += op.text
        writer.offer(op)
    for piece in ["x" * 20_000] * 10 + ["é" * 100_000, "y"]:
        said += piece
        writer.offer(AppendContent(piece))
    await writer.commit(nothing)
    request = harness.store.requests[-1]
    assert text_of([request]) == said
    events = deltas(request)
    assert max(len(event.ops) for event in events) == 128
    sizes = [
        sum(len(op.text.encode()) for op in event.ops if isinstance(op, AppendContent | AppendReasoning))
        for event in events
    ]
    assert max(sizes) <= 65_536
    assert len(events) == 9, "three of small operations, then as full as they can be"
    await is_as_the_log_says(harness, writer)


async def test_only_the_latest_list_of_tool_calls_is_written(harness: Harness) -> None:
    writer = await answering(harness)
    for arguments in ("{", '{"a"', '{"a":1}'):
        writer.offer(SetToolCalls([ToolCall("call-1", 0, FunctionCall("clock", arguments))]))
    await writer.commit(nothing)
    (event,) = deltas(harness.store.requests[-1])
    (op,) = event.ops
    assert isinstance(op, SetToolCalls) and op.tool_calls[0].function.arguments == '{"a":1}'


async def test_a_stream_waits_while_a_megabyte_is_not_yet_durable(harness: Harness) -> None:
    writer = await answering(harness)
    taken: list[int] = []

    async def stream() -> None:
        for number in range(5):
            await writer.has_room()
            writer.offer(AppendContent(str(number) * 300_000))
            taken.append(number)

    held = harness.store.hold("append")
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.commit, title("holds the store"))
            await held.entered()
            tasks.start_soon(stream)
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            assert taken == [0, 1, 2, 3], "the fourth filled the buffer, the fifth waits"
            tasks.start_soon(writer.commit, nothing)
            held.let_go()
    assert taken == [0, 1, 2, 3, 4]
    await writer.commit(nothing)
    assert writer.state.draft is not None and len(str(writer.state.draft.content)) == 1_500_000
    await is_as_the_log_says(harness, writer)


async def test_of_a_calls_progress_reports_the_latest_wins_and_none_comes_after_its_end(harness: Harness) -> None:
    writer = await answering(harness)

    def status(call: str, state: str, message: str = "") -> ToolStatus:
        return ToolStatus(tool_call_id=call, name="t", message_id="m", index=0, status=state, message=message)

    def start(builder: EntryBuilder) -> None:
        builder.say(status("a", "running"))
        builder.say(status("b", "running"))

    await writer.commit(start)
    for call, message in [("a", "1"), ("b", "1"), ("a", "2"), ("a", "3")]:
        writer.offer(status(call, "progress", message))
    await writer.commit(nothing)
    said = decode_events(harness.store.requests[-1].events)
    assert said == [status("b", "progress", "1"), status("a", "progress", "3")]
    await writer.commit(lambda builder: builder.say(status("a", "done")))
    count = harness.store.calls["append"]
    writer.offer(status("a", "progress", "late"))
    await writer.commit(nothing)
    assert harness.store.calls["append"] == count


async def test_what_lists_show_is_sent_only_when_it_changed(harness: Harness) -> None:
    writer = await answering(harness)
    for _ in range(2):
        writer.offer(AppendContent("x"))
        await writer.commit(nothing)
    await writer.commit(title("new"))
    metas = [dict(request.meta) for request in harness.store.requests]
    assert [meta.get("title") for meta in metas] == ["first", None, None, "new"]
    assert metas[0] == {
        "state": "generating",
        "title": "first",
        "model": "",
        "mode": "agent",
        "message_count": "2",
        "queue": "0",
        "waits": "",
    }


async def test_a_chat_without_messages_expires_and_stays_with_its_first_message(harness: Harness) -> None:
    writer = await harness.writer()

    def set_title(builder: EntryBuilder) -> None:
        decide(builder, params(title="empty"), LOCAL)

    await writer.commit(set_title)
    await begin_answer(harness, writer)
    await writer.commit(title("x"))
    assert [request.lifetime for request in harness.store.requests] == ["expire", "persist", ""]
    harness.store.clock.now_ms += 2 * EMPTY_CHAT_TTL_SECONDS * 1_000
    assert (await harness.store.load(CHAT)).head == writer.state.head


async def test_a_commit_that_fails_in_its_own_code_writes_nothing_and_the_next_one_goes_on(harness: Harness) -> None:
    writer = await harness.writer()

    def wrong(builder: EntryBuilder) -> None:
        builder.say(ThreadUpdated(title="half"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await writer.commit(wrong)
    with anyio.fail_after(DEADLINE_SECONDS):
        await writer.commit(title("whole"))
    assert len(harness.store.requests) == 1
    await is_as_the_log_says(harness, writer)


async def test_two_workers_that_write_the_very_same_entry_make_two_histories(harness: Harness) -> None:
    writer = await harness.writer()
    other = Writer(harness.store, "w2", writer.state, owner="local", new_id=harness.new_id, metrics=harness.metrics)
    await writer.commit(title("same"))
    harness.store.roll_back(CHAT, 1)
    await other.commit(title("same"))
    first, second = harness.store.requests
    assert first.events == second.events
    assert Head.parse(first.head).entry_id == Head.parse(second.head).entry_id
    assert first.head != second.head
