"""Relay and hub: whatever is lost, repeated, rolled back or deleted, every reader ends with what the log says."""

from contextlib import AsyncExitStack

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from protocol.entries import FORMAT_VERSION
from protocol.errors import Unavailable
from protocol.events import ThreadUpdated
from protocol.ids import EntryId, Head, Position
from server.actor.writer import Writer
from server.relay.hub import Hub
from server.relay.relay import AT_ONCE_READERS
from server.store.bounds import EMPTY_CHAT_TTL_SECONDS
from server.store.port import AppendRequest, PostRequest
from tests.unit.actor_house import CHAT, House, is_right, params, stands, title, titles, turns
from tests.unit.faulty_store import DEADLINE_SECONDS
from tests.unit.readers import Socket, reading

pytestmark = pytest.mark.anyio


@pytest.fixture
def house() -> House:
    return House()


def reloads(house: House, reason: str) -> float:
    found = house.metrics.registry.get_sample_value("threadcast_relay_reloads_total", {"reason": reason})
    return found or 0.0


def look_now(socket: Socket) -> None:
    """Make the relay due for the hub's next position check."""
    socket.relay.changed_at -= 1.0
    socket.relay.checked_at -= 20.0


# what is heard


async def test_an_entry_that_is_heard_twice_is_folded_once(house: House) -> None:
    writer = await house.writer()
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as socket:
        await writer.commit(title("a"))
        house.store.publish_again(CHAT)
        await writer.commit(title("b"))
        house.store.publish_again(CHAT)
        await writer.commit(title("c"))
        await is_right(house, socket, writer)
        await turns()
        assert socket.watcher.types() == ["snapshot"] + ["thread_updated"] * 3
        assert reloads(house, "gap") == 0


async def test_few_readers_have_an_entry_before_it_is_answered_and_many_have_it_too(house: House) -> None:
    writer = await house.writer()
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as socket:
        await stands(socket, writer)
        await writer.commit(title("a"))
        assert socket.watcher.frames[-1]["title"] == "a", "no task had to be woken for it"
        async with AsyncExitStack() as stack:
            crowd = [await stack.enter_async_context(reading(hub)) for _ in range(AT_ONCE_READERS)]
            await writer.commit(titles("b", "c"))
            for each in (socket, *crowd):
                await is_right(house, each, writer)


async def test_after_a_lost_publish_readers_get_what_they_missed_without_a_snapshot(house: House) -> None:
    writer = await house.writer()
    await writer.commit(title("a"))
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as socket:
        await stands(socket, writer)
        house.store.loses_publishes = True
        await writer.commit(titles("b", "c"))
        await writer.commit(title("d"))
        house.store.loses_publishes = False
        await writer.commit(title("e"))
        await is_right(house, socket, writer)
        assert socket.watcher.snapshots == 1
        assert [frame["title"] for frame in socket.watcher.frames[1:]] == ["b", "c", "d", "e"]
        assert reloads(house, "gap") == 1


async def test_after_the_channel_was_rebuilt_the_relay_looks_at_the_log(house: House) -> None:
    writer = await house.writer()
    await writer.commit(title("a"))
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as socket:
        await stands(socket, writer)
        house.store.loses_publishes = True
        await writer.commit(title("b"))
        house.store.interrupt()
        await is_right(house, socket, writer)
        assert socket.watcher.snapshots == 1


async def test_what_is_appended_while_a_relay_opens_is_neither_lost_nor_repeated(house: House) -> None:
    writer = await house.writer()
    for reply_only in (False, True):
        held = house.store.hold("load", reply_only=reply_only)
        async with Hub(house.store, house.metrics).running() as hub, anyio.create_task_group() as tasks:
            socket = Socket()
            tasks.start_soon(socket.serve, hub, house.metrics, None, "local")
            await held.entered()
            await writer.commit(title("while it opens"))
            held.let_go()
            await is_right(house, socket, writer)
            await writer.commit(title("and after"))
            await is_right(house, socket, writer)
            assert socket.mistake is None
            tasks.cancel_scope.cancel()


async def test_an_entry_too_large_for_the_channel_is_read_by_its_id(house: House) -> None:
    writer = await house.writer()
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as socket:
        await writer.commit(title("small"))
        await writer.commit(lambda ledger: ledger.say(ThreadUpdated(context={"x": "y" * 70_000})))
        house.store.publish_again(CHAT)
        await writer.commit(title("small again"))
        await is_right(house, socket, writer)
        assert house.store.calls["read_entry"] == 1, "what is known is not read again"
        assert reloads(house, "gap") == 0


async def test_a_large_entry_that_is_gone_when_it_is_read_is_found_by_loading(house: House) -> None:
    writer = await house.writer()
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as socket:
        await writer.commit(title("small"))
        await stands(socket, writer)
        held = house.store.hold("read_entry")
        await writer.commit(lambda ledger: ledger.say(ThreadUpdated(context={"x": "y" * 70_000})))
        await held.entered()
        house.store.roll_back(CHAT, 2)
        held.let_go()
        await turns()
        assert socket.watcher.snapshot == await house.snapshot()


