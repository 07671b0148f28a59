"""What every store promises: DISPATCH §4's answers, its table of repeats, and §9's traps as far as a store has them.

Each test runs on the in-memory twin, on the embedded Valkey and on Redis 7.0, through the port alone.
"""

from collections.abc import Sequence

import anyio
import pytest
from msgspec import structs

from protocol.entries import Fence
from protocol.ids import EntryId, Head
from server.store.port import (
    Appended,
    AppendRequest,
    Beat,
    Claimed,
    Fenced,
    Lost,
    PostOutcome,
    PostRequest,
    Released,
    Store,
    Taken,
)
from tests.integration.store_fixtures import WAIT_SECONDS, eventually

pytestmark = pytest.mark.anyio

LEASE_MS = 60_000
CHAT = "chat-1"


def command(request_id: str = "r1", chat_id: str = CHAT, **changes: object) -> PostRequest:
    fields: dict[str, object] = {
        "chat_id": chat_id,
        "owner": "ann",
        "principal": b'{"id":"ann"}',
        "request_id": request_id,
        "digest": f"digest-of-{request_id}",
        "nonce": f"nonce-of-{request_id}",
        "body": b'{"type":"user_message"}',
    }
    return PostRequest(**{**fields, **changes})  # type: ignore[arg-type] # fields by name, checked by the struct's users


def entry(expected: str, *, digest: str = "00000000000000aa", events: int = 1, **changes: object) -> AppendRequest:
    """The next append after `expected`."""
    before = Head.parse(expected)
    head = Head(EntryId(before.entry_id.epoch, before.entry_id.n + 1), digest, before.position + events)
    fields: dict[str, object] = {
        "chat_id": CHAT,
        "expected": expected,
        "head": str(head),
        "version": 1,
        "events": b'[{"type":"ack"}]',
        "owner": "ann",
    }
    return AppendRequest(**{**fields, **changes})  # type: ignore[arg-type] # as above


async def claim(store: Store, worker: str, chat_id: str = CHAT, lease_ms: int = LEASE_MS) -> list[Claimed]:
    return await store.claim(store.bucket_of(chat_id), worker, 20, lease_ms)


async def owned(store: Store, worker: str = "w1", chat_id: str = CHAT, lease_ms: int = LEASE_MS) -> Taken:
    """A chat with one command, claimed and taken by `worker`."""
    await store.post(command(chat_id=chat_id))
    assert Claimed(chat_id, "") in await claim(store, worker, chat_id, lease_ms)
    return await store.take(chat_id, worker, "wake")


async def consume_all(store: Store, head: str) -> str:
    """An append that takes everything out of the inbox; the new head."""
    waiting = await store.read_inbox(CHAT, 1_000)
    request = entry(head, consumed=tuple((each.inbox_id, each.request_id) for each in waiting))
    assert await store.append(request) is Appended.OK
    return request.head


async def outcomes(store: Store, requests: Sequence[PostRequest]) -> list[PostOutcome]:
    return [(await store.post(request)).outcome for request in requests]


# post


async def test_accepted_command_lies_in_the_inbox_with_its_principal(store: Store) -> None:
    posted = await store.post(command())
    assert posted.outcome is PostOutcome.ACCEPTED
    (waiting,) = await store.read_inbox(CHAT, 10)
    assert (waiting.inbox_id, waiting.request_id) == (posted.inbox_id, "r1")
    assert (waiting.principal, waiting.body) == (b'{"id":"ann"}', b'{"type":"user_message"}')


async def test_first_command_makes_the_chat_its_senders(store: Store) -> None:
    assert await store.meta(CHAT) is None
    before_ms = await store.now_ms()
    await store.post(command())
    meta = await store.meta(CHAT)
    assert meta is not None
    assert (meta.owner, meta.deleted) == ("ann", False)
    assert before_ms <= meta.created_at <= await store.now_ms()


