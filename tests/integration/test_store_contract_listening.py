"""The contract of every store, 5: the messages that subscribers receive about a chat, new work and inbox signals."""

import anyio
import pytest
from msgspec import structs

from tests.integration.store_fixtures import CHAT, WAIT_SECONDS, command, entry, eventually, owned
from threadcast.chat.entries import Fence
from threadcast.store.ports import Fenced, Store
from threadcast.store.topology.cluster_bell import ClusterBell
from threadcast_protocol.wire.ids import Head

pytestmark = pytest.mark.anyio


async def test_follower_reads_entries_without_their_facts(store: Store) -> None:
    async with store.follow(CHAT) as log_messages:
        taken = await owned(store)
        request = entry(taken.head, facts=b'["secret"]', acks=b'[["r1",true,true]]', checkpoint=b"secret too")
        await store.append(request)
        with anyio.fail_after(WAIT_SECONDS):
            fence, log_message = await anext(log_messages), await anext(log_messages)
    assert (fence.kind, fence.head, fence.before, fence.version) == ("entry", taken.head, "", 0)
    assert fence.entry is not None
    assert fence.entry.fence == Fence("", "wake")
    assert (log_message.kind, log_message.chat_id, log_message.head, log_message.before, log_message.version) == (
        "entry",
        CHAT,
        request.head,
        taken.head,
        1,
    )
    stored = await store.read_entry(CHAT, Head.parse(request.head).entry_id)
    assert stored is not None
    assert log_message.entry is not None
    assert (log_message.entry.events, log_message.entry.acks, log_message.entry.facts) == (
        stored.events,
        stored.acks,
        b"",
    )
    assert (log_message.entry.time_ms, log_message.entry.position) == (stored.time_ms, stored.position)


async def test_large_events_come_as_a_log_message_without_them(store: Store) -> None:
    large = b'["' + b"x" * 64 * 1_024 + b'"]'
    async with store.follow(CHAT) as log_messages:
        taken = await owned(store)
        await store.append(request := structs.replace(entry(taken.head), events=large))
        with anyio.fail_after(WAIT_SECONDS):
            await anext(log_messages)
            log_message = await anext(log_messages)
    assert (log_message.kind, log_message.entry, log_message.head, log_message.before) == (
        "large",
        None,
        request.head,
        taken.head,
    )
    read = await store.read_entry(CHAT, Head.parse(log_message.head).entry_id)
    assert read is not None
    assert (read.events, read.head) == (large, request.head)


@pytest.mark.row("SES-3", "SES-8")
async def test_what_followers_hear_is_in_the_log_and_a_refused_append_is_told_to_nobody(store: Store) -> None:
    async with store.follow(CHAT) as log_messages:
        taken = await owned(store)
        with pytest.raises(Fenced):
            await store.append(entry("1-1 00000000000000aa 0"))
        first = entry(taken.head)
        await store.append(first)
        with pytest.raises(Fenced):
            await store.append(entry(taken.head, digest="00000000000000bb"))
        last = entry(first.head)
        await store.append(last)
        heard: list[str] = []
        with anyio.fail_after(WAIT_SECONDS):
            async for log_message in log_messages:
                heard.append(log_message.head)
                assert log_message.head in [each.head for each in await store.read_log(CHAT)]
                if log_message.head == last.head:
                    break
    assert heard == [taken.head, first.head, last.head]


async def test_followers_learn_of_a_delete(store: Store) -> None:
    await store.post(command())
    async with store.follow(CHAT) as log_messages:
        await store.delete(CHAT, "ann", "n1")
        with anyio.fail_after(WAIT_SECONDS):
            assert (await anext(log_messages)).kind == "deleted"


async def test_entered_follower_misses_nothing_that_is_posted_afterwards(store: Store) -> None:
    """DISPATCH §6: `enter` waits for the confirmation. The test repeats this in many rounds, since a race would occur
    only now and then."""
    taken = await owned(store)
    head = taken.head
    for _ in range(20):
        async with store.follow(CHAT) as log_messages:
            await store.append(request := entry(head))
            head = request.head
            with anyio.fail_after(WAIT_SECONDS):
                assert (await anext(log_messages)).head == head


async def test_one_followers_leaving_does_not_disturb_another(store: Store) -> None:
    taken = await owned(store)
    assert await store.watchers(CHAT) == 0
    async with store.follow(CHAT) as staying:
        async with store.follow(CHAT) as leaving:
            await store.append(first := entry(taken.head))
            with anyio.fail_after(WAIT_SECONDS):
                assert (await anext(leaving)).head == first.head
        assert await store.watchers(CHAT) == 1
        await store.append(second := entry(first.head))
        with anyio.fail_after(WAIT_SECONDS):
            assert [(await anext(staying)).head, (await anext(staying)).head] == [first.head, second.head]

    async def is_unwatched() -> bool:
        return await store.watchers(CHAT) == 0

    await eventually(is_unwatched)


async def test_token_put_back_is_heard_by_another_worker(store: Store) -> None:
    async with store.bell() as mine, store.bell() as theirs:
        await store.post(command())
        bucket = await mine.wait(WAIT_SECONDS)
        assert bucket is not None
        await mine.put_back(bucket)
        assert await theirs.wait(WAIT_SECONDS) == bucket


async def test_no_bucket_starves_another_at_the_bell(store: Store) -> None:
    """One bucket always has a waiting bell, and another bucket gets a single bell. The second bucket is served within
    one cycle; in a Cluster, as soon as its node has answered."""
    busy = store.bucket_of(CHAT)
    quiet = (busy + 5) % store.buckets
    async with store.bell() as bell:
        await bell.put_back(quiet)
        heard: list[int | None] = []
        with anyio.fail_after(WAIT_SECONDS):
            while quiet not in heard:
                assert isinstance(bell, ClusterBell) or len(heard) < store.buckets
                await bell.put_back(busy)
                heard.append(await bell.wait(WAIT_SECONDS))


async def test_ping_and_clock_answer(store: Store) -> None:
    await store.ping()
    first = await store.now_ms()
    assert first <= await store.now_ms()


async def test_a_published_message_reaches_all_subscribers_of_its_topic_and_the_publisher_learns_when_there_is_none(
    store: Store,
) -> None:
    assert await store.publish("room:c1", b"nobody hears this") == 0
    async with (
        store.subscribe("room:c1") as one,
        store.subscribe("room:c1") as two,
        store.subscribe("room:c2") as other,
    ):
        assert await store.publish("room:c1", b"psst") > 0
        assert await store.publish("room:c2", b"elsewhere") > 0
        with anyio.fail_after(WAIT_SECONDS):
            assert (await anext(one), await anext(two), await anext(other)) == (b"psst", b"psst", b"elsewhere")
    with anyio.fail_after(WAIT_SECONDS):
        while await store.publish("room:c1", b"again nobody"):
            await anyio.sleep(0.01)
