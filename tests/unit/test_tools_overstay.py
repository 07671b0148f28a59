"""Tools that hang, overrun or swallow their cancellation: the caller still gets its answer in time."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine

import anyio
import pytest
from structlog.testing import capture_logs

from tests.unit.tool_desk import Desk, made
from threadcast.tools.base import ToolResult
from threadcast.tools.context import Progress, ToolContext

pytestmark = pytest.mark.anyio


THREAD_SECONDS = 0.5
"""The timeout of tools that hang in a separate thread. A shorter timeout could cancel the start of the thread, and then
no tool would hang."""

DEADLINE_SECONDS = 30.0


@pytest.mark.row("LOOP-15")
async def test_timeout_is_a_failure_and_the_tool_is_cancelled_once() -> None:
    cancelled = []

    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise
        return "never"

    done = await Desk().run(made(slow, timeout_seconds=0.01))
    assert done.result == ToolResult(content="The tool did not finish within 0.01 s.", failed=True)
    assert (cancelled, done.is_abandoned) == ([1], False)


async def test_sync_tool_that_hangs_does_not_hold_up_its_caller() -> None:
    """The tool's thread continues, since threads cannot be stopped, but no task waits for the thread."""
    began, release, ended = threading.Event(), threading.Event(), threading.Event()

    def hangs() -> None:
        began.set()
        release.wait(DEADLINE_SECONDS)
        ended.set()

    done = await Desk().run(made(hangs, timeout_seconds=THREAD_SECONDS))
    assert began.is_set(), "this machine starts no thread in that time: nothing was proved"
    assert (done.result.failed, done.is_abandoned, ended.is_set()) == (True, False, False)
    release.set()
    assert await anyio.to_thread.run_sync(ended.wait, DEADLINE_SECONDS)


async def test_sync_tool_that_overstays_is_told_so() -> None:
    began, told, go_on = threading.Event(), threading.Event(), threading.Event()

    def slow(ctx: ToolContext) -> None:
        began.set()
        while not ctx.is_cancelled():
            go_on.wait(0.001)
        told.set()

    done = await Desk().run(made(slow, timeout_seconds=THREAD_SECONDS))
    assert began.is_set(), "this machine starts no thread in that time: nothing was proved"
    assert done.result.failed
    assert await anyio.to_thread.run_sync(told.wait, DEADLINE_SECONDS)


class Stubborn:
    """A tool that swallows its cancellation until it is released."""

    def __init__(self) -> None:
        self.started, self.released = asyncio.Event(), asyncio.Event()
        self.cancelled_count = 0

    async def call(self) -> str:
        self.started.set()
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancelled_count += 1
        return "too late"

    async def ends(self, desk: Desk) -> None:
        """Release the tool, so that closing the runner finds no running tool."""
        self.released.set()
        with anyio.fail_after(30), capture_logs() as logs:
            await desk.runner.aclose()
        assert logs == []


@pytest.mark.row("LOOP-15")
async def test_tool_that_swallows_its_cancellation_is_abandoned_and_logged() -> None:
    desk, stubborn = Desk(), Stubborn()
    with capture_logs() as logs:
        done = await desk.run(made(stubborn.call, timeout_seconds=0.01))
    assert (done.is_abandoned, stubborn.cancelled_count) == (True, 1)
    assert logs == [{"event": "tool.abandoned", "task": "tool t call", "chat_id": "chat", "log_level": "warning"}]
    await stubborn.ends(desk)


async def cancel_when(started: asyncio.Event, run: Coroutine[None, None, object], kind: str) -> None:
    """Cancel `run` as an anyio scope does, again and again, or as a bare task is cancelled."""

    async def as_task() -> None:
        await run

    with anyio.fail_after(30):
        if kind == "scope":
            async with anyio.create_task_group() as group:
                group.start_soon(as_task)
                await started.wait()
                group.cancel_scope.cancel()
        else:
            task = asyncio.create_task(as_task())
            await started.wait()
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()


@pytest.mark.parametrize("kind", ["scope", "task"])
async def test_cancelling_the_run_ends_within_the_grace_even_if_the_tool_hangs(kind: str) -> None:
    desk, stubborn = Desk(), Stubborn()
    with capture_logs() as logs:
        await cancel_when(stubborn.started, desk.run(made(stubborn.call)), kind)
    assert stubborn.cancelled_count == 1
    assert [line["event"] for line in logs] == ["tool.abandoned"]
    await stubborn.ends(desk)


@pytest.mark.parametrize("kind", ["scope", "task"])
async def test_cancelled_tool_may_clean_up_before_the_run_ends(kind: str) -> None:
    desk = Desk()
    started, steps = asyncio.Event(), []

    async def careful() -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            steps.append("cleaned")

    with capture_logs() as logs:
        await cancel_when(started, desk.run(made(careful)), kind)
    assert (steps, logs) == (["cleaned"], [])


async def test_closing_says_what_is_left_behind() -> None:
    desk, stubborn = Desk(), Stubborn()
    with capture_logs() as logs:
        await desk.run(made(stubborn.call, timeout_seconds=0.01))
        await desk.runner.aclose()
    assert [line["event"] for line in logs] == ["tool.abandoned", "tool.left_behind"]
    await stubborn.ends(desk)


async def test_tool_that_only_reports_can_still_be_cancelled() -> None:
    desk = Desk()

    async def chatty() -> AsyncIterator[Progress]:
        while True:
            yield Progress()

    done = await desk.run(made(chatty, timeout_seconds=0.01))
    assert (done.result.failed, done.is_abandoned) == (True, False)
