"""Checkpoints and trimming: a checkpoint always has the whole state, is written rarely, and loses nothing."""

import random
from collections.abc import Callable

import pytest

from tests.unit.actor_harness import CHAT, Harness, answering, is_as_the_log_says
from threadcast.actor.checkpoint_policy import CHECKPOINT_MAX_BYTES, CheckpointPolicy
from threadcast.chat.entry_builder import EntryBuilder
from threadcast_protocol.framing.codec import decode_events
from threadcast_protocol.wire.events import ThreadUpdated
from threadcast_protocol.wire.ids import EntryId, Head

pytestmark = pytest.mark.anyio


def weight(size_bytes: int) -> Callable[[EntryBuilder], None]:
    """Return an event of about this size."""
    return lambda builder: builder.say(ThreadUpdated(context={"x": "y" * size_bytes}))


def many(count: int) -> Callable[[EntryBuilder], None]:
    def write(builder: EntryBuilder) -> None:
        for number in range(count):
            builder.say(ThreadUpdated(title=str(number)))

    return write


async def test_a_checkpoint_is_due_by_bytes_and_by_events(harness: Harness) -> None:
    writer = await answering(harness)
    requests = harness.store.requests

    def checkpoints() -> list[bool]:
        return [request.checkpoint is not None for request in requests]

    await writer.commit(weight(250_000))
    await writer.commit(weight(1_000))
    assert checkpoints() == [False] * 3, "a run is open, and 256 kB are not full"
    await writer.commit(weight(10_000))
    assert checkpoints()[-1]
    requests.clear()
    await writer.commit(many(2_000))
    await writer.commit(many(1))
    await writer.commit(many(1))
    assert checkpoints() == [False, False, True]
    await is_as_the_log_says(harness, writer)


async def test_a_large_chat_is_not_written_down_again_for_every_256_kb(harness: Harness) -> None:
    writer = await answering(harness)
    await writer.commit(lambda builder: builder.say(ThreadUpdated(custom_instructions="x" * 600_000)))
    harness.store.requests.clear()
    await writer.commit(weight(300_000))
    await writer.commit(weight(200_000))
    await writer.commit(weight(200_000))
    assert [request.checkpoint is not None for request in harness.store.requests] == [False, False, True]


async def test_trap_12_more_after_the_checkpoint_than_is_kept_for_readers_is_still_not_trimmed(
    harness: Harness,
) -> None:
    writer = await answering(harness)
    await writer.commit(lambda builder: builder.say(ThreadUpdated(custom_instructions="x" * 3_000_000)))
    stored = Head.parse(writer.state.head).entry_id
    for _ in range(6):
        await writer.commit(weight(400_000))
        request = harness.store.requests[-1]
        assert request.checkpoint is None
        assert request.trim is None or request.trim <= stored
        await is_as_the_log_says(harness, writer)


async def test_at_every_step_checkpoint_and_the_entries_after_it_are_the_state_and_enough_is_kept(
    harness: Harness,
) -> None:
    chance = random.Random(7)
    writer = await answering(harness)
    stored: str | None = None
    trims = 0
    for number in range(120):
        if number in (30, 60):
            harness.store.fail("append", "lost reply")
        await writer.commit(chance.choice([many(chance.randrange(1, 900)), weight(chance.randrange(1, 120_000))]))
        request = harness.store.requests[-1]
        stored = request.head if request.checkpoint is not None else stored
        log = await harness.store.read_log(CHAT)
        if request.trim is not None:
            trims += 1
            assert stored is not None and request.trim <= Head.parse(stored).entry_id, "trap 12"
            events = log[-1].position - log[0].position + len(decode_events(log[0].events))
            assert events >= 2_000 or sum(len(entry.events) for entry in log) >= 1_000_000
            assert len(log) < 60, "and not for ever"
            assert writer.checkpoint_policy.held[0][0] == log[0].entry_id, "nor is it counted for ever"
        await is_as_the_log_says(harness, writer)
    assert trims > 3


def test_while_a_large_import_goes_on_only_what_has_doubled_brings_a_checkpoint() -> None:
    checkpoint_policy = CheckpointPolicy(checkpoint_id=EntryId(1, 1), checkpoint_bytes=10_000_000)
    checkpoint_policy.add(EntryId(1, 2), 5_000, 9_000_000)
    assert checkpoint_policy.is_due(500_000), "by its events"
    assert not checkpoint_policy.is_due(500_000, is_importing=True)
    assert checkpoint_policy.is_due(1_500_000, is_importing=True)


def test_a_state_above_64_mb_gets_no_new_checkpoint_and_its_log_stays_whole() -> None:
    checkpoint_policy = CheckpointPolicy(checkpoint_id=EntryId(1, 1), checkpoint_bytes=40_000_000)
    checkpoint_policy.add(EntryId(1, 2), 5_000, 20_000_000)
    assert checkpoint_policy.is_due(CHECKPOINT_MAX_BYTES - 60_000_000), "what is not larger still gets one"
    for is_importing in (False, True):
        assert not checkpoint_policy.is_due(CHECKPOINT_MAX_BYTES - 60_000_000 + 1, is_importing=is_importing)
    checkpoint_policy.add(EntryId(1, 3), 5_000, 900_000_000)
    assert not checkpoint_policy.is_due(1)
