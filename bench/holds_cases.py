"""Defines the cases that `bench.holds` measures: commands to the store.

A generator yields each case after the case's commands. A case without a key marks commands that only prepare data and
are not measured.

Logs, lists and accounts of many entries are written directly, in pipelines, because the store's own steps would take
minutes. They have the same form as if the store's steps had written them.
"""

import asyncio
import functools
import hashlib
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import anyio
import httpx2
import redis
from tests.support.fleet import running_fleet
from tests.support.store import StoreServer

from threadcast.chat.import_files import PART_MAX_BYTES
from threadcast.store.blob_copy import copy_blobs
from threadcast.store.ports import AppendRequest, BlobOutcome, BlobPut, Compacted, InboxEntry, PostRequest
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.blobs import BLOBS_MAX_COUNT, Blob
from threadcast_protocol.wire.ids import EntryId, Head

__all__ = ["Case", "chat_cases", "imports", "list_cases"]

MB = 1_000_000
STATES_MB = (1, 16, 60)
BLOBS_MB = (10, 50)
"""A request stores at most 16 MiB; the store's only bound for blobs is that of a chat (256 MiB)."""
LOGS = ((2_000, 200), (20_000, 200), (8, MB), (4, 2 * MB))
"""Numbers of entries after the checkpoint, and their bytes. The largest ordinary entry is a part of an import."""
TRIMMED, CHATS, DUE, LETTERS = 100_000, 100_000, 5_000, 500
RESTORED = 2_400
"""The messages of 6.6 kB that fit into one request, which has at most 16 MiB."""
CLAIMED = 20
"""The chats that a worker claims at a time (DISPATCH §7)."""
OWNER, WORKER, LEASE_MS = "ann", "worker", 600_000


class Case(NamedTuple):
    key: str
    title: str


PREPARED = Case("", "prepares")


async def chat_cases(store: RedisStore, server: StoreServer) -> AsyncIterator[Case]:
    """Checkpoints, blobs, logs, and deletions."""
    for size in STATES_MB:
        name, state = f"state-{size}", _state(size)
        head = await _chat(store, name)
        yield PREPARED
        head = await _append(store, name, head, checkpoint=state)
        yield Case(f"checkpoint_{size}", f"checkpoint of {size} MB, written in mid-run")
        await _append(store, name, head, checkpoint=state)
        yield Case(f"checkpoint_again_{size}", f"checkpoint of {size} MB, replaced")
        loaded = await store.load(name)
        assert loaded.checkpoint is not None and loaded.checkpoint[2] == state
        yield Case(f"load_{size}", f"checkpoint of {size} MB, loaded")
        await _rest(store, name, loaded.head, Compacted(state, 1, None, b"part", False, 0))
        yield Case(f"rest_{size}", f"checkpoint of {size} MB, written at rest")
        assert await store.delete(name, OWNER, "n")
        yield Case(f"delete_{size}", f"chat with a checkpoint of {size} MB, deleted")
    for size in BLOBS_MB:
        name, blob = f"blob-{size}", _blob(size)
        head = await _chat(store, name)
        yield PREPARED
        assert await _put(store, name, blob) is BlobOutcome.KEPT
        yield Case(f"blob_put_{size}", f"blob of {size} MB, stored")
        assert await store.get_blob(name, OWNER, blob.hash) == blob
        yield Case(f"blob_get_{size}", f"blob of {size} MB, read")
        assert await copy_blobs(store, name, f"copy-{size}", OWNER, [blob.hash]) == [blob.hash]
        yield Case(f"blob_copy_{size}", f"blob of {size} MB, copied to another chat")
        await _append(store, name, head, blobs=(blob.hash,))
        yield Case(f"blob_keep_{size}", f"blob of {size} MB, made permanent")
        assert await store.delete(name, OWNER, "n")
        yield Case(f"blob_delete_{size}", f"chat with a blob of {size} MB, deleted")
        await _expire(server, store._keys.chat(f"copy-{size}").blob(blob.hash))
        yield Case(f"blob_expire_{size}", f"blob of {size} MB, expired")
    for count, size in LOGS:
        name = f"log-{count}-{size}"
        head = _log(server, store, name, await _chat(store, name), count, size)
        yield PREPARED
        assert (await store.load(name)).head == head
        yield Case(f"log_{count}_{size}", f"log of {count:,} entries of {size:,} bytes, loaded")
        await store.read_log(name, newest=True)
        yield Case(f"log_newest_{count}_{size}", f"log of {count:,} entries of {size:,} bytes, newest read")
    name = "trim"
    head = _log(server, store, name, await _chat(store, name), TRIMMED, 200)
    yield PREPARED
    before = Head.parse(head).entry_id
    head = await _append(store, name, head, checkpoint=b"{}", trim=EntryId(before.epoch, before.n - 1_000))
    yield Case("trim", f"log of {TRIMMED:,} entries, trimmed in mid-run")
    head = _log(server, store, name, head, TRIMMED, 200)
    yield PREPARED
    await _rest(store, name, head, Compacted(b"{}", 1, Head.parse(head).entry_id, b"part", False, 0))
    yield Case("trim_rest", f"log of {TRIMMED:,} entries, compacted at rest")
    await _expire(server, store._keys.chat(name).recent)
    yield Case("recent_expire", "its entries, expired")
    head = _log(server, store, "long", await _chat(store, "long"), TRIMMED, 200)
    for number in range(BLOBS_MAX_COUNT):
        await _put(store, "long", Blob(f"{number:064x}", "image/png", b"x"))
    yield PREPARED
    await _put(store, "long", Blob("f" * 64, "image/png", b"x"))
    yield Case("blob_full", f"a blob more than {BLOBS_MAX_COUNT:,}, refused")
    await store.measure("long")
    yield Case("measure", f"chat with {BLOBS_MAX_COUNT:,} blobs, measured")
    assert await store.delete("long", OWNER, "n")
    yield Case("delete_long", f"chat with {TRIMMED:,} entries and {BLOBS_MAX_COUNT:,} blobs, deleted")


