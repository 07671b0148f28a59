"""Checks what the door of MCP refuses: unsupported revisions, unknown sessions, headers that contradict the body, and
requests beyond a client's limits."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, started_server, user_message
from threadcast.compat.mcp.watching import STREAMS_MAX, SUBSCRIPTIONS_MAX

pytestmark = pytest.mark.anyio

META = "io.modelcontextprotocol/"
ALONE = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}}
HEADERS = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    config = '[models]\ndefault = "demo/tools"\n[tools.calculator]\npolicy = "ask"\n'
    with started_server(tmp_path_factory.mktemp("bounds"), config=config) as process:
        yield process.wait_ready()


@pytest.fixture
async def http(server: Process) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as client:
        yield client


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({"Mcp-Session-Id": "invented"}, request("tools/list"), 404, -32004),
        ({"MCP-Protocol-Version": "1999-01-01"}, request("tools/list"), 200, -32022),
        ({**HEADERS, "Mcp-Method": "tools/call"}, request("tools/list", _meta=ALONE), 400, -32020),
        ({}, request("tools/list", _meta=ALONE), 200, -32020),
        (HEADERS, request("tools/list", _meta={f"{META}protocolVersion": "2026-07-28"}), 400, -32602),
        ({**HEADERS, "Mcp-Method": "initialize"}, request("initialize", _meta=ALONE), 404, -32601),
        ({}, request("nothing"), 200, -32601),
        ({}, request("resources/read", uri="file:///etc/passwd"), 200, -32602),
        ({}, request("resources/read", uri="threadcast://chats/" + "x" * 200), 200, -32602),
        ({}, [request("tools/list")], 400, -32000),
        ({}, {**request("tools/list"), "id": "x" * 4_097}, 400, -32000),
        ({}, {**request("tools/list"), "jsonrpc": "1.0"}, 400, -32000),
    ],
)
async def test_what_does_not_fit_is_an_error_of_json_rpc(
    http: httpx2.AsyncClient, headers: dict[str, str], body: object, status: int, code: int
) -> None:
    answer = await http.post("/mcp", json=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text


async def test_notifications_and_answers_to_nothing_are_taken(http: httpx2.AsyncClient) -> None:
    for body in (
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        {"jsonrpc": "2.0", "id": "invented", "result": {"action": "accept"}},
    ):
        answer = await http.post("/mcp", json=body)
        assert (answer.status_code, answer.content) == (202, b"")


async def test_an_answer_to_an_older_question_has_no_effect_and_a_present_one_decides(
    server: Process, http: httpx2.AsyncClient
) -> None:
    async with watching(server.url, "asked") as watcher:
        await command(server.url, "asked", user_message("a", 'call calculator {"expression": "6*7"}'))
        await watcher.until(lambda w: w.state is not None and w.state.runtime.pause_reasons)
        assert watcher.state is not None
        (reason,) = watcher.state.runtime.pause_reasons
        accept = {"action": "accept", "content": {"approved": True}}
        for told in (
            f'["asked","{reason.tool_call_id}","{"0" * 32}"]',
            f'["asked","other","{reason.input_hash}"]',
            "[1,2,3]",
        ):
            answer = await http.post("/mcp", json={"jsonrpc": "2.0", "id": told, "result": accept})
            assert answer.status_code == 202
        assert watcher.state.runtime.pause_reasons
        own = f'["asked","{reason.tool_call_id}","{reason.input_hash}"]'
        await http.post("/mcp", json={"jsonrpc": "2.0", "id": own, "result": accept})
        await watcher.at_rest()
    assert "42" in watcher.messages[-1][1]


async def test_a_repeated_call_whose_run_has_ended_returns_its_result_and_touches_no_other_run(
    server: Process, http: httpx2.AsyncClient
) -> None:
    async with watching(server.url, "repeated") as watcher:
        await command(server.url, "repeated", user_message("a", "hello", params={"model": "demo/echo"}))
        await watcher.at_rest()
        await command(server.url, "repeated", user_message("b", "x", params={"model": "demo/hang?after=2&rate=0"}))
        await watcher.until(lambda w: w.state is not None and w.state.draft is not None)
        params = {"name": "ask", "arguments": {"text": "hello"}, "requestState": '["repeated","a"]', "_meta": ALONE}
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "ask"}
        answer = await http.post("/mcp", json=request("tools/call", **params), headers=headers)
        assert '"text":"You said: hello"' in answer.text
        assert watcher.state is not None
        assert not watcher.state.is_at_rest, "the other run goes on"
        await command(server.url, "repeated", {"type": "abort", "client_request_id": "c"})
        for wrong in ('["repeated","unknown"]', '["elsewhere","a"]'):
            answer = await http.post(
                "/mcp", json=request("tools/call", **{**params, "requestState": wrong}), headers=headers
            )
            assert answer.json()["result"]["isError"]


async def test_streams_and_their_resources_are_bounded(server: Process, http: httpx2.AsyncClient) -> None:
    await command(server.url, "watched", user_message("a", "hello"))
    uri = "threadcast://chats/watched"
    listen = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
    many = [f"{uri}{number}" for number in range(SUBSCRIPTIONS_MAX + 1)]
    body = request("subscriptions/listen", _meta=ALONE, notifications={"resourceSubscriptions": many})
    assert (await http.post("/mcp", json=body, headers=listen)).status_code == 429
    body = request("subscriptions/listen", _meta=ALONE, notifications={"resourceSubscriptions": [f"{uri}-not"]})
    assert (await http.post("/mcp", json=body, headers=listen)).status_code == 404
    async with AsyncExitStack() as stack:
        for _ in range(STREAMS_MAX):
            answer = await stack.enter_async_context(http.stream("GET", "/mcp"))
            assert answer.status_code == 200
        refused = await http.get("/mcp")
        assert (refused.status_code, refused.json()["error"]["data"]["code"]) == (429, "rate_limited")
        assert refused.headers["retry-after"]


async def test_a_shut_door_is_not_there(tmp_path: Path) -> None:
    with started_server(tmp_path, config='[doors]\nopen = ["openai"]\n') as process:
        async with httpx2.AsyncClient(base_url=process.wait_ready().url, timeout=DEADLINE_SECONDS) as client:
            assert (await client.post("/mcp", json=request("tools/list"))).status_code == 404
