"""One owned chat: the order of reads and writes, commands that take effect once, and logs that cannot be served."""

from collections.abc import AsyncGenerator

import anyio
import pytest
from msgspec.structs import replace

from tests.unit.actor_harness import CHAT, LEASE_MS, GatedTool, Harness, abort, call, decision, params, say
from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.actor.end import End
from threadcast.actor.run_task import STOP_SECONDS
from threadcast.chat.entries import FORMAT_VERSION
from threadcast.providers.base import Delta, Finished, Request, TextDelta
from threadcast.providers.demo.models import Demo
from threadcast.store.memory.store import MemoryStore
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.events import Ack, ThreadUpdated

pytestmark = pytest.mark.anyio

ESSAY = "demo/essay?words=60&rate=300"
"""A model whose answer takes a fifth of a second: long enough for a test to act in the middle of the answer."""

HANG = "demo/hang?after=3&rate=0"

TITLE = encode([ThreadUpdated(title="new")])


# fence before read


async def test_the_fence_is_written_before_anything_is_read(harness: Harness) -> None:
    await harness.own("w1", params("a", title="x"))
    await harness.post(params("b", title="y"))
    harness.store.order.clear()
    await harness.own("w2")
    assert harness.store.order[:4] == ["claim", "take", "load", "read_inbox"]


async def test_trap_2_a_cached_state_under_another_head_is_not_used(harness: Harness) -> None:
    await harness.own("w1", say("one"))
    await harness.own("w2", say("two"))
    await harness.own("w1", say("three"))
    assert [text for role, text in await harness.texts() if role == "user"] == ["one", "two", "three"]
    assert await harness.folded_log() == await harness.state()


async def test_a_cached_state_at_the_very_head_is_used_and_nothing_is_read(harness: Harness) -> None:
    await harness.own("w1", say("one"))
    harness.store.calls.clear()
    await harness.own("w1", say("two"))
    assert harness.store.calls["load"] == 0
    assert [text for role, text in await harness.texts() if role == "user"] == ["one", "two"]
    assert await harness.folded_log() == await harness.state()


async def test_a_fence_of_somebody_else_between_mine_and_my_reading_makes_me_take_again(harness: Harness) -> None:
    await harness.own("w1", params("a", title="x"))
    await harness.post(say("hello"))
    actor = await harness.actor("w2")
    held = harness.store.hold("load")
    async with harness.owning(actor) as owner:
        await held.entered()
        await MemoryStore.take(harness.store, CHAT, "w2", "wake")
        held.let_go()
        assert await owner.over() is End.RELEASED
    assert harness.store.calls["take"] == 3
    assert (await harness.texts())[-1] == ("assistant", "You said: hello")


# what cannot be served


@pytest.mark.parametrize("is_in_checkpoint", [False, True], ids=["entry", "checkpoint"])
async def test_trap_14_a_chat_written_by_a_newer_version_is_handed_back_after_a_while(
    harness: Harness, is_in_checkpoint: bool
) -> None:
    await harness.abandoned("w0", say("hello"))
    await harness.add_entry(TITLE, version=FORMAT_VERSION + 1, checkpoint=b"{}" if is_in_checkpoint else None)
    before = harness.store.calls["append"]
    assert await harness.own("w1") is End.NEWER_VERSION
    assert harness.store.calls["append"] == before, "nothing was folded, nothing written"
    assert len(await harness.store.read_inbox(CHAT, 10)) == 1
    bucket = harness.store.bucket_of(CHAT)
    assert await harness.store.claim(bucket, "w2", 20, LEASE_MS) == [], "not at once"
    harness.store.clock.now_ms += 1_000
    assert [claimed.previous for claimed in await harness.store.claim(bucket, "w2", 20, LEASE_MS)] == [""]


async def test_trap_13_a_log_with_a_hole_is_not_served_and_nothing_of_it_is_lost(harness: Harness) -> None:
    await harness.abandoned("w0", say("hello"))
    await harness.add_entry(TITLE, count=5)
    assert await harness.own("w1") is End.UNFOLDABLE
    assert harness.store.calls["append"] == 0
    assert len(await harness.store.read_log(CHAT)) == 3, "two fences and the entry"
    assert len(await harness.store.read_inbox(CHAT, 10)) == 1


# commands


async def test_a_command_that_came_while_the_chat_was_given_back_is_answered(harness: Harness) -> None:
    await harness.post(say("one"))
    held = harness.store.hold("release")
    async with harness.owning("w1") as owner:
        await held.entered()
        await harness.post(say("two"))
        held.let_go()
        assert await owner.over() is End.RELEASED
    assert [text for role, text in await harness.texts() if role == "user"] == ["one", "two"]


