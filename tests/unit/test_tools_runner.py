"""Whatever a tool does, its caller has an answer in time and hears nothing afterwards."""

import asyncio
import math
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

import anyio
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from protocol.errors import ToolFailed
from protocol.principal import LOCAL
from server.tools.base import Progress, Report, ToolContext, ToolResult
from server.tools.python import PythonTool, tool
from server.tools.runner import PROGRESS_DATA_MAX_BYTES, RESULT_MAX_BYTES, ToolRun, ToolRunner

pytestmark = pytest.mark.anyio

GRACE_SECONDS = 0.05
"""Short, so that tests of tools that never end are short."""

THREAD_SECONDS = 0.5
"""The timeout of tools that hang in a thread of their own: one that is over before the thread has begun to run cancels
its start, and there is no tool that hangs."""

DEADLINE_SECONDS = 30.0


class Desk:
    """A runner, and the progress that its calls reported."""

    def __init__(self) -> None:
        self.runner = ToolRunner(cancel_grace_seconds=GRACE_SECONDS)
        self.reports: list[Report] = []
        self.context = ToolContext(
            chat_id="chat",
            run_id="run",
            tool_call_id="call",
            idempotency_key="chat:call",
            principal=LOCAL,
            metadata={},
            context={},
            data_dir="/nowhere",
            report=self.reports.append,
            is_cancelled=lambda: False,
        )

    async def run(self, made: PythonTool | None, arguments: str = "{}") -> ToolRun:
        with anyio.fail_after(30):
            return await self.runner.run(made, "t", arguments, self.context, ["clock", "t"])


def made(function: Callable[..., object], *, timeout_seconds: float = 5) -> PythonTool:
    return tool(name="t", timeout_seconds=timeout_seconds)(function)


async def failure_of(made: PythonTool | None, arguments: str = "{}") -> str:
    done = await Desk().run(made, arguments)
    assert done.result.failed
    return done.result.content


@pytest.mark.row("LOOP-6")
async def test_unknown_tool_is_answered_with_the_available_ones() -> None:
    assert await failure_of(None) == "There is no tool 't'. Available tools: clock, t."


@pytest.mark.row("LOOP-7")
@pytest.mark.parametrize("arguments", ["{", "[1]", "5", "null", '"{}"', "{} {}", "\ud800"])
async def test_arguments_that_are_no_json_object_do_not_run_the_tool(arguments: str) -> None:
    ran = []
    assert "not a JSON object" in await failure_of(made(lambda: ran.append(1)), arguments)
    assert ran == []


@pytest.mark.row("LOOP-7")
@pytest.mark.parametrize("arguments", ["", "  \n", "{}"])
async def test_empty_arguments_are_an_empty_object(arguments: str) -> None:
    assert (await Desk().run(made(lambda: "ran"), arguments)).result == ToolResult(content="ran")


async def test_result_passes_with_its_patch_and_its_end() -> None:
    whole = ToolResult(content="a", metadata_patch={"b": 1}, end_run="completed")
    done = await Desk().run(made(lambda: whole))
    assert (done.result, done.is_abandoned) == (whole, False)
    assert done.elapsed_ms >= 0


@pytest.mark.row("LOOP-5")
async def test_failure_becomes_a_short_result_and_never_a_traceback() -> None:
    def says_why() -> None:
        raise ToolFailed("The printer is on fire.")

    def crashes() -> None:
        raise LookupError("/home/ann/secret")

    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    async def exits() -> None:
        sys.exit(1)

    def exits_in_a_generator() -> Iterator[str]:
        yield "on it"
        sys.exit(1)

    async def never_says() -> AsyncIterator[Progress]:
        yield Progress(message="on it")
        raise RuntimeError

    patches_badly = ToolResult(content="", metadata_patch={"a": object()})
    lies = ToolResult(content=5)  # type: ignore[arg-type]  # what is tested: a tool is foreign code

    with capture_logs() as logs:
        assert await failure_of(made(says_why)) == "The printer is on fire."
        assert logs == []
        assert await failure_of(made(crashes)) == "The tool failed: LookupError."
        assert await failure_of(made(cancels_itself)) == "The tool failed: CancelledError."
        assert await failure_of(made(exits)) == "The tool failed: SystemExit."
        assert await failure_of(made(exits_in_a_generator)) == "The tool failed: SystemExit."
        assert await failure_of(made(never_says)) == "The tool failed: RuntimeError."
        assert "metadata_patch" in await failure_of(made(lambda: patches_badly))
        assert await failure_of(made(lambda: lies)) == "The tool failed: TypeError."
    assert {line["event"] for line in logs} == {"tool.failed"}


