"""Readers that reconnect resume at every position of this history, and get a snapshot at any other position."""

from contextlib import AsyncExitStack

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from tests.unit.actor_harness import CHAT, Harness, is_right, stands, title, titles
from tests.unit.faulty_store import DEADLINE_SECONDS
from tests.unit.readers import Socket, reading
from threadcast.actor.writer import Writer
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.owner_state import empty_owner_state
from threadcast.fanout.hub import Hub
from threadcast.store.load import fold_checked
from threadcast.store.memory.store import MemoryStore
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.events import BranchSelected, StreamStarted
from threadcast_protocol.wire.ids import Position
from threadcast_protocol.wire.messages import Message

pytestmark = pytest.mark.anyio


async def busy_chat(harness: Harness) -> Writer:
    """Return a chat with a few lives, entries of several events, and an answer."""
    writer = await harness.writer()
    await writer.commit(titles("a", "b", "c"))
    await MemoryStore.take(harness.store, CHAT, "w1", "retake")
    writer = await harness.writer_at_head()
    await writer.commit(lambda builder: builder.say(StreamStarted(message_id="m1")))
    for word in ("Hello ", "wide ", "world"):
        writer.offer(AppendContent(word))
        await writer.commit(lambda _: None)
    await writer.commit(titles("d", "e"))
    return writer


async def stream_positions(harness: Harness, base: int = 0) -> list[Position]:
    """Return the positions of a reader that began at `base`: one position for every event of the log."""
    found: list[Position] = []
    last = 0
    for entry in await harness.store.read_log(CHAT):
        found += [Position(entry.entry_id.epoch, at, base) for at in range(last + 1, entry.position + 1)]
        last = entry.position
    return found


@pytest.mark.parametrize("is_in_memory", [True, False], ids=["from memory", "from the log"])
async def test_a_reader_goes_on_from_every_position_without_a_snapshot(harness: Harness, is_in_memory: bool) -> None:
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as first:
        writer = await busy_chat(harness)
        await stands(first, writer)
        held = await stream_positions(harness)
        for stream_position in [Position(held[0].epoch, 0, 0), *held]:
            socket = Socket()
            socket.watcher.state = first.watcher.state_after(stream_position.position)
            async with AsyncExitStack() as stack:
                mine = hub
                if not is_in_memory:
                    mine = await stack.enter_async_context(Hub(harness.store, harness.metrics).running())
                await stack.enter_async_context(reading(mine, socket=socket, stream_position=stream_position))
                await is_right(harness, socket, writer)
                await writer.commit(title(f"after {stream_position.position}"))
                await is_right(harness, socket, writer)
                await stands(first, writer)
            assert socket.watcher.snapshots == 0, stream_position
            assert socket.watcher.frames[0]["seq"] == str(stream_position.position + 1)
        assert (harness.store.calls["read_log"] > 1) is not is_in_memory


async def test_a_reader_that_comes_back_while_the_chat_goes_on_misses_nothing(harness: Harness) -> None:
    writer = await busy_chat(harness)
    stream_position = (await stream_positions(harness))[3]
    socket = Socket()
    async with (
        Hub(harness.store, harness.metrics).running() as hub,
        reading(hub) as first,
        anyio.create_task_group() as tasks,
    ):
        held = harness.store.hold("read_log", reply_only=True)
        state = empty_owner_state(CHAT)
        for entry in await MemoryStore.read_log(harness.store, CHAT):
            if entry.position <= stream_position.position:
                state, _ = fold_checked(state, entry, with_facts=False)
        socket.watcher.state = state
        stream_position = Position(state.epoch, state.position, 0)
        tasks.start_soon(socket.serve, hub, harness.metrics, stream_position, "local")
        await held.entered()
        await writer.commit(title("meanwhile"))
        await stands(first, writer)
        held.let_go()
        await is_right(harness, socket, writer)
        assert socket.watcher.snapshots == 0
        tasks.cancel_scope.cancel()


async def test_a_place_in_a_log_that_lost_its_end_gets_a_snapshot(harness: Harness) -> None:
    writer = await busy_chat(harness)
    early = (await stream_positions(harness))[3]
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as first:
        await stands(first, writer)
        snapshot = first.watcher.snapshot
        harness.store.roll_back(CHAT, 5)
        async with reading(hub, stream_position=early) as socket:
            await stands(socket, writer)
            assert socket.watcher.types() == ["snapshot"]
            assert socket.watcher.snapshot == snapshot


async def test_a_place_of_another_life_or_of_the_future_gets_a_snapshot(harness: Harness) -> None:
    writer = await busy_chat(harness)
    first, *_, last = await stream_positions(harness)
    async with Hub(harness.store, harness.metrics).running() as hub:
        for wrong in (
            Position(last.epoch, first.position, 0),
            Position(first.epoch, last.position, 0),
            Position(last.epoch, last.position + 1, 0),
            Position(last.epoch + 1, last.position, 0),
        ):
            async with reading(hub, stream_position=wrong) as socket:
                await is_right(harness, socket, writer)
                assert socket.watcher.types() == ["snapshot"]


async def test_a_place_whose_events_were_trimmed_gets_a_snapshot(harness: Harness) -> None:
    writer = await harness.writer()
    await writer.commit(titles("a", "b"))
    for number in range(6):
        await writer.commit(titles(*[f"{number}"] * 2_000))
    (early, *_) = [Position(writer.state.epoch, 1, 0)]
    assert (await harness.store.read_log(CHAT))[0].position > early.position
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub, stream_position=early) as socket:
        await is_right(harness, socket, writer)
        assert socket.watcher.types() == ["snapshot"]


