"""One owned chat: what is read before it is written, which commands take effect once, what cannot be served."""

from collections.abc import AsyncGenerator

import anyio
import pytest
from msgspec.structs import replace

from protocol.codec import encode
from protocol.entries import FORMAT_VERSION
from protocol.events import Ack, ThreadUpdated
from server.actor.actor import End
from server.actor.run import STOP_SECONDS
from server.providers.base import Delta, Finished, Request, TextDelta
from server.providers.demo.models import Demo
from server.store.memory import MemoryStore
from tests.unit.actor_house import CHAT, LEASE_MS, GatedTool, House, abort, call, decision, params, say
from tests.unit.faulty_store import DEADLINE_SECONDS

pytestmark = pytest.mark.anyio

ESSAY = "demo/essay?words=60&rate=300"
"""Takes a fifth of a second: long enough to be in the middle of it, wherever a test waits for that."""

HANG = "demo/hang?after=3&rate=0"

TITLE = encode([ThreadUpdated(title="new")])


@pytest.fixture
def house() -> House:
    return House()


# fence before read


async def test_the_fence_is_written_before_anything_is_read(house: House) -> None:
    await house.post(params("a", title="x"))
    await house.own("w1")
    await house.post(params("b", title="y"))
    house.store.order.clear()
    await house.own("w2")
    assert house.store.order[:4] == ["claim", "take", "load", "read_inbox"]


async def test_trap_2_a_cached_state_under_another_head_is_not_used(house: House) -> None:
    await house.post(say("one"))
    await house.own("w1")
    await house.post(say("two"))
    await house.own("w2")
    await house.post(say("three"))
    await house.own("w1")
    assert [text for role, text in await house.texts() if role == "user"] == ["one", "two", "three"]
    assert await house.folded_log() == await house.state()


async def test_a_cached_state_at_the_very_head_is_used_and_nothing_is_read(house: House) -> None:
    await house.post(say("one"))
    await house.own("w1")
    house.store.calls.clear()
    await house.post(say("two"))
    await house.own("w1")
    assert house.store.calls["load"] == 0
    assert [text for role, text in await house.texts() if role == "user"] == ["one", "two"]
    assert await house.folded_log() == await house.state()


async def test_a_fence_of_somebody_else_between_mine_and_my_reading_makes_me_take_again(house: House) -> None:
    await house.post(params("a", title="x"))
    await house.own("w1")
    await house.post(say("hello"))
    actor = await house.actor("w2")
    held = house.store.hold("load")
    async with house.owning(actor) as owner:
        await held.entered()
        await MemoryStore.take(house.store, CHAT, "w2", "wake")
        held.let_go()
        assert await owner.over() is End.RELEASED
    assert house.store.calls["take"] == 3
    assert (await house.texts())[-1] == ("assistant", "You said: hello")


# what cannot be served


@pytest.mark.parametrize("is_in_checkpoint", [False, True], ids=["entry", "checkpoint"])
async def test_trap_14_a_chat_written_by_a_newer_version_is_handed_back_after_a_while(
    house: House, is_in_checkpoint: bool
) -> None:
    await house.post(say("hello"))
    await house.claim("w0")
    await house.store.take(CHAT, "w0", "wake")
    await house.add_entry(TITLE, version=FORMAT_VERSION + 1, checkpoint=b"{}" if is_in_checkpoint else None)
    before = house.store.calls["append"]
    assert await house.own("w1") is End.NEWER_VERSION
    assert house.store.calls["append"] == before, "nothing was folded, nothing written"
    assert len(await house.store.read_inbox(CHAT, 10)) == 1
    bucket = house.store.bucket_of(CHAT)
    assert await house.store.claim(bucket, "w2", 20, LEASE_MS) == [], "not at once"
    house.store.clock.now_ms += 1_000
    assert [claimed.previous for claimed in await house.store.claim(bucket, "w2", 20, LEASE_MS)] == [""]


async def test_trap_13_a_log_with_a_hole_is_not_served_and_nothing_of_it_is_lost(house: House) -> None:
    await house.post(say("hello"))
    await house.claim("w0")
    await house.store.take(CHAT, "w0", "wake")
    await house.add_entry(TITLE, count=5)
    assert await house.own("w1") is End.UNFOLDABLE
    assert house.store.calls["append"] == 0
    assert len(await house.store.read_log(CHAT)) == 3, "two fences and the entry"
    assert len(await house.store.read_inbox(CHAT, 10)) == 1


# commands


async def test_a_command_that_came_while_the_chat_was_given_back_is_answered(house: House) -> None:
    await house.post(say("one"))
    held = house.store.hold("release")
    async with house.owning(await house.actor("w1")) as owner:
        await held.entered()
        await house.post(say("two"))
        held.let_go()
        assert await owner.over() is End.RELEASED
    assert [text for role, text in await house.texts() if role == "user"] == ["one", "two"]


