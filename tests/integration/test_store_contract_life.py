"""The contract of every store, 4: the end of a chat and its next life. Tests delete and import. Tests of traps
(DISPATCH §9) have the trap's number in their name."""

import hashlib

import anyio
import pytest

from tests.integration.store_fixtures import CHAT, LEASE_MS, WAIT_SECONDS, claim, command, entry, outcomes, owned
from threadcast.store.ports import Appended, Beat, BlobOutcome, BlobPut, Fenced, Lost, PostOutcome, Store
from threadcast_protocol.wire.blobs import Blob
from threadcast_protocol.wire.ids import Head

pytestmark = pytest.mark.anyio


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
    assert (await store.list_chats("ann", 10)).chats == []
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


async def test_a_deleted_life_is_told_from_the_next_by_its_epochs(store: Store) -> None:
    first = await owned(store)
    meta = await store.meta(CHAT)
    assert meta is not None and meta.floor == 0
    await store.delete(CHAT, "ann", "n1")
    for command_id in (None, "r2"):  # deleted, and created again
        if command_id is not None:
            await store.post(command(command_id, kind="import"))
        meta = await store.meta(CHAT)
        assert meta is not None and meta.floor == Head.parse(first.head).entry_id.epoch
        assert meta.deleted_at > 0, "two requests for one import see the same"
    await claim(store, "w1")
    second = await store.take(CHAT, "w1", "wake")
    assert Head.parse(second.head).entry_id.epoch > meta.floor


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
    assert (await store.post(again)).outcome is PostOutcome.ACCEPTED  # the first answer again, without an effect
    assert await outcomes(store, [command("imp", kind="import", nonce="late")]) == [PostOutcome.DUPLICATE]
    assert await outcomes(store, [command("r2")]) == [PostOutcome.GONE]


async def test_trap_7_delayed_delete_does_not_hit_the_next_life(store: Store) -> None:
    await store.post(command())
    for nonce in ("n1", "n2"):  # n2 found the chat already deleted; the store still remembers the nonce
        assert await store.delete(CHAT, "ann", nonce) is True
    await store.post(command("imp", kind="import"))
    for nonce in ("n1", "n2"):
        assert await store.delete(CHAT, "ann", nonce) is True
    assert await outcomes(store, [command("r2")]) == [PostOutcome.ACCEPTED]


async def test_trap_8_owner_and_timer_of_a_deleted_chat_are_cleared(store: Store) -> None:
    async with store.inbox_signals("w1") as signals:
        taken = await owned(store)
        await store.delete(CHAT, "ann", "n1")
        with anyio.fail_after(WAIT_SECONDS):
            assert await anext(signals) == CHAT
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
    assert [meta.chat_id for meta in (await store.list_chats("ann", 1)).chats] == ["older"]


async def test_trap_8_ids_of_the_former_life_never_come_again(store: Store) -> None:
    taken = await owned(store)
    former = taken.head
    for _ in range(3):  # each fence is one epoch ahead of the clock
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


async def test_a_chat_with_waiting_commands_does_not_expire_and_neither_do_its_blobs(store: Store) -> None:
    taken = await owned(store)
    data = b"the body of a waiting command"
    body = Blob(hashlib.sha256(data).hexdigest(), "text/plain", data)
    put = BlobPut(chat_id=CHAT, owner="ann", blob=body, ttl_seconds=3_600)
    assert await store.put_blob(put) is BlobOutcome.KEPT
    await store.post(command("r2"))
    first = entry(taken.head, lifetime="expire", expire_seconds=1)
    assert await store.append(first) is Appended.OK
    await anyio.sleep(1.1)  # the store's clock decides
    assert await store.get_blob(CHAT, "ann", body.hash) == body
    waiting = await store.read_inbox(CHAT, 10)
    assert [each.request_id for each in waiting] == ["r1", "r2"]
    consumed = tuple((each.inbox_id, each.request_id) for each in waiting)
    last = entry(first.head, lifetime="expire", expire_seconds=1, consumed=consumed)
    assert await store.append(last) is Appended.OK
    await anyio.sleep(1.1)
    assert await store.get_blob(CHAT, "ann", body.hash) is None and (await store.load(CHAT)).head == ""