async def list_cases(store: RedisStore, server: StoreServer) -> AsyncIterator[Case]:
    """Inboxes, lists, leases, accounts, and dead letters."""
    body = b'"' + b"x" * PART_MAX_BYTES + b'"'
    head = await _chat(store, "inbox")
    yield PREPARED
    for number in range(8):
        await _post(store, "inbox", f"part-{number}", body)
    yield Case("post_part", "command of 512 KiB, as a part of an import, posted")
    waiting = await store.read_inbox("inbox", 8)
    yield Case("inbox", "inbox of 8 commands of 512 KiB, read")
    for each in waiting:
        head = await _append(store, "inbox", head, events=each.body, consumed=((each.inbox_id, each.request_id),))
    yield Case("append_part", "entry of 512 KiB, appended for such a command")
    names = _list(server, store)
    yield PREPARED
    page = await store.list_chats("many", 100)
    assert len(page.chats) == 100
    await store.list_chats("many", 100, page.next)
    yield Case("list", f"list of {CHATS:,} chats, two pages")
    await store.account("many")
    yield Case("account", f"account of {CHATS:,} chats, read")
    await store.recount("many")
    yield Case("recount", f"account of {CHATS:,} chats, counted anew")
    claimed: list[str] = []
    for bucket in range(store.buckets):
        for _ in range(DUE // store.buckets // CLAIMED):
            claimed += [each.chat_id for each in await store.claim(bucket, WORKER, CLAIMED, LEASE_MS)]
    assert claimed
    yield Case("claim", f"claims among {CHATS:,} chats that are due")
    await store.beat(WORKER, LEASE_MS, claimed)
    yield Case("beat", f"heartbeat of {len(claimed):,} chats")
    neighbour = next(each for each in names if store.bucket_of(each) == store.bucket_of("letters"))
    for name in names[:LETTERS]:
        await store.dead_letter(neighbour, InboxEntry("1-1", name, b"{}", b"x" * 10_000), "poison")
    await _chat(store, "letters")
    yield PREPARED
    assert await store.delete("letters", OWNER, "n")
    yield Case("dead", f"chat deleted beside {LETTERS} dead letters of 10 kB")


def imports(server: StoreServer, directory: Path, *, small: bool) -> Iterator[Case]:
    """Import 10,000 messages of 66 MB by HTTP, talk in the chat, read it, branch it, delete it, and restore as much of
    it as a request may have."""
    count = 2_000 if small else 10_000
    directory.mkdir()
    with ExitStack() as stack:
        fleet = stack.enter_context(running_fleet(directory, server.url))
        asyncio.run(fleet.open(workers=1))
        with httpx2.Client(base_url=fleet.url, timeout=300) as client:
            yield PREPARED
            answer = client.post("/v1/chats/import", content=_export(count))
            assert answer.status_code == 200, answer.text
            _until_listed(client)
            yield Case("import", f"import of {count:,} messages, {count * 6_600 // MB} MB")
            body = {"type": "user_message", "client_request_id": "a", "content": "go on"}
            answer = client.post("/v1/chats/large/commands", json=body, headers={"Prefer": "wait=60"})
            assert answer.status_code == 200, answer.text
            _until_at_rest(server)
            yield Case("import_turn", "a turn in the imported chat")
            assert client.get("/v1/chats/large/export").status_code == 200
            yield Case("import_export", "the imported chat, exported")
            messages = client.get("/v1/chats/large").json()["messages"]
            fork = {
                "type": "branch_from_chat",
                "source_chat_id": "large",
                "up_to_message_id": messages[-1]["message_id"],
            }
            yield PREPARED
            _do(client, "fork", fork)
            yield Case("branch", "a branch of the imported chat")
            assert client.delete("/v1/chats/large").status_code < 300
            yield Case("import_delete", "the imported chat, deleted")
            texts = [{"role": message["role"], "content": message["content"]} for message in messages[:RESTORED]]
            _do(client, "restored", {"type": "restore_messages", "messages": texts})
            yield Case("restore", f"`restore_messages` of {len(texts):,} messages, {len(texts) * 6_600 / MB:.0f} MB")


def _do(client: httpx2.Client, chat_id: str, body: dict[str, object]) -> None:
    """Post a command, and wait until it has taken effect and the chat is at rest."""
    body = {"client_request_id": chat_id, **body}
    answer = client.post(f"/v1/chats/{chat_id}/commands", json=body, headers={"Prefer": "wait=30"})
    assert answer.json().get("accepted"), answer.text


def _until_listed(client: httpx2.Client) -> None:
    ends_at = time.monotonic() + 300
    while not client.get("/v1/chats").json()["items"]:
        assert time.monotonic() < ends_at, "the import takes too long"
        time.sleep(0.1)


def _until_at_rest(server: StoreServer) -> None:
    ends_at = time.monotonic() + 60
    while any(server.ask("HLEN", f"tc:{{b{bucket:02d}}}:own") for bucket in range(16)):
        assert time.monotonic() < ends_at, "the chat does not come to rest"
        time.sleep(0.1)


def _export(count: int) -> bytes:
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(5_000)]
    head = {"type": "chat", "format": 1, "chat_id": "large", "leaf_id": f"m{count - 1}", "thread": {}}
    lines = [json.dumps({**head, "message_count": count, "payload_count": 0, "agent_count": 0})]
    for number in range(count):
        content = " ".join(chance.choices(words, k=920))
        told = {"role": "assistant" if number % 2 else "user", "content": content, "created_at": number + 1}
        parent = {"parent_id": f"m{number - 1}"} if number else {}
        lines.append(json.dumps({"type": "message", "message": {**told, "message_id": f"m{number}", **parent}}))
    return "\n".join(lines).encode() + b"\n"


