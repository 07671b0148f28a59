"""A real `threadcast serve` with real MCP servers of every kind, and the functions that use it."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.ports import free_port
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, Process, command, started_server, user_message
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "STDIO",
    "answers_in",
    "get",
    "harness",
    "offered",
    "results",
    "shop_port",
    "until_offered",
    "wait_for_port",
]

SERVERS = Path(__file__).with_name("mcp_servers.py")
STDIO = f'command = "{sys.executable}"\nargs = ["{SERVERS}", "stdio"]'


def config(base: Path, shop_port: int) -> Path:
    """Return the configuration of servers of every kind: child processes, a server over HTTP with sessions, and a
    server that does not exist."""
    file = base / "threadcast.toml"
    file.write_text(
        f"""
[models]
default = "demo/tools"

[mcp.desk]
{STDIO}
env = {{ DESK_KEY = "of the desk" }}
policy = "auto"

[mcp.brittle]
{STDIO}
policy = "auto"

[mcp.careful]
{STDIO}

[mcp.shop]
url = "http://127.0.0.1:{shop_port}/mcp"
policy = "auto"

[mcp.dead]
command = "{base}/no-such-program"

[tools.mcp__desk__wait]
timeout_seconds = 0.5

[tools.mcp__desk__refuse]
policy = "deny"

[tools.mcp__careful__refuse]
enabled = false
"""
    )
    return file


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "the MCP server over HTTP did not start"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def shop_port() -> Iterator[int]:
    """An MCP server over HTTP that speaks the protocol with sessions."""
    port = free_port()
    child = subprocess.Popen([sys.executable, str(SERVERS), "http", str(port), "legacy"])
    try:
        wait_for_port(port)
        yield port
    finally:
        child.kill()
        child.wait(DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory, shop_port: int) -> Iterator[Process]:
    base = tmp_path_factory.mktemp("mcp")
    with started_server(base, "--config", str(config(base, shop_port)), is_durable=True) as process:
        anyio.run(until_offered, process.wait_ready(), "mcp__careful__add")
        yield process


async def get(server: Process, path: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        return await client.get(f"{server.url}{path}")


async def offered(server: Process) -> dict[str, JsonObject]:
    return {tool["name"]: tool for tool in (await get(server, "/v1/tools")).json()}


async def until_offered(server: Process, name: str, is_there: bool = True) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        while (name in await offered(server)) is not is_there:
            await anyio.sleep(0.05)


async def results(server: Process, chat_id: str, *calls: str, **more: object) -> list[tuple[str, bool]]:
    """Make these calls in a new chat, and return their results as (text, failed)."""
    async with watching(server.url, chat_id) as watcher:
        text = "\n".join(f"call {one}" for one in calls)
        answer = await command(server.url, chat_id, user_message("a", text, **more))
        assert answer.status_code == 202, answer.text
        await watcher.at_rest()
    assert watcher.frames[-1]["outcome"] == "complete"
    return answers_in(watcher)


def answers_in(watcher: Watcher) -> list[tuple[str, bool]]:
    assert watcher.state is not None
    path = [watcher.state.nodes[key] for key in watcher.state.path]
    return [(str(m.content), bool(m.tool_failed)) for m in path if m.role == "tool"]
