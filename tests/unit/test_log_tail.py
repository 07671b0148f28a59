"""A log message continues the log, is known already, or shows that entries were missed, which are then read from the
log."""

from collections.abc import Callable

import pytest

from tests.unit.actor_harness import CHAT, Harness, title
from threadcast.chat.entries import RawEntry
from threadcast.log_tail import Missed, carried_entry, entries_after, next_entry
from threadcast.store.ports import LogMessage
from threadcast_protocol.wire.ids import Head

pytestmark = pytest.mark.anyio


async def log_of(harness: Harness) -> list[RawEntry]:
    """Write a fence and three entries, and return them."""
    writer = await harness.writer()
    for text in "abc":
        await writer.commit(title(text))
    return await harness.store.read_log(CHAT)


def entry_message(entry: RawEntry) -> LogMessage:
    return LogMessage("entry", CHAT, entry, entry.head, entry.before, entry.version)


def large_message(entry: RawEntry) -> LogMessage:
    return LogMessage("large", CHAT, None, entry.head, entry.before, entry.version)


@pytest.mark.parametrize("message_of", [entry_message, large_message], ids=["whole", "large"])
async def test_a_message_is_the_next_entry_a_known_one_or_tells_of_a_gap(
    harness: Harness, message_of: Callable[[RawEntry], LogMessage]
) -> None:
    fence, first, second, third = await log_of(harness)
    assert await next_entry(harness.store, "", message_of(fence)) == fence
    assert await next_entry(harness.store, first.head, message_of(second)) == second
    for known in (fence, first, second):
        assert await next_entry(harness.store, second.head, message_of(known)) is None
    reads = harness.store.calls["read_entry"]
    with pytest.raises(Missed) as missed:
        await next_entry(harness.store, first.head, message_of(third))
    assert missed.value.reason == "gap"
    assert harness.store.calls["read_entry"] == reads, "an entry that does not continue the log is not read"


async def test_only_a_message_with_an_entry_that_continues_the_log_needs_no_store(harness: Harness) -> None:
    _, first, second, third = await log_of(harness)
    assert carried_entry(first.head, entry_message(second)) == second
    assert carried_entry(first.head, entry_message(third)) is None
    assert carried_entry(first.head, large_message(second)) is None


@pytest.mark.parametrize("kind", ["deleted", "reconnected"])
async def test_a_deleted_chat_and_a_rebuilt_channel_are_missed_entries(harness: Harness, kind: str) -> None:
    *_, last = await log_of(harness)
    message = LogMessage("deleted" if kind == "deleted" else "reconnected", CHAT)
    with pytest.raises(Missed) as missed:
        await next_entry(harness.store, last.head, message)
    assert missed.value.reason == kind


async def test_a_large_entry_that_the_log_lost_is_missed(harness: Harness) -> None:
    *_, second, third = await log_of(harness)
    harness.store.roll_back(CHAT, 3)
    with pytest.raises(Missed) as missed:
        await next_entry(harness.store, second.head, large_message(third))
    assert missed.value.reason == "large"


async def test_a_large_entry_of_another_history_is_a_gap(harness: Harness) -> None:
    *_, second, third = await log_of(harness)
    lost_head = str(Head(second.entry_id, "00000000000000aa", second.position))
    with pytest.raises(Missed) as missed:
        await next_entry(harness.store, lost_head, LogMessage("large", CHAT, None, third.head, lost_head, 1))
    assert missed.value.reason == "gap"


async def test_missed_entries_are_read_from_every_head_also_over_several_pages(harness: Harness) -> None:
    entries = await log_of(harness)
    for page_bytes in (harness.store.page_bytes, 1):
        harness.store.page_bytes = page_bytes
        for index, head in enumerate(["", *(entry.head for entry in entries)]):
            assert await entries_after(harness.store, CHAT, head) == entries[index:]
    assert await entries_after(harness.store, "no chat", "") == []


async def test_more_pages_than_the_reader_wants_are_missed(harness: Harness) -> None:
    _, first, second, third = await log_of(harness)
    harness.store.page_bytes = 1
    assert await entries_after(harness.store, CHAT, second.head, pages_max=1) == [third]
    with pytest.raises(Missed):
        await entries_after(harness.store, CHAT, first.head, pages_max=1)


async def test_entries_after_a_head_that_the_log_lost_are_missed(harness: Harness) -> None:
    _, _, second, third = await log_of(harness)
    harness.store.roll_back(CHAT, 3)
    assert await entries_after(harness.store, CHAT, second.head) == []
    with pytest.raises(Missed):
        await entries_after(harness.store, CHAT, third.head)
    harness.store.roll_back(CHAT, 0)
    with pytest.raises(Missed):
        await entries_after(harness.store, CHAT, second.head)
