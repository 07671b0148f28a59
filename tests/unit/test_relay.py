"""Relay and hub: every reader ends with the state of the log, even if messages are lost or repeated and entries are
rolled back or deleted."""

import time
from contextlib import AsyncExitStack

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from tests.unit.actor_harness import CHAT, Harness, is_right, params, stands, title, titles, turns, watched
from tests.unit.faulty_store import DEADLINE_SECONDS
from tests.unit.readers import Socket, reading
from threadcast.actor.writer import Writer
from threadcast.chat.entries import FORMAT_VERSION
from threadcast.fanout.hub import Hub
from threadcast.fanout.relay import AT_ONCE_READERS, OWNER_SECONDS
from threadcast.store.bounds import EMPTY_CHAT_TTL_SECONDS
from threadcast.store.ports import AppendRequest, PostRequest
from threadcast_protocol.wire.errors import NotFound, Unavailable
from threadcast_protocol.wire.events import MessageAdded, ThreadUpdated
from threadcast_protocol.wire.ids import EntryId, Head, Position
from threadcast_protocol.wire.messages import Message

HELLO = Message(role="user", content="hello", message_id="m1")

pytestmark = pytest.mark.anyio


def reloads(harness: Harness, reason: str) -> float:
    found = harness.metrics.registry.get_sample_value("threadcast_relay_reloads_total", {"reason": reason})
    return found or 0.0


# who may join


async def test_an_open_relay_answers_for_the_store_that_a_chat_is_the_callers_own(harness: Harness) -> None:
    writer = await harness.writer()
    await writer.commit(title("a"))
    asked = harness.store.calls

    async def asks(hub: Hub, principal_id: str = "local", *, is_hidden: bool = False) -> bool:
        before = asked["meta"]
        assert await hub.is_hidden(CHAT, principal_id) == is_hidden
        return asked["meta"] > before

    async with Hub(harness.store, harness.metrics).running() as hub:
        assert await asks(hub), "no relay is open"
        async with reading(hub) as socket:
            await stands(socket, writer)
            assert not await asks(hub)
            assert await asks(hub, "eve", is_hidden=True), "as for an unknown chat, so that its time tells nothing"
            socket.relay.seen_at -= OWNER_SECONDS
            socket.relay.checked_at = time.monotonic()
            assert await asks(hub), "another process may have deleted the chat, and a check may have found that out"
            hub.found(CHAT, time.monotonic())
            assert not await asks(hub), "the answer to one reader serves the next"
            hub.deleted()
            assert await asks(hub), "this process has deleted a chat since"
            await writer.commit(title("b"))
            await is_right(harness, socket, writer)
            assert not await asks(hub), "an entry shows that the chat exists"


async def test_a_reader_that_joins_while_its_chat_is_deleted_is_told(harness: Harness) -> None:
    writer = await harness.writer()
    await writer.commit(titles("a", "b"))
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as socket:
        await stands(socket, writer)
        stream_position = socket.stream_position
        socket.relay._frames.forget()
        held = harness.store.hold("read_log")
        late = Socket()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(late.serve, hub, harness.metrics, stream_position._replace(position=1), "local")
            await held.entered()
            assert await harness.store.delete(CHAT, "local", "n")
            with anyio.fail_after(DEADLINE_SECONDS):
                while socket.ended is None:
                    await anyio.lowlevel.checkpoint()
            held.let_go()
            with anyio.fail_after(DEADLINE_SECONDS):
                while late.ended is None:
                    await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert (socket.ended, late.ended) == ("not_found", "not_found")
        with pytest.raises(NotFound):
            await hub.is_hidden(CHAT, "local")


# what is heard


async def test_an_entry_that_is_heard_twice_is_folded_once(harness: Harness) -> None:
    writer = await harness.writer()
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as socket:
        await writer.commit(title("a"))
        harness.store.publish_again(CHAT)
        await writer.commit(title("b"))
        harness.store.publish_again(CHAT)
        await writer.commit(title("c"))
        await is_right(harness, socket, writer)
        await turns()
        assert socket.watcher.types() == ["snapshot"] + ["thread_updated"] * 3
        assert reloads(harness, "gap") == 0


async def test_few_readers_have_an_entry_before_it_is_answered_and_many_have_it_too(harness: Harness) -> None:
    writer = await harness.writer()
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as socket:
        await stands(socket, writer)
        await writer.commit(title("a"))
        assert socket.watcher.frames[-1]["title"] == "a", "no task had to be woken for it"
        async with AsyncExitStack() as stack:
            crowd = [await stack.enter_async_context(reading(hub)) for _ in range(AT_ONCE_READERS)]
            await writer.commit(titles("b", "c"))
            for each in (socket, *crowd):
                await is_right(harness, each, writer)


