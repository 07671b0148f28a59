"""Stores for tests: real servers, started once per session; a fresh store of each kind for each test; and functions for
common steps.

Tests get the fixtures through `conftest.py`, and import the helper functions. Each server listens on a separate unix
socket and ends with the test process. Every store gets a logical database that is emptied first.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import anyio
import pytest
import redis

from tests.support.cluster import Nodes, running_cluster
from tests.support.store import BINARIES, running_store
from threadcast.store.embedded.server_process import ServerProcess
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import Appended, AppendRequest, Claimed, PostOutcome, PostRequest, Store, Taken
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.ids import EntryId, Head

STORES = ("memory", "valkey", "redis7", "cluster")
"""Every implementation of the store's port, with every server on which it must run."""

LEASE_MS = 60_000
CHAT = "chat-1"

WAIT_SECONDS = 30.0
"""Maximum seconds of any single wait in a test."""

_databases = count()


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server that `threadcast serve` embeds."""
    with running_store(tmp_path_factory.mktemp("valkey")) as server:
        yield server.process


@pytest.fixture(scope="session")
def redis7_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The oldest server that must be supported."""
    binary = BINARIES["redis7"]
    if binary is None:
        pytest.skip("redis-server (7.0 or newer) is not on the PATH")
    with running_store(tmp_path_factory.mktemp("redis7"), binary=Path(binary)) as server:
        yield server.process


@pytest.fixture(scope="session")
def cluster_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Three nodes of the embedded server, with a third of the slots each."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


def fresh_url(server: ServerProcess) -> str:
    """Return an empty database of the server."""
    url = f"{server.url}?db={next(_databases) % 16}"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


@asynccontextmanager
async def fresh_store(server: ServerProcess) -> AsyncIterator[RedisStore]:
    async with RedisStore(fresh_url(server)) as store:
        yield store


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store; each test that uses this fixture runs on every implementation."""
    if request.param == "memory":
        yield MemoryStore()
        return
    if request.param == "cluster":
        nodes: Nodes = request.getfixturevalue("cluster_nodes")
        nodes.flush()
        async with RedisStore(nodes.url) as clustered:
            yield clustered
        return
    server: ServerProcess = request.getfixturevalue(f"{request.param}_server")
    async with fresh_store(server) as opened:
        yield opened


@pytest.fixture
async def valkey_store(valkey_server: ServerProcess) -> AsyncIterator[RedisStore]:
    """A store on the embedded server, for tests that need one real store of any kind."""
    async with fresh_store(valkey_server) as opened:
        yield opened


async def eventually(look: Callable[[], Awaitable[object]]) -> None:
    """Check repeatedly until the condition holds. Use this for changes that another process or the store's clock makes
    without an event."""
    with anyio.fail_after(WAIT_SECONDS):
        while not await look():
            await anyio.sleep(0.01)


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
    """Return the next append after `expected`."""
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
    """Return a chat with one command, claimed and taken by `worker`."""
    await store.post(command(chat_id=chat_id))
    assert Claimed(chat_id, "") in await claim(store, worker, chat_id, lease_ms)
    return await store.take(chat_id, worker, "wake")


async def consume_all(store: Store, head: str) -> str:
    """Append an entry that consumes all commands of the inbox; returns the new head."""
    waiting = await store.read_inbox(CHAT, 1_000)
    request = entry(head, consumed=tuple((each.inbox_id, each.request_id) for each in waiting))
    assert await store.append(request) is Appended.OK
    return request.head


async def outcomes(store: Store, requests: Sequence[PostRequest]) -> list[PostOutcome]:
    return [(await store.post(request)).outcome for request in requests]