async def test_an_idle_actor_keeps_its_chat_for_a_moment_so_that_a_program_goes_on_at_once() -> None:
    harness = Harness()
    harness.linger_seconds = DEADLINE_SECONDS
    await harness.post(say("one"))
    actor = await harness.actor("w1")
    async with harness.owning(actor) as owner:
        await harness.until_rest()
        await harness.post(say("two"))
        actor.notify()
        await harness.until_rest(runs=2)
        actor.drain()
        assert await owner.over() is End.HANDED_OVER
    assert (harness.store.calls["take"], harness.store.calls["release"]) == (1, 0)


async def test_a_signal_that_comes_while_the_inbox_is_being_read_is_not_forgotten(harness: Harness) -> None:
    await harness.post(say("write", model=HANG))
    actor = await harness.actor("w1")
    held = harness.store.hold("read_inbox", reply_only=True)
    async with harness.owning(actor) as owner:
        await held.entered()
        await harness.post(abort())
        actor.notify()
        held.let_go()
        assert await owner.over() is End.RELEASED
    assert (await harness.state()).runtime.outcome == "aborted"


async def test_more_commands_than_are_read_at_once_are_all_carried_out(harness: Harness) -> None:
    await harness.own("w1", *[params(f"p{number}", title=str(number)) for number in range(250)])
    assert await harness.store.read_inbox(CHAT, 10) == []
    assert (await harness.state()).thread.title == "249"


@pytest.mark.parametrize("lives", [1, 3])
async def test_commands_are_taken_up_in_the_order_of_their_acceptance(harness: Harness, lives: int) -> None:
    """During a run, more messages, parameters and aborts arrive than one read of the inbox returns, also with several
    owners in turn."""
    names: list[str] = []
    for life in range(lives):
        for number in range(120):
            name = f"{life}-{number}"
            names.append(name)
            match number % 4:
                case 0:
                    await harness.post(say("write", request_id=name, model=HANG))
                case 1:
                    await harness.post(abort(name))
                case _:
                    await harness.post(params(name, title=name))
        await harness.own(f"w{life}")
    acks = [event for event in await harness.events() if isinstance(event, Ack)]
    assert list(dict.fromkeys(ack.client_request_id for ack in acks)) == names


async def test_commands_behind_the_first_hundred_do_not_wait_for_the_run_to_end(harness: Harness) -> None:
    await harness.post(
        say("write", model=HANG), *[params(f"p{number}", title=str(number)) for number in range(120)], abort()
    )
    assert await harness.own("w1") is End.RELEASED
    assert (await harness.state()).runtime.outcome == "aborted"


@pytest.mark.parametrize("principal", [None, b"{damaged"], ids=["command", "principal"])
async def test_a_command_that_cannot_be_read_back_is_refused_and_the_chat_goes_on(
    harness: Harness, principal: bytes | None
) -> None:
    body = b'{"type":"set_params","client_request_id":"odd","patch":{}}' if principal else b'{"type":"of tomorrow"}'
    await harness.post_body("odd", body, principal=principal)
    assert await harness.own("w1", say("hello")) is End.RELEASED
    assert await harness.refusals() == {"odd": "internal"}
    assert (await harness.texts())[-1] == ("assistant", "You said: hello")


async def test_a_command_that_fails_halfway_leaves_nothing_of_its_effect_behind(harness: Harness) -> None:
    broken = ["run"]

    def new_id(prefix: str) -> str:
        if prefix in broken:
            broken.remove(prefix)
            raise ZeroDivisionError
        return harness.new_id(prefix)

    harness.worker_context("w1", new_id=new_id)
    await harness.own("w1", say("one"))
    assert await harness.refusals() == {"one": "internal"}
    assert await harness.outcomes("one") == [(False, True)], "not accepted and refused at once"
    state = await harness.state()
    assert (state.private.queue, state.runtime.queue_size) == ((), 0)
    assert [state.nodes[key].role for key in state.path] == ["error"], "the chat tells why, and nothing of the command"
    await harness.own("w1", say("two"))
    later = (await harness.texts())[1:]
    assert later == [("user", "two"), ("assistant", "You said: two")], "also not in the cached state"