async def test_after_a_lost_publish_readers_get_what_they_missed_without_a_snapshot(harness: Harness) -> None:
    async with watched(harness) as (socket, writer):
        harness.store.loses_publishes = True
        await writer.commit(titles("b", "c"))
        await writer.commit(title("d"))
        harness.store.loses_publishes = False
        await writer.commit(title("e"))
        await is_right(harness, socket, writer)
        assert socket.watcher.snapshots == 1
        assert [frame["title"] for frame in socket.watcher.frames[1:]] == ["b", "c", "d", "e"]
        assert reloads(harness, "gap") == 1


async def test_after_the_channel_was_rebuilt_the_relay_looks_at_the_log(harness: Harness) -> None:
    async with watched(harness) as (socket, writer):
        harness.store.loses_publishes = True
        await writer.commit(title("b"))
        harness.store.interrupt()
        await is_right(harness, socket, writer)
        assert socket.watcher.snapshots == 1


async def test_what_is_appended_while_a_relay_opens_is_neither_lost_nor_repeated(harness: Harness) -> None:
    writer = await harness.writer()
    for reply_only in (False, True):
        held = harness.store.hold("load", reply_only=reply_only)
        async with Hub(harness.store, harness.metrics).running() as hub, anyio.create_task_group() as tasks:
            socket = Socket()
            tasks.start_soon(socket.serve, hub, harness.metrics, None, "local")
            await held.entered()
            await writer.commit(title("while it opens"))
            held.let_go()
            await is_right(harness, socket, writer)
            await writer.commit(title("and after"))
            await is_right(harness, socket, writer)
            assert socket.mistake is None
            tasks.cancel_scope.cancel()


async def test_an_entry_too_large_for_the_channel_is_read_by_its_id(harness: Harness) -> None:
    writer = await harness.writer()
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as socket:
        await writer.commit(title("small"))
        await writer.commit(lambda builder: builder.say(ThreadUpdated(context={"x": "y" * 70_000})))
        harness.store.publish_again(CHAT)
        await writer.commit(title("small again"))
        await is_right(harness, socket, writer)
        assert harness.store.calls["read_entry"] == 1, "what is known is not read again"
        assert reloads(harness, "gap") == 0


async def test_a_large_entry_that_is_gone_when_it_is_read_is_found_by_loading(harness: Harness) -> None:
    writer = await harness.writer()
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as socket:
        await writer.commit(title("small"))
        await stands(socket, writer)
        held = harness.store.hold("read_entry")
        await writer.commit(lambda builder: builder.say(ThreadUpdated(context={"x": "y" * 70_000})))
        await held.entered()
        harness.store.roll_back(CHAT, 2)
        held.let_go()
        await turns()
        assert socket.watcher.snapshot == await harness.snapshot()


@pytest.mark.parametrize("is_heard", [True, False], ids=["heard", "checked"])
async def test_streams_of_a_deleted_chat_end_and_its_next_life_is_seen_by_new_readers_of_its_owner(
    harness: Harness, is_heard: bool
) -> None:
    writer = await harness.writer()
    await writer.commit(title("old"))
    async with Hub(harness.store, harness.metrics).running() as hub:
        async with reading(hub) as socket:
            await stands(socket, writer)
            harness.store.loses_deletes = not is_heard
            await harness.store.delete(CHAT, "local", "n1")
            if not is_heard:
                socket.look_now()
            await socket.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
        assert socket.ended == "not_found"
        async with reading(hub, principal_id="local") as after:
            await after.watcher.until(lambda w: w.state is not None, DEADLINE_SECONDS)
            assert after.stream_position.position == 0
            await harness.store.post(
                PostRequest(
                    chat_id=CHAT,
                    owner="local",
                    principal=b"{}",
                    request_id="r",
                    digest="d",
                    nonce="n2",
                    body=b"{}",
                    kind="import",
                )
            )
            await harness.claim("w1")
            await harness.store.take(CHAT, "w1", "wake")
            again = await harness.writer_at_head()
            await again.commit(title("new"))
            await is_right(harness, after, again)


# log messages that are lost


async def test_trap_17_a_publish_lost_just_before_a_chat_goes_quiet_is_found_by_the_position_check(
    harness: Harness,
) -> None:
    async with watched(harness) as (socket, writer):
        harness.store.loses_publishes = True
        await writer.commit(title("b"))
        socket.look_now()
        await is_right(harness, socket, writer)
        assert socket.watcher.snapshots == 1
        assert reloads(harness, "position_check") == 1


