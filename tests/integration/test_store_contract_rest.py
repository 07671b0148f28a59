"""The contract of every store, 8: the compacted log of a chat at rest, until and after its entries have expired."""

import json

import pytest
import redis
from msgspec import structs

from tests.integration.store_fixtures import CHAT, claim, command, consume_all, entry, eventually, fresh_url, owned
from threadcast.chat.entries import RawEntry
from threadcast.store.bounds import EMPTY_CHAT_TTL_SECONDS, RESUME_MAX_BYTES, RESUME_SECONDS
from threadcast.store.embedded.server_process import ServerProcess
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import Appended, Compacted, Lost, Released, Store
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.ids import Head

pytestmark = pytest.mark.anyio

SHORT = Compacted(checkpoint=b"a state", version=1, part=b"part 1")


async def rest(store: Store, head: str, worker: str = "w1", compacted: Compacted = SHORT) -> None:
    """Release the chat, and compact its log."""
    assert await store.release(CHAT, worker, head, None, await store.now_ms() + 60_000) is Released.OK
    assert await store.compact(CHAT, head, compacted)


async def rested(store: Store) -> str:
    """Release a chat of one entry, and compact its log; returns the head."""
    head = await consume_all(store, (await owned(store)).head)
    await rest(store, head)
    return head


async def owned_again(store: Store, worker: str = "w2") -> str:
    """Take the chat once more and consume its next command; returns the head."""
    await store.post(command("again"))
    await claim(store, worker)
    return await consume_all(store, (await store.take(CHAT, worker, "wake")).head)


async def end_of_window(store: Store) -> None:
    """Apply the changes that happen to the chat RESUME_SECONDS after its release."""
    if isinstance(store, MemoryStore):
        store._chats[CHAT].log_expires_at_ms = 0
    else:
        assert isinstance(store, RedisStore)
        assert await store._redis.send(b"DEL", store._keys.chat(CHAT).recent) == 1


async def test_entries_of_a_chat_at_rest_can_be_read_although_its_checkpoint_has_them_all(store: Store) -> None:
    head = await rested(store)
    loaded = await store.load(CHAT)
    assert (loaded.checkpoint, loaded.entries, loaded.head) == ((head, 1, b"a state"), [], head)
    fence, first = await store.read_log(CHAT)
    assert (fence.before, first.before, first.head) == ("", fence.head, head)
    assert await store.read_entry(CHAT, first.entry_id) == first
    assert [each.head for each in await store.read_log(CHAT, newest=True)] == [fence.head, head]
    after = await owned_again(store)
    entries = await store.read_log(CHAT)
    assert [each.before for each in entries[1:]] == [each.head for each in entries[:-1]]
    assert len(entries) == 4
    assert [each.head for each in (await store.load(CHAT)).entries] == [entries[2].head, after]


async def test_an_owner_continues_a_chat_whose_entries_have_expired(store: Store) -> None:
    head = await rested(store)
    await end_of_window(store)
    assert await store.read_log(CHAT) == []
    loaded = await store.load(CHAT)
    assert (loaded.checkpoint, loaded.entries, loaded.head) == ((head, 1, b"a state"), [], head)
    after = await owned_again(store)
    loaded = await store.load(CHAT)
    assert loaded.entries[0].before == head
    assert loaded.head == after
    await rest(store, after, "w2")
    assert [each.head for each in await store.read_log(CHAT)] == [each.head for each in loaded.entries]


async def test_only_the_log_that_was_read_is_compacted_and_only_once(store: Store) -> None:
    taken = await owned(store)
    head = await consume_all(store, taken.head)
    assert not await store.compact(CHAT, head, SHORT), "a worker owns the chat"
    await store.release(CHAT, "w1", head, None, 1)
    assert not await store.compact(CHAT, taken.head, SHORT)
    assert (await store.load(CHAT)).checkpoint is None
    assert await store.read_history(CHAT) == []
    for _ in range(2):  # the second call is a repeated one, as after a lost answer
        assert await store.compact(CHAT, head, SHORT)
    assert await store.read_history(CHAT) == [b"part 1"]
    await owned_again(store)
    assert not await store.compact(CHAT, head, SHORT), "another worker has taken the chat"
    assert not await store.compact("other", head, SHORT)


async def test_a_compaction_that_comes_between_a_command_and_its_worker_loses_neither(store: Store) -> None:
    head = await consume_all(store, (await owned(store)).head)
    assert await store.release(CHAT, "w1", head, None, 1) is Released.OK
    await store.post(command("again"))
    assert await store.compact(CHAT, head, SHORT)
    assert [each.chat_id for each in await claim(store, "w2")] == [CHAT], "the chat is still due"
    after = (await store.take(CHAT, "w2", "wake")).head
    assert [each.head for each in await store.read_log(CHAT)][-2:] == [head, after]
    assert len(await store.read_inbox(CHAT, 9)) == 1