async def test_a_change_of_branch_reaches_readers_as_a_snapshot_also_those_who_come_back(harness: Harness) -> None:
    writer = await harness.writer()

    def two_answers(builder: EntryBuilder) -> None:
        builder.add_message(Message(role="user", content="hi", message_id="m1"))
        builder.add_message(Message(role="assistant", content="one", message_id="m2"))

    await writer.commit(two_answers)
    before = (await stream_positions(harness))[-1]
    async with Hub(harness.store, harness.metrics).running() as hub:
        async with reading(hub) as socket:
            await stands(socket, writer)
            await writer.commit(lambda builder: builder.say(BranchSelected("m1")))
            await is_right(harness, socket, writer)
            await writer.commit(title("after"))
            await is_right(harness, socket, writer)
            assert socket.watcher.types() == ["snapshot", "snapshot", "thread_updated"]
            async with reading(hub, stream_position=before) as back:
                await is_right(harness, back, writer)
                assert back.watcher.types() == ["snapshot"]
        async with (
            Hub(harness.store, harness.metrics).running() as other,
            reading(other, stream_position=before) as back,
        ):
            await is_right(harness, back, writer)
            assert back.watcher.types() == ["snapshot"]


async def test_a_reader_that_comes_back_while_the_chat_is_deleted_does_not_keep_what_is_gone(harness: Harness) -> None:
    writer = await busy_chat(harness)
    early = (await stream_positions(harness))[2]
    async with (
        Hub(harness.store, harness.metrics).running() as hub,
        reading(hub) as other,
        anyio.create_task_group() as t,
    ):
        await stands(other, writer)
        held = harness.store.hold("read_log")
        back = Socket()
        t.start_soon(back.serve, hub, harness.metrics, early, "local")
        await held.entered()
        await harness.store.delete(CHAT, "local", "n1")
        await other.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
        held.let_go()
        await back.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
        assert (back.ended, back.watcher.snapshots) == ("not_found", 0)
        t.cancel_scope.cancel()


async def test_a_reader_whose_relay_hears_late_of_a_delete_does_not_keep_what_is_gone(harness: Harness) -> None:
    writer = await busy_chat(harness)
    early = (await stream_positions(harness))[2]
    async with (
        Hub(harness.store, harness.metrics).running() as hub,
        reading(hub) as other,
        anyio.create_task_group() as t,
    ):
        await stands(other, writer)
        first, second = harness.store.hold("read_log"), harness.store.hold("read_log")
        back = Socket()
        t.start_soon(back.serve, hub, harness.metrics, early, "local")
        await first.entered()
        harness.store.loses_deletes = True
        await harness.store.delete(CHAT, "local", "n1")
        first.let_go()
        await second.entered()
        other.look_now()  # the position check finds that the chat is gone
        await other.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
        second.let_go()
        await back.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
        assert (back.ended, back.watcher.snapshots) == ("not_found", 0)
        t.cancel_scope.cancel()


async def test_all_who_resume_share_one_look_into_the_log(harness: Harness) -> None:
    await busy_chat(harness)
    state, stood = empty_owner_state(CHAT), []
    for entry in await MemoryStore.read_log(harness.store, CHAT):
        state, events = fold_checked(state, entry, with_facts=False)
        stood += [state] if events else []
    async with Hub(harness.store, harness.metrics).running() as hub, AsyncExitStack() as stack:
        for number in range(50):
            socket = Socket()
            socket.watcher.state = before = stood[number % (len(stood) - 1)]
            stream_position = Position(before.epoch, before.position, 0)
            await stack.enter_async_context(reading(hub, socket=socket, stream_position=stream_position))
            await socket.watcher.until(lambda w: w.state is not None and w.state.position == state.position)
            assert socket.watcher.snapshots == 0
            assert socket.watcher.snapshot == encode(snapshot_of(state))
        assert harness.store.calls["read_log"] == 1


async def test_what_memory_has_let_go_since_the_log_was_read_is_read_from_the_log(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadcast.fanout.recent_frames.HELD_MAX_EVENTS", 100)
    writer = await busy_chat(harness)
    state = empty_owner_state(CHAT)
    for entry in (await harness.store.read_log(CHAT))[:2]:
        state, _ = fold_checked(state, entry, with_facts=False)
    stream_position = Position(state.epoch, state.position, 0)
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as first:
        for _ in range(2):
            socket = Socket()
            socket.watcher.state = state
            async with reading(hub, socket=socket, stream_position=stream_position):
                await is_right(harness, socket, writer)
                assert socket.watcher.snapshots == 0
            await writer.commit(titles(*[f"{number}" for number in range(150)]))
            await stands(first, writer)


async def test_a_reader_who_comes_back_waits_for_a_log_that_hangs_and_then_gets_a_snapshot(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadcast.fanout.relay.LOAD_SECONDS", 0.2)
    writer = await busy_chat(harness)
    early = (await stream_positions(harness))[3]
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as first:
        await stands(first, writer)
        held = harness.store.hold("read_log")
        async with reading(hub, stream_position=early) as socket:
            await stands(socket, writer)
            assert socket.watcher.types() == ["snapshot"]
        held.let_go()