async def test_trap_17_a_check_that_a_log_message_overtook_loads_nothing(harness: Harness) -> None:
    async with watched(harness) as (socket, writer):
        asked_from = socket.relay.head
        await writer.commit(title("b"))
        await stands(socket, writer)
        loads = harness.store.calls["load"]
        await socket.relay.reload_from(asked_from)
        assert harness.store.calls["load"] == loads


async def other_history(harness: Harness, entries: int) -> Writer:
    """Roll the log back to this number of entries; another worker continues from there with the same ids."""
    harness.store.roll_back(CHAT, entries)
    return await harness.writer_at_head("w2")


async def test_a_log_that_was_rolled_back_gives_readers_a_snapshot(harness: Harness) -> None:
    writer = await harness.writer()
    for text in "abc":
        await writer.commit(title(text))
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as socket:
        await stands(socket, writer)
        await other_history(harness, 2)
        socket.look_now()
        await socket.watcher.until(lambda w: w.snapshots == 2, DEADLINE_SECONDS)
        assert socket.stream_position.position == 1
        assert socket.watcher.snapshot == await harness.snapshot()


@pytest.mark.parametrize("is_heard", [True, False], ids=["heard", "checked"])
async def test_trap_3_an_id_used_again_with_another_digest_is_no_continuation(harness: Harness, is_heard: bool) -> None:
    writer = await harness.writer()
    await writer.commit(title("a"))
    before = writer.state
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as socket:
        for text in "bc":
            await writer.commit(title(text))
        await stands(socket, writer)
        other = await other_history(harness, 3)
        await other.commit(title("x"))
        assert Head.parse(other.state.head).entry_id == Head.parse(writer.state.head).entry_id
        assert other.state.head != writer.state.head
        await turns()
        assert socket.watcher.snapshots == 1, "an id that is known says nothing"
        if is_heard:
            await other.commit(title("y"))
        else:
            socket.look_now()
            await socket.watcher.until(lambda w: w.snapshots == 2, DEADLINE_SECONDS)
        await is_right(harness, socket, other)
        assert socket.watcher.snapshots == 2
        await other.commit(title("z"))
        back = Socket()
        back.watcher.state = before
        async with reading(hub, socket=back, stream_position=Position(other.state.epoch, before.position, 0)):
            await is_right(harness, back, other)
            assert [frame["title"] for frame in back.watcher.frames] == ["b", "x", *("y" * is_heard), "z"]


# the hub


async def test_a_relay_is_opened_by_the_first_reader_and_closed_by_the_last(harness: Harness) -> None:
    await harness.writer()
    async with Hub(harness.store, harness.metrics).running() as hub:
        async with reading(hub) as one:
            async with reading(hub) as two, reading(hub, "other") as other:
                assert one.relay is two.relay and one.relay is not other.relay
                assert (await harness.store.watchers(CHAT), await harness.store.watchers("other")) == (1, 1)
            assert (await harness.store.watchers(CHAT), await harness.store.watchers("other")) == (1, 0)
            assert harness.store.calls["load"] == 3, "one for the test, one for each chat"
        assert await harness.store.watchers(CHAT) == 0
        async with reading(hub) as again:
            assert again.relay is not one.relay


async def test_a_hub_that_goes_down_takes_no_new_reader(harness: Harness) -> None:
    async with Hub(harness.store, harness.metrics).running() as hub:
        await hub.close_streams()
        with pytest.raises(Unavailable):
            async with hub.relay(CHAT):
                pass


async def test_who_watched_an_id_before_it_was_a_chat_does_not_see_what_another_makes_of_it(harness: Harness) -> None:
    async with (
        Hub(harness.store, harness.metrics).running() as hub,
        reading(hub, principal_id="eve") as eve,
        reading(hub) as owner,
    ):
        writer = await harness.writer()
        await writer.commit(title("secret"))
        await is_right(harness, owner, writer)
        assert list(eve.relay.hidden)
        # Later snapshots, such as after an overflow of the reader's queue, do not show the hidden chat.
        (hidden,) = eve.relay.hidden
        hidden.resync("slow")
        await eve.watcher.until(lambda w: w.snapshots == 2, DEADLINE_SECONDS)
        await writer.commit(title("secret again"))
        await is_right(harness, owner, writer)
        # The deletion of the chat ends the owner's stream, and sends this reader nothing.
        await harness.store.delete(CHAT, "local", "n1")
        await owner.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
        assert eve.ended is None
    assert owner.ended == "not_found"
    shown = b"".join(eve.bodies)
    assert b"secret" not in shown
    assert shown.count(b"\ndata: ") + shown.startswith(b"data: ") == shown.count(b'"type":"snapshot"') == 2


