"""Runs published clients of MCP: the `mcp` package from PyPI, which speaks both kinds of MCP's protocol revisions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
from mcp import Client, types
from mcp.client.streamable_http import streamable_http_client

from tests.support.server import DEADLINE_SECONDS

__all__ = ["Mode", "Person", "opened_client", "result_of"]

Mode = Literal["legacy", "2026-07-28"]


class Person:
    """Answers the questions that the server asks a client. `asked` has the questions."""

    def __init__(self, action: str = "accept", **content: object) -> None:
        self.asked: list[Any] = []  # Any: parameters of the foreign package
        self._action = action
        self._content = content

    async def __call__(self, context: object, params: Any) -> types.ElicitResult:
        self.asked.append(params)
        content: Any = self._content if self._action == "accept" else None
        return types.ElicitResult(action=self._action, content=content)  # type: ignore[arg-type]  # one of three words


@asynccontextmanager
async def opened_client(
    url: str, mode: Mode, person: Person | None = None, *, headers: dict[str, str] | None = None, **more: Any
) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers=headers or {}, timeout=httpx2.Timeout(DEADLINE_SECONDS, read=300)) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=mode, elicitation_callback=person, cache=None, **more) as client:
            yield client


async def result_of(client: Client, tool: str, **arguments: Any) -> Any:  # Any: JSON of the tool
    """Call a tool that must succeed, and return its result."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content
