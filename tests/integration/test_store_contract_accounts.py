"""The accounts of principals: they count exactly the data that each principal stores, after every step and every
expiry."""

import hashlib
import secrets

import pytest

from tests.integration.store_fixtures import CHAT, command, consume_all, entry, owned
from threadcast.store.bounds import BLOB_OVERHEAD_BYTES, CHAT_OVERHEAD_BYTES
from threadcast.store.ports import Appended, BlobOutcome, BlobPut, Released, Store
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.blobs import Blob

pytestmark = pytest.mark.anyio

KIB = 1024


async def put(store: Store, data: bytes, owner: str = "ann", chat_id: str = CHAT) -> None:
    blob = Blob(hashlib.sha256(data).hexdigest(), "text/plain", data)
    request = BlobPut(chat_id=chat_id, owner=owner, blob=blob, ttl_seconds=60)
    assert await store.put_blob(request) is BlobOutcome.KEPT


async def stored(store: Store, owner: str = "ann") -> tuple[int, int]:
    account = await store.account(owner)
    return account.bytes_count, account.chats_count


async def test_a_blob_counts_once_for_its_uploader_also_before_the_chat_exists(store: Store) -> None:
    data = secrets.token_bytes(100 * KIB)
    for _ in range(2):
        await put(store, data)
    assert await stored(store) == (100 * KIB + BLOB_OVERHEAD_BYTES, 1)
    assert await stored(store, "bob") == (0, 0)


async def test_a_dropped_blob_counts_no_more_unless_an_entry_refers_to_it(store: Store) -> None:
    data, other = secrets.token_bytes(100 * KIB), secrets.token_bytes(10 * KIB)
    name = hashlib.sha256(data).hexdigest()
    await put(store, data)
    await store.drop_blob(CHAT, "bob", name)
    assert await stored(store) == (100 * KIB + BLOB_OVERHEAD_BYTES, 1)
    for _ in range(2):
        await store.drop_blob(CHAT, "ann", name)
        assert await store.get_blob(CHAT, "ann", name) is None
        assert await stored(store) == (0, 0)
    taken = await owned(store)
    before = await stored(store)
    for kept in (data, other):
        await put(store, kept)
    assert await store.append(entry(taken.head, blobs=(name,))) is Appended.OK
    for each in (data, other):
        await store.drop_blob(CHAT, "ann", hashlib.sha256(each).hexdigest())
    assert await store.get_blob(CHAT, "ann", name) is not None, "the entry refers to it"
    after = await stored(store)
    assert after[0] - before[0] < 10 * KIB + 100 * KIB and after[1] == before[1]


async def test_a_command_counts_with_its_body_and_what_it_will_copy_and_a_repeat_does_not(store: Store) -> None:
    for _ in range(2):
        await store.post(command(body=b"x" * 50 * KIB, charged_bytes=10 * KIB))
    counted, chats = await stored(store)
    assert 50 * KIB <= counted <= 62 * KIB and chats == 1
    await store.post(command("r2", "other", owner="bob"))
    assert (await stored(store, "bob"))[1] == 1 and await stored(store) == (counted, chats)


async def test_a_probe_stores_nothing_and_tells_whether_a_command_was_accepted(store: Store) -> None:
    assert (await store.post(command(kind="probe"))).outcome.value == "FULL"
    assert await store.meta(CHAT) is None and await stored(store) == (0, 0)
    await store.post(command())
    assert (await store.post(command(kind="probe", nonce="another"))).outcome.value == "DUPLICATE"


async def test_a_chat_at_rest_counts_with_what_it_takes_and_a_deleted_one_makes_room(store: Store) -> None:
    taken = await owned(store)
    await put(store, secrets.token_bytes(100 * KIB))
    await store.post(command("r2", body=b"x" * 200 * KIB))
    head = await consume_all(store, taken.head)
    assert await store.release(CHAT, "w1", head, None) is Released.OK
    counted, chats = await stored(store)
    assert 100 * KIB < counted < 130 * KIB and chats == 1, "the consumed command is gone, the blob is there"
    assert await store.chat_bytes(CHAT, "ann") == counted and await store.chat_bytes(CHAT, "bob") == 0
    assert await store.delete(CHAT, "ann", "d1")
    assert await stored(store) == (CHAT_OVERHEAD_BYTES, 0), "only the id is remembered"
    assert await store.delete(CHAT, "ann", "d2")
    assert await stored(store) == (CHAT_OVERHEAD_BYTES, 0)


async def test_blobs_that_go_to_nobody_count_for_nobody(store: Store) -> None:
    await put(store, secrets.token_bytes(100 * KIB), "bob")
    await store.post(command())
    await put(store, b"mine")
    assert await stored(store, "bob") == (0, 0)


async def test_a_recount_repairs_what_expired_and_what_an_older_version_did(valkey_store: RedisStore) -> None:
    store = valkey_store
    await put(store, secrets.token_bytes(100 * KIB), chat_id="expires")
    await put(store, secrets.token_bytes(100 * KIB), chat_id="stays")
    keys = store._keys.chat("expires")
    deleted = next(f"d{n}" for n in range(1_000) if store.bucket_of(f"d{n}") == store.bucket_of("expires"))
    await store._redis.send(b"DEL", keys.blobs)  # as if all had expired
    await store._redis.send(b"HSET", keys.account("ann"), deleted, b"7000000")  # an older version changes no account
    await store._redis.send(b"HINCRBY", keys.account("ann"), b"*", b"7000000")
    await store._redis.send(b"DEL", store._keys.chat("stays").account("ann"))
    await store._redis.send(b"ZADD", store._keys.chat("stays").chats("ann"), 1, b"stays")
    assert (await stored(store))[0] > 7_000_000
    await store.recount("ann")
    assert await stored(store) == (100 * KIB + BLOB_OVERHEAD_BYTES, 1)
