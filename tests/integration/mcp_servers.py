"""Real MCP servers to test against, written with the SDK's server side: `python mcp_servers.py stdio` or `http PORT`.

The servers have a text and an image as resources, a prompt, and tools that work, report progress, fail, take too long,
crash the server, or change the server's lists. Over HTTP, `POST /forget` makes the server forget its sessions; if the
third argument is `legacy`, the server speaks only the older protocol, which has sessions.
"""

import asyncio
import base64
import os
import sys
from typing import Annotated

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resources import TextResource
from mcp_types import CallToolResult, ImageContent, TextContent
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["PIXEL", "build"]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A PNG of one pixel."""


def build() -> MCPServer:
    server: MCPServer = MCPServer("test server", log_level="ERROR")
    started: list[str] = []

    @server.tool()
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    @server.tool(structured_output=False)
    def whose(name: Annotated[str, "of a variable"]) -> str:
        """Return a variable of the server's environment."""
        return os.environ.get(name, "not there")

    @server.tool()
    def process() -> str:
        """Return the id of the server's process."""
        return str(os.getpid())

    @server.tool(name="count.steps")
    async def count(ctx: Context) -> str:
        """Report progress three times."""
        for step in (1, 2, 3):
            await ctx.report_progress(step, 3, f"step {step}")
        return "counted"

    @server.tool()
    def refuse() -> str:
        """Fail with a sentence."""
        raise ToolError("this cannot be done")

    @server.tool()
    def stumble() -> str:
        """Raise an exception that the SDK does not pass on to the client."""
        raise ValueError("a stone in the way")

    @server.tool()
    async def wait(seconds: float) -> str:
        """Take long; the server records whether the call was cancelled."""
        started.append("waiting")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            started[-1] = "cancelled"
            raise
        return "waited"

    @server.tool()
    def last_wait() -> str:
        """Return the outcome of the last wait."""
        return started[-1] if started else "none"

    @server.tool()
    def picture() -> CallToolResult:
        """Return a picture and a word."""
        return CallToolResult(
            content=[
                TextContent(type="text", text="a pixel"),
                ImageContent(type="image", data=PIXEL, mime_type="image/png"),
            ]
        )

    @server.tool()
    def table() -> CallToolResult:
        """Structure without words."""
        return CallToolResult(content=[], structured_content={"rows": [1, 2]})

    @server.tool()
    async def crash() -> str:
        """End the server in the middle of the call."""
        os._exit(3)

    @server.tool()
    async def learn(ctx: Context) -> str:
        """Offer one more tool from now on."""

        def learnt() -> str:
            """A tool that was not offered at first."""
            return "learnt"

        server.add_tool(learnt)
        await ctx.notify_tools_changed()
        if ctx.protocol_version is not None and ctx.protocol_version < "2026":
            await ctx.session.send_tool_list_changed()
        return "ok"

    @server.tool()
    def write_down(name: str) -> str:
        """Add a resource without notifying clients."""
        server.add_resource(TextResource(uri=f"notes://{name}", name=name, text=name))
        return "ok"

    @server.tool(name="same name")
    def same() -> str:
        return "a"

    @server.tool(name="same.name")
    def same_again() -> str:
        return "b"

    @server.resource("notes://packing", mime_type="text/plain", description="What to take along")
    def packing() -> str:
        return "socks, map"

    @server.resource("notes://pixel", mime_type="image/png")
    def pixel() -> bytes:
        return base64.b64decode(PIXEL)

    @server.prompt()
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Say hello to {name}."

    return server


class Forgetful:
    """Answers 404 for sessions from before the last `POST /forget`, as a restarted server does. With `is_legacy`, it
    also refuses the first request of the newer protocol."""

    def __init__(self, app: ASGIApp, *, is_legacy: bool) -> None:
        self._app = app
        self._is_legacy = is_legacy
        self._known: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] == "/forget":
            self._known.clear()
            await Response("ok")(scope, receive, send)
            return
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        session = headers.get("mcp-session-id")
        is_new = self._is_legacy and session is None and "2026" in headers.get("mcp-protocol-version", "")
        if is_new or (session is not None and session not in self._known):
            await Response("not found", 404)(scope, receive, send)
            return

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                for key, value in message["headers"]:
                    if key.lower() == b"mcp-session-id":
                        self._known.add(value.decode())
            await send(message)

        await self._app(scope, receive, watch)


def main() -> None:
    server = build()
    if sys.argv[1] == "stdio":
        anyio.run(server.run_stdio_async)
        return
    app = Forgetful(server.streamable_http_app(), is_legacy=sys.argv[3:] == ["legacy"])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")


if __name__ == "__main__":
    main()
