"""The contract of every store, 2: the ownership of chats. Tests claim, take, beat, release and hand over. Tests of
traps (DISPATCH §9) have the trap's number in their name."""

import pytest

from tests.integration.store_fixtures import (
    CHAT,
    LEASE_MS,
    WAIT_SECONDS,
    claim,
    command,
    consume_all,
    entry,
    eventually,
    owned,
)
from threadcast.chat.entries import Fence
from threadcast.store.bounds import CLAIM_LOOKED_AT
from threadcast.store.ports import Appended, Beat, Claimed, Fenced, Lost, Released, Store, WaitingRun
from threadcast_protocol.wire.ids import EntryId, Head

pytestmark = pytest.mark.anyio


# claim


async def test_claim_takes_what_is_due_and_only_once(store: Store) -> None:
    await store.post(command())
    assert await claim(store, "w1") == [Claimed(CHAT, "")]
    assert await claim(store, "w1") == []
    assert await claim(store, "w2") == []


async def test_claim_names_the_worker_whose_lease_ran_out(store: Store) -> None:
    await store.post(command())
    assert await claim(store, "w1", lease_ms=20) == [Claimed(CHAT, "")]

    async def is_taken_over() -> bool:
        return await claim(store, "w2") == [Claimed(CHAT, "w1", has_begun=False)]

    await eventually(is_taken_over)


async def test_claim_takes_at_most_its_limit_and_rings_for_the_rest(store: Store) -> None:
    chats = _chats_of_one_bucket(store, 3)
    async with store.bell() as bell:
        for chat_id in chats:
            await store.post(command(chat_id=chat_id))
        bucket = await bell.wait(WAIT_SECONDS)
        assert bucket is not None
        assert len(await store.claim(bucket, "w1", 2, LEASE_MS)) == 2
        assert await bell.wait(WAIT_SECONDS) == bucket
        assert len(await store.claim(bucket, "w1", 2, LEASE_MS)) == 1
        assert await bell.wait(0.01) is None


async def test_a_full_worker_claims_only_chats_that_have_waited_or_whose_owner_died(store: Store) -> None:
    left, fresh = _chats_of_one_bucket(store, 2)
    bucket = store.bucket_of(left)
    await store.post(command(chat_id=left))
    assert await store.claim(bucket, "w1", 20, 1) == [Claimed(left, "")]
    await store.post(command(chat_id=fresh))

    async def is_taken_over() -> bool:
        return await store.claim(bucket, "w2", 20, LEASE_MS, 60_000) == [Claimed(left, "w1", has_begun=False)]

    async def has_waited() -> bool:
        return await store.claim(bucket, "w2", 20, LEASE_MS, 20) == [Claimed(fresh, "")]

    await eventually(is_taken_over)
    assert await store.claim(bucket, "w2", 20, LEASE_MS, 60_000) == []
    await eventually(has_waited)


async def test_a_full_worker_takes_the_chats_that_have_waited_of_all_principals_in_turn(store: Store) -> None:
    chats = _chats_of_one_bucket(store, 2 * CLAIM_LOOKED_AT + 10)
    for chat_id in chats[:-1]:
        await store.post(command(chat_id=chat_id, owner="greedy"))
    await store.post(command(chat_id=chats[-1], owner="ann"))
    assert await store.claim(store.bucket_of(chats[0]), "w1", 5, LEASE_MS, 60_000) == []

    async def has_waited() -> bool:
        claimed = await store.claim(store.bucket_of(chats[0]), "w1", 5, LEASE_MS, 20)
        return chats[-1] in {each.chat_id for each in claimed}

    await eventually(has_waited)


@pytest.mark.row("SEC-2")
async def test_claim_takes_the_due_chats_of_all_principals_in_turn(store: Store) -> None:
    chats = _chats_of_one_bucket(store, 2 * CLAIM_LOOKED_AT + 60)
    greedy, modest = chats[:-2], chats[-2:]
    for chat_id in greedy:
        await store.post(command(chat_id=chat_id, owner="greedy"))
    for owner, chat_id in zip(("ann", "bob"), modest, strict=True):
        await store.post(command(chat_id=chat_id, owner=owner))
    claimed = await store.claim(store.bucket_of(chats[0]), "w1", 5, LEASE_MS)
    taken = [each.chat_id for each in claimed]
    assert set(modest) < set(taken)
    assert len(taken) == 5
    assert set(taken) - set(modest) <= set(greedy)


@pytest.mark.row("SEC-2")
async def test_claim_names_a_run_that_waits_unless_a_command_has_come(store: Store) -> None:
    taken = await owned(store)
    head = await consume_all(store, taken.head)
    waiting = entry(head, meta=(("waits", "-1 1800000000000"),))
    await store.append(waiting)
    run = WaitingRun("ann", "-1 1800000000000")
    assert await store.release(CHAT, "w1", waiting.head, 1) is Released.OK
    assert await claim(store, "w2") == [Claimed(CHAT, "", run)]
    await store.handover(CHAT, "w2", 0)
    await store.post(command("r2"))
    assert await claim(store, "w2") == [Claimed(CHAT, "")]