async def test_own_retry_gets_the_first_inbox_id_and_changes_nothing(store: Store) -> None:
    first = await store.post(command())
    assert await store.post(command()) == first
    assert len(await store.read_inbox(CHAT, 10)) == 1


async def test_same_id_from_another_request_is_duplicate_or_mismatch(store: Store) -> None:
    await store.post(command())
    again = [command(nonce="other"), command(nonce="other", digest="other")]
    assert await outcomes(store, again) == [PostOutcome.DUPLICATE, PostOutcome.MISMATCH]
    assert len(await store.read_inbox(CHAT, 10)) == 1


async def test_consumed_command_is_still_remembered(store: Store) -> None:
    taken = await owned(store)
    await consume_all(store, taken.head)
    assert await outcomes(store, [command(nonce="other")]) == [PostOutcome.DUPLICATE]
    assert (await store.post(command())).outcome is PostOutcome.ACCEPTED
    assert await store.read_inbox(CHAT, 10) == []


async def test_foreign_and_unknown_chats_are_refused(store: Store) -> None:
    await store.post(command())
    assert await outcomes(store, [command("r2", owner="bob")]) == [PostOutcome.FOREIGN]
    assert await outcomes(store, [command(chat_id="other", creates=False)]) == [PostOutcome.UNKNOWN]
    assert await store.meta("other") is None
    assert await outcomes(store, [command("r2", creates=False)]) == [PostOutcome.ACCEPTED]


async def test_normal_commands_are_bounded_with_the_queue_and_refused_ids_are_not_burnt(store: Store) -> None:
    taken = await owned(store)
    head = entry(taken.head, meta=(("queue", "90"),))
    await store.append(head)
    assert await outcomes(store, [command(f"q{n}") for n in range(9)]) == [PostOutcome.ACCEPTED] * 9
    assert await outcomes(store, [command("late")]) == [PostOutcome.FULL]
    assert await outcomes(store, [command("stop", kind="exempt")]) == [PostOutcome.ACCEPTED]
    await consume_all(store, head.head)
    assert await outcomes(store, [command("late")]) == [PostOutcome.ACCEPTED]


@pytest.mark.parametrize(("kind", "bound"), [("normal", 100), ("refusal", 20), ("exempt", 1_000), ("import", 1_000)])
async def test_inbox_is_bounded_for_every_kind(store: Store, kind: str, bound: int) -> None:
    for n in range(bound):
        assert (await store.post(command(f"f{n}", kind="exempt"))).outcome is PostOutcome.ACCEPTED
    assert await outcomes(store, [command("more", kind=kind)]) == [PostOutcome.FULL]


async def test_the_newest_thousand_ids_are_remembered_and_the_oldest_forgotten(store: Store) -> None:
    head = (await owned(store)).head
    for start in range(0, 2_400, 400):
        for n in range(start, start + 400):
            await store.post(command(f"f{n}", kind="exempt"))
        head = await consume_all(store, head)
    again = [command(f"f{n}", nonce="other", kind="exempt") for n in (2_399, 1_400, 0)]
    assert await outcomes(store, again) == [PostOutcome.DUPLICATE, PostOutcome.DUPLICATE, PostOutcome.ACCEPTED]


async def test_post_rings_the_bell_of_a_sleeping_chat_once(store: Store) -> None:
    async with store.bell() as bell:
        await store.post(command())
        assert await bell.wait(WAIT_SECONDS) == store.bucket_of(CHAT)
        await store.post(command("r2"))
        assert await bell.wait(0.01) is None


async def test_post_tells_the_owner_by_mail_and_rings_no_bell(store: Store) -> None:
    async with store.bell() as bell, store.mail("w1") as mail:
        await owned(store)
        assert await bell.wait(WAIT_SECONDS) == store.bucket_of(CHAT)
        await store.post(command("r2"))
        with anyio.fail_after(WAIT_SECONDS):
            assert await anext(mail) == CHAT
        assert await bell.wait(0.01) is None