async def test_mail_that_comes_while_the_inbox_is_being_read_is_not_forgotten(house: House) -> None:
    await house.post(say("write", model=HANG))
    actor = await house.actor("w1")
    held = house.store.hold("read_inbox", reply_only=True)
    async with house.owning(actor) as owner:
        await held.entered()
        await house.post(abort())
        actor.notify()
        held.let_go()
        assert await owner.over() is End.RELEASED
    assert (await house.state()).runtime.outcome == "aborted"


async def test_more_commands_than_are_read_at_once_are_all_carried_out(house: House) -> None:
    await house.post(*[params(f"p{number}", title=str(number)) for number in range(250)])
    await house.own("w1")
    assert await house.store.read_inbox(CHAT, 10) == []
    assert (await house.state()).thread.title == "249"


@pytest.mark.parametrize("lives", [1, 3])
async def test_commands_are_taken_up_in_the_order_of_their_acceptance(house: House, lives: int) -> None:
    """Words, parameters and aborts, more than are read at once, while a run goes on, also by several owners in turn."""
    names: list[str] = []
    for life in range(lives):
        for number in range(120):
            name = f"{life}-{number}"
            names.append(name)
            match number % 4:
                case 0:
                    await house.post(say("write", request_id=name, model=HANG))
                case 1:
                    await house.post(abort(name))
                case _:
                    await house.post(params(name, title=name))
        await house.own(f"w{life}")
    acks = [event for event in await house.events() if isinstance(event, Ack)]
    assert list(dict.fromkeys(ack.client_request_id for ack in acks)) == names


async def test_commands_behind_the_first_hundred_do_not_wait_for_the_run_to_end(house: House) -> None:
    await house.post(
        say("write", model=HANG), *[params(f"p{number}", title=str(number)) for number in range(120)], abort()
    )
    assert await house.own("w1") is End.RELEASED
    assert (await house.state()).runtime.outcome == "aborted"


@pytest.mark.parametrize("principal", [None, b"{damaged"], ids=["command", "principal"])
async def test_a_command_that_cannot_be_read_back_is_refused_and_the_chat_goes_on(
    house: House, principal: bytes | None
) -> None:
    body = b'{"type":"set_params","client_request_id":"odd","patch":{}}' if principal else b'{"type":"of tomorrow"}'
    await house.post_body("odd", body, principal=principal)
    await house.post(say("hello"))
    assert await house.own("w1") is End.RELEASED
    assert await house.refusals() == {"odd": "internal"}
    assert (await house.texts())[-1] == ("assistant", "You said: hello")


async def test_a_command_that_fails_halfway_leaves_nothing_of_its_effect_behind(house: House) -> None:
    broken = ["run"]

    def new_id(prefix: str) -> str:
        if prefix in broken:
            broken.remove(prefix)
            raise ZeroDivisionError
        return house.new_id(prefix)

    house.place("w1", new_id=new_id)
    await house.post(say("one"))
    await house.own("w1")
    assert await house.refusals() == {"one": "internal"}
    assert await house.outcomes("one") == [(False, True)], "not accepted and refused at once"
    state = await house.state()
    assert (state.private.queue, state.runtime.queue_size, state.path) == ((), 0, ())
    await house.post(say("two"))
    await house.own("w1")
    assert await house.texts() == [("user", "two"), ("assistant", "You said: two")], "also not in the cached state"


@pytest.mark.row("CMD-3")
async def test_an_abort_while_the_answer_is_being_committed_takes_effect_once(house: House) -> None:
    await house.post(say("write", model=ESSAY), say("hello"))
    actor = await house.actor("w1")
    async with house.watching() as watcher, house.owning(actor) as owner:
        await watcher.until(lambda w: "stream_delta" in w.types())
        held = house.store.hold("append")
        await held.entered()
        await house.post(abort())
        actor.notify()
        await house.store.called("read_inbox", 2)
        held.let_go()
        await watcher.at_rest(2)
        assert await owner.over() is End.RELEASED
    said = [frame["outcome"] for frame in watcher.frames if frame["type"] == "runtime_updated" and frame.get("outcome")]
    assert said == ["aborted", "complete"]
    assert watcher.messages[-1] == ("assistant", "You said: hello")
    assert await house.outcomes("stop") == [(True, True)]


class Stubborn(Demo):
    """A provider that does not let itself be cancelled."""

    name = "stubborn"

    def __init__(self) -> None:
        self.go_on = anyio.Event()
        self.is_over = anyio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        try:
            yield TextDelta("said. ")
            with anyio.CancelScope(shield=True):
                await self.go_on.wait()
            yield TextDelta("said too late")
            yield Finished("stop")
        finally:
            self.is_over.set()