@pytest.mark.row("SEC-2")
async def test_a_waiting_chat_is_claimed_before_its_time_and_only_once(store: Store) -> None:
    assert not await store.claim_chat(CHAT, "w1", LEASE_MS), "an unknown chat"
    await owned(store)
    assert not await store.claim_chat(CHAT, "w2", LEASE_MS), "a chat with an owner"
    await store.handover(CHAT, "w1", 60_000)
    assert await store.claim_chat(CHAT, "w2", LEASE_MS)
    assert not await store.claim_chat(CHAT, "w1", LEASE_MS)
    assert await store.beat("w2", LEASE_MS, [CHAT]) == {CHAT: Beat.INBOX}


def _chats_of_one_bucket(store: Store, count: int) -> list[str]:
    names = (f"c{n}" for n in range(10_000))
    wanted = store.bucket_of("c0")
    return [name for name in names if store.bucket_of(name) == wanted][:count]


# take


async def test_take_appends_a_fence_and_tells_what_was_before(store: Store) -> None:
    await store.post(command())
    await claim(store, "w1")
    first = await store.take(CHAT, "w1", "wake")
    second = await store.take(CHAT, "w1", "retake")
    assert (first.previous, second.previous, second.owner) == ("", first.head, "ann")
    log = await store.read_log(CHAT)
    assert [each.fence for each in log] == [Fence("w1", "wake"), Fence("w1", "retake")]
    assert [(each.before, each.head) for each in log] == [("", first.head), (first.head, second.head)]
    assert [each.entry_id.n for each in log] == [1, 2]
    assert log[0].entry_id.epoch < log[1].entry_id.epoch
    assert first.time_ms <= log[0].entry_id.epoch


async def test_epochs_that_run_ahead_of_the_clock_are_not_the_same_in_another_history(store: Store) -> None:
    ahead, epochs = 4_000_000_000_000, set()
    for chat_id in ("chat-a", "chat-b", "chat-c"):  # three chats stand for three histories of one chat
        taken = await owned(store, chat_id=chat_id)
        last = str(Head(EntryId(ahead, 2), "00000000000000aa", 1))
        assert await store.append(entry(taken.head, chat_id=chat_id, head=last)) is Appended.OK
        epochs.add(Head.parse((await store.take(chat_id, "w1", "retake")).head).entry_id.epoch)
    assert all(ahead < epoch <= ahead + 65_536 for epoch in epochs)
    assert len(epochs) > 1


async def test_take_of_anothers_chat_is_lost(store: Store) -> None:
    await owned(store, "w1")
    with pytest.raises(Lost):
        await store.take(CHAT, "w2", "wake")
    with pytest.raises(Lost):
        await store.take("unknown", "w2", "wake")
    assert (await store.load("unknown")).head == ""


async def test_trap_2_what_was_written_after_the_fence_was_read_by_nobody(store: Store) -> None:
    """The new owner writes its fence first: the former owner's append fails, and the new owner's load ends with its own
    fence."""
    old = await owned(store, "w1", lease_ms=1)

    async def is_taken_over() -> bool:
        return bool(await claim(store, "w2"))

    await eventually(is_taken_over)
    new = await store.take(CHAT, "w2", "takeover")
    with pytest.raises(Fenced):
        await store.append(entry(old.head))
    loaded = await store.load(CHAT)
    assert loaded.head == new.head == loaded.entries[-1].head
    assert new.previous == old.head


async def test_position_goes_on_over_a_fence(store: Store) -> None:
    taken = await owned(store)
    await store.append(entry(taken.head, events=7))
    again = await store.take(CHAT, "w1", "retake")
    assert Head.parse(again.head).position == 7


# beat, release, hand over


async def test_beat_tells_mine_inbox_and_lost_for_any_number_of_chats(store: Store) -> None:
    chats = [f"chat{n}" for n in range(450)]
    for name in chats:
        await store.post(command(chat_id=name))
    for bucket in range(store.buckets):
        await store.claim(bucket, "w1", 1_000, LEASE_MS)
    for name in chats[:3]:
        taken = await store.take(name, "w1", "wake")
        (waiting,) = await store.read_inbox(name, 10)
        consumed = ((waiting.inbox_id, "r1"),)
        await store.append(entry(taken.head, chat_id=name, consumed=consumed))
    beats = await store.beat("w1", LEASE_MS, [*chats, "unknown"])
    assert [beats[name] for name in chats[:4]] == [Beat.MINE, Beat.MINE, Beat.MINE, Beat.INBOX]
    assert set(beats.values()) == {Beat.MINE, Beat.INBOX, Beat.LOST}
    assert beats["unknown"] is Beat.LOST
    assert set((await store.beat("w2", LEASE_MS, chats)).values()) == {Beat.LOST}


