"""Commands that arrive at the same time as a chat's first message: their POST returns the outcome that PROTOCOL §3
promises."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest

from tests.support.server import DEADLINE_SECONDS, Process, user_message
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

RACES = 60

Ask = Callable[[httpx2.AsyncClient, str], Awaitable[httpx2.Response]]


async def _abort(client: httpx2.AsyncClient, chat_id: str) -> httpx2.Response:
    return await client.post(f"/v1/chats/{chat_id}/commands", json={"type": "abort", "client_request_id": "stop"})


async def _select(client: httpx2.AsyncClient, chat_id: str) -> httpx2.Response:
    body: JsonObject = {"type": "select_branch", "client_request_id": "go", "message_id": "nothing"}
    return await client.post(f"/v1/chats/{chat_id}/commands", json=body, headers={"Prefer": "wait=20"})


async def _take_back(client: httpx2.AsyncClient, chat_id: str) -> httpx2.Response:
    return await client.delete(f"/v1/chats/{chat_id}/queue/nothing")


@asynccontextmanager
async def _two_lines(url: str) -> AsyncIterator[tuple[httpx2.AsyncClient, httpx2.AsyncClient]]:
    """Yield two clients with an open connection each, so that requests from both arrive at about the same time."""
    async with (
        httpx2.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as one,
        httpx2.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as two,
    ):
        for client in (one, two):
            await client.get("/v1/ping")
        yield one, two


@pytest.mark.row("CMD-3", "CMD-4")
@pytest.mark.parametrize(
    ("ask", "outcomes"),
    [
        (_abort, {(200, "aborted")}),
        (_select, {(200, "refused"), (404, None)}),
        (_take_back, {(404, "not_found")}),
    ],
)
async def test_60_commands_posted_beside_a_first_message_are_told_what_came_of_them(
    server: Process, chat_id: str, ask: Ask, outcomes: set[tuple[int, str | None]]
) -> None:
    """Whether the command arrives before or after the chat's first message, the answer gives the command's outcome and
    is never 202."""
    seen: list[tuple[int, str | None]] = []
    async with _two_lines(server.url) as (one, two):
        for number in range(RACES):
            name = f"{chat_id}-{number}"

            async def first(name: str = name) -> None:
                body = user_message("first", "hi", params={"model": "demo/hang"})
                assert (await one.post(f"/v1/chats/{name}/commands", json=body)).status_code == 202

            async def beside(name: str = name) -> None:
                answer = await ask(two, name)
                seen.append((answer.status_code, answer.json().get("status")))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(first)
                tasks.start_soon(beside)
            await one.delete(f"/v1/chats/{name}")
    assert len(seen) == RACES
    assert set(seen) <= outcomes, {each: seen.count(each) for each in set(seen)}