async def test_an_abort_does_not_wait_for_a_model_that_ignores_it_and_hears_nothing_of_it_afterwards() -> None:
    stubborn = Stubborn()
    house = House(providers=[stubborn])
    await house.post(say("write", model="stubborn/x"))
    actor = await house.actor("w1")
    async with house.watching() as watcher, house.owning(actor):
        await watcher.until(lambda w: "stream_delta" in w.types())
        await house.post(abort())
        actor.notify()
        await watcher.at_rest(1, 2 * STOP_SECONDS)
        stubborn.go_on.set()
        with anyio.fail_after(DEADLINE_SECONDS):
            await stubborn.is_over.wait()
    assert await house.texts() == [("user", "write"), ("assistant", "said. ")]
    assert await house.folded_log() == await house.state()


async def test_an_abort_of_a_run_whose_end_is_being_committed_leaves_the_next_run_alone(house: House) -> None:
    await house.post(say("one"), say("two"))
    actor = await house.actor("w1")
    async with house.watching() as watcher, house.owning(actor) as owner:
        await house.store.called("append", 2)
        run = (await house.state()).private.run
        while not any(b"stream_finished" in request.events for request in house.store.requests):
            held = house.store.hold("append")
            await held.entered()
            if b"stream_finished" in house.store.requests[-1].events:
                await house.post(abort(run_id=run.run_id if run else None))
                actor.notify()
                await house.store.called("read_inbox", 2)
            held.let_go()
        await watcher.at_rest(2)
        assert await owner.over() is End.RELEASED
    assert [text for _, text in watcher.messages] == ["one", "You said: one", "two", "You said: two"]
    assert await house.outcomes("stop") == [(True, True)]


@pytest.mark.parametrize("is_early", [True, False], ids=["waits for the pause", "right after it"])
async def test_a_decision_while_the_paused_turn_is_just_ending_runs_the_tool_once(is_early: bool) -> None:
    tool = GatedTool(policy="ask")
    tool.go_on.set()
    house = House(tool)
    await house.post(call())
    actor = await house.actor("w1")
    held = house.store.hold("append")
    async with house.watching() as watcher, house.owning(actor) as owner:
        while True:
            await held.entered()
            if b"pause_required" in house.store.requests[-1].events:
                break
            following = house.store.hold("append")
            held.let_go()
            held = following
        release = house.store.hold("release")
        if is_early:
            await house.post(decision("call_1_0"))
            actor.notify()
            await house.store.called("read_inbox", 2)
            held.let_go()
        else:
            held.let_go()
            await watcher.until(lambda w: "pause_required" in w.types())
            await house.post(decision("call_1_0"))
            actor.notify()
        release.let_go()
        await watcher.at_rest()
        assert await owner.over() is End.RELEASED
    assert tool.began == 1
    assert [text for role, text in watcher.messages if role == "tool"] == ["result 1"]


async def test_a_paused_run_is_given_back_and_goes_on_with_another_worker() -> None:
    tool = GatedTool(policy="ask")
    tool.go_on.set()
    house = House(tool)
    await house.post(call())
    assert await house.own("w1") is End.RELEASED
    assert (await house.state()).runtime.state == "paused"
    await house.post(decision("call_1_0"))
    assert await house.own("w2") is End.RELEASED
    assert tool.began == 1
    assert (await house.state()).runtime.outcome == "complete"


@pytest.mark.parametrize("workers", [("w1",), ("w1", "w2")], ids=["from the cache", "loaded"])
async def test_over_many_short_ownerships_checkpoints_are_as_seldom_as_in_one(
    house: House, workers: tuple[str, ...]
) -> None:
    for number in range(40):
        await house.post(params(f"p{number}", context={"x": f"{number} " + "y" * 60_000}))
        await house.own(workers[number % len(workers)])
    checkpoints = [request for request in house.store.requests if request.checkpoint is not None]
    assert len(checkpoints) == 20, "one for every 64 kB at rest, not one a turn"
    assert ((await house.state()).thread.context or {})["x"].startswith("39 ")
    if len(workers) == 1:
        log = await house.store.read_log(CHAT)
        assert 1_000_000 <= sum(len(entry.events) for entry in log) < 1_400_000, "the beginning was trimmed"


async def test_a_tool_sees_the_context_of_its_command_else_the_threads() -> None:
    tool = GatedTool(retry="safe")
    tool.go_on.set()
    house = House(tool)
    await house.post(params(context={"page": "all"}), call(request_id="a"))
    await house.own("w1")
    assert tool.context == {"page": "all"}
    await house.post(replace(call(request_id="b"), context={"page": "mine"}))
    await house.own("w1")
    assert tool.context == {"page": "mine"}
