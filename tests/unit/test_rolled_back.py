"""After a failover that loses entries, to a server whose clock is behind: no id of a lost entry is mistaken for an id
of the surviving history, and scheduled work waits longer, but is not lost."""

import pytest

from tests.unit.test_store_memory import CHAT, Clock, command
from threadcast.chat.owner_state import resume_is_possible
from threadcast.store.load import fold_loaded
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import AppendRequest
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.events import ThreadUpdated
from threadcast_protocol.wire.ids import EntryId, Head

pytestmark = pytest.mark.anyio

LEASE_MS = 3_500
BEHIND_MS = 30_000


async def appended(store: MemoryStore, expected: str, title: str) -> str:
    """Append one public event; the entry's head is named after the event's text."""
    before = Head.parse(expected)
    head = Head(EntryId(before.entry_id.epoch, before.entry_id.n + 1), title.encode().hex()[:16], before.position + 1)
    event = encode([ThreadUpdated(title=title)])
    await store.append(
        AppendRequest(chat_id=CHAT, expected=expected, head=str(head), version=1, events=event, owner="ann")
    )
    return str(head)


async def survived(clock: Clock) -> tuple[MemoryStore, str]:
    """Return the entries that a primary and its replica share when the link between them is cut, and their head."""
    store = MemoryStore(clock)
    await store.post(command())
    await store.claim(store.bucket_of(CHAT), "w1", 20, LEASE_MS)
    taken = await store.take(CHAT, "w1", "wake")
    return store, await appended(store, taken.head, "both know")


async def gone_on(clock: Clock, worker: str, titles: list[str]) -> tuple[MemoryStore, str]:
    """Return a history after the failover, in its own epoch."""
    store, _ = await survived(clock)
    clock.now_ms += LEASE_MS
    await store.claim(store.bucket_of(CHAT), worker, 20, LEASE_MS)
    clock.now_ms -= BEHIND_MS
    head = (await store.take(CHAT, worker, "takeover")).head
    for title in titles:
        head = await appended(store, head, title)
    return store, head


async def test_a_reader_of_the_lost_future_is_not_taken_for_one_of_the_new_history_also_when_the_clock_is_behind() -> (
    None
):
    _, lost_head = await gone_on(Clock(), "w2", ["lost 1", "lost 2"])
    store, head = await gone_on(Clock(), "w3", ["new 1", "new 2", "new 3"])
    lost = Head.parse(lost_head)
    state = fold_loaded(CHAT, await store.load(CHAT), with_facts=False)
    assert state.head == head and lost.position < state.position
    assert not resume_is_possible(state, lost.entry_id.epoch, lost.position)


async def test_while_the_clock_is_behind_commands_are_taken_up_and_a_dead_owners_chat_waits_that_much_longer() -> None:
    clock = Clock()
    store, _ = await survived(clock)
    bucket = store.bucket_of(CHAT)
    clock.now_ms -= BEHIND_MS
    clock.now_ms += LEASE_MS
    assert await store.claim(bucket, "w2", 20, LEASE_MS) == [], "the lease's end is a time of the other clock"
    await store.post(command("r2"))
    clock.now_ms += 1_000  # no process listens to the owner's name, so a post shortens the lease to 1 s
    assert [each.previous for each in await store.claim(bucket, "w2", 20, LEASE_MS)] == ["w1"]
    clock.now_ms += BEHIND_MS
    assert [each.previous for each in await store.claim(bucket, "w3", 20, LEASE_MS)] == ["w2"]
