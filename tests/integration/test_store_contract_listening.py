"""What every store promises, 5: what listeners hear of a chat, a bell, a mail."""

import anyio
import pytest
from msgspec import structs

from protocol.entries import Fence
from protocol.ids import Head
from server.store.port import Fenced, Store
from tests.integration.store_fixtures import CHAT, WAIT_SECONDS, command, entry, eventually, owned

pytestmark = pytest.mark.anyio


async def test_follower_reads_entries_without_their_facts(store: Store) -> None:
    async with store.follow(CHAT) as notices:
        taken = await owned(store)
        request = entry(taken.head, facts=b'["secret"]', acks=b'[["r1",true,true]]', checkpoint=b"secret too")
        await store.append(request)
        with anyio.fail_after(WAIT_SECONDS):
            fence, news = await anext(notices), await anext(notices)
    assert (fence.kind, fence.head, fence.before, fence.version) == ("entry", taken.head, "", 0)
    assert fence.entry is not None
    assert fence.entry.fence == Fence("", "wake")
    assert (news.kind, news.chat_id, news.head, news.before, news.version) == (
        "entry",
        CHAT,
        request.head,
        taken.head,
        1,
    )
    stored = await store.read_entry(CHAT, Head.parse(request.head).entry_id)
    assert stored is not None
    assert news.entry is not None
    assert (news.entry.events, news.entry.acks, news.entry.facts) == (stored.events, stored.acks, b"")
    assert (news.entry.time_ms, news.entry.position) == (stored.time_ms, stored.position)


async def test_large_events_come_as_a_notice(store: Store) -> None:
    large = b'["' + b"x" * 64 * 1_024 + b'"]'
    async with store.follow(CHAT) as notices:
        taken = await owned(store)
        await store.append(request := structs.replace(entry(taken.head), events=large))
        with anyio.fail_after(WAIT_SECONDS):
            await anext(notices)
            news = await anext(notices)
    assert (news.kind, news.entry, news.head, news.before) == ("large", None, request.head, taken.head)
    read = await store.read_entry(CHAT, Head.parse(news.head).entry_id)
    assert read is not None
    assert (read.events, read.head) == (large, request.head)


@pytest.mark.row("SES-3", "SES-8")
async def test_what_followers_hear_is_in_the_log_and_a_refused_append_is_told_to_nobody(store: Store) -> None:
    async with store.follow(CHAT) as notices:
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
            async for notice in notices:
                heard.append(notice.head)
                assert notice.head in [each.head for each in await store.read_log(CHAT)]
                if notice.head == last.head:
                    break
    assert heard == [taken.head, first.head, last.head]


async def test_followers_learn_of_a_delete(store: Store) -> None:
    await store.post(command())
    async with store.follow(CHAT) as notices:
        await store.delete(CHAT, "ann", "n1")
        with anyio.fail_after(WAIT_SECONDS):
            assert (await anext(notices)).kind == "deleted"


async def test_entered_follower_misses_nothing_that_is_posted_afterwards(store: Store) -> None:
    """DISPATCH §6: entering waits for the confirmation. Many rounds, since a race would show only now and then."""
    taken = await owned(store)
    head = taken.head
    for _ in range(20):
        async with store.follow(CHAT) as notices:
            await store.append(request := entry(head))
            head = request.head
            with anyio.fail_after(WAIT_SECONDS):
                assert (await anext(notices)).head == head


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
    """A bucket that rings all the time and one that rang once: the second is heard within one turn of the order."""
    busy = store.bucket_of(CHAT)
    quiet = (busy + 5) % store.buckets
    async with store.bell() as bell:
        await bell.put_back(quiet)
        heard = []
        for _ in range(store.buckets):
            await bell.put_back(busy)
            heard.append(await bell.wait(WAIT_SECONDS))
    assert quiet in heard


async def test_ping_and_clock_answer(store: Store) -> None:
    await store.ping()
    first = await store.now_ms()
    assert first <= await store.now_ms()


async def test_a_whisper_reaches_all_who_overhear_its_topic_and_its_sender_learns_when_there_is_nobody(
    store: Store,
) -> None:
    assert await store.whisper("room:c1", b"nobody hears this") == 0
    async with store.overhear("room:c1") as one, store.overhear("room:c1") as two, store.overhear("room:c2") as other:
        assert await store.whisper("room:c1", b"psst") > 0
        assert await store.whisper("room:c2", b"elsewhere") > 0
        with anyio.fail_after(WAIT_SECONDS):
            assert (await anext(one), await anext(two), await anext(other)) == (b"psst", b"psst", b"elsewhere")
    with anyio.fail_after(WAIT_SECONDS):
        while await store.whisper("room:c1", b"again nobody"):
            await anyio.sleep(0.01)