@pytest.mark.row("CMD-3")
async def test_an_abort_while_the_answer_is_being_committed_takes_effect_once(harness: Harness) -> None:
    await harness.post(say("write", model=ESSAY), say("hello"))
    async with harness.watching() as watcher, harness.owning("w1") as owner:
        await watcher.until(lambda w: "stream_delta" in w.types())
        held = harness.store.hold("append")
        await held.entered()
        await harness.post(abort())
        owner.actor.notify()
        await harness.store.called("read_inbox", 2)
        held.let_go()
        await watcher.at_rest(2)
        assert await owner.over() is End.RELEASED
    said = [frame["outcome"] for frame in watcher.frames if frame["type"] == "runtime_updated" and frame.get("outcome")]
    assert said == ["aborted", "complete"]
    assert watcher.messages[-1] == ("assistant", "You said: hello")
    assert await harness.outcomes("stop") == [(True, True)]


class Stubborn(Demo):
    """A provider that ignores its cancellation."""

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
    harness = Harness(providers=[stubborn])
    await harness.post(say("write", model="stubborn/x"))
    async with harness.watching() as watcher, harness.owning("w1") as owner:
        await watcher.until(lambda w: "stream_delta" in w.types())
        await harness.post(abort())
        owner.actor.notify()
        await watcher.at_rest(1, 2 * STOP_SECONDS)
        stubborn.go_on.set()
        with anyio.fail_after(DEADLINE_SECONDS):
            await stubborn.is_over.wait()
    assert await harness.texts() == [("user", "write"), ("assistant", "said. ")]
    assert await harness.folded_log() == await harness.state()


async def test_an_abort_of_a_run_whose_end_is_being_committed_leaves_the_next_run_alone(harness: Harness) -> None:
    await harness.post(say("one"), say("two"))
    async with harness.watching() as watcher, harness.owning("w1") as owner:
        await harness.store.called("append", 2)
        run = (await harness.state()).private.run
        while not any(b"stream_finished" in request.events for request in harness.store.requests):
            held = harness.store.hold("append")
            await held.entered()
            if b"stream_finished" in harness.store.requests[-1].events:
                await harness.post(abort(run_id=run.run_id if run else None))
                owner.actor.notify()
                await harness.store.called("read_inbox", 2)
            held.let_go()
        await watcher.at_rest(2)
        assert await owner.over() is End.RELEASED
    assert [text for _, text in watcher.messages] == ["one", "You said: one", "two", "You said: two"]
    assert await harness.outcomes("stop") == [(True, True)]


@pytest.mark.parametrize("is_early", [True, False], ids=["waits for the pause", "right after it"])
async def test_a_decision_while_the_paused_turn_is_just_ending_runs_the_tool_once(is_early: bool) -> None:
    tool = GatedTool(policy="ask")
    tool.go_on.set()
    harness = Harness(tool)
    await harness.post(call())
    actor = await harness.actor("w1")
    held = harness.store.hold("append")
    async with harness.watching() as watcher, harness.owning(actor) as owner:
        while True:
            await held.entered()
            if b"pause_required" in harness.store.requests[-1].events:
                break
            following = harness.store.hold("append")
            held.let_go()
            held = following
        release = harness.store.hold("release")
        if is_early:
            await harness.post(decision("call_1_0"))
            actor.notify()
            await harness.store.called("read_inbox", 2)
            held.let_go()
        else:
            held.let_go()
            await watcher.until(lambda w: "pause_required" in w.types())
            await harness.post(decision("call_1_0"))
            actor.notify()
        release.let_go()
        await watcher.at_rest()
        assert await owner.over() is End.RELEASED
    assert tool.began == 1
    assert [text for role, text in watcher.messages if role == "tool"] == ["result 1"]


async def test_a_paused_run_is_given_back_and_goes_on_with_another_worker() -> None:
    tool = GatedTool(policy="ask")
    tool.go_on.set()
    harness = Harness(tool)
    assert await harness.own("w1", call()) is End.RELEASED
    assert (await harness.state()).runtime.state == "paused"
    assert await harness.own("w2", decision("call_1_0")) is End.RELEASED
    assert tool.began == 1
    assert (await harness.state()).runtime.outcome == "complete"


async def test_a_tool_sees_the_context_of_its_command_else_the_threads() -> None:
    tool = GatedTool(retry="safe")
    tool.go_on.set()
    harness = Harness(tool)
    await harness.own("w1", params(context={"page": "all"}), call(request_id="a"))
    assert tool.context == {"page": "all"}
    await harness.own("w1", replace(call(request_id="b"), context={"page": "mine"}))
    assert tool.context == {"page": "mine"}
