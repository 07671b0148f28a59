"""Readers that come back: from every place of this history they go on, from any other they begin anew."""

from contextlib import AsyncExitStack

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from protocol.codec import encode
from protocol.deltas import AppendContent
from protocol.events import BranchSelected, StreamStarted
from protocol.ids import Position
from protocol.ledger import Ledger
from protocol.messages import Message
from protocol.snapshot import snapshot_of
from protocol.state import empty_state
from server.actor.writer import Writer
from server.relay.hub import Hub
from server.store.load import fold_checked
from server.store.memory import MemoryStore
from tests.unit.actor_house import CHAT, House, is_right, stands, title, titles
from tests.unit.faulty_store import DEADLINE_SECONDS
from tests.unit.readers import Socket, reading

pytestmark = pytest.mark.anyio


@pytest.fixture
def house() -> House:
    return House()


async def busy_chat(house: House) -> Writer:
    """A few lives, entries of several events, and an answer."""
    writer = await house.writer()
    await writer.commit(titles("a", "b", "c"))
    await MemoryStore.take(house.store, CHAT, "w1", "retake")
    writer = Writer(house.store, "w1", await house.state(), owner="local", new_id=house.new_id, metrics=house.metrics)
    await writer.commit(lambda ledger: ledger.say(StreamStarted(message_id="m1")))
    for word in ("Hello ", "wide ", "world"):
        writer.offer(AppendContent(word))
        await writer.commit(lambda _: None)
    await writer.commit(titles("d", "e"))
    return writer


async def places(house: House, base: int = 0) -> list[Position]:
    """Where a reader may stand that began at `base`: one place for every event of the log."""
    found: list[Position] = []
    last = 0
    for entry in await house.store.read_log(CHAT):
        found += [Position(entry.entry_id.epoch, at, base) for at in range(last + 1, entry.position + 1)]
        last = entry.position
    return found


@pytest.mark.parametrize("is_in_memory", [True, False], ids=["from memory", "from the log"])
async def test_a_reader_goes_on_from_every_position_without_a_snapshot(house: House, is_in_memory: bool) -> None:
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as first:
        writer = await busy_chat(house)
        await stands(first, writer)
        held = await places(house)
        for place in [Position(held[0].epoch, 0, 0), *held]:
            socket = Socket()
            socket.watcher.state = first.watcher.state_after(place.position)
            async with AsyncExitStack() as stack:
                mine = hub
                if not is_in_memory:
                    mine = await stack.enter_async_context(Hub(house.store, house.metrics).running())
                await stack.enter_async_context(reading(mine, socket=socket, place=place))
                await is_right(house, socket, writer)
                await writer.commit(title(f"after {place.position}"))
                await is_right(house, socket, writer)
                await stands(first, writer)
            assert socket.watcher.snapshots == 0, place
            assert socket.watcher.frames[0]["seq"] == str(place.position + 1)
        assert (house.store.calls["read_log"] > 1) is not is_in_memory


async def test_a_reader_that_comes_back_while_the_chat_goes_on_misses_nothing(house: House) -> None:
    writer = await busy_chat(house)
    place = (await places(house))[3]
    socket = Socket()
    async with (
        Hub(house.store, house.metrics).running() as hub,
        reading(hub) as first,
        anyio.create_task_group() as tasks,
    ):
        held = house.store.hold("read_log", reply_only=True)
        state = empty_state(CHAT)
        for entry in await MemoryStore.read_log(house.store, CHAT):
            if entry.position <= place.position:
                state, _ = fold_checked(state, entry, with_facts=False)
        socket.watcher.state = state
        place = Position(state.epoch, state.position, 0)
        tasks.start_soon(socket.serve, hub, house.metrics, place, "local")
        await held.entered()
        await writer.commit(title("meanwhile"))
        await stands(first, writer)
        held.let_go()
        await is_right(house, socket, writer)
        assert socket.watcher.snapshots == 0
        tasks.cancel_scope.cancel()


async def test_a_place_in_a_log_that_lost_its_end_gets_a_snapshot(house: House) -> None:
    writer = await busy_chat(house)
    early = (await places(house))[3]
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as first:
        await stands(first, writer)
        snapshot = first.watcher.snapshot
        house.store.roll_back(CHAT, 5)
        async with reading(hub, place=early) as socket:
            await stands(socket, writer)
            assert socket.watcher.types() == ["snapshot"]
            assert socket.watcher.snapshot == snapshot


async def test_a_place_of_another_life_or_of_the_future_gets_a_snapshot(house: House) -> None:
    writer = await busy_chat(house)
    first, *_, last = await places(house)
    async with Hub(house.store, house.metrics).running() as hub:
        for wrong in (
            Position(last.epoch, first.position, 0),
            Position(first.epoch, last.position, 0),
            Position(last.epoch, last.position + 1, 0),
            Position(last.epoch + 1, last.position, 0),
        ):
            async with reading(hub, place=wrong) as socket:
                await is_right(house, socket, writer)
                assert socket.watcher.types() == ["snapshot"]


