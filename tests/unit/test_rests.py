"""Chats at rest: the worker that released a chat compacts its log after a while, else another worker does."""

import anyio
import pytest
from msgspec.structs import replace

from tests.unit.actor_harness import CHAT, Harness, params, say
from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.actor import rests
from threadcast.actor.checkpoint_policy import MEASURE_BYTES, CheckpointPolicy
from threadcast.actor.end import End
from threadcast.actor.rests import LEFT_SECONDS, Rest, Rests, rest_of
from threadcast.actor.traces import Traces
from threadcast.base.redaction import Redactor
from threadcast.chat.owner_state import empty_owner_state
from threadcast.settings.limits import Limits
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


def due_ms(harness: Harness) -> int | None:
    return harness.store._buckets[harness.store.bucket_of(CHAT)].due.get(CHAT)


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
    assert due_ms(harness) is None


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
            while known._rests:
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
    left_ms = due_ms(harness)
    assert left_ms is not None and left_ms - harness.store.clock.now_ms == pytest.approx(1_000 * LEFT_SECONDS, rel=0.1)
    harness.store.clock.now_ms = left_ms
    assert await harness.own("w2") is End.RELEASED
    async with harness.compacting("w2"):
        await harness.compacted()
    assert due_ms(harness) is None


async def test_a_log_that_cannot_be_compacted_is_left_as_it_is_and_not_tried_by_each_worker(harness: Harness) -> None:
    await harness.own("w1", say("one"))
    harness.store.broken.add("read_history")
    async with harness.compacting("w1"):
        await called(harness, "compact")
        with anyio.fail_after(DEADLINE_SECONDS):
            while due_ms(harness) is not None:
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
        known.add(name, Rest(0.0, "ann", "", 0, None))
    assert [*known._rests] == ["a", "c"]


@pytest.mark.parametrize(("timer", "due"), [(None, 121_000), (5_000, 5_000), (900_000, 121_000)])
def test_a_chat_is_due_at_its_timer_or_when_its_log_should_have_been_compacted(timer: int | None, due: int) -> None:
    limits = Limits(compact_after_seconds=1.0)
    begun = rest_of(empty_owner_state(CHAT), CheckpointPolicy(), "ann", 0, timer, limits)
    assert begun is not None and (begun.due_ms, begun.when_ms) == (due, timer)
    long = CheckpointPolicy(checkpoint_bytes=1_000_000, pending_bytes=1_000)
    assert rest_of(empty_owner_state(CHAT), long, "ann", 0, timer, limits) is None


def test_a_chat_is_measured_at_its_release_if_it_has_grown_or_its_log_is_not_compacted() -> None:
    policy = CheckpointPolicy()
    policy.add(EntryId(1, 1), 1, MEASURE_BYTES)
    assert not policy.takes_measure(True)
    policy.add(EntryId(1, 2), 1, 1)
    assert [policy.takes_measure(True) for _ in range(2)] == [True, False]
    assert policy.takes_measure(False)