@pytest.mark.parametrize("short", [SHORT, None], ids=["compacted", "left as it is"])
async def test_a_log_that_its_worker_left_goes_to_one_worker_at_a_time_until_it_is_compacted(
    store: Store, short: Compacted | None
) -> None:
    head = await consume_all(store, (await owned(store)).head)
    bucket = store.bucket_of(CHAT)

    async def is_left() -> bool:
        (status,) = await store.check_buckets([bucket])
        assert not status.has_due, "no worker has to claim it"
        return status.has_left_rests

    assert await store.release(CHAT, "w1", head, None, await store.now_ms() + 60_000) is Released.OK
    assert not await is_left() and await store.left_rests(bucket, 9, 60_000) == []
    await store.post(command("again"))
    await claim(store, "w1")
    head = await consume_all(store, (await store.take(CHAT, "w1", "wake")).head)
    assert await store.release(CHAT, "w1", head, None, await store.now_ms() - 1) is Released.OK
    assert await is_left()
    assert await store.left_rests(bucket, 9, 60_000) == [CHAT]
    assert not await is_left() and await store.left_rests(bucket, 9, 60_000) == []
    assert await store.compact(CHAT, head, short)
    assert ((await store.load(CHAT)).checkpoint is None) == (short is None)


async def test_the_buckets_of_a_group_are_checked_together(store: Store) -> None:
    groups = store.bucket_groups
    assert sorted(bucket for group in groups for bucket in group) == list(range(store.buckets))
    mine = next(group for group in groups if store.bucket_of(CHAT) in group)
    at = list(mine).index(store.bucket_of(CHAT))
    none, due, owned_by_one = (False, False, False), (True, False, False), (False, True, False)
    assert await store.check_buckets(mine) == [none] * len(mine)
    await store.post(command())
    assert await store.check_buckets(mine) == [due if each == at else none for each in range(len(mine))]
    await claim(store, "w1")
    assert await store.check_buckets(mine) == [owned_by_one if each == at else none for each in range(len(mine))]


@pytest.mark.parametrize("ends", ["taken", "deleted", "compacted"])
async def test_a_log_that_need_not_be_compacted_any_more_is_left_to_nobody(store: Store, ends: str) -> None:
    head = await consume_all(store, (await owned(store)).head)
    assert await store.release(CHAT, "w1", head, None, 1) is Released.OK
    bucket = store.bucket_of(CHAT)
    if ends == "taken":
        await owned_again(store)
    elif ends == "deleted":
        assert await store.delete(CHAT, "ann", "n1")
        assert not await store.compact(CHAT, head, SHORT)
    else:
        assert await store.compact(CHAT, head, SHORT)
    assert await store.left_rests(bucket, 9, 60_000) == []


async def test_an_expired_chat_is_lost_to_its_worker_and_leaves_nothing_behind(store: Store) -> None:
    head = await consume_all(store, (await owned(store)).head)
    expiring = structs.replace(entry(head), lifetime="expire", expire_seconds=1)
    assert await store.append(expiring) is Appended.OK
    assert await store.release(CHAT, "w1", expiring.head, 1) is Released.OK

    async def has_expired() -> bool:
        return (await store.load(CHAT)).head == ""

    await eventually(has_expired)
    assert [each.chat_id for each in await claim(store, "w2")] == [CHAT]
    with pytest.raises(Lost):
        await store.take(CHAT, "w2", "wake")
    assert await claim(store, "w2") == []
    assert (await store.load(CHAT)).head == ""


async def test_parts_are_added_replaced_and_dropped(store: Store) -> None:
    await rested(store)

    async def with_part(part: bytes, **more: object) -> list[bytes]:
        head = await owned_again_with(part)
        short = structs.replace(SHORT, part=part, **more)
        await rest(store, head, "w2", short)
        return await store.read_history(CHAT)

    async def owned_again_with(part: bytes) -> str:
        await store.post(command(f"for {part!r}"))
        await claim(store, "w2")
        return await consume_all(store, (await store.take(CHAT, "w2", "wake")).head)

    assert await with_part(b"part 2") == [b"part 1", b"part 2"]
    assert await with_part(b"part 2, longer", replaces_last=True) == [b"part 1", b"part 2, longer"]
    assert await with_part(b"") == [b"part 1", b"part 2, longer"]
    assert await store.read_history(CHAT, last_only=True) == [b"part 2, longer"]
    assert await with_part(b"part 3", drop_first=2) == [b"part 3"]