async def test_a_metadata_patch_is_no_larger_than_what_a_client_may_set() -> None:
    def patching(size: int) -> PythonTool:
        return made(lambda: ToolResult(content="ok", metadata_patch={"key": "x" * size}))

    assert await failure_of(patching(70_000)) == "The tool returned a metadata_patch of more than 65536 bytes."
    assert (await Desk().run(patching(60_000))).result.content == "ok"


async def test_failure_of_bad_arguments_names_the_place() -> None:
    def wants(city: str) -> None: ...

    assert await failure_of(made(wants), '{"city": 5}') == "Bad arguments: Expected `str`, got `int` (at /city)."


async def test_generator_that_refuses_to_close_is_a_failure_and_no_more() -> None:
    async def stubborn() -> AsyncIterator[ToolResult]:
        while True:
            try:
                yield ToolResult(content="a")
            except GeneratorExit:
                yield ToolResult(content="b")

    with capture_logs():
        assert (await Desk().run(made(stubborn))).result == ToolResult(
            content="The tool failed: RuntimeError.", failed=True
        )


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
    """Its thread goes on, since threads cannot be stopped, but nobody waits for it."""
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


@pytest.mark.row("LOOP-15")
async def test_tool_that_swallows_its_cancellation_is_abandoned_and_logged() -> None:
    desk = Desk()
    release, cancelled = asyncio.Event(), []

    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                cancelled.append(1)
        return "too late"

    with capture_logs() as logs:
        done = await desk.run(made(stubborn, timeout_seconds=0.01))
    assert (done.is_abandoned, cancelled) == (True, [1])
    assert logs == [{"event": "tool.abandoned", "task": "tool t call", "chat_id": "chat", "log_level": "warning"}]
    release.set()
    with anyio.fail_after(30), capture_logs() as logs:
        await desk.runner.aclose()
    assert logs == []


async def cancel_when(started: asyncio.Event, run: Coroutine[None, None, object], kind: str) -> None:
    """Cancel `run` as an anyio scope does it, again and again, or as a bare task is."""

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
    desk = Desk()
    started, release = asyncio.Event(), asyncio.Event()
    cancelled = []

    async def stubborn() -> str:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                cancelled.append(1)
        return "too late"

    with capture_logs() as logs:
        await cancel_when(started, desk.run(made(stubborn)), kind)
    assert cancelled == [1]
    assert [line["event"] for line in logs] == ["tool.abandoned"]
    release.set()
    with anyio.fail_after(30), capture_logs() as logs:
        await desk.runner.aclose()
    assert logs == []


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
    desk = Desk()
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    with capture_logs() as logs:
        await desk.run(made(stubborn, timeout_seconds=0.01))
        await desk.runner.aclose()
    assert [line["event"] for line in logs] == ["tool.abandoned", "tool.left_behind"]
    release.set()
    await desk.runner.aclose()


@pytest.mark.row("EVT-9")
async def test_progress_is_clamped_and_bounded() -> None:
    desk = Desk()
    big = {"a": "x" * PROGRESS_DATA_MAX_BYTES}

    async def busy() -> AsyncIterator[Progress | ToolResult]:
        for fraction in (-1.0, 0.5, 7.0, math.nan, math.inf):
            yield Progress(fraction=fraction)
        yield Progress(stage="s", message="m" * 9_999, data={"a": 1})
        yield Progress(message="\ud800", data=big)
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
        Progress(message="?"),
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
        # Joined without giving way: the report is queued behind the cancellation, ahead of everything that follows.
        thread = threading.Thread(target=kept[0].report, args=(Progress(message="late"),))
        thread.start()
        thread.join()
        await asyncio.wait({task})
    assert desk.reports == []


async def test_tool_that_only_reports_can_still_be_cancelled() -> None:
    desk = Desk()

    async def chatty() -> AsyncIterator[Progress]:
        while True:
            yield Progress()

    done = await desk.run(made(chatty, timeout_seconds=0.01))
    assert (done.result.failed, done.is_abandoned) == (True, False)


@pytest.mark.parametrize("head", ["x", "xx"])
async def test_result_is_cut_at_its_bound_inside_no_character_and_says_so(head: str) -> None:
    fits = "é" * (RESULT_MAX_BYTES // 2)
    assert (await Desk().run(made(lambda: fits))).result.content == fits
    whole = head + fits
    cut = (await Desk().run(made(lambda: whole))).result.content
    text, note = cut.split("\n")
    assert note == f"[cut: {len(whole)} characters in all]"
    assert text == whole[: len(text)]
    assert RESULT_MAX_BYTES - 2 <= len(cut.encode()) <= RESULT_MAX_BYTES


async def test_result_can_always_be_written_as_utf8() -> None:
    assert (await Desk().run(made(lambda: "a\ud800b"))).result.content == "a?b"