async def test_beat_prolongs_the_lease(store: Store) -> None:
    await store.post(command())
    await claim(store, "w1", lease_ms=1)
    await store.beat("w1", LEASE_MS, [CHAT])
    assert await claim(store, "w2") == []


async def test_trap_10_beat_finds_a_command_whose_inbox_signal_was_lost(store: Store) -> None:
    taken = await owned(store)
    await consume_all(store, taken.head)
    assert await store.beat("w1", LEASE_MS, [CHAT]) == {CHAT: Beat.MINE}
    await store.post(command("r2"))  # no process listens to the worker's inbox signals
    assert await store.beat("w1", LEASE_MS, [CHAT]) == {CHAT: Beat.INBOX}


async def test_trap_10_claim_finds_a_chat_whose_bell_was_lost(store: Store) -> None:
    async with store.bell() as bell:
        await store.post(command())
        assert await bell.wait(WAIT_SECONDS) is not None  # swallowed
    assert await claim(store, "w1") == [Claimed(CHAT, "")]


async def test_release_puts_a_chat_to_sleep(store: Store) -> None:
    taken = await owned(store)
    head = await consume_all(store, taken.head)
    assert await store.release(CHAT, "w1", head, None) is Released.OK
    assert await claim(store, "w2") == []
    await store.post(command("r2"))
    assert await claim(store, "w2") == [Claimed(CHAT, "")]


async def test_repeated_release_is_lost(store: Store) -> None:
    taken = await owned(store)
    head = await consume_all(store, taken.head)
    await store.release(CHAT, "w1", head, None)
    with pytest.raises(Lost):
        await store.release(CHAT, "w1", head, None)


async def test_release_is_refused_while_a_command_waits(store: Store) -> None:
    taken = await owned(store)
    assert await store.release(CHAT, "w1", taken.head, None) is Released.MORE
    assert await store.beat("w1", LEASE_MS, [CHAT]) == {CHAT: Beat.INBOX}


async def test_release_from_another_head_or_by_another_worker_is_refused(store: Store) -> None:
    taken = await owned(store)
    head = await consume_all(store, taken.head)
    with pytest.raises(Fenced):
        await store.release(CHAT, "w1", taken.head, None)
    with pytest.raises(Lost):
        await store.release(CHAT, "w2", head, None)
    assert await store.beat("w1", LEASE_MS, [CHAT]) == {CHAT: Beat.MINE}


async def test_trap_11_release_sets_the_timer_that_the_claim_had_overwritten(store: Store) -> None:
    taken = await owned(store)
    head = await consume_all(store, taken.head)
    await store.release(CHAT, "w1", head, await store.now_ms() + 50)
    assert await claim(store, "w2") == []

    async def is_due() -> bool:
        return await claim(store, "w2") == [Claimed(CHAT, "")]

    await eventually(is_due)


async def test_handover_rings_for_the_next_worker_at_once(store: Store) -> None:
    async with store.bell() as bell:
        await owned(store)
        await bell.wait(WAIT_SECONDS)
        await store.handover(CHAT, "w1", 0)
        assert await bell.wait(WAIT_SECONDS) == store.bucket_of(CHAT)
    assert await claim(store, "w2") == [Claimed(CHAT, "")]
    with pytest.raises(Lost):
        await store.handover(CHAT, "w1", 0)


async def test_handover_with_delay_waits(store: Store) -> None:
    async with store.bell() as bell:
        await owned(store)
        await bell.wait(WAIT_SECONDS)
        await store.handover(CHAT, "w1", LEASE_MS)
        assert await bell.wait(0.01) is None
    assert await claim(store, "w2") == []


async def test_quarantined_chat_is_nobodys_and_loses_nothing(store: Store) -> None:
    taken = await owned(store)
    await store.quarantine(CHAT, "w1", await store.now_ms() + 3_600_000)
    assert await claim(store, "w2") == []
    assert (await store.load(CHAT)).head == taken.head
    assert len(await store.read_inbox(CHAT, 10)) == 1
    with pytest.raises(Lost):
        await store.quarantine(CHAT, "w1", 0)


async def test_quarantine_ends_when_its_time_has_come(store: Store) -> None:
    await owned(store)
    await store.quarantine(CHAT, "w1", await store.now_ms())
    assert await claim(store, "w2") == [Claimed(CHAT, "")]


async def test_trap_15_dead_letter_may_be_written_before_the_command_is_consumed(store: Store) -> None:
    await owned(store)
    (waiting,) = await store.read_inbox(CHAT, 10)
    await store.dead_letter(CHAT, waiting, "poison")
    await store.dead_letter(CHAT, waiting, "poison")
    assert await store.read_inbox(CHAT, 10) == [waiting]
