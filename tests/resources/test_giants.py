"""Inputs and results that may be too large: bodies, nested JSON, tool results, outputs. Each of them has a bound, which
is reported, and costs little.

One real server serves the whole file. The memory is the kernel's measurement for the process. The limits of the tests
are generous, because they show that a bound exists and do not compare allocators.
"""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.resources.measures import DEADLINE_SECONDS, PeakMemory, file_size_limit
from tests.support.reader import Watcher, watching
from tests.support.server import Process, command, started_server, user_message
from threadcast.tools.process_pool import OUTPUT_MAX_BYTES
from threadcast.tools.runner import TOOL_RESULT_MAX_BYTES
from threadcast_protocol.wire.bodies import NESTING_MAX
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

TOOLS = {"model": "demo/tools"}
MEGABYTE = 1_000_000
BODY_MAX_BYTES = 16 * 1_024 * 1_024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    base = tmp_path_factory.mktemp("giants")
    app = Path(__file__).with_name("greedy_tools.py")
    with started_server(base, is_durable=True, app=app) as process:
        yield process.wait_ready()


async def call(server: Process, chat_id: str, tool: str, **arguments: object) -> tuple[Watcher, PeakMemory]:
    """Let the model call the tool once. Returns the chat's watcher and the peak of the server's memory."""
    async with watching(server.url, chat_id) as watcher:
        peak = PeakMemory(server.pid)
        text = f"call {tool} {json.dumps(arguments)}"
        answer = await command(server.url, chat_id, user_message("a", text, params=TOOLS))
        assert answer.status_code == 202
        await watcher.at_rest()
    return watcher, peak


def result_of(watcher: Watcher) -> str:
    (text,) = [text for role, text in watcher.messages if role == "tool"]
    return text


async def test_a_giant_body_is_413_however_it_is_sent(server: Process) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * MEGABYTE

    peak = PeakMemory(server.pid)
    url = f"{server.url}/v1/chats/c/commands"
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        told = await _announced(server.url, 1 << 40)
        assert told.startswith(b"HTTP/1.1 413 ")
        assert b'"code":"too_large"' in told and str(BODY_MAX_BYTES).encode() in told
        try:
            sent = await client.post(url, content=pieces())
        except httpx2.TransportError:
            pass  # the server answered and closed the connection while the client was still sending
        else:
            assert (sent.status_code, sent.json()["code"]) == (413, "too_large")
        assert (await client.get(f"{server.url}/livez")).status_code == 200
    assert peak.growth_bytes < 4 * BODY_MAX_BYTES


async def _announced(url: str, size_bytes: int) -> bytes:
    """Return the answer to a request that announces a body of that size and sends none of it."""
    host, port = url.removeprefix("http://").split(":")
    async with await anyio.connect_tcp(host, int(port)) as stream:
        await stream.send(
            b"POST /v1/chats/c/commands HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size_bytes
        )
        answer = b""
        with anyio.fail_after(DEADLINE_SECONDS):
            while b"}" not in answer:
                answer += await stream.receive()
    return answer


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"type":"user_message","client_request_id":"x","content":['])
async def test_nested_json_is_400_and_not_a_crash(server: Process, opening: str) -> None:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        answer = await client.post(
            f"{server.url}/v1/chats/deep/commands", content=opening * 10_000
        )  # the number of values is below the limit of a body
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


async def test_a_chat_whose_params_nest_deeply_is_refused(server: Process) -> None:
    deep = "[" * 900 + "]" * 900
    body = f'{{"type":"set_params","client_request_id":"p","patch":{{"metadata":{{"a":{deep}}}}}}}'
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        answer = await client.post(f"{server.url}/v1/chats/deep/commands", content=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
        assert f"at most {NESTING_MAX} lists and objects" in answer.json()["detail"]
        assert (await client.get(f"{server.url}/livez")).status_code == 200
    async with watching(server.url, "deep") as watcher:
        await command(server.url, "deep", user_message("a", "still there?", params={"model": "demo/echo"}))
        await watcher.at_rest()


async def test_a_result_of_100_megabytes_is_cut_and_says_so(server: Process) -> None:
    watcher, peak = await call(server, "returns", "returns_much", megabytes=100)
    text = result_of(watcher)
    assert len(text) < 260_000
    assert "[cut: " in text
    assert watcher.state is not None and watcher.state.runtime.outcome == "complete"
    assert peak.growth_bytes < 100 * MEGABYTE + 8 * TOOL_RESULT_MAX_BYTES


async def test_reports_of_100_megabytes_reach_nobody_whole(server: Process) -> None:
    watcher, peak = await call(server, "yields", "yields_much", megabytes=100)
    assert max(len(json.dumps(frame)) for frame in watcher.frames) < 300_000
    assert peak.growth_bytes < 40 * MEGABYTE


async def test_a_program_that_prints_100_megabytes_leaves_its_last_words(server: Process) -> None:
    watcher, peak = await call(server, "prints", "prints_much", megabytes=100)
    assert result_of(watcher) == f"completed {OUTPUT_MAX_BYTES} the-end"
    assert peak.growth_bytes < 20 * MEGABYTE


async def test_data_nested_beyond_all_reason_fails_its_tool_alone(server: Process) -> None:
    watcher, _ = await call(server, "nests", "nests", depth=20_000)
    assert watcher.state is not None and watcher.state.is_at_rest
    body: JsonObject = user_message("b", "go on", params={"model": "demo/echo"})
    async with watching(server.url, "nests") as later:
        await command(server.url, "nests", body)
        await later.at_rest(2)


async def test_a_full_disk_of_the_tools_is_a_failed_tool_and_the_chat_goes_on(server: Process) -> None:
    with file_size_limit(server.pid, 500_000):
        watcher, _ = await call(server, "writes", "writes", megabytes=1)
        assert "OSError" in result_of(watcher)
        assert watcher.state is not None and watcher.state.runtime.outcome == "complete"
    watcher, _ = await call(server, "writes-again", "writes", megabytes=1)
    assert result_of(watcher) == "written"
