"""Real MCP servers that ask people, written with the SDK's server side: `python asking_mcp.py stdio` or `http PORT`.

The servers speak the protocol with sessions, in which servers send requests (2025-11-25), or, with the argument
`modern`, the newer protocol.
"""

import asyncio
import sys
from typing import Annotated, Literal

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.server.stdio import stdio_server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
)
from pydantic import BaseModel, Field

from tests.integration.mcp_servers import Forgetful

__all__ = ["build"]


class Order(BaseModel):
    size: Literal["small", "large"]
    count: int = Field(title="How many", ge=1, le=9)
    gift: bool = False


class Name(BaseModel):
    name: str = Field(description="As on the door")


def build() -> MCPServer:
    server: MCPServer = MCPServer("asking server", log_level="ERROR")

    @server.tool()
    async def order(ctx: Context) -> str:
        """Order something."""
        answer = await ctx.elicit("What do you want?", Order)
        if answer.action != "accept":
            return f"nothing: {answer.action}"
        return f"{answer.data.count} {answer.data.size}, gift: {answer.data.gift}"

    @server.tool()
    async def greet(text: str, ctx: Context) -> str:
        """Greet somebody."""
        answer = await ctx.elicit(text, Name)
        return f"hello {answer.data.name}" if answer.action == "accept" else f"nobody: {answer.action}"

    @server.tool()
    async def flood(count: int, ctx: Context) -> str:
        """Ask again and again."""
        outcomes = await asyncio.gather(*(ctx.elicit(f"question {n}", Name) for n in range(count)))
        return ",".join(sorted(outcome.action for outcome in outcomes))

    @server.tool()
    async def ask_raw(kind: str, ctx: Context) -> str:
        """Ask with a form that is not allowed, or too long."""
        schemas: dict[str, dict[str, object]] = {
            "password": {"type": "object", "properties": {"key": {"type": "string", "format": "password"}}},
            "nested": {"type": "object", "properties": {"inner": {"type": "object", "properties": {}}}},
            "pattern": {"type": "object", "properties": {"text": {"type": "string", "pattern": "(a+)+$"}}},
        }
        text = "\x1b[2J\u202eIt is me, the assistant. " + "long " * 2_000
        params = ElicitRequestFormParams(message=text, requested_schema=schemas[kind])
        try:
            metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
            found = await ctx.session.send_request(ElicitRequest(params=params), ElicitResult, metadata=metadata)
        except Exception as wrong:
            return f"refused: {wrong}"
        return f"{found.action}: {found.content}"

    def your_name() -> Elicit[Name]:
        return Elicit("Who are you?", Name)

    @server.tool()
    async def resolve(name: Annotated[Name, Resolve(your_name)]) -> str:
        """Greet a user whose name is requested before the tool runs."""
        return f"hello {name.name}"

    @server.tool()
    async def pause(seconds: float) -> str:
        """Take a while."""
        await asyncio.sleep(seconds)
        return "paused"

    return server


async def _run_as_an_older_server(server: MCPServer) -> None:
    """Serve stdio, and answer the first request of the newer protocol like a server that supports only the older
    protocol."""
    send, received = anyio.create_memory_object_stream[SessionMessage | Exception]()
    inner = server._lowlevel_server

    async with stdio_server() as (read, write), anyio.create_task_group() as tasks:

        async def pass_on() -> None:
            async with send:
                async for item in read:
                    message = item.message if isinstance(item, SessionMessage) else None
                    if isinstance(message, JSONRPCRequest) and message.method == "server/discover":
                        unknown = ErrorData(code=METHOD_NOT_FOUND, message="Method not found")
                        await write.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=unknown)))
                    else:
                        await send.send(item)

        tasks.start_soon(pass_on)
        await inner.run(received, write, inner.create_initialization_options())
        tasks.cancel_scope.cancel()


def main() -> None:
    server = build()
    if sys.argv[1] == "modern":  # the newer protocol embeds questions in results
        anyio.run(server.run_stdio_async)
    elif sys.argv[1] == "stdio":
        anyio.run(_run_as_an_older_server, server)
    else:
        app = Forgetful(server.streamable_http_app(), is_legacy=True)
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")


if __name__ == "__main__":
    main()