async def test_a_place_whose_events_were_trimmed_gets_a_snapshot(house: House) -> None:
    writer = await house.writer()
    await writer.commit(titles("a", "b"))
    for number in range(6):
        await writer.commit(titles(*[f"{number}"] * 2_000))
    (early, *_) = [Position(writer.state.epoch, 1, 0)]
    assert (await house.store.read_log(CHAT))[0].position > early.position
    async with Hub(house.store, house.metrics).running() as hub, reading(hub, place=early) as socket:
        await is_right(house, socket, writer)
        assert socket.watcher.types() == ["snapshot"]


async def test_a_change_of_branch_reaches_readers_as_a_snapshot_also_those_who_come_back(house: House) -> None:
    writer = await house.writer()

    def two_answers(ledger: Ledger) -> None:
        ledger.add_message(Message(role="user", content="hi", message_id="m1"))
        ledger.add_message(Message(role="assistant", content="one", message_id="m2"))

    await writer.commit(two_answers)
    before = (await places(house))[-1]
    async with Hub(house.store, house.metrics).running() as hub:
        async with reading(hub) as socket:
            await stands(socket, writer)
            await writer.commit(lambda ledger: ledger.say(BranchSelected("m1")))
            await is_right(house, socket, writer)
            await writer.commit(title("after"))
            await is_right(house, socket, writer)
            assert socket.watcher.types() == ["snapshot", "snapshot", "thread_updated"]
            async with reading(hub, place=before) as back:
                await is_right(house, back, writer)
                assert back.watcher.types() == ["snapshot"]
        async with Hub(house.store, house.metrics).running() as other, reading(other, place=before) as back:
            await is_right(house, back, writer)
            assert back.watcher.types() == ["snapshot"]


async def test_a_reader_that_comes_back_while_the_chat_is_deleted_does_not_keep_what_is_gone(house: House) -> None:
    writer = await busy_chat(house)
    early = (await places(house))[2]
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as other, anyio.create_task_group() as t:
        await stands(other, writer)
        held = house.store.hold("read_log")
        back = Socket()
        t.start_soon(back.serve, hub, house.metrics, early, "local")
        await held.entered()
        await house.store.delete(CHAT, "local", "n1")
        await other.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
        held.let_go()
        await back.watcher.until(lambda w: w.snapshots == 1, DEADLINE_SECONDS)
        assert back.watcher.snapshot == encode(snapshot_of(empty_state(CHAT)))
        t.cancel_scope.cancel()


async def test_all_who_resume_share_one_look_into_the_log(house: House) -> None:
    await busy_chat(house)
    state, stood = empty_state(CHAT), []
    for entry in await MemoryStore.read_log(house.store, CHAT):
        state, events = fold_checked(state, entry, with_facts=False)
        stood += [state] if events else []
    async with Hub(house.store, house.metrics).running() as hub, AsyncExitStack() as stack:
        for number in range(50):
            socket = Socket()
            socket.watcher.state = before = stood[number % (len(stood) - 1)]
            place = Position(before.epoch, before.position, 0)
            await stack.enter_async_context(reading(hub, socket=socket, place=place))
            await socket.watcher.until(lambda w: w.state is not None and w.state.position == state.position)
            assert socket.watcher.snapshots == 0
            assert socket.watcher.snapshot == encode(snapshot_of(state))
        assert house.store.calls["read_log"] == 1


async def test_what_memory_has_let_go_since_the_log_was_read_is_read_from_the_log(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.relay.relay.HELD_MAX_EVENTS", 100)
    writer = await busy_chat(house)
    state = empty_state(CHAT)
    for entry in (await house.store.read_log(CHAT))[:2]:
        state, _ = fold_checked(state, entry, with_facts=False)
    place = Position(state.epoch, state.position, 0)
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as first:
        for _ in range(2):
            socket = Socket()
            socket.watcher.state = state
            async with reading(hub, socket=socket, place=place):
                await is_right(house, socket, writer)
                assert socket.watcher.snapshots == 0
            await writer.commit(titles(*[f"{number}" for number in range(150)]))
            await stands(first, writer)


async def test_a_reader_who_comes_back_waits_for_a_log_that_hangs_and_then_gets_a_snapshot(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.relay.relay.LOAD_SECONDS", 0.2)
    writer = await busy_chat(house)
    early = (await places(house))[3]
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as first:
        await stands(first, writer)
        held = house.store.hold("read_log")
        async with reading(hub, place=early) as socket:
            await stands(socket, writer)
            assert socket.watcher.types() == ["snapshot"]
        held.let_go()