async def test_post_cuts_the_lease_when_the_owners_connection_is_gone(store: Store) -> None:
    await owned(store)
    await store.post(command("r2"))

    async def is_taken_over() -> bool:
        return await claim(store, "w2") == [Claimed(CHAT, "w1")]

    assert not await is_taken_over()
    await eventually(is_taken_over)


async def test_trap_1_post_wakes_a_chat_with_a_far_timer(store: Store) -> None:
    taken = await owned(store)
    head = await consume_all(store, taken.head)
    far_ms = await store.now_ms() + 3_600_000
    assert await store.release(CHAT, "w1", head, far_ms) is Released.OK
    assert await claim(store, "w1") == []
    await store.post(command("r2"))
    assert await claim(store, "w1") == [Claimed(CHAT, "")]


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
        return await claim(store, "w2") == [Claimed(CHAT, "w1")]

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


async def test_take_of_anothers_chat_is_lost(store: Store) -> None:
    await owned(store, "w1")
    with pytest.raises(Lost):
        await store.take(CHAT, "w2", "wake")
    with pytest.raises(Lost):
        await store.take("unknown", "w2", "wake")
    assert (await store.load("unknown")).head == ""


async def test_trap_2_what_was_written_after_the_fence_was_read_by_nobody(store: Store) -> None:
    """Fence first: the former owner's append fails, and the new owner's load ends with its own fence."""
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


# append


async def test_append_stores_the_texts_as_they_came(store: Store) -> None:
    taken = await owned(store)
    request = entry(taken.head, facts=b'[{"x":1}]', acks=b'[["r1",true,true]]', version=3)
    assert await store.append(request) is Appended.OK
    stored = (await store.read_log(CHAT))[-1]
    assert (stored.head, stored.before, stored.position, stored.version) == (request.head, taken.head, 1, 3)
    assert (stored.events, stored.facts, stored.acks) == (request.events, request.facts, request.acks)
    assert stored.fence is None
    assert stored == await store.read_entry(CHAT, stored.entry_id)
    assert await store.heads([CHAT, "unknown"]) == [request.head, ""]


async def test_trap_16_repeated_append_is_dup_and_has_one_effect(store: Store) -> None:
    taken = await owned(store)
    (waiting,) = await store.read_inbox(CHAT, 10)
    request = entry(taken.head, consumed=((waiting.inbox_id, "r1"),))
    assert [await store.append(request), await store.append(request)] == [Appended.OK, Appended.DUP]
    assert len(await store.read_log(CHAT)) == 2
    assert await store.read_inbox(CHAT, 10) == []


async def test_append_onto_another_head_is_fenced(store: Store) -> None:
    taken = await owned(store)
    await store.append(entry(taken.head, digest="00000000000000aa"))
    with pytest.raises(Fenced):
        await store.append(entry(taken.head, digest="00000000000000bb"))


async def test_trap_3_same_id_with_another_digest_is_another_head(store: Store) -> None:
    taken = await owned(store)
    entry_id, _, position = taken.head.split(" ")
    with pytest.raises(Fenced):
        await store.append(entry(f"{entry_id} 0123456789abcdef {position}"))


async def test_trap_4_append_must_find_every_command_it_consumes(store: Store) -> None:
    taken = await owned(store)
    (waiting,) = await store.read_inbox(CHAT, 10)
    for missing in (("1-1", "r1"), (waiting.inbox_id, "another")):
        with pytest.raises(Fenced):
            await store.append(entry(taken.head, consumed=((waiting.inbox_id, "r1"), missing)))
    assert await store.heads([CHAT]) == [taken.head]
    assert await store.read_inbox(CHAT, 10) == [waiting]


async def test_commands_may_be_consumed_out_of_order(store: Store) -> None:
    taken = await owned(store)
    await store.post(command("r2"))
    first, second = await store.read_inbox(CHAT, 10)
    await store.append(entry(taken.head, consumed=((second.inbox_id, "r2"),)))
    assert await store.read_inbox(CHAT, 10) == [first]


