"""The host: how a chat finds a worker when bells, mail or owners fail; logs that cannot be served are set aside."""

import anyio
import anyio.lowlevel
import pytest

from protocol.entries import Fence
from server.actor.host import QUARANTINE_MS, Rhythm
from server.store.memory import MemoryStore
from server.store.port import Beat, Claimed
from tests.unit.actor_house import CHAT, FAST, House, abort, params, say
from tests.unit.faulty_store import DEADLINE_SECONDS
from tests.unit.host_house import BELLS_ONLY, BUCKETS, ESSAY, HANG, TITLE, house, swept

__all__ = ["house"]

pytestmark = pytest.mark.anyio


# three ways in


async def test_a_bell_alone_leads_a_chat_to_a_worker(house: House) -> None:
    async with house.watching() as watcher, house.hosting("w1", BELLS_ONLY):
        await swept(house)
        await house.post(say("hello"))
        await watcher.at_rest(1, DEADLINE_SECONDS)


async def test_trap_10_a_lost_bell_is_made_good_by_the_sweep(house: House) -> None:
    house.store.loses_bells = True
    async with house.watching() as watcher, house.hosting("w1"):
        await swept(house)
        await house.post(say("hello"))
        await watcher.at_rest(1, DEADLINE_SECONDS)


async def test_mail_alone_leads_a_command_to_the_owner(house: House) -> None:
    async with house.watching() as watcher, house.hosting("w1", BELLS_ONLY):
        await swept(house)
        await house.post(say("write", model=HANG))
        await watcher.until(lambda w: "stream_delta" in w.types(), DEADLINE_SECONDS)
        await house.post(abort())
        await watcher.at_rest(1, DEADLINE_SECONDS)


async def test_trap_10_lost_mail_is_made_good_by_the_beat(house: House) -> None:
    house.store.loses_mail = True
    async with house.watching() as watcher, house.hosting("w1"):
        await house.post(say("write", model=HANG))
        await watcher.until(lambda w: "stream_delta" in w.types(), DEADLINE_SECONDS)
        await house.post(abort())
        await watcher.at_rest(1, DEADLINE_SECONDS)
        assert watcher.types().count("snapshot") == 1


async def test_after_the_mail_was_rebuilt_the_host_beats_at_once(house: House) -> None:
    async with house.watching() as watcher, house.hosting("w1", BELLS_ONLY):
        await swept(house)
        await house.post(say("write", model=HANG))
        await watcher.until(lambda w: "stream_delta" in w.types(), DEADLINE_SECONDS)
        house.store.loses_mail = True
        await house.post(abort())
        await anyio.lowlevel.checkpoint()
        house.store.loses_mail = False
        house.store.interrupt()
        await watcher.at_rest(1, DEADLINE_SECONDS)


async def test_many_chats_are_carried_on_side_by_side(house: House) -> None:
    async with house.hosting("w1"), anyio.create_task_group() as tasks:

        async def one(chat_id: str) -> None:
            async with house.watching(chat_id) as watcher:
                await house.post(say("hello", model=ESSAY), chat_id=chat_id)
                await watcher.at_rest(1, DEADLINE_SECONDS)

        for number in range(30):
            tasks.start_soon(one, f"chat-{number}")


async def test_a_full_host_leaves_the_bell_to_others(house: House) -> None:
    rhythm = Rhythm(lease_seconds=60.0, beat_seconds=60.0, sweep_seconds=0.01, max_chats=1)
    async with house.watching("other") as watcher, house.hosting("w1", rhythm):
        async with house.watching() as busy:
            await house.post(say("write", model=HANG))
            await busy.until(lambda w: "stream_delta" in w.types(), DEADLINE_SECONDS)
        claims = house.store.calls["claim"]
        async with house.hosting("w2", BELLS_ONLY):
            await house.store.called("claim", claims + BUCKETS)
            await house.post(say("hello"), chat_id="other")
            await watcher.at_rest(1, DEADLINE_SECONDS)
        assert (await house.store.read_log("other"))[0].fence == Fence("w2", "wake")


# ownership that ends, and begins again


async def test_trap_18_a_chat_claimed_while_its_actor_is_just_ending_is_taken_up_again(house: House) -> None:
    held = house.store.hold("release", reply_only=True)
    async with house.watching() as watcher, house.hosting("w1"):
        await house.post(say("one"))
        await held.entered()
        await house.post(say("two"))
        claims = house.store.calls["claim"]
        await house.store.called("claim", claims + 2 * BUCKETS)
        held.let_go()
        await watcher.at_rest(2, DEADLINE_SECONDS)