@functools.cache
def _state(size_mb: int) -> bytes:
    """Text that compresses to a third, like chats do."""
    chance = random.Random(size_mb)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(5_000)]
    return " ".join(chance.choices(words, k=size_mb * MB // 7)).encode()


@functools.cache
def _blob(size_mb: int) -> Blob:
    data = random.Random(size_mb).randbytes(size_mb * MB)
    return Blob(hashlib.sha256(data).hexdigest(), "application/octet-stream", data)


async def _put(store: RedisStore, chat_id: str, blob: Blob) -> BlobOutcome:
    return await store.put_blob(BlobPut(chat_id=chat_id, owner=OWNER, blob=blob, ttl_seconds=3_600))


async def _post(store: RedisStore, chat_id: str, request_id: str, body: bytes) -> None:
    await store.post(
        PostRequest(
            chat_id=chat_id,
            owner=OWNER,
            principal=b"{}",
            request_id=request_id,
            digest="d",
            nonce=request_id,
            body=body,
            creates=True,
        )
    )


async def _chat(store: RedisStore, chat_id: str) -> str:
    """Create a chat that the worker owns, with an empty inbox. Returns its head."""
    await _post(store, chat_id, "first", b"{}")
    assert await store.claim_chat(chat_id, WORKER, LEASE_MS)
    taken = await store.take(chat_id, WORKER, "wake")
    (waiting,) = await store.read_inbox(chat_id, 10)
    return await _append(store, chat_id, taken.head, consumed=((waiting.inbox_id, waiting.request_id),))


def _next(head: str) -> str:
    before = Head.parse(head)
    entry_id = EntryId(before.entry_id.epoch, before.entry_id.n + 1)
    return str(Head(entry_id, f"{entry_id.n:016x}", before.position + 1))


async def _rest(store: RedisStore, name: str, head: str, compacted: Compacted) -> None:
    """Release the chat, and compact its log."""
    await store.release(name, WORKER, head, None)
    assert await store.compact(name, head, compacted)


async def _append(
    store: RedisStore,
    chat_id: str,
    head: str,
    *,
    events: bytes = b"[]",
    consumed: tuple[tuple[str, str], ...] = (),
    checkpoint: bytes | None = None,
    trim: EntryId | None = None,
    blobs: tuple[str, ...] = (),
) -> str:
    after = _next(head)
    await store.append(
        AppendRequest(
            chat_id=chat_id,
            expected=head,
            head=after,
            version=1,
            events=events,
            consumed=consumed,
            checkpoint=checkpoint,
            trim=trim,
            blobs=blobs,
        )
    )
    return after


def _log(server: StoreServer, store: RedisStore, chat_id: str, head: str, count: int, size: int) -> str:
    """Add `count` entries, as `append` would, and return the head."""
    keys = store._keys.chat(chat_id)
    events = b'["' + b"x" * (size - 4) + b'"]'
    with redis.Redis.from_url(server.url) as client:
        for start in range(0, count, 1_000):
            with client.pipeline(transaction=False) as pipeline:
                for _ in range(start, min(count, start + 1_000)):
                    after = Head.parse(_next(head))
                    fields = {"b": head, "p": after.position, "t": 1, "v": 1, "d": after.digest, "e": events}
                    pipeline.xadd(keys.log, fields, str(after.entry_id))
                    head = str(after)
                pipeline.execute()
        client.set(keys.head, head)
    return head


def _list(server: StoreServer, store: RedisStore) -> list[str]:
    """Write the lists, accounts and due times of many chats of one owner, and return their ids."""
    names = [f"many-{number}" for number in range(CHATS)]
    now = int(time.time() * 1_000)
    with redis.Redis.from_url(server.url) as client:
        for start in range(0, CHATS, 1_000):
            with client.pipeline(transaction=False) as pipeline:
                for number, name in enumerate(names[start : start + 1_000], start):
                    keys = store._keys.chat(name)
                    pipeline.zadd(keys.chats("many"), {name: now - number})
                    pipeline.hset(keys.meta, mapping={"owner": "many", "state": "idle", "title": name})
                    pipeline.hset(keys.account("many"), name, 4_000)
                    pipeline.zadd(keys.due, {name: now - number})
                pipeline.execute()
    return names


async def _expire(server: StoreServer, key: bytes) -> None:
    """Let the key expire, and access it, so that the store frees its memory."""
    server.ask("PEXPIRE", key, 1)
    await anyio.sleep(0.01)
    server.ask("EXISTS", key)
