"""The events that one-shot endpoints receive of a chat: every event once and in order, or an error."""

from collections.abc import AsyncIterator

import anyio
import pytest

from tests.unit.actor_harness import CHAT, Harness, title, titles
from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.api import run_watch
from threadcast.api.run_watch import RunWatch, watch_chat
from threadcast.store.ports import LogMessage
from threadcast_protocol.wire.errors import NotFound, Unavailable
from threadcast_protocol.wire.events import ThreadUpdated
from threadcast_protocol.wire.principal import LOCAL

pytestmark = pytest.mark.anyio


async def heard(watch: RunWatch, last: str) -> list[object]:
    """Read titles until the title `last` comes, and return all titles."""
    titles_heard: list[object] = []
    with anyio.fail_after(DEADLINE_SECONDS):
        while last not in titles_heard:
            events = await watch.next(0.05)
            titles_heard += [event.title for event in events if isinstance(event, ThreadUpdated)]
    return titles_heard


async def test_only_what_comes_after_it_began_is_heard_and_once(harness: Harness) -> None:
    writer = await harness.writer()
    await writer.commit(title("before"))
    async with watch_chat(harness.store, CHAT) as watch:
        await writer.commit(titles("a", "b"))
        harness.store.publish_again(CHAT)
        await writer.commit(title("c"))
        assert await heard(watch, "c") == ["a", "b", "c"]
        assert harness.store.calls["read_log"] == 0


async def test_a_chat_that_is_not_there_yet_is_heard_from_its_first_entry(harness: Harness) -> None:
    async with watch_chat(harness.store, CHAT) as watch:
        writer = await harness.writer()
        await writer.commit(title("a"))
        assert await heard(watch, "a") == ["a"]


async def test_what_was_lost_on_the_way_is_read_from_the_log(harness: Harness) -> None:
    writer = await harness.writer()
    async with watch_chat(harness.store, CHAT) as watch:
        await writer.commit(title("a"))
        harness.store.loses_publishes = True
        await writer.commit(titles("b", "c"))
        harness.store.loses_publishes = False
        await writer.commit(title("d"))
        assert await heard(watch, "d") == ["a", "b", "c", "d"]


async def test_a_loss_that_nothing_follows_is_found_by_looking(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_watch, "CHECK_EVERY_SECONDS", 0.1)
    writer = await harness.writer()
    async with watch_chat(harness.store, CHAT) as watch:
        harness.store.loses_publishes = True
        await writer.commit(title("lost"))
        assert await heard(watch, "lost") == ["lost"]


async def test_an_entry_too_large_for_the_channel_is_read_by_its_id(harness: Harness) -> None:
    writer = await harness.writer()
    async with harness.store.follow(CHAT) as log_messages:
        await writer.commit(title("a"))
        heard_whole = await anext(log_messages)
    told = LogMessage(kind="large", chat_id=CHAT, head=heard_whole.head, before=heard_whole.before, version=1)

    async def once() -> AsyncIterator[LogMessage]:
        yield told

    (entry,) = [entry for entry in await harness.store.read_log(CHAT) if entry.head == told.head]
    read_log = harness.store.calls["read_log"]
    watch = RunWatch(harness.store, CHAT, once(), entry.before)
    assert await heard(watch, "a") == ["a"]
    assert harness.store.calls["read_entry"] == 1 and harness.store.calls["read_log"] == read_log


async def test_while_the_store_is_away_it_waits_and_then_goes_on(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_watch, "PAUSE_SECONDS", 0.01)
    writer = await harness.writer()
    async with watch_chat(harness.store, CHAT) as watch:
        harness.store.loses_publishes = True
        await writer.commit(title("a"))
        harness.store.loses_publishes = False
        harness.store.fail("heads", "refused", "lost reply")
        harness.store.fail("read_log", "refused")
        await writer.commit(title("b"))
        assert await heard(watch, "b") == ["a", "b"]


async def test_a_store_that_stays_away_ends_it(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_watch, "CATCH_UP_SECONDS", 0.1)
    monkeypatch.setattr(run_watch, "CHECK_EVERY_SECONDS", 0.0)
    await harness.writer()
    async with watch_chat(harness.store, CHAT) as watch:
        harness.store.away.add("heads")
        with pytest.raises(Unavailable, match="does not answer"):
            await watch.next(0.01)


async def test_a_log_that_went_back_ends_it(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_watch, "CHECK_EVERY_SECONDS", 0.0)
    writer = await harness.writer()
    async with watch_chat(harness.store, CHAT) as watch:
        await writer.commit(title("a"))
        assert await heard(watch, "a") == ["a"]
        harness.store.roll_back(CHAT, 1)
        with pytest.raises(Unavailable, match="was lost"):
            await watch.next(0.01)


async def test_a_deleted_chat_ends_it(harness: Harness) -> None:
    await harness.writer()
    async with watch_chat(harness.store, CHAT) as watch:
        assert await harness.store.delete(CHAT, LOCAL.id, "n")
        with pytest.raises(NotFound):
            await watch.next(DEADLINE_SECONDS)
