"""Permanent approvals over real HTTP: they are listed and revoked, and after that the tool asks again (GATE-6)."""

import httpx2
import pytest

from tests.support.reader import watching
from tests.support.server import Process, command, user_message

pytestmark = pytest.mark.anyio

NOTE = 'call write_note {"name":"approvals.md","text":"x"}'


@pytest.mark.row("GATE-6")
async def test_a_remembered_approval_is_listed_and_can_be_taken_back(
    server: Process, client: httpx2.AsyncClient, chat_id: str
) -> None:
    params = {"model": "demo/tools?rate=0"}
    path = f"{server.url}/v1/chats/{chat_id}/approvals"
    async with watching(server.url, chat_id) as tab:
        await command(server.url, chat_id, user_message("a", NOTE, params=params))
        await tab.until(lambda w: w.state is not None and w.state.runtime.paused)
        assert (await client.get(path)).json() == {"tools": []}
        call_id = tab.frames[-2]["reasons"][0]["tool_call_id"]
        decision = {"tool_call_id": call_id, "accepted": True, "remember": "tool"}
        await command(server.url, chat_id, {"type": "tool_decision", "client_request_id": "d", **decision})
        await tab.at_rest()
        assert (await client.get(path)).json() == {"tools": ["write_note"]}
        first = await client.delete(f"{path}/write_note")
        second = await client.delete(f"{path}/write_note")
        assert (first.status_code, first.json()) == (200, {"status": "deleted"})
        assert (second.status_code, second.json()["code"]) == (404, "not_found")
        assert (await client.get(path)).json() == {"tools": []}
        await command(server.url, chat_id, user_message("b", NOTE, params=params))
        await tab.until(lambda w: w.state is not None and w.state.runtime.paused)


async def test_the_approvals_of_no_chat_are_404(server: Process, client: httpx2.AsyncClient) -> None:
    path = f"{server.url}/v1/chats/nobody-began-it/approvals"
    assert (await client.get(path)).status_code == 404
    assert (await client.delete(f"{path}/write_note")).status_code == 404
    assert (await client.delete(f"{path}/{'x' * 257}")).status_code == 400
