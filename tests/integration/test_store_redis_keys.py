"""The data in a real server: the lifetime of each key, the table of keys, and an entry and a checkpoint as written."""

import anyio
import pytest
import redis
from msgspec import structs

from tests.integration.store_fixtures import CHAT, WAIT_SECONDS, command, consume_all, entry, fresh_url, owned
from threadcast.store.bounds import DELETED_TTL_SECONDS, EMPTY_CHAT_TTL_SECONDS, SEEN_TTL_SECONDS
from threadcast.store.embedded.server_process import ServerProcess
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.errors import Internal

pytestmark = pytest.mark.anyio


async def test_chat_without_messages_lives_a_day_and_an_accepted_command_keeps_it(valkey_server: ServerProcess) -> None:
    url = fresh_url(valkey_server)
    async with RedisStore(url) as store:
        head = await consume_all(store, (await owned(store)).head)
        first = structs.replace(entry(head), lifetime="expire", expire_seconds=EMPTY_CHAT_TTL_SECONDS, checkpoint=b"s")
        await store.append(first)
        with redis.Redis.from_url(url) as other:
            expiring = dict.fromkeys(("log", "head", "snap", "meta", "inbox"), EMPTY_CHAT_TTL_SECONDS)
            assert _lifetimes(other) == {**expiring, "seen": SEEN_TTL_SECONDS}
            again = structs.replace(entry(first.head), checkpoint=b"s")
            await store.append(again)  # this entry sets no lifetime, so no lifetime changes
            refenced = await store.take(CHAT, "w1", "retake")
            assert _lifetimes(other) == {**expiring, "seen": SEEN_TTL_SECONDS}
            await store.append(persisting := structs.replace(entry(refenced.head), lifetime="persist"))
            assert _lifetimes(other) == {"seen": SEEN_TTL_SECONDS}
            await store.append(
                structs.replace(entry(persisting.head), lifetime="expire", expire_seconds=EMPTY_CHAT_TTL_SECONDS)
            )
            await store.post(command("r2"))
            assert _lifetimes(other) == {"seen": SEEN_TTL_SECONDS}


async def test_deleted_chat_is_remembered_for_thirty_days(valkey_server: ServerProcess) -> None:
    url = fresh_url(valkey_server)
    async with RedisStore(url) as store:
        await store.post(command())
        await store.delete(CHAT, "ann", "n1")
        with redis.Redis.from_url(url) as other:
            assert _lifetimes(other) == {"meta": DELETED_TTL_SECONDS, "seen": SEEN_TTL_SECONDS}


def _lifetimes(client: "redis.Redis") -> dict[str, int]:
    """Return the lifetimes in seconds of the chat's keys that expire; the lifetimes were set moments ago."""
    found = {}
    for key in client.scan_iter("tc:*:chat:*"):
        seconds = client.ttl(key)
        if seconds >= 0:
            found[key.decode().rpartition(":")[2]] = round(seconds / 60) * 60
    return found


async def test_every_key_is_in_the_table_and_in_the_slot_of_its_bucket(valkey_server: ServerProcess) -> None:
    url = fresh_url(valkey_server)
    async with RedisStore(url) as store:
        taken = await owned(store)
        (waiting,) = await store.read_inbox(CHAT, 10)
        await store.dead_letter(CHAT, waiting, "poison")
        full = structs.replace(entry(taken.head), meta=(("title", "x"),), checkpoint=b"s", facts=b"[1]")
        await store.append(full)
        assert await store.secret()
        with redis.Redis.from_url(url) as other:
            keys = {key.decode(): other.type(key).decode() for key in other.scan_iter()}
        prefix = f"tc:{{b{store.bucket_of(CHAT):02d}}}:"
    assert keys == {
        "tc:buckets": "string",
        "tc:secret": "string",
        f"{prefix}chat:{CHAT}:log": "stream",
        f"{prefix}chat:{CHAT}:head": "string",
        f"{prefix}chat:{CHAT}:snap": "string",
        f"{prefix}chat:{CHAT}:inbox": "stream",
        f"{prefix}chat:{CHAT}:meta": "hash",
        f"{prefix}chat:{CHAT}:seen": "hash",
        f"{prefix}due": "zset",
        f"{prefix}own": "hash",
        f"{prefix}owners": "zset",
        f"{prefix}bell": "list",
        f"{prefix}dead": "list",
        f"{prefix}account:ann": "hash",
        f"{prefix}chats:ann": "zset",
    }


async def test_entry_has_no_empty_fields_and_the_checkpoint_a_readable_first_line(valkey_server: ServerProcess) -> None:
    url = fresh_url(valkey_server)
    async with RedisStore(url) as store:
        taken = await owned(store)
        request = structs.replace(entry(taken.head), checkpoint=b"the state", checkpoint_version=4)
        await store.append(request)
        with redis.Redis.from_url(url) as other:
            prefix = f"tc:{{b{store.bucket_of(CHAT):02d}}}:chat:{CHAT}:"
            _, fields = other.xrange(f"{prefix}log")[-1]
            line, _, state = other.get(f"{prefix}snap").partition(b"\n")
    assert sorted(fields) == [b"b", b"d", b"e", b"p", b"t", b"v"]
    assert line.decode() == f"{request.head} 4"
    assert state != b"the state"


async def test_checkpoint_that_cannot_be_read_is_an_error_of_ours(valkey_server: ServerProcess) -> None:
    url = fresh_url(valkey_server)
    async with RedisStore(url) as store:
        await owned(store)
        with redis.Redis.from_url(url) as other:
            other.set(f"tc:{{b{store.bucket_of(CHAT):02d}}}:chat:{CHAT}:snap", "1-1 aa 0 1\nnot compressed")
        with pytest.raises(Internal, match="checkpoint"):
            await store.load(CHAT)


async def test_two_databases_of_one_server_hear_nothing_of_each_other(valkey_server: ServerProcess) -> None:
    """Pub/sub ignores databases; the names of the channels contain the database. The first message of a listener is
    from its own store."""
    async with (
        RedisStore(fresh_url(valkey_server)) as ours,
        RedisStore(fresh_url(valkey_server)) as theirs,
        ours.follow(CHAT) as log,
        ours.inbox_signals("w1") as signals,
        ours.subscribe("topic") as messages,
    ):
        other = await owned(theirs)
        await owned(theirs, chat_id="theirs")
        await theirs.post(command("r2", chat_id="theirs"))
        await theirs.publish("topic", b"theirs")
        while await ours.now_ms() <= other.time_ms:
            pass  # two fences of one millisecond have the same head
        mine = await owned(ours)
        await ours.post(command("r2"))
        await ours.publish("topic", b"ours")
        with anyio.fail_after(WAIT_SECONDS):
            assert (await anext(log)).head == mine.head != other.head
            assert await anext(signals) == CHAT
            assert await anext(messages) == b"ours"
