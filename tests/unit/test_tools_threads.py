"""Tools of sync functions and generators: the threads they run in, their live progress, and how they are abandoned."""

import sqlite3
import threading
from collections.abc import Generator, Iterator

import anyio
import pytest

from tests.unit.tool_desk import outputs_of, result_of, tool_context
from threadcast.tools.base import ToolResult
from threadcast.tools.context import Progress
from threadcast.tools.python import tool

pytestmark = pytest.mark.anyio

CONTEXT = tool_context()


@pytest.mark.row("TOOL-4")
async def test_progress_of_a_sync_generator_is_live() -> None:
    """The tool continues only after its progress was seen; if progress were not sent at once, both would wait for
    ever."""
    seen = threading.Event()

    @tool()
    def work() -> Generator[str, None, str]:
        yield "half"
        return "seen" if seen.wait(5) else "nobody saw it"

    outputs = []
    with anyio.fail_after(30):
        async for output in work.run({}, CONTEXT):
            outputs.append(output)
            seen.set()
    assert outputs == [Progress(message="half"), ToolResult(content="seen")]


async def test_sync_code_runs_outside_the_loops_thread_and_a_generator_in_one_thread_only() -> None:
    @tool()
    def thread() -> int:
        return threading.get_ident()

    @tool()
    def database() -> Generator[str, None, str]:
        connection = sqlite3.connect(":memory:")  # refuses every thread except its own
        yield "open"
        connection.execute("select 1")
        yield "asked"
        connection.close()
        return "done"

    assert await result_of(thread) != str(threading.get_ident())
    assert await result_of(database) == "done"


async def test_many_reports_of_a_sync_generator_all_arrive_in_order() -> None:
    @tool()
    def count() -> Generator[str, None, str]:
        for number in range(200):
            yield str(number)
        return "done"

    outputs = await outputs_of(count)
    assert outputs == [*(Progress(message=str(number)) for number in range(200)), ToolResult(content="done")]


async def test_failure_inside_any_kind_comes_out_as_it_is() -> None:
    @tool()
    def sync() -> str:
        raise KeyError("a")

    @tool()
    def generator() -> Iterator[str]:
        yield "on it"
        raise KeyError("a")

    for failing in (sync, generator):
        with pytest.raises(KeyError):
            await outputs_of(failing)


async def test_sync_generator_that_nobody_hears_is_closed() -> None:
    closed = threading.Event()

    @tool()
    def endless() -> Iterator[str]:
        try:
            while True:
                yield "again"
        finally:
            closed.set()

    with anyio.move_on_after(5) as scope:
        async for _ in endless.run({}, CONTEXT):
            scope.cancel()
    assert await anyio.to_thread.run_sync(closed.wait, 5)


async def test_sync_function_is_left_behind_when_its_caller_is_cancelled() -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    @tool()
    def hangs() -> None:
        started.set()
        release.wait(5)
        ended.set()

    async def run() -> None:
        async for _ in hangs.run({}, CONTEXT):
            pass

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await anyio.to_thread.run_sync(started.wait, 5)
            group.cancel_scope.cancel()
    assert not ended.is_set()
    release.set()
    assert await anyio.to_thread.run_sync(ended.wait, 5)


def test_a_decorator_without_parentheses_says_what_to_write() -> None:
    def plain() -> str:
        return ""

    with pytest.raises(TypeError, match="write @tool\\(\\)"):
        tool(plain)
