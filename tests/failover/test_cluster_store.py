"""The store on a Cluster, beyond the contract of all stores: moved slots, missing nodes, and scripts that must run as a
whole or not at all."""

from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.integration.store_fixtures import (
    CHAT,
    WAIT_SECONDS,
    claim,
    command,
    entry,
    eventually,
    owned,
)
from tests.ports import free_port
from tests.support.cluster import ClusterNode, Nodes, running_cluster
from tests.support.store import BINARIES, running_store
from threadcast.store.ports import Appended, BlobOutcome, BlobPut
from threadcast.store.redis.keys import Keys
from threadcast.store.redis.store import RedisStore
from threadcast.store.topology.slots import slot_of
from threadcast_protocol.wire.blobs import Blob
from threadcast_protocol.wire.errors import Internal, Unavailable

pytestmark = pytest.mark.anyio

KEYS = Keys(16)


@pytest.fixture(scope="module", params=[name for name, binary in BINARIES.items() if binary])
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with running_cluster(tmp_path_factory.mktemp(request.param), binary=request.param) as running:
        yield running


@pytest.fixture
def empty(nodes: Nodes) -> Nodes:
    nodes.flush()
    return nodes


def elsewhere(nodes: Nodes, key: bytes) -> tuple[ClusterNode, ClusterNode]:
    """Return the node that has this key, and one other node."""
    here = nodes.owner_of(key)
    return here, next(node for node in nodes.primaries if node is not here)


async def move(nodes: Nodes, key: bytes) -> None:
    source, target = elsewhere(nodes, key)
    await anyio.to_thread.run_sync(partial(nodes.move_slot, key, source, target))


async def test_a_script_that_meets_a_slot_on_its_way_does_nothing_rather_than_half(empty: Nodes) -> None:
    """All keys that `append` names are still on this node, but a blob that it keeps has moved to the other node. A
    script that began would stop in the middle: the entry would be written, and the blob would expire."""
    chat = KEYS.chat(CHAT)
    async with RedisStore(empty.url) as store:
        taken = await owned(store)
        blob = Blob(sha256(b"picture").hexdigest(), "image/png", b"picture")
        request = BlobPut(chat_id=CHAT, owner="ann", blob=blob, ttl_seconds=3_600)
        assert await store.put_blob(request) is BlobOutcome.KEPT
        first = entry(taken.head, checkpoint=b"{}", meta=(("title", "x"),))
        assert await store.append(first) is Appended.OK
        last = entry(first.head, blobs=(blob.hash,))

        source, target = elsewhere(empty, chat.log)
        slot = slot_of(chat.log)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        source.ask("MIGRATE", "127.0.0.1", target.port, chat.blob(blob.hash), 0, 5_000)
        assert all(source.ask("EXISTS", key) for key in (chat.log, chat.head, chat.inbox, chat.meta, chat.snap))

        with pytest.raises(Unavailable, match="moving its data"):
            await store.append(last)
        assert await store.heads([CHAT]) == [first.head], "nothing of it has happened"

        await anyio.to_thread.run_sync(partial(empty.move_slot, chat.log, source, target))
        assert await store.append(last) is Appended.OK
        assert target.ask("PTTL", chat.blob(blob.hash)) == -1, "the blob stays"


async def test_commands_and_channels_go_where_their_slot_goes(empty: Nodes) -> None:
    async with RedisStore(empty.url) as store, store.follow(CHAT) as log_messages:
        taken = await owned(store)
        with anyio.fail_after(WAIT_SECONDS):
            assert (await anext(log_messages)).head == taken.head
        await move(empty, KEYS.chat(CHAT).log)
        first = entry(taken.head)
        assert await store.append(first) is Appended.OK, "MOVED is followed at once"
        with anyio.fail_after(WAIT_SECONDS):
            assert (await anext(log_messages)).kind == "reconnected", "something may have been missed on the way"
        await store.append(second := entry(first.head))
        with anyio.fail_after(WAIT_SECONDS):
            while (log_message := await anext(log_messages)).head != second.head:
                assert log_message.kind in ("entry", "reconnected")
        assert await store.watchers(CHAT) == 1