@pytest.mark.parametrize("is_heard", [True, False], ids=["heard", "checked"])
async def test_streams_of_a_deleted_chat_end_and_its_next_life_is_seen_by_new_readers_of_its_owner(
    house: House, is_heard: bool
) -> None:
    writer = await house.writer()
    await writer.commit(title("old"))
    async with Hub(house.store, house.metrics).running() as hub:
        async with reading(hub) as socket:
            await stands(socket, writer)
            house.store.loses_deletes = not is_heard
            await house.store.delete(CHAT, "local", "n1")
            if not is_heard:
                look_now(socket)
            await socket.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
        assert socket.ended == "not_found"
        async with reading(hub, principal_id="local") as after:
            await after.watcher.until(lambda w: w.state is not None, DEADLINE_SECONDS)
            assert after.place.position == 0
            await house.store.post(
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
            await house.claim("w1")
            await house.store.take(CHAT, "w1", "wake")
            again = Writer(
                house.store, "w1", await house.state(), owner="local", new_id=house.new_id, metrics=house.metrics
            )
            await again.commit(title("new"))
            await is_right(house, after, again)


# what is not heard of


async def test_trap_17_a_publish_lost_just_before_a_chat_goes_quiet_is_found_by_the_position_check(
    house: House,
) -> None:
    writer = await house.writer()
    await writer.commit(title("a"))
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as socket:
        await stands(socket, writer)
        house.store.loses_publishes = True
        await writer.commit(title("b"))
        look_now(socket)
        await is_right(house, socket, writer)
        assert socket.watcher.snapshots == 1
        assert reloads(house, "position_check") == 1


async def test_trap_17_a_check_that_a_notice_overtook_loads_nothing(house: House) -> None:
    writer = await house.writer()
    await writer.commit(title("a"))
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as socket:
        await stands(socket, writer)
        asked_from = socket.relay.head
        await writer.commit(title("b"))
        head = (await house.store.heads([CHAT]))[0]
        await stands(socket, writer)
        loads = house.store.calls["load"]
        await socket.relay.check_against(head, asked_from)
        assert house.store.calls["load"] == loads


async def other_history(house: House, entries: int) -> Writer:
    """The log rolled back to so many entries, and another worker that goes on from there with the very same ids."""
    house.store.roll_back(CHAT, entries)
    return Writer(house.store, "w2", await house.state(), owner="local", new_id=house.new_id, metrics=house.metrics)


async def test_a_log_that_was_rolled_back_gives_readers_a_snapshot(house: House) -> None:
    writer = await house.writer()
    for text in "abc":
        await writer.commit(title(text))
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as socket:
        await stands(socket, writer)
        await other_history(house, 2)
        look_now(socket)
        await socket.watcher.until(lambda w: w.snapshots == 2, DEADLINE_SECONDS)
        assert socket.place.position == 1
        assert socket.watcher.snapshot == await house.snapshot()


@pytest.mark.parametrize("is_heard", [True, False], ids=["heard", "checked"])
async def test_trap_3_an_id_used_again_with_another_digest_is_no_continuation(house: House, is_heard: bool) -> None:
    writer = await house.writer()
    await writer.commit(title("a"))
    before = writer.state
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as socket:
        for text in "bc":
            await writer.commit(title(text))
        await stands(socket, writer)
        other = await other_history(house, 3)
        await other.commit(title("x"))
        assert Head.parse(other.state.head).entry_id == Head.parse(writer.state.head).entry_id
        assert other.state.head != writer.state.head
        await turns()
        assert socket.watcher.snapshots == 1, "an id that is known says nothing"
        if is_heard:
            await other.commit(title("y"))
        else:
            look_now(socket)
            await socket.watcher.until(lambda w: w.snapshots == 2, DEADLINE_SECONDS)
        await is_right(house, socket, other)
        assert socket.watcher.snapshots == 2
        await other.commit(title("z"))
        back = Socket()
        back.watcher.state = before
        async with reading(hub, socket=back, place=Position(other.state.epoch, before.position, 0)):
            await is_right(house, back, other)
            assert [frame["title"] for frame in back.watcher.frames] == ["b", "x", *("y" * is_heard), "z"]


# the hub


async def test_a_relay_is_opened_by_the_first_reader_and_closed_by_the_last(house: House) -> None:
    await house.writer()
    async with Hub(house.store, house.metrics).running() as hub:
        async with reading(hub) as one:
            async with reading(hub) as two, reading(hub, "other") as other:
                assert one.relay is two.relay and one.relay is not other.relay
                assert (await house.store.watchers(CHAT), await house.store.watchers("other")) == (1, 1)
            assert (await house.store.watchers(CHAT), await house.store.watchers("other")) == (1, 0)
            assert house.store.calls["load"] == 3, "one for the test, one for each chat"
        assert await house.store.watchers(CHAT) == 0
        async with reading(hub) as again:
            assert again.relay is not one.relay


async def test_a_hub_that_goes_down_takes_no_new_reader(house: House) -> None:
    async with Hub(house.store, house.metrics).running() as hub:
        await hub.close_streams()
        with pytest.raises(Unavailable):
            async with hub.relay(CHAT):
                pass


async def test_who_watched_an_id_before_it_was_a_chat_does_not_see_what_another_makes_of_it(house: House) -> None:
    async with (
        Hub(house.store, house.metrics).running() as hub,
        reading(hub, principal_id="eve") as eve,
        reading(hub) as owner,
    ):
        writer = await house.writer()
        await writer.commit(title("secret"))
        await is_right(house, owner, writer)
        await eve.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
    assert eve.ended == "not_found"
    assert b"secret" not in b"".join(eve.bodies)


async def test_who_comes_in_just_when_an_id_becomes_another_s_chat_does_not_see_it_either(house: House) -> None:
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as owner:
        writer = await house.writer()
        await writer.commit(title("secret"))
        await is_right(house, owner, writer)
        eve = Socket()  # the edge found no chat when it looked, a moment ago
        with anyio.fail_after(DEADLINE_SECONDS):
            await eve.serve(hub, house.metrics, None, "eve")
    assert eve.ended == "not_found"
    assert b"secret" not in b"".join(eve.bodies)


async def test_who_watched_a_chat_that_expired_does_not_see_what_another_makes_of_its_id(house: House) -> None:
    writer = await house.writer()
    await house.store.append(
        AppendRequest(
            chat_id=CHAT,
            expected=writer.state.head,
            head=str(Head(EntryId(writer.state.epoch, 2), "00000000000000aa", 0)),
            version=1,
            events=b"[]",
            lifetime="expire",
            owner="local",
        )
    )
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as before:
        await before.watcher.until(lambda w: w.state is not None, DEADLINE_SECONDS)
        house.store.clock.now_ms += EMPTY_CHAT_TTL_SECONDS * 1_000
        look_now(before)
        await before.watcher.until(lambda w: w.snapshots == 2, DEADLINE_SECONDS)
        await house.post(params(title="x"), owner="eve")
        await house.claim("w1")
        await house.store.take(CHAT, "w1", "wake")
        await before.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
    assert before.ended == "not_found"


@pytest.mark.parametrize(
    ("events", "version"),
    [(b'[{"type":"thread_updated"}]', FORMAT_VERSION + 1), (b'[{"type":"of tomorrow"}]', FORMAT_VERSION)],
    ids=["newer version", "unreadable"],
)
@pytest.mark.parametrize("is_heard", [True, False], ids=["heard", "loaded"])
async def test_trap_14_what_this_process_cannot_fold_ends_the_streams_and_is_shown_to_nobody(
    house: House, events: bytes, version: int, is_heard: bool
) -> None:
    writer = await house.writer()
    await writer.commit(title("a"))
    async with Hub(house.store, house.metrics).running() as hub:
        async with reading(hub) as socket:
            await stands(socket, writer)
            if not is_heard:
                house.store.loses_publishes = True
                await writer.commit(title("b"))
            await house.add_entry(events, version=version)
            await socket.watcher.until(lambda w: w.has_ended, DEADLINE_SECONDS)
        is_newer = version > FORMAT_VERSION
        assert socket.ended == ("newer_version" if is_newer else "unfoldable")
        assert socket.bodies[-1].startswith(b"retry:") is is_newer, "another process may be of that version"
        assert b"tomorrow" not in b"".join(socket.bodies)
        with pytest.raises(Unavailable):
            async with hub.relay(CHAT):
                pass


async def test_a_store_that_is_away_when_a_relay_opens_is_unavailable_and_the_next_reader_tries_again(
    house: House,
) -> None:
    writer = await house.writer()
    async with Hub(house.store, house.metrics).running() as hub:
        house.store.fail("load", "refused")
        with pytest.raises(Unavailable):
            async with hub.relay(CHAT):
                pass
        async with reading(hub) as socket:
            await is_right(house, socket, writer)


async def test_a_store_that_is_away_for_a_while_costs_readers_nothing(house: House) -> None:
    writer = await house.writer()
    await writer.commit(title("a"))
    async with Hub(house.store, house.metrics).running() as hub, reading(hub) as socket:
        await stands(socket, writer)
        house.store.fail("load", "refused")
        house.store.loses_publishes = True
        await writer.commit(title("b"))
        house.store.loses_publishes = False
        await writer.commit(title("c"))
        await is_right(house, socket, writer)
        assert socket.watcher.snapshots == 1
        assert socket.ended is None
