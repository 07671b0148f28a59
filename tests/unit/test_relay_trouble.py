"""A failure of a relay or of the store affects only its chats: other chats are checked, heartbeats continue, readers
reconnect."""

from typing import Literal

import anyio
import anyio.lowlevel
import pytest

from tests.unit.actor_harness import CHAT, Harness, is_right, stands, title, titles, turns, watched
from tests.unit.faulty_store import DEADLINE_SECONDS
from tests.unit.readers import Socket, reading
from threadcast.fanout import hub as hub_module
from threadcast.fanout import relay as relay_module
from threadcast.fanout.connection import ReaderConnection
from threadcast.fanout.hub import Hub
from threadcast.fanout.recent_frames import RecentFrames
from threadcast.fanout.relay import Relay
from threadcast.settings.limits import Limits
from threadcast_protocol.framing.sse import CommentFrame
from threadcast_protocol.wire.errors import RateLimited, Unavailable
from threadcast_protocol.wire.ids import Position

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("trouble", ["refused", "broken reply"])
async def test_a_store_that_is_away_or_answers_nonsense_pauses_the_relay_and_costs_readers_nothing(
    harness: Harness, trouble: Literal["refused", "broken reply"]
) -> None:
    async with watched(harness) as (socket, writer):
        harness.store.fail("read_log", trouble)
        harness.store.loses_publishes = True
        await writer.commit(title("b"))
        harness.store.loses_publishes = False
        await writer.commit(title("c"))
        await is_right(harness, socket, writer)
        assert (socket.watcher.snapshots, socket.ended) == (1, None)


async def test_a_store_that_fails_in_the_middle_of_a_reload_leaves_no_reader_behind(harness: Harness) -> None:
    async with watched(harness) as (socket, _):
        harness.store.roll_back(CHAT, 1)
        harness.store.fail("meta", "refused")
        harness.store.interrupt()
        await socket.watcher.until(lambda w: w.snapshots == 2, DEADLINE_SECONDS)
        assert socket.watcher.snapshot == await harness.snapshot()


@pytest.mark.row("SES-3")
async def test_nothing_of_an_entry_is_shown_before_it_is_in_the_log(harness: Harness) -> None:
    writer = await harness.writer()
    await writer.commit(title("a"))
    async with (
        Hub(harness.store, harness.metrics).running() as hub,
        reading(hub) as socket,
        anyio.create_task_group() as t,
    ):
        await stands(socket, writer)
        held = harness.store.hold("append")
        t.start_soon(writer.commit, title("b"))
        await held.entered()
        await turns()
        state = socket.watcher.state
        assert state is not None and state.thread.title == "a", "the append has not been carried out"
        held.let_go()
        await socket.watcher.until(lambda w: w.state is not None and w.state.thread.title == "b", DEADLINE_SECONDS)


async def test_an_entry_that_arrives_during_a_load_is_not_taken_back_by_what_that_load_read(harness: Harness) -> None:
    async with watched(harness) as (socket, writer):
        harness.store.loses_publishes = True
        await writer.commit(title("lost"))
        harness.store.loses_publishes = False
        held = harness.store.hold("read_log", reply_only=True)
        harness.store.interrupt()
        await held.entered()
        await writer.commit(title("b"))
        await turns()
        held.let_go()
        await stands(socket, writer)
        await turns()
        await stands(socket, writer)
        assert (socket.watcher.snapshots, socket.ended) == (1, None)
        assert socket.relay.head == writer.state.head, "an older load must never follow a newer entry"


@pytest.mark.parametrize("call", ["heads", "read_log"])
async def test_one_chat_s_trouble_in_a_position_check_does_not_stop_the_checks_of_others(
    harness: Harness, call: str
) -> None:
    writer, other = await harness.writer(), await harness.writer(chat_id="c2")
    async with (
        Hub(harness.store, harness.metrics).running() as hub,
        reading(hub) as socket,
        reading(hub, "c2") as second,
    ):
        await stands(socket, writer)
        await stands(second, other)
        harness.store.loses_publishes = True
        await writer.commit(title("b"))
        await other.commit(title("c"))
        harness.store.fail(call, "broken reply")
        seen = harness.store.calls[call]
        for _ in range(2):
            socket.look_now()
            second.look_now()
            await harness.store.called(call, seen := seen + 1)
            await turns()
        await is_right(harness, socket, writer)
        await stands(second, other)
        assert second.watcher.snapshot == await harness.snapshot("c2")


async def test_a_position_check_that_hangs_keeps_no_other_bucket_s_waiting(harness: Harness) -> None:
    away = next(f"c{n}" for n in range(2, 100) if harness.store.bucket_of(f"c{n}") != harness.store.bucket_of(CHAT))
    writer, other = await harness.writer(), await harness.writer(chat_id=away)
    async with (
        Hub(harness.store, harness.metrics).running() as hub,
        reading(hub) as socket,
        reading(hub, away) as second,
    ):
        await stands(socket, writer)
        await stands(second, other)
        hanging = harness.store.hold("heads")
        second.look_now()
        await hanging.entered()
        harness.store.loses_publishes = True
        await writer.commit(title("b"))
        socket.look_now()
        await is_right(harness, socket, writer)
        hanging.let_go()