async def test_who_comes_in_just_when_an_id_becomes_another_s_chat_does_not_see_it_either(harness: Harness) -> None:
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as owner:
        writer = await harness.writer()
        await writer.commit(title("secret"))
        await is_right(harness, owner, writer)
        # The edge found no chat a moment ago.
        async with reading(hub, principal_id="eve") as eve:
            await eve.watcher.until(lambda w: w.snapshots == 1, DEADLINE_SECONDS)
            await writer.commit(title("secret again"))
            await is_right(harness, owner, writer)
            assert eve.ended is None
    assert b"secret" not in b"".join(eve.bodies)


async def test_a_hidden_chat_is_not_read_and_its_reader_comes_back_when_the_id_is_its_own(harness: Harness) -> None:
    writer = await harness.writer()
    await writer.commit(title("secret"))
    async with Hub(harness.store, harness.metrics).running() as hub:
        loads = harness.store.calls["load"]
        eve = Socket(is_hidden=True)
        async with reading(hub, socket=eve, principal_id="eve"):
            await eve.watcher.until(lambda w: w.snapshots == 1, DEADLINE_SECONDS)
            assert harness.store.calls["load"] == loads + 1, "as for an unknown chat"
            await hub._check_hidden()
            assert not eve.watcher.has_ended
            await harness.store.delete(CHAT, "local", "n1")
            harness.store.clock.now_ms += 31 * 24 * 3_600_000
            mine = await harness.writer(owner="eve")
            await mine.commit(lambda builder: builder.say(MessageAdded(HELLO, 0)))
            await hub._check_hidden()
            await eve.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
    assert eve.ended == "own_now"
    assert b"secret" not in b"".join(eve.bodies)


async def test_who_watched_a_chat_that_expired_does_not_see_what_another_makes_of_its_id(harness: Harness) -> None:
    writer = await harness.writer()
    await harness.store.append(
        AppendRequest(
            chat_id=CHAT,
            expected=writer.state.head,
            head=str(Head(EntryId(writer.state.epoch, 2), "00000000000000aa", 0)),
            version=1,
            events=b"[]",
            lifetime="expire",
            expire_seconds=EMPTY_CHAT_TTL_SECONDS,
            owner="local",
            consumed=tuple((each.inbox_id, each.request_id) for each in await harness.store.read_inbox(CHAT, 1)),
        )
    )
    async with Hub(harness.store, harness.metrics).running() as hub, reading(hub) as before:
        await before.watcher.until(lambda w: w.state is not None, DEADLINE_SECONDS)
        harness.store.clock.now_ms += EMPTY_CHAT_TTL_SECONDS * 1_000
        before.look_now()
        await before.watcher.until(lambda w: w.snapshots == 2, DEADLINE_SECONDS)
        await harness.post(params(title="x"), owner="eve")
        await harness.claim("w1")
        await harness.store.take(CHAT, "w1", "wake")
        with anyio.fail_after(DEADLINE_SECONDS):
            while not before.relay.hidden:
                await anyio.sleep(0.01)
        assert before.ended is None


@pytest.mark.parametrize(
    ("events", "version"),
    [(b'[{"type":"thread_updated"}]', FORMAT_VERSION + 1), (b'[{"type":"of tomorrow"}]', FORMAT_VERSION)],
    ids=["newer version", "unreadable"],
)
@pytest.mark.parametrize("is_heard", [True, False], ids=["heard", "loaded"])
async def test_trap_14_what_this_process_cannot_fold_ends_the_streams_and_is_shown_to_nobody(
    harness: Harness, events: bytes, version: int, is_heard: bool
) -> None:
    writer = await harness.writer()
    await writer.commit(title("a"))
    async with Hub(harness.store, harness.metrics).running() as hub:
        async with reading(hub) as socket:
            await stands(socket, writer)
            if not is_heard:
                harness.store.loses_publishes = True
                await writer.commit(title("b"))
            await harness.add_entry(events, version=version)
            await socket.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
        is_newer = version > FORMAT_VERSION
        assert socket.ended == ("newer_version" if is_newer else "unfoldable")
        assert socket.bodies[-1].startswith(b"retry:") is is_newer, "another process may be of that version"
        assert b"tomorrow" not in b"".join(socket.bodies)
        with pytest.raises(Unavailable):
            async with hub.relay(CHAT):
                pass


async def test_a_store_that_is_away_when_a_relay_opens_is_unavailable_and_the_next_reader_tries_again(
    harness: Harness,
) -> None:
    writer = await harness.writer()
    async with Hub(harness.store, harness.metrics).running() as hub:
        harness.store.fail("load", "refused")
        with pytest.raises(Unavailable):
            async with hub.relay(CHAT):
                pass
        async with reading(hub) as socket:
            await is_right(harness, socket, writer)
