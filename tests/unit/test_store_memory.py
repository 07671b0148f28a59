"""Tests that only the in-memory store allows, because its clock is an argument: lifetimes, leases, clocks that step
back."""

import pytest

from threadcast.store.bounds import DELETED_TTL_SECONDS, EMPTY_CHAT_TTL_SECONDS, SEEN_TTL_SECONDS
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import AppendRequest, Claimed, PostOutcome, PostRequest, Store
from threadcast_protocol.wire.errors import Internal
from threadcast_protocol.wire.ids import EntryId, Head

pytestmark = pytest.mark.anyio

CHAT = "chat-1"


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return MemoryStore(clock)


def command(request_id: str = "r1", *, nonce: str = "n") -> PostRequest:
    return PostRequest(
        chat_id=CHAT, owner="ann", principal=b"{}", request_id=request_id, digest="d", nonce=nonce, body=b"{}"
    )


async def owned(store: Store) -> str:
    await store.post(command())
    await store.claim(store.bucket_of(CHAT), "w1", 20, 3_500)
    return (await store.take(CHAT, "w1", "wake")).head


async def expiring(store: MemoryStore, expected: str) -> AppendRequest:
    """Return the append that consumes all commands and lets the chat expire."""
    waiting = await store.read_inbox(CHAT, 10)
    before = Head.parse(expected)
    head = Head(EntryId(before.entry_id.epoch, before.entry_id.n + 1), "00000000000000aa", before.position)
    return AppendRequest(
        chat_id=CHAT,
        expected=expected,
        head=str(head),
        version=1,
        events=b"[]",
        lifetime="expire",
        expire_seconds=EMPTY_CHAT_TTL_SECONDS,
        owner="ann",
        consumed=tuple((each.inbox_id, each.request_id) for each in waiting),
    )


async def test_chat_without_messages_is_gone_after_a_day(store: MemoryStore, clock: Clock) -> None:
    await store.append(await expiring(store, await owned(store)))
    clock.now_ms += EMPTY_CHAT_TTL_SECONDS * 1_000 - 1
    assert await store.meta(CHAT) is not None
    clock.now_ms += 1
    assert await store.meta(CHAT) is None
    assert (await store.load(CHAT)).head == ""


async def test_accepted_command_takes_the_expiry_back(store: MemoryStore, clock: Clock) -> None:
    await store.append(await expiring(store, await owned(store)))
    await store.post(command("r2"))
    clock.now_ms += 2 * EMPTY_CHAT_TTL_SECONDS * 1_000
    assert [waiting.request_id for waiting in await store.read_inbox(CHAT, 10)] == ["r2"]


async def test_request_ids_are_remembered_for_a_day_after_the_last(store: MemoryStore, clock: Clock) -> None:
    await store.post(command())
    clock.now_ms += SEEN_TTL_SECONDS * 1_000 - 1
    assert (await store.post(command(nonce="other"))).outcome is PostOutcome.DUPLICATE
    clock.now_ms += 1
    assert (await store.post(command(nonce="other"))).outcome is PostOutcome.ACCEPTED


async def test_deleted_chat_may_be_made_anew_after_thirty_days(store: MemoryStore, clock: Clock) -> None:
    await store.post(command())
    await store.delete(CHAT, "ann", "n1")
    clock.now_ms += DELETED_TTL_SECONDS * 1_000 - 1
    assert (await store.post(command("r2"))).outcome is PostOutcome.GONE
    clock.now_ms += 1
    assert (await store.post(command("r2"))).outcome is PostOutcome.ACCEPTED


async def test_trap_20_epochs_and_inbox_ids_go_on_when_the_clock_steps_back(store: MemoryStore, clock: Clock) -> None:
    first = await owned(store)
    clock.now_ms -= 10_000
    second = (await store.take(CHAT, "w1", "retake")).head
    await store.post(command("r2"))
    assert Head.parse(second).entry_id.epoch > Head.parse(first).entry_id.epoch
    one, two = await store.read_inbox(CHAT, 10)
    assert EntryId.parse(one.inbox_id) < EntryId.parse(two.inbox_id)


async def test_chat_is_due_again_exactly_when_its_lease_ends(store: MemoryStore, clock: Clock) -> None:
    await owned(store)
    clock.now_ms += 3_499
    assert await store.claim(store.bucket_of(CHAT), "w2", 20, 3_500) == []
    clock.now_ms += 1
    assert await store.claim(store.bucket_of(CHAT), "w2", 20, 3_500) == [Claimed(CHAT, "w1")]


async def test_meta_without_an_owner_is_a_mistake_that_shows_at_once(store: MemoryStore) -> None:
    head = await owned(store)
    nameless = AppendRequest(
        chat_id=CHAT, expected=head, head=f"{head} ", version=1, events=b"[]", meta=(("title", "x"),)
    )
    with pytest.raises(Internal, match="owner"):
        await store.append(nameless)


async def test_interrupted_listeners_are_told_that_they_may_have_missed_something(store: MemoryStore) -> None:
    async with store.follow(CHAT) as log_messages, store.inbox_signals("w1") as signals:
        store.interrupt()
        assert (await anext(log_messages)).kind == "reconnected"
        assert await anext(signals) is None