async def test_trap_9_append_never_makes_a_chat(store: Store) -> None:
    with pytest.raises(Fenced):
        await store.append(entry("1-1 00000000000000aa 0"))
    assert (await store.load(CHAT)).head == ""
    assert await store.meta(CHAT) is None


async def test_append_keeps_the_meta_and_the_owners_list(store: Store) -> None:
    taken = await owned(store)
    assert await store.list_chats("ann", 10) == []
    fields = (("title", "Tea"), ("state", "generating"), ("message_count", "3"), ("queue", "2"), ("model", "m"))
    await store.append(entry(taken.head, meta=fields))
    (meta,) = await store.list_chats("ann", 10)
    assert meta == await store.meta(CHAT)
    assert (meta.title, meta.state, meta.message_count, meta.queue, meta.model) == ("Tea", "generating", 3, 2, "m")
    assert taken.time_ms <= meta.last_active
    assert await store.list_chats("bob", 10) == []


async def test_list_is_newest_first_over_all_buckets_and_pages_by_time(store: Store) -> None:
    names = [f"chat{n}" for n in range(6)]
    for name in names:
        taken = await owned(store, chat_id=name)
        last_ms = await store.now_ms()
        await store.append(entry(taken.head, chat_id=name, meta=(("title", name),)))

        async def has_ticked(since_ms: int = last_ms) -> bool:
            return await store.now_ms() > since_ms + 1

        await eventually(has_ticked)
    first = await store.list_chats("ann", 4)
    rest = await store.list_chats("ann", 4, before_ms=first[-1].last_active)
    assert [meta.chat_id for meta in [*first, *rest]] == names[::-1]


async def test_chat_that_expires_is_in_no_list(store: Store) -> None:
    taken = await owned(store)
    await store.append(request := entry(taken.head, meta=(("title", "x"),)))
    assert len(await store.list_chats("ann", 10)) == 1
    await store.append(entry(request.head, meta=(("title", "y"),), lifetime="expire"))
    assert await store.list_chats("ann", 10) == []


async def test_trap_14_checkpoint_and_entries_carry_their_own_versions(store: Store) -> None:
    taken = await owned(store)
    first = entry(taken.head, version=2, checkpoint=b"the state", checkpoint_version=5)
    second = entry(first.head, version=3)
    await store.append(first)
    await store.append(second)
    loaded = await store.load(CHAT)
    assert loaded.checkpoint == (first.head, 5, b"the state")
    assert [(each.head, each.version) for each in loaded.entries] == [(second.head, 3)]
    assert loaded.head == second.head


async def test_later_checkpoint_replaces_the_earlier(store: Store) -> None:
    taken = await owned(store)
    first = entry(taken.head, checkpoint=b"one")
    large = bytes(range(256)) * 4_096  # a megabyte: compressed in a thread
    second = entry(first.head, checkpoint=large)
    await store.append(first)
    await store.append(second)
    assert (await store.load(CHAT)).checkpoint == (second.head, 1, large)


async def test_trim_drops_what_the_checkpoint_holds(store: Store) -> None:
    taken = await owned(store)
    first = entry(taken.head)
    second = entry(first.head, checkpoint=b"s", trim=Head.parse(first.head).entry_id)
    await store.append(first)
    await store.append(second)
    assert [each.head for each in await store.read_log(CHAT)] == [first.head, second.head]
    assert await store.read_entry(CHAT, Head.parse(taken.head).entry_id) is None


async def test_trap_12_trim_never_goes_beyond_the_checkpoint(store: Store) -> None:
    taken = await owned(store)
    first = entry(taken.head, checkpoint=b"s")
    second = entry(first.head)
    third = entry(second.head, trim=Head.parse(second.head).entry_id)
    for request in (first, second, third):
        await store.append(request)
    assert [each.head for each in (await store.load(CHAT)).entries] == [second.head, third.head]


