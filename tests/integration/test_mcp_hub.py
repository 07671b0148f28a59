"""The MCP hub alone, with a real server as its child: limits, cached lists, and the effects of a broken connection."""

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest

from tests.support.server import DEADLINE_SECONDS
from tests.unit.tool_desk import tool_context
from threadcast.settings import Mcp
from threadcast.tools.base import ToolResult
from threadcast.tools.mcp.base import McpUnavailable
from threadcast.tools.mcp.hub import McpHub
from threadcast.tools.mcp.live import REQUESTS_AT_ONCE_MAX, REQUESTS_WAITING_MAX
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.messages import JsonObject

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

pytestmark = pytest.mark.anyio

DESK = Mcp(command=sys.executable, args=[str(Path(__file__).with_name("mcp_servers.py")), "stdio"], policy="auto")


@pytest.fixture
async def hub() -> AsyncIterator[McpHub]:
    hub = McpHub({"desk": DESK})
    async with hub.running(at_once=True):
        await until(lambda: "mcp__desk__add" in hub.tools())
        yield hub


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        while not holds():
            await anyio.sleep(0.02)


async def call(hub: McpHub, tool: str, **arguments: object) -> ToolResult:
    values: JsonObject = dict(arguments)
    outputs = [output async for output in hub.tools()[f"mcp__desk__{tool}"].run(values, tool_context())]
    assert isinstance(outputs[-1], ToolResult)
    return outputs[-1]


@pytest.mark.row("MCP-2")
async def test_more_requests_than_may_wait_are_refused_and_the_rest_are_cancelled_with_their_callers(
    hub: McpHub,
) -> None:
    # The server's own task has taken, or will soon take, one request from the queue besides the running requests.
    many = REQUESTS_AT_ONCE_MAX + REQUESTS_WAITING_MAX + 1
    refused: list[ToolFailed] = []

    async def wait() -> None:
        try:
            await call(hub, "wait", seconds=60)
        except McpUnavailable as failure:
            refused.append(failure)

    async with anyio.create_task_group() as tasks:
        for _ in range(many + 5):
            tasks.start_soon(wait)
        await until(lambda: len(refused) >= 5)
        assert all("Too many requests" in failure.message for failure in refused)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(DEADLINE_SECONDS):
        assert (await call(hub, "add", a=1, b=2)).content == "3", "the places are free again"


@pytest.mark.row("MCP-5")
async def test_lists_are_kept_until_they_are_too_old_or_the_connection_is_a_new_one(
    hub: McpHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def uris() -> list[str]:
        resources, errors = await hub.resources(())
        assert not errors
        return [item.uri for item in resources]

    before = await uris()
    await call(hub, "write_down", name="new")
    assert await uris() == before, "the server did not say that something changed"
    monkeypatch.setattr("threadcast.tools.mcp.hub.LIST_LIFETIME_SECONDS", 0.0)
    hub._kept.clear()
    assert await uris() == [*before, "notes://new"]


@pytest.mark.row("MCP-5")
async def test_calls_under_way_when_the_server_dies_fail_and_its_tools_are_gone(hub: McpHub) -> None:
    failures: list[ToolFailed] = []

    async def wait() -> None:
        try:
            await call(hub, "wait", seconds=60)
        except ToolFailed as failure:
            failures.append(failure)

    tool = hub.tools()["mcp__desk__add"]
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            with pytest.raises(ToolFailed, match="desk"):
                await call(hub, "crash")
    assert len(failures) == 1
    await until(lambda: not hub.tools())
    with pytest.raises(McpUnavailable, match="not connected: the program ended with the exit status 3"):
        async for _ in tool.run({"a": 1, "b": 1}, tool_context()):
            pass
    await until(lambda: "mcp__desk__add" in hub.tools())
    assert (await call(hub, "add", a=1, b=1)).content == "2"


@pytest.mark.row("MCP-2")
async def test_a_picture_is_a_line_of_its_own(hub: McpHub) -> None:
    first, second = (await call(hub, "picture")).content.split("\n")
    assert first == "a pixel" and second.startswith("data:image/png;base64,")


@pytest.mark.row("MCP-5")
async def test_a_server_that_is_not_there_is_tried_again_and_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = anyio.sleep

    async def count(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr("threadcast.tools.mcp.connection.anyio.sleep", count)
    hub = McpHub({"gone": Mcp(command="/no/such/program")})
    async with hub.running(at_once=True):
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(slept) < 9:
                await sleep(0.01)
    for delay, wanted in zip(slept, [1, 2, 4, 8, 16, 32, 60, 60, 60], strict=False):
        assert wanted * 0.75 <= delay <= wanted * 1.25
