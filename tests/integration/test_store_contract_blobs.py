"""The contract of every store, 5: blobs. Blobs belong to one owner, do not expire once an entry refers to them, and are
deleted with the chat.

Each test runs on the in-memory twin, on the embedded Valkey and on Redis 7.0, through the port alone.
"""

import hashlib

import pytest

from tests.integration.store_fixtures import CHAT, command, consume_all, entry, owned
from tests.unit.faulty_store import Clock
from threadcast.store.blob_copy import copy_blobs
from threadcast.store.bounds import EMPTY_CHAT_TTL_SECONDS
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import BlobOutcome, BlobPut, Store
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.blobs import BLOBS_MAX_COUNT, BLOBS_TOTAL_MAX_BYTES, Blob, BlobFacts
from threadcast_protocol.wire.ids import Head

pytestmark = pytest.mark.anyio

DAY_SECONDS = 86_400


def blob(data: bytes = b"x" * 40_000, mime: str = "image/png") -> Blob:
    return Blob(hashlib.sha256(data).hexdigest(), mime, data)


async def put(store: Store, what: Blob, owner: str = "ann", chat_id: str = CHAT, **more: bool) -> BlobOutcome:
    request = BlobPut(chat_id=chat_id, owner=owner, blob=what, ttl_seconds=DAY_SECONDS, **more)
    return await store.put_blob(request)


async def test_a_blob_comes_back_as_it_was_laid_down(store: Store) -> None:
    one = blob(bytes(range(256)) * 200)
    assert await put(store, one) is BlobOutcome.KEPT
    assert await put(store, one) is BlobOutcome.KEPT
    assert await store.get_blob(CHAT, "ann", one.hash) == one
    assert await store.get_blob(CHAT, "ann", "0" * 64) is None
    assert await store.get_blob("other", "ann", one.hash) is None


async def test_holding_tells_which_are_there_and_how_large_they_are(store: Store) -> None:
    one, two = blob(), blob(b"two", "audio/wav")
    await put(store, one)
    await put(store, two)
    held = await store.hold_blobs(CHAT, "ann", [two.hash, "f" * 64, one.hash], DAY_SECONDS)
    assert held == {two.hash: BlobFacts("audio/wav", 3), one.hash: BlobFacts("image/png", 40_000)}
    assert await store.hold_blobs(CHAT, "ann", [], DAY_SECONDS) == {}


async def test_before_there_is_a_chat_its_blobs_are_who_laid_them_down(store: Store) -> None:
    one = blob()
    await put(store, one, "ann")
    assert await put(store, blob(b"other"), "bob") is BlobOutcome.FOREIGN
    assert await store.get_blob(CHAT, "bob", one.hash) is None
    assert await store.hold_blobs(CHAT, "bob", [one.hash], DAY_SECONDS) == {}
    assert await store.meta(CHAT) is None


async def test_who_makes_the_chat_gets_none_of_anothers_blobs(store: Store) -> None:
    theirs, mine = blob(b"theirs"), blob(b"mine")
    await put(store, theirs, "bob")
    await store.post(command(owner="ann"))
    assert await store.get_blob(CHAT, "ann", theirs.hash) is None
    assert await store.get_blob(CHAT, "bob", theirs.hash) is None
    assert await put(store, theirs, "bob") is BlobOutcome.FOREIGN
    assert await put(store, mine) is BlobOutcome.KEPT
    assert await store.get_blob(CHAT, "ann", mine.hash) == mine
    assert await store.get_blob(CHAT, "ann", theirs.hash) is None


async def test_a_delete_takes_the_blobs_along_and_only_an_import_lays_new_ones(store: Store) -> None:
    one = blob()
    await owned(store)
    await put(store, one)
    assert await store.delete(CHAT, "ann", "d1")
    assert await store.get_blob(CHAT, "ann", one.hash) is None
    assert await store.hold_blobs(CHAT, "ann", [one.hash], DAY_SECONDS) == {}
    assert await put(store, one) is BlobOutcome.GONE
    assert await put(store, one, "bob", revives=True) is BlobOutcome.FOREIGN
    assert await put(store, one, revives=True) is BlobOutcome.KEPT
    await store.post(command("i1", kind="import"))
    assert await store.get_blob(CHAT, "ann", one.hash) == one


async def test_a_chat_holds_a_bounded_number_of_blobs(store: Store) -> None:
    for n in range(BLOBS_MAX_COUNT):
        await put(store, blob(b"%d" % n))
    assert await put(store, blob(b"one more")) is BlobOutcome.FULL
    assert await put(store, blob(b"7")) is BlobOutcome.KEPT
    assert await put(store, blob(b"one more"), chat_id="other") is BlobOutcome.KEPT


