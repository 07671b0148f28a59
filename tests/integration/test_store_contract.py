"""The contract of every store, 1: posting commands. Checks the answers and repeats of `post` that DISPATCH §4 lists.
Tests of traps (DISPATCH §9) have the trap's number in their name.

Each test runs on the in-memory twin, on the embedded Valkey and on Redis 7.0, through the port alone.
"""

import hashlib

import anyio
import pytest
import redis
from msgspec import structs

from tests.integration.store_fixtures import (
    CHAT,
    WAIT_SECONDS,
    claim,
    command,
    consume_all,
    entry,
    eventually,
    fresh_url,
    outcomes,
    owned,
)
from threadcast.store.embedded.server_process import ServerProcess
from threadcast.store.ports import Claimed, PostOutcome, Released, Store
from threadcast.store.redis.store import RedisStore

pytestmark = pytest.mark.anyio


async def test_accepted_command_lies_in_the_inbox_with_its_principal(store: Store) -> None:
    posted = await store.post(command())
    assert posted.outcome is PostOutcome.ACCEPTED
    (waiting,) = await store.read_inbox(CHAT, 10)
    assert (waiting.inbox_id, waiting.request_id) == (posted.inbox_id, "r1")
    assert (waiting.principal, waiting.body) == (b'{"id":"ann"}', b'{"type":"user_message"}')


async def test_first_command_makes_the_chat_its_senders(store: Store) -> None:
    assert await store.meta(CHAT) is None
    before_ms = await store.now_ms()
    await store.post(command())
    meta = await store.meta(CHAT)
    assert meta is not None
    assert (meta.owner, meta.deleted) == ("ann", False)
    assert before_ms <= meta.created_at <= await store.now_ms()


async def test_own_retry_is_accepted_and_changes_nothing(store: Store) -> None:
    await store.post(command())
    assert await outcomes(store, [command()]) == [PostOutcome.ACCEPTED]
    assert len(await store.read_inbox(CHAT, 10)) == 1


async def test_same_id_from_another_request_is_duplicate_or_mismatch(store: Store) -> None:
    await store.post(command())
    again = [command(nonce="other"), command(nonce="other", digest="other")]
    assert await outcomes(store, again) == [PostOutcome.DUPLICATE, PostOutcome.MISMATCH]
    assert len(await store.read_inbox(CHAT, 10)) == 1


async def test_consumed_command_is_still_remembered(store: Store) -> None:
    taken = await owned(store)
    await consume_all(store, taken.head)
    assert await outcomes(store, [command(nonce="other")]) == [PostOutcome.DUPLICATE]
    assert (await store.post(command())).outcome is PostOutcome.ACCEPTED
    assert await store.read_inbox(CHAT, 10) == []


async def test_ids_that_an_older_version_remembered_are_known_and_new_ones_take_little_memory(
    valkey_server: ServerProcess,
) -> None:
    url = fresh_url(valkey_server)
    digests = {f"{n:036}": hashlib.sha256(b"%d" % n).hexdigest() for n in range(50)}
    async with RedisStore(url) as store:
        keys = store._keys.chat(CHAT)
        with redis.Redis.from_url(url) as other:
            other.hset(keys.seen, f"{0:036}", f"{digests[f'{0:036}']} 0123456789abcdef 1700000000000-0")
            first = command(f"{0:036}", digest=digests[f"{0:036}"], nonce="0123456789abcdef")
            changes: list[dict[str, object]] = [{}, {"nonce": "f123456789abcdee"}, {"nonce": "b", "digest": "c"}]
            again = [structs.replace(first, **change) for change in changes]
            assert await outcomes(store, again) == [
                PostOutcome.ACCEPTED,
                PostOutcome.DUPLICATE,
                PostOutcome.MISMATCH,
            ]
            other.delete(keys.seen)
            for request_id, digest in digests.items():
                await store.post(command(request_id, digest=digest, nonce=digest[:16]))
            assert (other.memory_usage(keys.seen, samples=0) or 0) <= 4_000


