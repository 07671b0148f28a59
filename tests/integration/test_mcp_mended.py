"""An MCP server's answer with a small fault in its text is still accepted, over a pipe and over HTTP."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.integration.mcp_harness import wait_for_port
from tests.ports import free_port
from tests.support.server import DEADLINE_SECONDS
from tests.unit.tool_desk import tool_context
from threadcast.settings import Mcp, Secret
from threadcast.tools.base import ToolResult
from threadcast_protocol.wire.mending import MENDED

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

from threadcast.tools.mcp.hub import McpHub

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).with_name("spoiling_mcp.py")
WORDS = {"HALF": "be @half@ after", "BYTE": "be @byte@ after", "SOUND": "sound \U0001f600"}


@pytest.fixture(params=["stdio", "http"])
def shop(request: pytest.FixtureRequest) -> Iterator[Mcp]:
    if request.param == "stdio":
        env = {name: Secret(word) for name, word in WORDS.items()}
        yield Mcp(command=sys.executable, args=[str(SERVER), "stdio"], env=env)
        return
    port = free_port()
    child = subprocess.Popen([sys.executable, str(SERVER), "http", str(port)], env=WORDS)
    try:
        wait_for_port(port)
        yield Mcp(url=f"http://127.0.0.1:{port}/mcp")
    finally:
        child.kill()
        child.wait(DEADLINE_SECONDS)


async def whose(hub: McpHub, name: str) -> ToolResult:
    tool = hub.tools()["mcp__shop__whose"]
    outputs = [output async for output in tool.run({"name": name}, tool_context())]
    assert isinstance(outputs[-1], ToolResult)
    return outputs[-1]


@pytest.mark.row("MCP-1", "MCP-2")
async def test_an_answer_with_a_small_fault_is_mended_and_a_sound_one_is_left_alone(shop: Mcp) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        hub = McpHub({"shop": shop})
        async with hub.running(at_once=True):
            while "mcp__shop__whose" not in hub.tools():
                await anyio.sleep(0.05)
            said = {name: (await whose(hub, name)).content for name in WORDS}
    assert said == {"HALF": f"be {MENDED} after", "BYTE": f"be {MENDED} after", "SOUND": "sound \U0001f600"}
