"""The contract of every store, 8: large values are read back whole, in whatever slices a store writes and reads them.

The later tests inspect the slices on a real store: a half-written value is never visible and expires, a step whose
slices are missing changes nothing, and values of older versions can be read.
"""

import hashlib
import itertools
import random

import pytest

from tests.integration.store_fixtures import CHAT, claim, command, consume_all, entry, owned
from threadcast.store.blob_copy import copy_blobs
from threadcast.store.bounds import SLICE_BYTES, SLICE_ENTRIES, STAGED_SECONDS, WHOLE_MAX_BYTES
from threadcast.store.ports import (
    Appended,
    BlobOutcome,
    BlobPut,
    Compacted,
    Fenced,
    InboxEntry,
    PostOutcome,
    Released,
    Store,
)
from threadcast.store.redis import dispatch, log, slices
from threadcast.store.redis.checkpoint import compose
from threadcast.store.redis.connection import Reply, Value
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.blobs import Blob, BlobFacts
from threadcast_protocol.wire.errors import StoreFull, Unavailable
from threadcast_protocol.wire.ids import EntryId, Head

pytestmark = pytest.mark.anyio

DAY_SECONDS = 86_400
LARGE_BYTES = 2 * WHOLE_MAX_BYTES + 12_345


def large(seed: int, size: int = LARGE_BYTES) -> bytes:
    """Bytes that cannot be compressed."""
    return random.Random(seed).randbytes(size)


def blob(seed: int, size: int = LARGE_BYTES) -> Blob:
    data = large(seed, size)
    return Blob(hashlib.sha256(data).hexdigest(), "application/pdf", data)


async def put(store: Store, what: Blob, owner: str = "ann", chat_id: str = CHAT) -> BlobOutcome:
    return await store.put_blob(BlobPut(chat_id=chat_id, owner=owner, blob=what, ttl_seconds=DAY_SECONDS))


@pytest.mark.parametrize("size", [WHOLE_MAX_BYTES, WHOLE_MAX_BYTES + 1, 3 * SLICE_BYTES, LARGE_BYTES])
async def test_a_large_blob_comes_back_whole(store: Store, size: int) -> None:
    one = blob(1, size)
    assert [await put(store, one), await put(store, one)] == [BlobOutcome.KEPT] * 2
    assert await store.get_blob(CHAT, "ann", one.hash) == one
    assert await store.hold_blobs(CHAT, "ann", [one.hash], 1) == {one.hash: BlobFacts(one.mime, size)}
    assert await store.get_blob(CHAT, "bob", one.hash) is None
    assert await put(store, one, "bob") is BlobOutcome.FOREIGN
    assert await copy_blobs(store, CHAT, "branch", "ann", [one.hash]) == [one.hash]
    assert await store.get_blob("branch", "ann", one.hash) == one


async def test_checkpoints_of_every_size_replace_each_other(store: Store) -> None:
    head = await consume_all(store, (await owned(store)).head)
    for seed, size in enumerate((10, LARGE_BYTES, LARGE_BYTES, 10, WHOLE_MAX_BYTES, LARGE_BYTES)):
        request = entry(head, checkpoint=large(seed, size), checkpoint_version=3)
        assert [await store.append(request), await store.append(request)] == [Appended.OK, Appended.DUP]
        head = request.head
        loaded = await store.load(CHAT)
        assert loaded.checkpoint == (head, 3, large(seed, size)) and not loaded.entries and loaded.is_whole
    assert await store.release(CHAT, "w1", head, None) is Released.OK
    for _ in range(2):
        assert await store.compact(CHAT, head, Compacted(large(9), 2, None))
    assert (await store.load(CHAT)).checkpoint == (head, 2, large(9))
    await store.post(command("r2"))
    await claim(store, "w2")
    taken = await store.take(CHAT, "w2", "wake")
    loaded = await store.load(CHAT)
    assert loaded.checkpoint == (head, 2, large(9)) and loaded.head == taken.head and len(loaded.entries) == 1