async def test_without_a_checkpoint_nothing_is_trimmed(store: Store) -> None:
    taken = await owned(store)
    first = entry(taken.head)
    await store.append(first)
    await store.append(entry(first.head, trim=Head.parse(first.head).entry_id))
    assert len((await store.load(CHAT)).entries) == 3


# load


async def test_load_of_an_unknown_chat_is_empty(store: Store) -> None:
    loaded = await store.load(CHAT)
    assert (loaded.checkpoint, loaded.entries, loaded.head) == (None, [], "")


async def test_trap_13_every_entry_says_what_came_before_it(store: Store) -> None:
    taken = await owned(store)
    head = taken.head
    for n in range(5):
        await store.append(request := entry(head, digest=f"{n:016x}"))
        head = request.head
    entries = (await store.load(CHAT)).entries
    assert [each.before for each in entries] == ["", *(each.head for each in entries[:-1])]
    assert entries[-1].head == head


async def test_read_log_ends_where_it_is_told(store: Store) -> None:
    taken = await owned(store)
    await store.append(request := entry(taken.head))
    await store.append(entry(request.head))
    through = Head.parse(request.head).entry_id
    assert [each.head for each in await store.read_log(CHAT, through)] == [taken.head, request.head]


# beat, release, hand over


async def test_beat_tells_mine_mail_and_lost_for_any_number_of_chats(store: Store) -> None:
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
    assert [beats[name] for name in chats[:4]] == [Beat.MINE, Beat.MINE, Beat.MINE, Beat.MAIL]
    assert set(beats.values()) == {Beat.MINE, Beat.MAIL, Beat.LOST}
    assert beats["unknown"] is Beat.LOST
    assert set((await store.beat("w2", LEASE_MS, chats)).values()) == {Beat.LOST}


async def test_beat_prolongs_the_lease(store: Store) -> None:
    await store.post(command())
    await claim(store, "w1", lease_ms=1)
    await store.beat("w1", LEASE_MS, [CHAT])
    assert await claim(store, "w2") == []


async def test_trap_10_beat_finds_a_command_whose_mail_was_lost(store: Store) -> None:
    taken = await owned(store)
    await consume_all(store, taken.head)
    assert await store.beat("w1", LEASE_MS, [CHAT]) == {CHAT: Beat.MINE}
    await store.post(command("r2"))  # nobody listens to the worker's mail
    assert await store.beat("w1", LEASE_MS, [CHAT]) == {CHAT: Beat.MAIL}


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
    assert await store.beat("w1", LEASE_MS, [CHAT]) == {CHAT: Beat.MAIL}


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


# delete and import


async def test_delete_of_unknown_or_foreign_chats_does_nothing(store: Store) -> None:
    assert await store.delete(CHAT, "ann", "n1") is False
    await store.post(command())
    assert await store.delete(CHAT, "bob", "n1") is False
    assert len(await store.read_inbox(CHAT, 10)) == 1


async def test_deleted_chat_is_gone_for_all_but_an_import_by_its_owner(store: Store) -> None:
    taken = await owned(store)
    await store.append(entry(taken.head, meta=(("title", "x"),)))
    assert [await store.delete(CHAT, "ann", "n1"), await store.delete(CHAT, "ann", "n1")] == [True, True]
    assert (await store.load(CHAT)).head == ""
    assert await store.read_inbox(CHAT, 10) == []
    assert await store.list_chats("ann", 10) == []
    meta = await store.meta(CHAT)
    assert meta is not None
    assert meta.deleted
    assert await outcomes(store, [command("r2"), command("r3", owner="bob", kind="import")]) == [
        PostOutcome.GONE,
        PostOutcome.FOREIGN,
    ]
    assert await outcomes(store, [command("r4", kind="import"), command("r5")]) == [PostOutcome.ACCEPTED] * 2
    meta = await store.meta(CHAT)
    assert meta is not None
    assert not meta.deleted