async def test_a_worker_whose_lease_went_to_another_lets_go_and_the_other_goes_on(house: House) -> None:
    house.store.loses_mail = True
    async with house.watching() as watcher, house.hosting("w1", FAST):
        await house.post(say("write", model=HANG))
        await watcher.until(lambda w: "stream_delta" in w.types(), DEADLINE_SECONDS)
        house.store.away.update({"beat", "claim"})
        claimed: list[Claimed] = []
        while not claimed:  # a beat that was on its way may come first, once
            house.store.clock.now_ms += FAST.lease_ms
            claimed = await MemoryStore.claim(house.store, house.store.bucket_of(CHAT), "w2", 20, FAST.lease_ms)
        assert [each.previous for each in claimed] == ["w1"]
        house.store.away.clear()
        with anyio.fail_after(DEADLINE_SECONDS):
            while house.demo.open_streams:
                await anyio.lowlevel.checkpoint()
        assert (await house.store.beat("w2", 1_000, [CHAT]))[CHAT] is Beat.MINE


async def test_a_command_that_crashes_its_actor_three_times_is_given_up_like_one_that_kills_its_worker(
    house: House,
) -> None:
    messages = 0

    def new_id(prefix: str) -> str:
        nonlocal messages
        messages += prefix == "msg"
        if prefix == "msg" and messages % 2 == 0:
            raise ZeroDivisionError  # in the plan's announcement of the answer, outside what guards a command
        return house.new_id(prefix)

    house.place("w1", new_id=new_id)
    async with house.watching() as watcher, house.hosting("w1") as host:
        await house.post(say("poison"))
        for number in range(1, 4):
            with anyio.fail_after(DEADLINE_SECONDS):
                while house.store.calls["take"] <= number:
                    if CHAT in host._crashed:  # nobody holds it: it waits for its lease
                        house.store.clock.now_ms += FAST.lease_ms
                    await anyio.sleep(0.02)
        await watcher.until(lambda w: "ack" in w.types(), DEADLINE_SECONDS)
        assert len(house.store.dead) == 1
        await house.post(params(title="x"))
        await watcher.until(lambda w: w.state is not None and w.state.thread.title == "x", DEADLINE_SECONDS)
    ack = next(frame for frame in watcher.frames if frame["type"] == "ack")
    assert (ack["accepted"], ack["result"]["code"]) == (False, "poison")
    whys = [entry.fence.why for entry in await house.store.read_log(CHAT) if entry.fence]
    assert whys[:4] == ["wake", "takeover", "takeover", "takeover"]
    assert whys[4:] in ([], ["wake"])  # the last owner may still hold the chat when the next command comes


# logs that cannot be served


async def test_trap_13_a_log_with_a_hole_is_tried_three_times_then_set_aside_and_nothing_is_deleted(
    house: House,
) -> None:
    await house.post(say("hello"))
    await house.claim("w0")
    await house.store.take(CHAT, "w0", "wake")
    await house.add_entry(TITLE, count=5)
    house.store.clock.now_ms += FAST.lease_ms
    async with house.hosting("w1"):
        for number in (1, 2):
            await house.store.called("handover", number)
            await anyio.lowlevel.checkpoint()
            house.store.clock.now_ms += 1_000
        await house.store.called("quarantine", 1)
        house.store.clock.now_ms += QUARANTINE_MS - 10_000
        claims = house.store.calls["claim"]
        await house.store.called("claim", claims + 3 * BUCKETS)
        assert house.store.calls["take"] == 4, "one by who broke it, three tries, then left alone"
    assert house.store.calls["append"] == 0
    assert len(await house.store.read_log(CHAT)) == 5
    assert [entry.request_id for entry in await house.store.read_inbox(CHAT, 9)] == ["hello"]


async def test_trap_14_a_chat_of_a_newer_version_is_not_claimed_again_and_again(house: House) -> None:
    await house.post(say("hello"))
    await house.claim("w0")
    await house.store.take(CHAT, "w0", "wake")
    await house.add_entry(TITLE, version=99)
    house.store.clock.now_ms += FAST.lease_ms
    async with house.hosting("w1"):
        await house.store.called("handover", 1)
        claims = house.store.calls["claim"]
        await house.store.called("claim", claims + 3 * BUCKETS)
        assert house.store.calls["take"] == 2
        house.store.clock.now_ms += 1_000
        await house.store.called("take", 3)