async def test_a_log_of_many_entries_is_one_page(store: Store) -> None:
    heads = [await consume_all(store, (await owned(store)).head)]
    for _ in range(2 * SLICE_ENTRIES + 7):
        request = entry(heads[-1])
        await store.append(request)
        heads.append(request.head)
    loaded = await store.load(CHAT)
    assert [each.head for each in loaded.entries][1:] == heads and loaded.is_whole
    assert [each.head for each in await store.read_log(CHAT, newest=True)][1:] == heads
    through, after = Head.parse(heads[-3]).entry_id, Head.parse(heads[2]).entry_id
    assert [each.head for each in await store.read_log(CHAT, through, after=after)] == heads[3:-2]


async def test_an_inbox_of_large_commands_is_read_in_order_up_to_the_limit(store: Store) -> None:
    bodies = [large(n, n * SLICE_BYTES // 2 + 1) for n in range(6)]
    for number, body in enumerate(bodies):
        assert (await store.post(command(f"r{number}", body=body))).outcome is PostOutcome.ACCEPTED
    assert [each.body for each in await store.read_inbox(CHAT, 100)] == bodies
    assert [each.body for each in await store.read_inbox(CHAT, 5)] == bodies[:5]


async def test_a_deleted_chat_leaves_none_of_its_many_dead_letters(store: Store) -> None:
    await owned(store)
    for number in range(3 * 32 + 5):
        for chat_id in (CHAT, CHAT, "chat-1b"):
            await store.dead_letter(chat_id, InboxEntry(f"{number}-1", f"r{number}", b"{}", b"{}"), "poison")
    assert await store.delete(CHAT, "ann", "d1")
    if isinstance(store, RedisStore):
        letters = await store._redis.send(b"LRANGE", store._keys.chat(CHAT).dead, 0, -1)
        assert not [each for each in letters if each.startswith(b'{"chat_id":"chat-1",')]


async def keys_of(store: RedisStore, pattern: bytes) -> list[bytes]:
    found: list[bytes] = sorted(await store._redis.send(b"KEYS", b"*" + pattern))
    return found


class Torn(RedisStore):
    """A store that fails before call number `at` of a script, or lets the test change its data at that moment."""

    def cut(self, script: str, at: int, wrong: Exception | None = None) -> None:
        inner, calls = self._redis.call, 0

        async def call(name: str, keys: list[bytes], *arguments: Value) -> Reply:
            nonlocal calls
            calls += name == script
            if name == script and calls == at:
                self._redis.call = inner  # type: ignore[method-assign] # back to the method
                if wrong is not None:
                    raise wrong
                await self._redis.send(b"DEL", keys[0])
            return await inner(name, keys, *arguments)

        self._redis.call = call  # type: ignore[method-assign, assignment] # for one cut


@pytest.fixture
async def torn(valkey_store: RedisStore) -> Torn:
    valkey_store.__class__ = Torn
    assert isinstance(valkey_store, Torn)
    return valkey_store


@pytest.mark.parametrize("at", [1, 2, 4])
async def test_a_blob_whose_writer_dies_is_invisible_uncounted_and_expires(torn: Torn, at: int) -> None:
    one = blob(1)
    before = await torn.account("ann")
    torn.cut("stage", at, Unavailable("gone"))
    with pytest.raises(Unavailable, match="gone"):
        await put(torn, one)
    assert await torn.get_blob(CHAT, "ann", one.hash) is None
    assert await torn.hold_blobs(CHAT, "ann", [one.hash], 1) == {}
    assert await torn.account("ann") == before
    for key in await keys_of(torn, b":blobs*"):
        assert 0 < await torn._redis.send(b"TTL", key) <= STAGED_SECONDS
    assert await put(torn, one) is BlobOutcome.KEPT, "it is safe to repeat"
    assert await torn.get_blob(CHAT, "ann", one.hash) == one
    assert not await keys_of(torn, b":new")


async def test_a_blob_whose_slices_are_lost_is_not_stored(torn: Torn) -> None:
    torn.cut("stage", 3)
    with pytest.raises(Unavailable, match="lost a part"):
        await put(torn, blob(1))
    assert await torn.get_blob(CHAT, "ann", blob(1).hash) is None


async def test_a_blob_that_loses_a_slice_while_it_is_read_is_missing(valkey_store: RedisStore) -> None:
    store, one = valkey_store, blob(1)
    await put(store, one)
    await store._redis.send(b"HDEL", store._keys.chat(CHAT).blob(one.hash), 2)
    assert await store.get_blob(CHAT, "ann", one.hash) is None


@pytest.mark.parametrize(
    ("at", "wrong"), [(1, Unavailable("gone")), (3, Unavailable("gone")), (3, None)], ids=["first", "third", "lost"]
)
async def test_an_append_without_its_slices_changes_nothing(torn: Torn, at: int, wrong: Exception | None) -> None:
    head = await consume_all(torn, (await owned(torn)).head)
    first = entry(head, checkpoint=large(1))
    await torn.append(first)
    await torn.post(command("r2"))
    (waiting,) = await torn.read_inbox(CHAT, 9)
    before = await torn.load(CHAT)
    second = entry(first.head, checkpoint=large(2), consumed=((waiting.inbox_id, waiting.request_id),))
    torn.cut("stage", at, wrong)
    with pytest.raises(Unavailable):
        await torn.append(second)
    assert await torn.load(CHAT) == before and await torn.read_inbox(CHAT, 9) == [waiting]
    for key in set(await keys_of(torn, b":snap:*")) - {torn._keys.chat(CHAT).snap_slices}:
        assert 0 < await torn._redis.send(b"TTL", key) <= STAGED_SECONDS
    assert await torn.append(second) is Appended.OK, "it is safe to repeat"
    assert (await torn.load(CHAT)).checkpoint == (second.head, 1, large(2))
    assert await torn._redis.send(b"TTL", torn._keys.chat(CHAT).snap_slices) == -1


async def test_a_fenced_writer_replaces_no_checkpoint(valkey_store: RedisStore) -> None:
    store = valkey_store
    head = await consume_all(store, (await owned(store)).head)
    first = entry(head, checkpoint=large(1))
    await store.append(first)
    with pytest.raises(Fenced):
        await store.append(entry(head, digest="00000000000000bb", checkpoint=large(2)))
    assert (await store.load(CHAT)).checkpoint == (first.head, 1, large(1))


async def test_a_compaction_without_its_slices_changes_nothing(torn: Torn) -> None:
    head = await consume_all(torn, (await owned(torn)).head)
    assert await torn.release(CHAT, "w1", head, None) is Released.OK
    for trouble, told in ((None, Unavailable), (StoreFull("full"), StoreFull)):
        torn.cut("stage", 2, trouble)
        with pytest.raises(told):
            await torn.compact(CHAT, head, Compacted(large(1), 1, None))
        assert (await torn.load(CHAT)).checkpoint is None
    assert await torn.compact(CHAT, head, Compacted(large(1), 1, None))
    assert (await torn.load(CHAT)).checkpoint == (head, 1, large(1))


async def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_again(valkey_store: RedisStore) -> None:
    store = valkey_store
    head = await consume_all(store, (await owned(store)).head)
    first = entry(head, checkpoint=large(1))
    second = entry(first.head, checkpoint=large(2))
    await store.append(first)
    inner, replaced = store._redis.call, False

    async def call(name: str, keys: list[bytes], *arguments: Value) -> Reply:
        nonlocal replaced
        if name == "snap_slice" and arguments[1] == 2 and not replaced:
            replaced = True
            await store.append(second)
        return await inner(name, keys, *arguments)

    store._redis.call = call  # type: ignore[method-assign, assignment] # as another process would
    loaded = await store.load(CHAT)
    assert replaced and loaded.checkpoint == (second.head, 1, large(2)) and loaded.head == second.head


async def test_large_values_of_older_versions_are_read(valkey_store: RedisStore) -> None:
    store, one = valkey_store, blob(1)
    head = await consume_all(store, (await owned(store)).head)
    keys = store._keys.chat(CHAT)
    await put(store, one)
    await store._redis.send(b"DEL", keys.blob(one.hash))
    await store._redis.send(b"HSET", keys.blob(one.hash), b"m", one.mime, b"d", one.data)
    assert await store.get_blob(CHAT, "ann", one.hash) == one
    assert await store.hold_blobs(CHAT, "ann", [one.hash], 1) == {one.hash: BlobFacts(one.mime, len(one.data))}
    composed = await compose(head, 1, large(1))
    await store._redis.send(b"SET", keys.snap, f"{head} 1\n".encode() + composed.slices)
    loaded = await store.load(CHAT)
    assert loaded.checkpoint == (head, 1, large(1)) and loaded.is_whole and loaded.head == head


async def test_slices_of_a_checkpoint_live_and_die_with_it(valkey_store: RedisStore) -> None:
    store = valkey_store
    keys = store._keys.chat(CHAT)

    async def ttl(key: bytes) -> int:
        return int(await store._redis.send(b"TTL", key))

    head = await consume_all(store, (await owned(store)).head)
    first = entry(head, checkpoint=large(1), lifetime="expire", expire_seconds=100)
    await store.append(first)
    assert 0 < await ttl(keys.snap_slices) <= 100
    await store.post(command("r2"))
    assert await ttl(keys.snap_slices) == await ttl(keys.snap) == -1
    second = entry(first.head, checkpoint=b"small")
    await store.append(second)
    assert not await keys_of(store, b":snap:*")
    await store.append(entry(second.head, checkpoint=large(2)))
    before = await store.account("ann")
    await store.measure(CHAT)
    assert (await store.account("ann")).bytes_count - before.bytes_count > LARGE_BYTES
    await store.delete(CHAT, "ann", "d1")
    assert not await keys_of(store, b":snap*")


async def test_a_long_log_is_trimmed_in_steps(valkey_store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = valkey_store
    for module in (log, dispatch):
        monkeypatch.setattr(module, "TRIM_ENTRIES", 300)
    monkeypatch.setattr(dispatch, "RESUME_MAX_ENTRIES", 200)
    keys = store._keys.chat(CHAT)
    head = await consume_all(store, (await owned(store)).head)
    for _ in range(1_500):
        request = entry(head)
        await store.append(request)
        head = request.head
    lengths = [await store._redis.send(b"XLEN", keys.log)]
    for _ in range(3):
        last = Head.parse(head).entry_id
        request = entry(head, checkpoint=b"state", trim=EntryId(last.epoch, last.n - 600))
        await store.append(request)
        head = request.head
        lengths.append(await store._redis.send(b"XLEN", keys.log))
    assert all(0 < before - after <= 300 for before, after in itertools.pairwise(lengths))
    assert await store.release(CHAT, "w1", head, None) is Released.OK
    assert await store.compact(CHAT, head, Compacted(b"state", 1, None))
    assert 200 <= await store._redis.send(b"XLEN", keys.recent) <= 300
    assert (await store.load(CHAT)).checkpoint == (head, 1, b"state")


def test_a_value_has_as_many_slices_as_it_needs() -> None:
    sizes = (0, 1, SLICE_BYTES, SLICE_BYTES + 1)
    assert [slices.slices_of(size) for size in sizes] == [0, 1, 1, 2]


@pytest.mark.parametrize("is_emptied", [False, True])
async def test_a_log_that_is_trimmed_while_it_is_read_is_not_taken_for_whole(
    valkey_store: RedisStore, is_emptied: bool
) -> None:
    store = valkey_store
    head = await consume_all(store, (await owned(store)).head)
    for _ in range(3 * SLICE_ENTRIES):
        request = entry(head)
        await store.append(request)
        head = request.head
    last = Head.parse(head).entry_id
    later = entry(head, checkpoint=b"later", trim=EntryId(last.epoch, last.n + (1 if is_emptied else -3)))
    inner, calls = store._redis.call, 0

    async def call(name: str, keys: list[bytes], *arguments: Value) -> Reply:
        nonlocal calls
        calls += name == "load"
        if name == "load" and calls == 2:
            await store.append(later)
        return await inner(name, keys, *arguments)

    store._redis.call = call  # type: ignore[method-assign, assignment] # as the owner would
    loaded = await store.load(CHAT)
    assert not loaded.is_whole and loaded.head == head and len(loaded.entries) == SLICE_ENTRIES
    again = await store.load(CHAT)
    assert again.is_whole and again.checkpoint == (later.head, 1, b"later")