async def test_who_only_listens_goes_with_the_slot_too(empty: Nodes) -> None:
    """A listener sends no command that would report the move; the node closes its subscription instead."""
    async with (
        RedisStore(empty.url) as store,
        RedisStore(empty.url) as listening,
        listening.follow(CHAT) as log_messages,
    ):
        taken = await owned(store)
        await move(empty, KEYS.chat(CHAT).log)
        await store.append(first := entry(taken.head))
        with anyio.fail_after(WAIT_SECONDS):
            while (await anext(log_messages)).kind != "reconnected":
                pass
        await store.append(second := entry(first.head))
        with anyio.fail_after(WAIT_SECONDS):
            while (await anext(log_messages)).head != second.head:
                pass


async def test_bells_ring_where_their_slot_has_gone(empty: Nodes) -> None:
    async with RedisStore(empty.url) as store, store.bell() as bell:
        await move(empty, KEYS.chat(CHAT).bell)
        await store.post(command())
        with anyio.fail_after(WAIT_SECONDS):
            while (bucket := await bell.wait(0.5)) is None:
                pass
        assert bucket == store.bucket_of(CHAT)


async def test_a_token_that_nobody_waits_for_any_more_goes_to_another_worker(empty: Nodes) -> None:
    async with RedisStore(empty.url) as store, store.bell() as busy, store.bell() as other:
        assert await busy.wait(0.01) is None, "and turns to other work, its question still open at the server"
        await store.post(command())
        with anyio.fail_after(WAIT_SECONDS):
            while (bucket := await other.wait(0.5)) is None:
                pass
        assert bucket == store.bucket_of(CHAT)


async def test_a_post_learns_from_the_shard_whether_the_owner_hears_it(empty: Nodes) -> None:
    """If all processes subscribe at the slot's own node, a post need only count the subscribers of that node (DISPATCH
    §7, FAST)."""
    async with RedisStore(empty.url) as store:
        async with store.inbox_signals("w1") as signals:
            await owned(store, "w1")
            await store.post(command("r2"))
            with anyio.fail_after(WAIT_SECONDS):
                assert await anext(signals) == CHAT
            assert await claim(store, "w2") == [], "the owner has heard of it and keeps its lease"

        async def is_free() -> bool:
            await store.post(command(f"r{anyio.current_time()}"))
            return bool(await claim(store, "w2"))

        await eventually(is_free)  # the chat becomes free a second after the first post that no worker received


async def test_scripts_a_node_forgot_are_loaded_again(empty: Nodes) -> None:
    async with RedisStore(empty.url) as store:
        for node in empty.primaries:
            node.ask("SCRIPT", "FLUSH")
        for n in range(16):
            await store.post(command(chat_id=f"chat{n}"))
        await store.ping()


async def test_all_is_one_pipeline_a_node(empty: Nodes) -> None:
    def reads() -> int:
        stats = b"".join(node.ask("INFO", "stats") for node in empty.primaries).decode().splitlines()
        return sum(int(line.partition(":")[2]) for line in stats if line.startswith("total_reads_processed"))

    async with RedisStore(empty.url) as store:
        await store.heads([f"chat{n}" for n in range(100)])
        before = reads()
        await store.heads([f"chat{n}" for n in range(100)])
        assert reads() - before < 40, "a read for each node, the bus and these looks; not one for each command"


async def test_one_node_of_a_cluster_without_its_scheme_says_how_to_name_it(empty: Nodes) -> None:
    other = next(node for node in empty.primaries if node is not empty.owner_of(b"tc:buckets"))
    with pytest.raises(Unavailable, match=r"redis\+cluster://"):
        async with RedisStore(f"redis://{other.name}"):
            pass


async def test_a_server_that_is_no_cluster_says_so(tmp_path: Path) -> None:
    with running_store(tmp_path, port=free_port()) as server, pytest.raises(Internal, match="cluster support disabled"):
        async with RedisStore(f"redis+cluster://127.0.0.1:{server.port}"):
            pass


async def test_a_cluster_that_nobody_answers_for_is_unavailable_and_names_whom_it_asked() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1\b"):
        async with RedisStore("redis+cluster://127.0.0.1:1"):
            pass


async def test_one_seed_is_enough_and_a_dead_one_does_no_harm(empty: Nodes) -> None:
    alive = empty.primaries[1].name
    async with RedisStore(f"redis+cluster://127.0.0.1:1,{alive}") as store:
        standing = await store.ping()
        assert sorted(standing.nodes) == sorted(node.name for node in empty.primaries)
        assert standing.away == ()
        for n in range(16):
            await store.post(command(chat_id=f"chat{n}"))