async def test_a_chat_holds_a_bounded_number_of_bytes(store: Store) -> None:
    piece = 16 * 1024 * 1024
    for n in range(BLOBS_TOTAL_MAX_BYTES // piece):
        assert await put(store, blob(bytes([n]) * piece)) is BlobOutcome.KEPT
    assert await put(store, blob(b"one more")) is BlobOutcome.FULL
    await store.delete(CHAT, "ann", "d1")


async def test_a_branch_takes_copies_and_outlives_its_source(store: Store) -> None:
    one, two, foreign = blob(b"one"), blob(b"two"), blob(b"foreign")
    for each in (one, two):
        await put(store, each)
    await put(store, two, chat_id="branch")
    await put(store, foreign, "bob", chat_id="other")
    wanted = [one.hash, two.hash, one.hash, "e" * 64]
    assert sorted(await copy_blobs(store, CHAT, "branch", "ann", wanted)) == sorted([one.hash, two.hash])
    assert await copy_blobs(store, "other", "branch", "ann", [foreign.hash]) == []
    await store.post(command())
    await store.delete(CHAT, "ann", "d1")
    assert await store.get_blob("branch", "ann", one.hash) == one


async def test_the_append_that_refers_to_a_blob_makes_it_stay() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    kept, passing = blob(b"kept"), blob(b"passing")
    taken = await owned(store)
    for each in (kept, passing):
        await put(store, each)
    await store.append(entry(taken.head, blobs=(kept.hash, "e" * 64)))
    clock.now_ms += DAY_SECONDS * 1_000 + 1
    assert await store.get_blob(CHAT, "ann", kept.hash) == kept
    assert await store.get_blob(CHAT, "ann", passing.hash) is None


async def test_holding_a_blob_gives_it_another_day() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    one = blob()
    await put(store, one)
    for _ in range(3):
        clock.now_ms += DAY_SECONDS * 1_000 - 1
        assert one.hash in await store.hold_blobs(CHAT, "ann", [one.hash], DAY_SECONDS)
    clock.now_ms += DAY_SECONDS * 1_000 + 1
    assert await store.hold_blobs(CHAT, "ann", [one.hash], DAY_SECONDS) == {}


async def test_redis_counts_the_days_alike(valkey_store: RedisStore) -> None:
    store, (kept, passing) = valkey_store, (blob(b"kept"), blob(b"passing"))

    async def ttl(key: bytes) -> int:
        return int(await store._redis.send(b"TTL", key))

    keys = store._keys.chat(CHAT)
    for each in (kept, passing):
        await put(store, each)
    assert 0 < await ttl(keys.blob(kept.hash)) <= DAY_SECONDS and 0 < await ttl(keys.blobs) <= DAY_SECONDS
    taken = await owned(store)
    first = entry(taken.head, blobs=(kept.hash, "e" * 64), lifetime="persist")
    await store.append(first)
    await store.append(first)  # repeated as if the answer had been lost
    assert [await ttl(keys.blob(each.hash)) < 0 for each in (kept, passing)] == [True, False]
    assert await ttl(keys.blobs) == -1
    await put(store, kept)
    await store.hold_blobs(CHAT, "ann", [kept.hash, passing.hash], 2 * DAY_SECONDS)
    assert await ttl(keys.blob(kept.hash)) == -1, "held for a day, one that stays would go"
    assert await ttl(keys.blob(passing.hash)) > DAY_SECONDS
    assert await ttl(keys.blob("e" * 64)) == -2, "a name does not make a blob"
    assert await store._redis.send(b"HLEN", keys.blobs) == 3
    head = await consume_all(store, first.head)
    await store.append(entry(head, lifetime="expire", expire_seconds=EMPTY_CHAT_TTL_SECONDS))
    assert 0 < await ttl(keys.blob(kept.hash)) <= DAY_SECONDS and 0 < await ttl(keys.blobs) <= DAY_SECONDS


async def test_what_expired_makes_room(valkey_store: RedisStore) -> None:
    store = valkey_store
    for n in range(BLOBS_MAX_COUNT):
        await put(store, blob(b"%d" % n))
    await store._redis.send(b"DEL", store._keys.chat(CHAT).blob(blob(b"7").hash))  # as expiry would do
    assert await put(store, blob(b"one more")) is BlobOutcome.KEPT
    assert await put(store, blob(b"7")) is BlobOutcome.FULL


async def test_a_deleted_chat_leaves_no_key_of_a_blob(valkey_store: RedisStore) -> None:
    store = valkey_store
    taken = await owned(store)
    await put(store, blob())
    await store.append(entry(await consume_all(store, taken.head), blobs=(blob().hash,)))
    assert Head.parse(taken.head).position == 0
    await store.delete(CHAT, "ann", "d1")
    keys = await store._redis.send(b"KEYS", b"*:blobs*")
    assert keys == []
