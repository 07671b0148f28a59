"""The contract of every store, 6: traces and counts of runs. Traces belong to their owner, are bounded, and are deleted
with the chat; a command counts once against the allowance, even if it is checked twice.

Each test runs on the in-memory twin, on the embedded Valkey and on Redis 7.0, through the port alone.
"""

import anyio
import pytest
import redis

from tests.integration.store_fixtures import CHAT, command, eventually, fresh_url, owned
from tests.unit.faulty_store import Clock
from threadcast.store.bounds import TRACES_MAX_COUNT
from threadcast.store.embedded.server_process import ServerProcess
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import AllowanceSpent, Store, TraceRecord
from threadcast.store.redis.store import RedisStore

pytestmark = pytest.mark.anyio

HOUR_SECONDS = 3_600


def record(number: int, run_id: str = "run_1") -> TraceRecord:
    return TraceRecord(run_id, f"key-{number}", bytes([number % 256, 0, 255]))


async def put(store: Store, *numbers: int, owner: str = "ann", ttl_seconds: int = HOUR_SECONDS) -> bool:
    return await store.put_traces(CHAT, owner, [record(number) for number in numbers], ttl_seconds)


async def test_records_come_back_in_their_order_and_as_they_were(store: Store) -> None:
    await owned(store)
    assert await put(store, 1, 2)
    assert await store.put_traces(CHAT, "ann", [record(3, "run_2")], HOUR_SECONDS)
    assert await store.read_traces(CHAT, "ann") == [record(1), record(2), record(3, "run_2")]
    assert await store.read_traces("other", "ann") == []


async def test_a_record_that_was_laid_down_twice_is_read_once(store: Store) -> None:
    await owned(store)
    assert await put(store, 1, 2)
    assert await put(store, 2, 3)
    assert [each.key for each in await store.read_traces(CHAT, "ann")] == ["key-1", "key-2", "key-3"]


async def test_records_are_nobody_elses_and_need_a_chat(store: Store) -> None:
    assert not await put(store, 1)
    await owned(store)
    assert not await put(store, 1, owner="bob")
    assert await put(store, 2)
    assert await store.read_traces(CHAT, "bob") == []


async def test_only_the_newest_records_are_kept(store: Store) -> None:
    await owned(store)
    assert await put(store, *range(TRACES_MAX_COUNT))
    assert await put(store, TRACES_MAX_COUNT)
    kept = await store.read_traces(CHAT, "ann")
    assert len(kept) == TRACES_MAX_COUNT
    assert (kept[0].key, kept[-1].key) == ("key-1", f"key-{TRACES_MAX_COUNT}")


async def test_the_newest_records_are_replaced_once_and_by_records_of_their_chat_alone(store: Store) -> None:
    await owned(store)
    assert await store.newest_traces(CHAT, "ann", 9) == []
    assert await put(store, 1, 2, 3)
    assert await store.newest_traces(CHAT, "ann", 9) == [record(1), record(2), record(3)]
    newest = await store.newest_traces(CHAT, "ann", 2)
    assert newest == [record(2), record(3)]
    assert await store.newest_traces(CHAT, "bob", 9) == []

    async def replace(owner: str, *keys: str) -> bool:
        return await store.put_traces(CHAT, owner, [record(4)], HOUR_SECONDS, keys)

    keys = [each.key for each in newest]
    assert not await replace("bob", *keys)
    assert not await replace("ann", *reversed(keys))
    assert not await replace("ann", keys[0])
    assert not await replace("ann", "key-0", "key-1", *keys)
    assert await replace("ann", *keys)
    assert not await replace("ann", *keys), "a repeat, as after a lost answer"
    assert await store.read_traces(CHAT, "ann") == [record(1), record(4)]


async def test_records_of_an_older_version_are_read_and_deleted(valkey_server: ServerProcess) -> None:
    url = fresh_url(valkey_server)
    async with RedisStore(url) as store:
        await owned(store)
        keys = store._keys.chat(CHAT)
        with redis.Redis.from_url(url) as other:
            older = record(1)
            other.xadd(keys.trace, {"o": "ann", "r": older.run_id, "k": older.key, "d": older.data})
            assert await put(store, 2)
            assert await store.read_traces(CHAT, "ann") == [older, record(2)]
            assert await store.read_traces(CHAT, "bob") == []
            assert await store.delete(CHAT, "ann", "n1")
            assert other.exists(keys.trace, keys.traces) == 0


async def test_traces_go_with_the_chat_and_none_comes_after(store: Store) -> None:
    await owned(store)
    assert await put(store, 1)
    assert await store.delete(CHAT, "ann", "n1")
    assert await store.read_traces(CHAT, "ann") == []
    assert not await put(store, 2)
    await store.post(command("r2", kind="import"))
    assert await store.read_traces(CHAT, "ann") == []


async def test_traces_go_when_their_time_is_over(store: Store) -> None:
    await owned(store)
    assert await put(store, 1, ttl_seconds=1)

    async def are_gone() -> bool:
        return await store.read_traces(CHAT, "ann") == []

    await eventually(are_gone)


async def test_a_used_up_hour_allows_only_commands_that_are_counted_already(store: Store) -> None:
    assert await store.spend_allowance("ann", "c r1", 2, 0) == AllowanceSpent(True)
    assert await store.spend_allowance("ann", "c r2", 2, 0) == AllowanceSpent(True)
    assert await store.spend_allowance("ann", "c r1", 2, 0) == AllowanceSpent(False)
    refused = await store.spend_allowance("ann", "c r3", 2, 0)
    assert not refused.is_new and 3_590_000 < refused.wait_ms <= 3_600_000
    assert await store.spend_allowance("bob", "c r3", 2, 0) == AllowanceSpent(True)
    assert (await store.spend_allowance("ann", "c r3", 3, 2)).wait_ms > 23 * 3_600_000
    assert await store.spend_allowance("ann", "c r3", 0, 0) == AllowanceSpent(True)


async def test_an_allowance_that_was_returned_can_be_spent_again(store: Store) -> None:
    await store.spend_allowance("ann", "c r1", 0, 1)
    assert (await store.spend_allowance("ann", "c r2", 0, 1)).wait_ms
    await store.return_allowance("ann", "c r1")
    await store.return_allowance("ann", "c r1")
    assert await store.spend_allowance("ann", "c r2", 0, 1) == AllowanceSpent(True)


async def test_many_at_once_do_not_get_in_more_often_than_may_be(store: Store) -> None:
    counted: list[AllowanceSpent] = []

    async def spend(number: int) -> None:
        counted.append(await store.spend_allowance("ann", f"c r{number}", 5, 0))

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(spend, number)
    assert sum(spent.is_new for spent in counted) == 5


async def test_windows_slide_by_the_clock() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    for number in range(3):
        assert (await store.spend_allowance("ann", f"r{number}", 2, 3)).is_new == (number < 2)
        clock.now_ms += 600_000
    assert (await store.spend_allowance("ann", "r3", 2, 3)).wait_ms == 3_600_000 - 1_800_000
    clock.now_ms += 1_800_000
    assert (await store.spend_allowance("ann", "r3", 2, 3)).is_new
    clock.now_ms += 3_600_000
    assert (await store.spend_allowance("ann", "r4", 2, 3)).wait_ms == 24 * 3_600_000 - 7_200_000