async def test_foreign_and_unknown_chats_are_refused(store: Store) -> None:
    await store.post(command())
    assert await outcomes(store, [command("r2", owner="bob")]) == [PostOutcome.FOREIGN]
    assert await outcomes(store, [command(chat_id="other", creates=False)]) == [PostOutcome.UNKNOWN]
    assert await store.meta("other") is None
    assert await outcomes(store, [command("r2", creates=False)]) == [PostOutcome.ACCEPTED]


async def test_normal_commands_are_bounded_with_the_queue_and_refused_ids_are_not_burnt(store: Store) -> None:
    taken = await owned(store)
    head = entry(taken.head, meta=(("queue", "90"),))
    await store.append(head)
    assert await outcomes(store, [command(f"q{n}") for n in range(9)]) == [PostOutcome.ACCEPTED] * 9
    assert await outcomes(store, [command("late")]) == [PostOutcome.FULL]
    assert await outcomes(store, [command("stop", kind="exempt")]) == [PostOutcome.ACCEPTED]
    await consume_all(store, head.head)
    assert await outcomes(store, [command("late")]) == [PostOutcome.ACCEPTED]


@pytest.mark.parametrize(("kind", "bound"), [("normal", 100), ("refusal", 20), ("exempt", 1_000), ("import", 1_000)])
async def test_inbox_is_bounded_for_every_kind(store: Store, kind: str, bound: int) -> None:
    for n in range(bound):
        assert (await store.post(command(f"f{n}", kind="exempt"))).outcome is PostOutcome.ACCEPTED
    assert await outcomes(store, [command("more", kind=kind)]) == [PostOutcome.FULL]


async def test_a_refusal_does_not_speak_of_an_id_that_was_accepted(store: Store) -> None:
    await store.post(command("r1"))
    refusals = [command(f"refused:{of}", kind="refusal", about=of) for of in ("r1", "r2")]
    assert await outcomes(store, refusals) == [PostOutcome.DUPLICATE, PostOutcome.ACCEPTED]


async def test_the_newest_thousand_ids_are_remembered_and_the_oldest_forgotten(store: Store) -> None:
    head = (await owned(store)).head
    for start in range(0, 2_400, 400):
        for n in range(start, start + 400):
            await store.post(command(f"f{n}", kind="exempt"))
        head = await consume_all(store, head)
    again = [command(f"f{n}", nonce="other", kind="exempt") for n in (2_399, 1_400, 0)]
    assert await outcomes(store, again) == [PostOutcome.DUPLICATE, PostOutcome.DUPLICATE, PostOutcome.ACCEPTED]


async def test_post_rings_the_bell_of_a_sleeping_chat_once(store: Store) -> None:
    async with store.bell() as bell:
        await store.post(command())
        assert await bell.wait(WAIT_SECONDS) == store.bucket_of(CHAT)
        await store.post(command("r2"))
        assert await bell.wait(0.01) is None


async def test_post_signals_the_owner_and_rings_no_bell(store: Store) -> None:
    async with store.bell() as bell, store.inbox_signals("w1") as signals:
        await owned(store)
        assert await bell.wait(WAIT_SECONDS) == store.bucket_of(CHAT)
        await store.post(command("r2"))
        with anyio.fail_after(WAIT_SECONDS):
            assert await anext(signals) == CHAT
        assert await bell.wait(0.01) is None


async def test_post_cuts_the_lease_when_the_owners_connection_is_gone(store: Store) -> None:
    await owned(store)
    await store.post(command("r2"))

    async def is_taken_over() -> bool:
        return [each.previous for each in await claim(store, "w2")] == ["w1"]

    assert not await is_taken_over()
    await eventually(is_taken_over)


async def test_trap_1_post_wakes_a_chat_with_a_far_timer(store: Store) -> None:
    taken = await owned(store)
    head = await consume_all(store, taken.head)
    far_ms = await store.now_ms() + 3_600_000
    assert await store.release(CHAT, "w1", head, far_ms) is Released.OK
    assert await claim(store, "w1") == []
    await store.post(command("r2"))
    assert await claim(store, "w1") == [Claimed(CHAT, "")]
