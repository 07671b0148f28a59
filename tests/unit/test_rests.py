"""Chats at rest: the worker that released a chat compacts its log after a while, else another worker does."""

import math

import anyio
import pytest
from msgspec.structs import replace

from tests.unit.actor_harness import CHAT, Harness, params, say
from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.actor import rests
from threadcast.actor.checkpoint_policy import GROWN_BYTES, GROWN_EVENTS, CheckpointPolicy
from threadcast.actor.end import End
from threadcast.actor.rests import LEFT_SECONDS, Rest, Rests
from threadcast.actor.traces import Traces
from threadcast.base.redaction import Redactor
from threadcast.store.history import state_at
from threadcast.store.trace_records import decompose
from threadcast_protocol.wire.ids import EntryId, Head

pytestmark = pytest.mark.anyio


@pytest.fixture
def harness() -> Harness:
    """Workers that compact at once. A test starts this with `compacting`."""
    made = Harness()
    made.limits = replace(made.limits, compact_after_seconds=0.0)
    return made


def left_ms(harness: Harness) -> int | None:
    """Return when another worker may compact the log; None if nobody has to."""
    return harness.store._buckets[harness.store.bucket_of(CHAT)].rests.get(CHAT)


async def called(harness: Harness, name: str, times: int = 1) -> None:
    """Wait until a call of the store has begun."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while harness.store.calls[name] < times:
            await anyio.sleep(0.005)


@pytest.mark.parametrize("workers", [("w1",), ("w1", "w2")], ids=["from the cache", "loaded"])
async def test_over_many_short_ownerships_the_log_is_compacted_and_trimmed_as_in_one(
    harness: Harness, workers: tuple[str, ...]
) -> None:
    async with harness.compacting("w1"), harness.compacting("w2"):
        for number in range(40):
            await harness.post(params(f"p{number}", context={"x": f"{number} " + "y" * 60_000}))
            await harness.own(workers[number % len(workers)])
            await harness.compacted()
    assert (await harness.store.load(CHAT)).entries == [], "the checkpoint contains the whole log"
    assert ((await harness.state()).thread.context or {})["x"].startswith("39 ")
    assert (await state_at(harness.store, CHAT, 20)).position == 20
    if len(workers) == 1:
        log = await harness.store.read_log(CHAT)
        assert 1_000_000 <= sum(len(entry.events) for entry in log) < 1_400_000, "the beginning was trimmed"


async def test_a_state_that_has_left_the_cache_is_loaded(harness: Harness) -> None:
    await harness.own("w1", say("one"))
    head = (await harness.state()).head
    assert harness.worker_context("w1").cache.pop(CHAT, head) is not None
    async with harness.compacting("w1"):
        await harness.compacted()
    assert (await harness.store.load(CHAT)).checkpoint is not None
    assert left_ms(harness) is None


async def test_a_chat_that_is_owned_again_is_not_compacted_until_it_rests(harness: Harness) -> None:
    """The command arrives while the first compaction reads the log."""
    await harness.own("w1", say("one"))
    held = harness.store.hold("read_log")
    async with harness.compacting("w1"):
        await held.entered()
        assert await harness.own("w1", say("two")) is End.RELEASED
        head = (await harness.state()).head
        held.let_go()
        await harness.compacted()
    assert (await harness.store.load(CHAT)).head == head
    assert [text for role, text in await harness.texts() if role == "user"] == ["one", "two"]
    cached = harness.worker_context("w1").cache.pop(CHAT, head)
    assert cached is not None
    assert cached.checkpoint_policy.checkpoint_id == Head.parse(head).entry_id
    assert await harness.folded_log() == await harness.state()


async def test_a_chat_that_its_worker_owns_again_is_forgotten_at_once(harness: Harness) -> None:
    harness.limits = replace(harness.limits, compact_after_seconds=600.0)
    known = harness.worker_context("w1").rests
    async with harness.hosting("w1"):
        await harness.post(say("one"))
        await called(harness, "release")
        await harness.post(say("two", model="demo/hang?rate=0"))
        await called(harness, "take", 2)
        with anyio.fail_after(DEADLINE_SECONDS):
            while known._later:
                await anyio.sleep(0.005)


@pytest.mark.parametrize("trouble", ["refused", "killed"])
async def test_a_log_that_its_worker_does_not_compact_is_compacted_by_another_worker(
    harness: Harness, trouble: str
) -> None:
    await harness.own("w1", say("one"))
    if trouble == "refused":
        harness.store.away.add("compact")
        async with harness.compacting("w1"):
            await called(harness, "compact")
        harness.store.away.clear()
    left = left_ms(harness)
    assert left is not None and left - harness.store.clock.now_ms == pytest.approx(1_000 * LEFT_SECONDS, rel=0.1)
    head = (await harness.state()).head
    async with harness.hosting("w2"):
        await called(harness, "check_buckets", 2)
        harness.store.clock.now_ms = left
        await harness.compacted()
    assert left_ms(harness) is None
    assert (await harness.state()).head == head, "no worker has taken the chat"


async def test_a_log_that_was_left_is_not_compacted_while_a_worker_owns_its_chat(harness: Harness) -> None:
    await harness.own("w1", say("one"))
    known = harness.worker_context("w2").rests
    left = left_ms(harness)
    assert left is not None
    harness.store.clock.now_ms = left
    await known.take_over(harness.store.bucket_of(CHAT), harness.store)
    await harness.post(say("two"))
    await harness.claim("w1")
    taken = await harness.store.take(CHAT, "w1", "wake")
    async with harness.compacting("w2"):
        await called(harness, "compact")
    assert (await harness.store.load(CHAT)).checkpoint is None
    assert (await harness.state()).head == taken.head


async def test_a_log_that_cannot_be_compacted_is_left_as_it_is_and_not_tried_by_each_worker(harness: Harness) -> None:
    await harness.own("w1", say("one"))
    harness.store.broken.add("read_history")
    async with harness.compacting("w1"):
        await called(harness, "compact")
        with anyio.fail_after(DEADLINE_SECONDS):
            while left_ms(harness) is not None:
                await anyio.sleep(0.005)
        harness.store.broken.clear()
        await harness.own("w1", say("two"))
        await harness.compacted()
    assert await harness.folded_log() == await harness.state()


async def test_the_traces_of_a_chat_at_rest_are_combined(harness: Harness) -> None:
    traces = Traces(harness.store, harness.metrics, Redactor(), ttl_seconds=60)
    harness.use_traces("w1", traces)
    for number in range(3):
        await harness.own("w1", say(f"question {number}"))
        await traces.aclose()
    apart = await harness.store.read_traces(CHAT, "local")
    assert len(apart) > 2
    async with harness.compacting("w1"):
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(await harness.store.read_traces(CHAT, "local")) > 1:
                await anyio.sleep(0.005)
    (whole,) = await harness.store.read_traces(CHAT, "local")
    assert decompose(whole.data) == [each for record in apart for each in decompose(record.data)]


async def test_chats_beyond_the_bound_are_left_to_other_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rests, "REMEMBERED_MAX", 2)
    known = Rests()
    for name in ("a", "b", "a", "c"):
        known.add(name, Rest(math.inf))
    assert [*known._later] == ["a", "c"]


async def test_a_bucket_whose_store_is_away_does_not_keep_the_others_waiting(harness: Harness) -> None:
    """The first of two chats of the same bucket finds the store away; the second is not tried for a while."""
    bucket_of = harness.store.bucket_of
    beside = next(name for name in map(str, range(999)) if bucket_of(name) == bucket_of(CHAT))
    for chat_id in (CHAT, beside, "other"):
        await harness.own("w1", say("one"), chat_id=chat_id)
    assert bucket_of("other") != bucket_of(CHAT)
    harness.store.fail("compact", "refused")
    async with harness.compacting("w1"):
        await harness.compacted("other")
    assert [harness.store._chats[chat_id].is_compacted for chat_id in (CHAT, beside)] == [False, False]


async def test_a_log_that_has_grown_much_is_compacted_before_those_that_rest(harness: Harness) -> None:
    harness.limits = replace(harness.limits, compact_after_seconds=600.0)
    async with harness.compacting("w1"):
        await harness.own("w1", say("one"), chat_id="small")
        await harness.own("w1", params("p", context={"x": "y" * 60_000}), params("q", context={"x": "z" * 60_000}))
        await harness.compacted()
        assert not harness.store._chats["small"].is_compacted
        await harness.own("w1", say("two"))
        assert left_ms(harness) is not None, "the growth counts from the compaction"


@pytest.mark.parametrize(
    ("events", "size", "has_grown"), [(GROWN_EVENTS, GROWN_BYTES, False), (1, GROWN_BYTES + 1, True), (501, 9, True)]
)
def test_a_log_has_grown_by_events_or_bytes_until_it_is_compacted(events: int, size: int, has_grown: bool) -> None:
    policy = CheckpointPolicy()
    policy.add(EntryId(1, 1), events, size)
    policy.move_checkpoint(EntryId(1, 1), 9, None)
    assert policy.has_grown is has_grown
    policy.note_compaction()
    assert not policy.has_grown
