"""Tests that need a real server: restarts, refusals, deadlines, batching."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
import redis
from anyio.lowlevel import checkpoint
from msgspec import structs
from structlog.testing import capture_logs

from tests.bars import bar_seconds
from tests.integration.store_fixtures import (
    CHAT,
    WAIT_SECONDS,
    command,
    consume_all,
    entry,
    eventually,
    fresh_url,
    owned,
)
from tests.support.store import StoreServer, running_store
from threadcast.store.embedded.embedded import PERSISTENT
from threadcast.store.embedded.server_process import ServerProcess
from threadcast.store.ports import Appended, Beat, Compacted, PostOutcome, Released
from threadcast.store.redis.command import Reply
from threadcast.store.redis.listener import QUEUE_MAX_MESSAGES
from threadcast.store.redis.store import RedisStore
from threadcast.store.topology.route import Value
from threadcast_protocol.wire.errors import Internal, Unavailable

pytestmark = pytest.mark.anyio


async def is_up(store: RedisStore) -> bool:
    try:
        await store.ping()
    except Unavailable:
        return False
    return True


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[StoreServer]:
    """A server for one test, which the test may freeze, kill and start again on the same data."""
    with running_store(tmp_path, PERSISTENT) as server:
        yield server


@pytest.fixture
async def own_store(own_server: StoreServer) -> AsyncIterator[RedisStore]:
    async with RedisStore(own_server.url) as store:
        yield store


# the connection


async def test_commands_of_one_tick_share_one_pipeline(valkey_server: ServerProcess) -> None:
    url = fresh_url(valkey_server)
    async with RedisStore(url) as store, anyio.create_task_group() as tasks:
        await store.ping()
        with redis.Redis.from_url(url) as other:
            before = other.info("stats")["total_reads_processed"]
            for n in range(100):
                tasks.start_soon(store.post, command(f"r{n}", chat_id=f"chat{n}"))

            async def all_are_there() -> bool:
                return len(await store.read_inbox("chat99", 1)) == 1

            await eventually(all_are_there)
            # The server reads the pipeline, this INFO and the commands above, and does not read once for each post.
            assert other.info("stats")["total_reads_processed"] - before < 20


async def test_error_of_one_command_goes_to_its_caller_alone(valkey_server: ServerProcess) -> None:
    url = fresh_url(valkey_server)
    async with RedisStore(url) as store:
        with redis.Redis.from_url(url) as other:
            other.set(f"tc:{{b{store.bucket_of('broken'):02d}}}:chat:broken:log", "no stream")
        results: dict[str, str] = {}

        async def read(chat_id: str) -> None:
            try:
                results[chat_id] = f"{len(await store.read_log(chat_id))} entries"
            except Internal as wrong:
                results[chat_id] = wrong.code

        async with anyio.create_task_group() as tasks:
            for chat_id in ("before", "broken", "after"):
                tasks.start_soon(read, chat_id)
        assert results == {"before": "0 entries", "broken": "internal", "after": "0 entries"}


async def test_scripts_the_server_forgot_are_loaded_again(valkey_server: ServerProcess) -> None:
    url = fresh_url(valkey_server)
    async with RedisStore(url) as store:
        with redis.Redis.from_url(url) as other:
            other.script_flush()
        async with anyio.create_task_group() as tasks:
            for n in range(5):
                tasks.start_soon(store.post, command(f"r{n}"))
        assert len(await store.read_inbox(CHAT, 10)) == 5


async def test_cancelled_caller_takes_nobody_with_it(valkey_store: RedisStore) -> None:
    await valkey_store.ping()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(valkey_store.ping)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await valkey_store.post(command())
        tasks.start_soon(valkey_store.ping)
    assert (await valkey_store.post(command())).outcome is PostOutcome.ACCEPTED


async def test_number_of_buckets_is_what_the_first_start_wrote(valkey_server: ServerProcess) -> None:
    url = fresh_url(valkey_server)
    with redis.Redis.from_url(url) as other:
        other.set("tc:buckets", 4)
    async with RedisStore(url) as store:
        assert store.buckets == 4
        assert {store.bucket_of(f"c{n}") for n in range(100)} == {0, 1, 2, 3}


async def test_opening_without_a_server_says_so_and_leaves_nothing_open(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        async with RedisStore(f"unix://{tmp_path}/nobody"):
            pass


async def test_an_error_of_the_body_leaves_the_store_as_it_is(valkey_server: ServerProcess) -> None:
    with pytest.raises(ZeroDivisionError):
        async with RedisStore(fresh_url(valkey_server)):
            raise ZeroDivisionError


# the server away


async def test_frozen_server_is_unavailable_in_time_and_the_store_recovers_by_itself(
    own_server: StoreServer, own_store: RedisStore
) -> None:
    taken = await owned(own_store)
    own_server.process.signal(signal.SIGSTOP)
    with anyio.fail_after(WAIT_SECONDS), pytest.raises(Unavailable, match="does not answer"):
        await own_store.append(entry(taken.head))
    own_server.process.signal(signal.SIGCONT)
    await eventually(lambda: is_up(own_store))
    # The caller cannot know whether the first script ran, so it calls the script again with the same arguments.
    assert await own_store.append(entry(taken.head)) in (Appended.OK, Appended.DUP)
    assert len(await own_store.read_log(CHAT)) == 2


async def test_a_store_that_is_gone_is_said_once_as_an_error_and_once_when_it_is_back(
    own_server: StoreServer, own_store: RedisStore
) -> None:
    def said(*events: str) -> list[tuple[str, str]]:
        return [(line["event"], line["log_level"]) for line in lines if line["event"] in events]

    async def is_back() -> bool:
        return bool(said("store.back"))

    async with own_store.inbox_signals("w1"):
        pass  # opens the connection of the channels, which is then lost
    with capture_logs() as lines:
        own_server.kill()
        with pytest.raises(Unavailable, match="channels do not answer"):  # some thirty attempts to connect
            async with own_store.inbox_signals("w1"):
                pass
        own_server.kill()
        own_server.start()
        await eventually(is_back)
    said_of_it = said("channels.lost", "store.lost", "store.back")
    assert said_of_it == [("channels.lost", "info"), ("store.lost", "error"), ("store.back", "info")]
    lost, back = (next(line for line in lines if line["event"] == event) for event in ("store.lost", "store.back"))
    assert lost["address"] == own_server.url
    assert back["gone_seconds"] >= 2


async def test_blocking_bell_of_a_frozen_server_ends_in_time(own_server: StoreServer, own_store: RedisStore) -> None:
    async with own_store.bell() as bell:
        assert await bell.wait(0.01) is None
        own_server.process.signal(signal.SIGSTOP)
        with anyio.fail_after(WAIT_SECONDS), pytest.raises(Unavailable):
            await bell.wait(0.1)
        own_server.process.signal(signal.SIGCONT)
        await eventually(lambda: is_up(own_store))
        await own_store.post(command())
        assert await bell.wait(WAIT_SECONDS) == own_store.bucket_of(CHAT)


async def test_killed_server_is_unavailable_and_everything_goes_on_after_its_restart(
    own_server: StoreServer, own_store: RedisStore
) -> None:
    with redis.Redis.from_url(own_server.url) as client:  # otherwise the kill may lose the last 2 s
        client.config_set("appendfsync", "always")
    taken = await owned(own_store)
    async with own_store.follow(CHAT) as log_messages, own_store.inbox_signals("w1") as signals:
        own_server.kill()
        with pytest.raises(Unavailable):
            await own_store.append(entry(taken.head))
        own_server.kill()
        own_server.start()
        with anyio.fail_after(WAIT_SECONDS):
            assert (await anext(log_messages)).kind == "reconnected"
            assert await anext(signals) is None
        # The subscriptions were confirmed again before these reports, so no later message is missed.
        assert await own_store.append(entry(taken.head)) is Appended.OK
        await own_store.post(command("r2"))
        with anyio.fail_after(WAIT_SECONDS):
            assert (await anext(log_messages)).before == taken.head
            assert await anext(signals) == CHAT


async def test_restart_that_nobody_noticed_costs_nobody_an_error(
    own_server: StoreServer, own_store: RedisStore
) -> None:
    await own_store.ping()
    own_server.kill()
    own_server.start()
    for _ in range(10):  # the loop learns that the old connection has ended
        await checkpoint()
    await own_store.ping()


async def test_silent_channel_is_found_by_its_ping_and_rebuilt(own_server: StoreServer, own_store: RedisStore) -> None:
    async with own_store.follow(CHAT) as log_messages:
        own_server.process.signal(signal.SIGSTOP)
        await anyio.sleep(2.5)  # longer than the silence that the store tolerates
        own_server.process.signal(signal.SIGCONT)
        with anyio.fail_after(WAIT_SECONDS):
            assert (await anext(log_messages)).kind == "reconnected"


async def test_the_last_reader_may_leave_while_the_channels_are_rebuilt(
    own_server: StoreServer, own_store: RedisStore
) -> None:
    """The rebuilt channels then have no reader to report to. An earlier version waited for this report in a loop
    without a pause, which blocked all other tasks."""
    with capture_logs() as logs:
        async with own_store.follow(CHAT):
            own_server.kill()

            async def is_lost() -> bool:
                return any(line["event"] == "channels.lost" for line in logs)

            await eventually(is_lost)
        own_server.kill()
        own_server.start()
    longest_seconds = 0.0
    for _ in range(60):  # while the channels are rebuilt, measure how long the event loop is blocked
        asked_at = time.monotonic()
        await anyio.sleep(0.01)
        longest_seconds = max(longest_seconds, time.monotonic() - asked_at)
    assert longest_seconds < bar_seconds(0.5)


async def test_follow_of_a_frozen_server_is_refused_in_time(own_server: StoreServer, own_store: RedisStore) -> None:
    own_server.process.signal(signal.SIGSTOP)
    with anyio.fail_after(WAIT_SECONDS), pytest.raises(Unavailable):
        async with own_store.follow(CHAT):
            pass


async def test_full_memory_refuses_work_but_lets_owners_leave(own_server: StoreServer, own_store: RedisStore) -> None:
    taken = await owned(own_store)
    await own_store.append(request := structs.replace(entry(taken.head), consumed=()))
    with redis.Redis.from_url(own_server.url) as other:
        other.config_set("maxmemory", 1)
        for refused in (own_store.ping(), own_store.post(command("r2")), own_store.append(entry(request.head))):
            with pytest.raises(Unavailable, match="memory is full"):
                await refused
        assert await own_store.beat("w1", 60_000, [CHAT]) == {CHAT: Beat.INBOX}
        assert await own_store.release(CHAT, "w1", request.head, None) is Released.MORE
        await own_store.handover(CHAT, "w1", 0)
        assert len((await own_store.load(CHAT)).entries) == 2
        other.config_set("maxmemory", 0)
    assert (await own_store.post(command("r2"))).outcome is PostOutcome.ACCEPTED


async def test_a_chat_comes_to_rest_and_is_compacted_when_the_memory_is_full(
    own_server: StoreServer, own_store: RedisStore
) -> None:
    head = await consume_all(own_store, (await owned(own_store)).head)
    with redis.Redis.from_url(own_server.url) as other:
        other.config_set("maxmemory", 1)
        short = Compacted(checkpoint=b"a state", version=1, part=b"part 1")
        assert await own_store.release(CHAT, "w1", head, None) is Released.OK
        assert await own_store.compact(CHAT, head, short)
        assert (await own_store.load(CHAT)).checkpoint == (head, 1, b"a state")
        assert await own_store.read_history(CHAT) == [b"part 1"]
        assert len(await own_store.read_log(CHAT)) == 2
        other.config_set("maxmemory", 0)


async def test_replica_refuses_work(own_server: StoreServer, own_store: RedisStore) -> None:
    await owned(own_store)
    with redis.Redis.from_url(own_server.url) as other:
        other.replicaof("127.0.0.1", "1")  # nobody listens there
        with pytest.raises(Unavailable):
            await own_store.post(command("r2"))
        with pytest.raises(Unavailable):
            await own_store.ping()
        other.replicaof("NO", "ONE")
    assert (await own_store.post(command("r2"))).outcome is PostOutcome.ACCEPTED


# listening


async def test_slow_follower_loses_its_queue_and_is_told(valkey_store: RedisStore) -> None:
    head = (await owned(valkey_store)).head
    async with valkey_store.follow(CHAT) as slow, valkey_store.follow(CHAT) as quick:
        for _ in range(QUEUE_MAX_MESSAGES + 1):
            await valkey_store.append(request := entry(head))
            head = request.head
            with anyio.fail_after(WAIT_SECONDS):
                assert (await anext(quick)).head == head
        with anyio.fail_after(WAIT_SECONDS):
            assert (await anext(slow)).kind == "reconnected"
            await valkey_store.append(request := entry(head))
            assert (await anext(slow)).head == request.head


async def test_what_nobody_can_read_on_a_channel_counts_as_missed(valkey_server: ServerProcess) -> None:
    url = fresh_url(valkey_server)
    async with RedisStore(url) as store, store.follow(CHAT) as log_messages:
        with redis.Redis.from_url(url) as other:
            other.publish(store._keys.chat(CHAT).log_channel, b"\xff{")
        with anyio.fail_after(WAIT_SECONDS):
            assert (await anext(log_messages)).kind == "reconnected"


# lifetimes and keys


async def test_a_server_that_forgets_a_script_as_soon_as_it_has_it_is_unavailable(
    valkey_store: RedisStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behaves like a proxy over several servers: the script is loaded on one server and called on another."""
    send = valkey_store._redis.send

    def forgetful(*command: Value, on_reply: object = None) -> "asyncio.Future[Reply]":
        return send(*(command if command[0] != b"EVALSHA" else (b"EVALSHA", b"0" * 40, *command[2:])))

    monkeypatch.setattr(valkey_store._redis, "send", forgetful)
    with pytest.raises(Unavailable, match="forgets its scripts"):
        await valkey_store.ping()