async def test_a_reader_that_joins_a_relay_which_just_failed_is_ended_and_does_not_wait_for_ever(
    harness: Harness,
) -> None:
    writer = await harness.writer()
    await writer.commit(titles("a", "b"))
    stream_position = Position(writer.state.epoch, 1, 0)
    async with (
        Hub(harness.store, harness.metrics).running() as hub,
        reading(hub) as first,
        anyio.create_task_group() as t,
    ):
        await stands(first, writer)
        held = harness.store.hold("read_log")
        late = Socket()
        t.start_soon(late.serve, hub, harness.metrics, stream_position, "local")
        await held.entered()
        await harness.add_entry(b'[{"type":"of tomorrow"}]')
        await first.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
        held.let_go()
        await late.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
    assert late.ended == first.ended == "unfoldable"


async def test_a_mistake_with_a_log_message_ends_the_streams_of_its_relay_and_does_not_reach_the_publisher(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await harness.writer()

    def crash(*_: object) -> None:
        raise ZeroDivisionError

    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as socket:
        await stands(socket, writer)
        monkeypatch.setattr(RecentFrames, "keep", crash)
        await writer.commit(title("a"))
        await socket.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
        assert writer.state.thread.title == "a"
    assert socket.ended == "store"


async def test_a_relay_that_crashes_tells_those_who_come_in_and_the_next_one_begins_anew(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await harness.writer()

    async def crash(_: Relay) -> None:
        raise ZeroDivisionError

    async with Hub(harness.store, harness.metrics).running() as hub:
        with monkeypatch.context() as patched:
            patched.setattr(Relay, "run", crash)
            with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(Unavailable):
                async with hub.relay(CHAT):
                    pass
        async with reading(hub) as socket:
            await is_right(harness, socket, writer)


async def test_one_read_of_the_log_is_enough_for_a_chat_that_goes_on_all_the_time(harness: Harness) -> None:
    writer = await harness.writer()
    await writer.commit(title("a"))
    back = Socket()
    back.watcher.state = await harness.state()
    stream_position = Position(writer.state.epoch, 1, 0)
    await writer.commit(titles("b", "c"))
    async with (
        Hub(harness.store, harness.metrics).running() as hub,
        reading(hub) as first,
        anyio.create_task_group() as t,
    ):
        await stands(first, writer)
        held = harness.store.hold("read_log", reply_only=True)
        t.start_soon(back.serve, hub, harness.metrics, stream_position, "local")
        await held.entered()
        for text in "defgh":
            await writer.commit(title(text))
        await stands(first, writer)
        held.let_go()
        await is_right(harness, back, writer)
        assert (back.watcher.snapshots, harness.store.calls["read_log"]) == (0, 1)
        t.cancel_scope.cancel()
    assert back.mistake is None


async def test_heartbeats_do_not_wait_for_the_store(harness: Harness) -> None:
    await harness.writer()
    async with (
        Hub(harness.store, harness.metrics, Limits(heartbeat_seconds=0.05)).running() as hub,
        reading(hub) as socket,
    ):
        await socket.watcher.until(lambda w: w.state is not None, DEADLINE_SECONDS)
        held = harness.store.hold("heads")
        socket.look_now()
        await held.entered()
        beats = len(socket.frames)
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(socket.frames) < beats + 2:
                await anyio.sleep(0.01)
        assert isinstance(socket.frames[-1], CommentFrame)
        held.let_go()


async def test_only_so_many_chats_are_loaded_at_once_and_none_without_a_deadline(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "LOADS_AT_ONCE", 2)
    async with Hub(harness.store, harness.metrics).running() as hub, anyio.create_task_group() as tasks:
        held = [harness.store.hold("load") for _ in range(2)]
        sockets = [Socket(f"chat-{number}") for number in range(3)]
        for socket in sockets:
            tasks.start_soon(socket.serve, hub, harness.metrics, None, "local")
        for one in held:
            await one.entered()
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        assert harness.store.calls["load"] == 2
        held[0].let_go()
        await sockets[2].watcher.until(lambda w: w.state is not None, DEADLINE_SECONDS)
        held[1].let_go()
        tasks.cancel_scope.cancel()

    monkeypatch.setattr(relay_module, "LOAD_SECONDS", 0.02)
    async with Hub(harness.store, harness.metrics).running() as hub:
        harness.store.hold("load")
        with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(Unavailable):
            async with hub.relay("slow"):
                pass


async def test_a_caller_and_a_process_have_only_so_many_streams(harness: Harness) -> None:
    hub = Hub(harness.store, harness.metrics, Limits(streams_per_principal=2, streams_max=3))
    with hub.admitted("ann"):
        with hub.admitted("ann"):
            with pytest.raises(RateLimited), hub.admitted("ann"):
                pass
            with hub.admitted("bob"), pytest.raises(RateLimited), hub.admitted("eve"):
                pass
        with hub.admitted("ann"), hub.admitted("eve"):
            pass


async def test_a_reader_in_the_middle_of_a_write_hears_when_to_come_back_once_it_takes_it(harness: Harness) -> None:
    socket = Socket()
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            connection = ReaderConnection(
                socket.send, tasks, harness.metrics, principal_id="local", abort=socket.abort, put=socket.put
            )
            socket.is_blocked = True
            connection.write(b": 1\n\n")
            await anyio.lowlevel.checkpoint()
            connection.write(b": 2\n\n")
            await anyio.lowlevel.checkpoint()
            connection.end("shutdown")
            await anyio.lowlevel.checkpoint()
            socket.free()
            await anyio.sleep_forever()
    first, last = socket.bodies
    assert first == b": 1\n\n"
    assert last.startswith(b"retry: ")