async def test_trap_5_ids_of_the_former_life_are_remembered_in_the_next(store: Store) -> None:
    await store.post(command())
    await store.delete(CHAT, "ann", "n1")
    await store.post(command("r2", kind="import"))
    assert await outcomes(store, [command(nonce="late")]) == [PostOutcome.DUPLICATE]


async def test_trap_6_late_duplicate_of_an_import_revives_nothing(store: Store) -> None:
    await store.post(command())
    await store.delete(CHAT, "ann", "n1")
    again = command("imp", kind="import")
    await store.post(again)
    await store.delete(CHAT, "ann", "n2")
    assert (await store.post(again)).outcome is PostOutcome.ACCEPTED  # its own first answer, and no effect
    assert await outcomes(store, [command("imp", kind="import", nonce="late")]) == [PostOutcome.DUPLICATE]
    assert await outcomes(store, [command("r2")]) == [PostOutcome.GONE]


async def test_trap_7_delayed_delete_does_not_hit_the_next_life(store: Store) -> None:
    await store.post(command())
    for nonce in ("n1", "n2"):  # n2 found the chat deleted already: it is remembered all the same
        assert await store.delete(CHAT, "ann", nonce) is True
    await store.post(command("imp", kind="import"))
    for nonce in ("n1", "n2"):
        assert await store.delete(CHAT, "ann", nonce) is True
    assert await outcomes(store, [command("r2")]) == [PostOutcome.ACCEPTED]


async def test_trap_8_owner_and_timer_of_a_deleted_chat_are_cleared(store: Store) -> None:
    async with store.mail("w1") as mail:
        taken = await owned(store)
        await store.delete(CHAT, "ann", "n1")
        with anyio.fail_after(WAIT_SECONDS):
            assert await anext(mail) == CHAT
    assert await store.beat("w1", LEASE_MS, [CHAT]) == {CHAT: Beat.LOST}
    with pytest.raises(Lost):
        await store.take(CHAT, "w1", "retake")
    with pytest.raises(Fenced):
        await store.append(entry(taken.head))
    with pytest.raises(Lost):
        await store.release(CHAT, "w1", taken.head, None)
    assert await claim(store, "w2") == []


async def test_trap_8_deleted_chat_is_due_for_nobody(store: Store) -> None:
    await store.post(command())
    await store.delete(CHAT, "ann", "n1")
    assert await claim(store, "w1") == []


async def test_deleted_chat_takes_no_place_in_a_page_of_the_list(store: Store) -> None:
    for name in ("older", "newer"):
        taken = await owned(store, chat_id=name)
        await store.append(entry(taken.head, chat_id=name, meta=(("title", name),)))
    await store.delete("newer", "ann", "n1")
    assert [meta.chat_id for meta in await store.list_chats("ann", 1)] == ["older"]


async def test_trap_8_ids_of_the_former_life_never_come_again(store: Store) -> None:
    taken = await owned(store)
    former = taken.head
    for _ in range(3):  # each fence is one epoch further than the clock
        former = (await store.take(CHAT, "w1", "retake")).head
    await store.delete(CHAT, "ann", "n1")
    await store.post(command("imp", kind="import"))
    await claim(store, "w2")
    reborn = await store.take(CHAT, "w2", "wake")
    assert reborn.previous == ""
    assert Head.parse(reborn.head).entry_id.epoch > Head.parse(former).entry_id.epoch
    assert (await store.load(CHAT)).entries[0].before == ""
    with pytest.raises(Fenced):
        await store.append(entry(former))


# listening


