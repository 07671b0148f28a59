"""While the former owner of a chat may still live, the new owner does not report the end of work that may not run
twice."""

import anyio
import anyio.lowlevel
import pytest

from tests.unit.actor_harness import CHAT, GatedTool, Harness, call, say
from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.actor.actor import Actor
from threadcast.actor.end import End
from threadcast.actor.former_owner import FormerOwner
from threadcast.agent_loop.durable.plan import steps_begun_once
from threadcast.chat.entries import Fence
from threadcast.chat.journal import DurableRun, Operation
from threadcast.tools.base import Retry

pytestmark = pytest.mark.anyio

LONG_SECONDS = 3_600.0


async def killed_in_a_tool(tool: GatedTool) -> Harness:
    """A chat whose owner died while its tool ran, and which w2 has claimed."""
    harness = Harness(tool)
    await harness.post(call())
    async with harness.owning("w1"):
        await tool.entered()
    await harness.claim("w2")
    return harness


def heir(harness: Harness, lease_left_seconds: float, *, has_begun: bool = True) -> Actor:
    former = FormerOwner("w1", has_begun=has_begun, lease_left_seconds=lease_left_seconds)
    return Actor(harness.worker_context("w2"), CHAT, former)


async def test_the_outcome_of_a_tool_that_may_not_run_twice_is_unknown_only_after_the_former_lease() -> None:
    harness = await killed_in_a_tool(GatedTool(retry="once"))
    async with harness.owning(heir(harness, LONG_SECONDS)) as owner:
        appends = harness.store.calls["append"]
        await harness.store.called("load", harness.store.calls["load"] + 1)
        owner.actor.notify()
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert harness.store.calls["append"] == appends
        assert await harness.tool_statuses() == ["running"]
    await harness.claim("w2")
    with anyio.fail_after(DEADLINE_SECONDS):
        assert await heir(harness, 0.05).run() is End.RELEASED
    assert "outcome_unknown" in await harness.tool_statuses()


@pytest.mark.parametrize("retry", ["safe", "idempotent"])
async def test_a_tool_that_may_run_twice_runs_again_at_once(retry: Retry) -> None:
    tool = GatedTool(retry=retry)
    harness = await killed_in_a_tool(tool)
    tool.go_on.set()
    with anyio.fail_after(DEADLINE_SECONDS):
        assert await heir(harness, LONG_SECONDS).run() is End.RELEASED
    assert tool.began == 2


async def test_a_worker_that_drains_meanwhile_hands_the_rest_of_the_wait_over() -> None:
    harness = await killed_in_a_tool(GatedTool(retry="once"))
    actor = heir(harness, 60.0)
    async with harness.owning(actor) as owner:
        await harness.store.called("load", harness.store.calls["load"] + 1)
        actor.drain()
        assert await owner.over() is End.HANDED_OVER
    assert await harness.tool_statuses() == ["running"]
    bucket = harness.store.bucket_of(CHAT)
    assert await harness.store.claim(bucket, "w3", 20, 1_000) == []
    harness.store.clock.now_ms += 60_000
    assert [each.previous for each in await harness.store.claim(bucket, "w3", 20, 1_000)] == [""]


async def test_work_that_the_new_owner_began_is_handed_over_without_a_wait() -> None:
    tool = GatedTool(retry="once")
    harness = Harness(tool)
    await harness.post(call())
    await harness.claim("w2")
    actor = heir(harness, 60.0)
    async with harness.owning(actor) as owner:
        await tool.entered()
        actor.drain()
        assert await owner.over() is End.HANDED_OVER
    bucket = harness.store.bucket_of(CHAT)
    assert [each.chat_id for each in await harness.store.claim(bucket, "w3", 20, 1_000)] == [CHAT]


async def test_a_chat_that_is_lost_meanwhile_ends_the_wait() -> None:
    harness = await killed_in_a_tool(GatedTool(retry="once"))
    actor = heir(harness, LONG_SECONDS)
    async with harness.owning(actor) as owner:
        await harness.store.called("load", harness.store.calls["load"] + 1)
        actor.lose()
        assert await owner.over() is End.LOST


async def test_a_takeover_counts_only_if_the_former_owner_had_written_its_fence(harness: Harness) -> None:
    await harness.post(say("hello"))
    await harness.claim("w2")
    assert await heir(harness, 0.0, has_begun=False).run() is End.RELEASED
    assert [entry.fence for entry in await harness.store.read_log(CHAT) if entry.fence] == [Fence("w2", "wake")]
    assert FormerOwner("w1").is_taken_over_by("w2")
    assert not FormerOwner("w2").is_taken_over_by("w2")
    assert not FormerOwner("").is_taken_over_by("w2")


def test_of_a_durable_agent_the_steps_count_that_have_begun_and_may_not_run_twice() -> None:
    operations = {
        f"{kind} {status} {retry}": Operation(kind=kind, name="x", status=status, retry=retry)
        for kind in ("step", "sleep")
        for status in ("begun", "done")
        for retry in ("once", "safe")
    }
    assert list(steps_begun_once(DurableRun(name="a", path_length=1, journal=operations))) == ["step begun once"]
