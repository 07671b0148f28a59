"""The reports of a running tool are bounded and ordered, and come before its result, never after it."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator

import anyio
import pytest
from msgspec.structs import replace

from tests.unit.tool_desk import Desk, made
from threadcast.tools.base import ToolResult
from threadcast.tools.context import Progress, ToolContext
from threadcast.tools.runner import PROGRESS_DATA_MAX_BYTES
from threadcast_protocol.wire.mending import MENDED

pytestmark = pytest.mark.anyio


@pytest.mark.row("EVT-9")
async def test_progress_is_clamped_and_bounded() -> None:
    desk = Desk()
    big = {"a": "x" * PROGRESS_DATA_MAX_BYTES}

    async def busy() -> AsyncIterator[Progress | ToolResult]:
        for fraction in (-1.0, 0.5, 7.0, math.nan, math.inf):
            yield Progress(fraction=fraction)
        yield Progress(stage="s", message="m" * 9_999, data={"a": 1})
        yield Progress(message="\ud800", data=big)
        yield Progress(data={"a": "\ud800"})
        yield Progress(data={"a": object()})
        yield ToolResult(content="done")

    await desk.run(made(busy))
    assert [report.fraction for report in desk.reports[:5] if isinstance(report, Progress)] == [
        0.0,
        0.5,
        1.0,
        None,
        None,
    ]
    assert desk.reports[5:] == [
        Progress(stage="s", message="m" * 2_000, data={"a": 1}),
        Progress(message=MENDED),
        Progress(data={"a": MENDED}),
        Progress(),
    ]


@pytest.mark.row("TOOL-4")
async def test_reports_of_a_thread_arrive_in_the_loops_thread_and_before_the_result() -> None:
    desk = Desk()
    threads = set()

    def note(progress: Progress) -> None:
        threads.add(threading.get_ident())
        desk.reports.append(progress)

    def work(ctx: ToolContext) -> str:
        for number in range(50):
            ctx.report(Progress(message=str(number)))
        return "done"

    desk.context = replace(desk.context, report=note)
    await desk.run(made(work))
    assert [report.message for report in desk.reports if isinstance(report, Progress)] == [
        str(number) for number in range(50)
    ]
    assert threads == {threading.get_ident()}


async def test_nothing_is_heard_of_a_call_that_is_over() -> None:
    desk = Desk()
    kept: list[ToolContext] = []

    async def keeps(ctx: ToolContext) -> str:
        kept.append(ctx)
        assert not ctx.is_cancelled()
        return "done"

    await desk.run(made(keeps))
    (ctx,) = kept
    assert ctx.is_cancelled()
    ctx.report(Progress(message="late"))
    await anyio.to_thread.run_sync(ctx.report, Progress(message="later"))
    await asyncio.sleep(0)
    assert desk.reports == []


async def test_report_that_was_on_its_way_when_the_call_was_cancelled_is_dropped() -> None:
    desk = Desk()
    kept: list[ToolContext] = []
    started = asyncio.Event()

    async def waits(ctx: ToolContext) -> None:
        kept.append(ctx)
        started.set()
        await asyncio.Event().wait()

    with anyio.fail_after(30):
        task = asyncio.create_task(desk.run(made(waits)))
        await started.wait()
        task.cancel()
        # The task is joined without yielding: the report is queued behind the cancellation, ahead of everything that
        # follows.
        thread = threading.Thread(target=kept[0].report, args=(Progress(message="late"),))
        thread.start()
        thread.join()
        await asyncio.wait({task})
    assert desk.reports == []