async def test_follower_reads_entries_without_their_facts(store: Store) -> None:
    async with store.follow(CHAT) as notices:
        taken = await owned(store)
        request = entry(taken.head, facts=b'["secret"]', acks=b'[["r1",true,true]]', checkpoint=b"secret too")
        await store.append(request)
        with anyio.fail_after(WAIT_SECONDS):
            fence, news = await anext(notices), await anext(notices)
    assert (fence.kind, fence.head, fence.before, fence.version) == ("entry", taken.head, "", 0)
    assert fence.entry is not None
    assert fence.entry.fence == Fence("", "wake")
    assert (news.kind, news.chat_id, news.head, news.before, news.version) == (
        "entry",
        CHAT,
        request.head,
        taken.head,
        1,
    )
    stored = await store.read_entry(CHAT, Head.parse(request.head).entry_id)
    assert stored is not None
    assert news.entry is not None
    assert (news.entry.events, news.entry.acks, news.entry.facts) == (stored.events, stored.acks, b"")
    assert (news.entry.time_ms, news.entry.position) == (stored.time_ms, stored.position)


async def test_large_events_come_as_a_notice(store: Store) -> None:
    large = b'["' + b"x" * 64 * 1_024 + b'"]'
    async with store.follow(CHAT) as notices:
        taken = await owned(store)
        await store.append(request := structs.replace(entry(taken.head), events=large))
        with anyio.fail_after(WAIT_SECONDS):
            await anext(notices)
            news = await anext(notices)
    assert (news.kind, news.entry, news.head, news.before) == ("large", None, request.head, taken.head)
    read = await store.read_entry(CHAT, Head.parse(news.head).entry_id)
    assert read is not None
    assert (read.events, read.head) == (large, request.head)


async def test_followers_learn_of_a_delete(store: Store) -> None:
    await store.post(command())
    async with store.follow(CHAT) as notices:
        await store.delete(CHAT, "ann", "n1")
        with anyio.fail_after(WAIT_SECONDS):
            assert (await anext(notices)).kind == "deleted"


async def test_entered_follower_misses_nothing_that_is_posted_afterwards(store: Store) -> None:
    """DISPATCH §6: entering waits for the confirmation. Many rounds, since a race would show only now and then."""
    taken = await owned(store)
    head = taken.head
    for _ in range(20):
        async with store.follow(CHAT) as notices:
            await store.append(request := entry(head))
            head = request.head
            with anyio.fail_after(WAIT_SECONDS):
                assert (await anext(notices)).head == head


async def test_one_followers_leaving_does_not_disturb_another(store: Store) -> None:
    taken = await owned(store)
    assert await store.watchers(CHAT) == 0
    async with store.follow(CHAT) as staying:
        async with store.follow(CHAT) as leaving:
            await store.append(first := entry(taken.head))
            with anyio.fail_after(WAIT_SECONDS):
                assert (await anext(leaving)).head == first.head
        assert await store.watchers(CHAT) == 1
        await store.append(second := entry(first.head))
        with anyio.fail_after(WAIT_SECONDS):
            assert [(await anext(staying)).head, (await anext(staying)).head] == [first.head, second.head]

    async def is_unwatched() -> bool:
        return await store.watchers(CHAT) == 0

    await eventually(is_unwatched)


async def test_token_put_back_is_heard_by_another_worker(store: Store) -> None:
    async with store.bell() as mine, store.bell() as theirs:
        await store.post(command())
        bucket = await mine.wait(WAIT_SECONDS)
        assert bucket is not None
        await mine.put_back(bucket)
        assert await theirs.wait(WAIT_SECONDS) == bucket


async def test_no_bucket_starves_another_at_the_bell(store: Store) -> None:
    """A bucket that rings all the time and one that rang once: the second is heard within one turn of the order."""
    busy = store.bucket_of(CHAT)
    quiet = (busy + 5) % store.buckets
    async with store.bell() as bell:
        await bell.put_back(quiet)
        heard = []
        for _ in range(store.buckets):
            await bell.put_back(busy)
            heard.append(await bell.wait(WAIT_SECONDS))
    assert quiet in heard


async def test_ping_and_clock_answer(store: Store) -> None:
    await store.ping()
    first = await store.now_ms()
    assert first <= await store.now_ms()