async def test_entries_before_the_trim_are_dropped(store: Store) -> None:
    head = await consume_all(store, (await owned(store)).head)
    last = entry(head)
    assert await store.append(last) is Appended.OK
    trim = Head.parse(head).entry_id
    await rest(store, last.head, compacted=structs.replace(SHORT, trim=trim))
    assert [each.head for each in await store.read_log(CHAT)] == [head, last.head]


async def test_entries_that_an_owner_does_not_know_are_bounded_by_their_bytes(store: Store) -> None:
    """A chat that changes its worker after each message: no owner knows which entries a trim would drop."""
    head = await consume_all(store, (await owned(store)).head)
    large = json.dumps([{"type": "ack", "x": "x" * 100_000}]).encode()
    for _ in range(60):
        request = structs.replace(entry(head), events=large)
        assert await store.append(request) is Appended.OK
        head = request.head
    await rest(store, head)
    kept: list[RawEntry] = []
    while page := await store.read_log(CHAT, after=kept[-1].entry_id if kept else None):
        kept += page
    assert kept[-1].head == head
    share = sum(len(each.events) for each in kept) / RESUME_MAX_BYTES
    assert 0.7 < share < 1.4, "the store estimates the size of its entries"


async def test_a_deleted_chat_leaves_neither_entries_nor_history(store: Store) -> None:
    await rested(store)
    assert await store.delete(CHAT, "ann", "n1")
    assert (await store.read_log(CHAT), await store.read_history(CHAT)) == ([], [])
    await store.post(command("r2", kind="import"))
    await claim(store, "w1")
    await store.take(CHAT, "w1", "wake")
    assert len(await store.read_log(CHAT)) == 1


async def test_the_keys_of_a_chat_at_rest_live_as_long_as_they_must(valkey_server: ServerProcess) -> None:
    url = fresh_url(valkey_server)
    async with RedisStore(url) as store:
        keys = store._keys.chat(CHAT)
        kept = ("head", "snap", "history", "meta")
        with redis.Redis.from_url(url) as other:

            def seconds(*names: str) -> list[int]:
                return [other.ttl(keys.base + b":" + name.encode()) for name in names]

            await rested(store)
            assert seconds(*kept) == [-1] * 4
            assert RESUME_SECONDS - 5 <= seconds("recent")[0] <= RESUME_SECONDS
            head = await owned_again(store)
            assert seconds("log", "recent") == [-1, -2]
            expiring = structs.replace(entry(head), lifetime="expire", expire_seconds=100)
            await store.append(expiring)
            await rest(store, expiring.head, "w2")
            assert all(90 <= each <= 100 for each in seconds(*kept, "recent")), "a temporary chat expires as a whole"
            await store.post(command("r3"))
            assert seconds(*kept) == [-1] * 4
            await claim(store, "w2")
            taken = await store.take(CHAT, "w2", "wake")
            assert seconds("log") == [-1]
            head = await consume_all(store, taken.head)
            await store.append(structs.replace(entry(head), lifetime="expire", expire_seconds=EMPTY_CHAT_TTL_SECONDS))
            assert seconds("log")[0] == seconds("history")[0] > 100


async def test_a_worker_of_an_older_version_continues_a_chat_at_rest_and_the_next_one_takes_no_harm(
    valkey_server: ServerProcess,
) -> None:
    """The older `take` knows neither `recent` nor `history`: it begins a new log at the head."""
    url = fresh_url(valkey_server)
    async with RedisStore(url) as store:
        keys = store._keys.chat(CHAT)
        head = await rested(store)
        await store.post(command("r2"))
        await claim(store, "older")
        with redis.Redis.from_url(url) as other:
            epoch = Head.parse(head).entry_id.epoch + 1
            fence = {"b": head, "p": Head.parse(head).position, "t": 1, "v": 0, "d": "00000000000000bb"}
            other.xadd(keys.log, {**fence, "f": '["older","wake"]'}, id=f"{epoch}-9")
            fenced = f"{epoch}-9 00000000000000bb {Head.parse(head).position}"
            other.set(keys.head, fenced)
            after = await consume_all(store, fenced)
            other.hdel(keys.own, CHAT)
            assert other.ttl(keys.log) == -1
        assert [each.before for each in (await store.load(CHAT)).entries] == [head, fenced]
        last = await owned_again(store)
        entries = await store.read_log(CHAT)
        assert [each.before for each in entries] == [head, fenced, after, entries[2].head]
        await rest(store, last, "w2")
        assert await store.read_log(CHAT) == entries
