"""Third-party readers of Server-Sent Events, unchanged, on a real server: they yield our events and nothing else.

At an empty line, httpx-sse and fetch-event-source yield an event without data, where WHATWG HTML defines no event; then
`json.loads("")` in their users' code raises. Therefore no empty line follows heartbeats and `retry` (PROTOCOL §4).
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import httpx_sse
import pytest
import sseclient

from tests.integration.oneshot_client import PATHS, body_for
from tests.integration.test_clients_rely_on import configured
from tests.peers.installed import PEERS, node_package
from tests.peers.plain_stream import PlainStream
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, command, start, user_message
from tests.torture.proxy import Proxy
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

Heard = tuple[str, str]
"""An event's type and data."""

FAST = "[limits]\nheartbeat_seconds = 0.1\n"
BEATS = 5

STREAMS = {
    "one chat": "/v1/chats/subscribe?chat_id=c1",
    "several": "/v1/chats/subscribe?chat_id=c1&chat_id=c2&stream_id={}",
    "data inline": "/v1/chats/subscribe?chat_id=c1&blobs=inline",
    "feed": "/v1/chats/feed",
    "sidebar": "/v1/sidebar/subscribe",
}


def by_httpx_sse(url: str, body: JsonObject | None = None) -> Iterator[Heard]:
    with (
        httpx.Client(timeout=DEADLINE_SECONDS, trust_env=False) as client,
        httpx_sse.connect_sse(client, "GET" if body is None else "POST", url, json=body) as source,
    ):
        for event in source.iter_sse():
            yield event.event, event.data


def by_sseclient(url: str, body: JsonObject | None = None) -> Iterator[Heard]:
    with (
        httpx.Client(timeout=DEADLINE_SECONDS, trust_env=False) as client,
        client.stream(
            "GET" if body is None else "POST", url, json=body, headers={"Accept": "text/event-stream"}
        ) as got,
    ):
        for event in sseclient.SSEClient(got.iter_bytes()).events():
            yield event.event, event.data


PYTHON: dict[str, Callable[..., Iterator[Heard]]] = {"httpx-sse": by_httpx_sse, "sseclient-py": by_sseclient}
NODE = "@microsoft/fetch-event-source"


async def heard_by(reader: str, url: str, body: JsonObject | None = None) -> list[Heard]:
    """Return everything that a reader yields until the stream ends."""
    if reader != NODE:
        return await anyio.to_thread.run_sync(lambda: list(PYTHON[reader](url, body)))
    entry = node_package(NODE, "lib/cjs/index.js")
    program = [entry[0], str(Path(__file__).with_name("read_events.cjs")), str(PEERS / NODE), url]
    done = await anyio.run_process([*program, *([] if body is None else [json.dumps(body)])], check=False)
    assert done.returncode == 0, done.stderr
    return [(event, data) for event, data in map(json.loads, done.stdout.decode().splitlines())]


async def beats_of(url: str, count: int) -> None:
    """Open a stream and wait for this number of heartbeats. Streams that were open before have received at least this
    number minus one."""
    seen = b""
    async with (
        httpx.AsyncClient(timeout=DEADLINE_SECONDS, trust_env=False) as client,
        client.stream("GET", url) as answer,
    ):
        async for chunk in answer.aiter_bytes():
            seen += chunk
            if seen.count(b": hb ") > count:
                return


async def watched(url: str, count: int) -> None:
    """Wait until this many streams are open, by the server's own count."""
    async with httpx.AsyncClient(trust_env=False) as client:
        with anyio.fail_after(DEADLINE_SECONDS):
            while f"threadcast_subscribers_inflight {count}.0" not in (await client.get(f"{url}/metrics")).text:
                await anyio.sleep(0.02)


@pytest.mark.row("NET-4", "FE-5")
@pytest.mark.parametrize("reader", [*PYTHON, NODE])
async def test_a_foreign_reader_hands_on_events_with_data_alone_across_heartbeats_and_the_goodbye(
    tmp_path: Path, reader: str
) -> None:
    if reader == NODE:
        node_package(NODE, "lib/cjs/index.js")
    heard: dict[str, list[Heard]] = {}
    async with configured(tmp_path, FAST) as server:
        for chat_id in ("c1", "c2"):
            await command(server.url, chat_id, user_message("a", "hi"), {"Prefer": "wait=20"})

        async def read(name: str, path: str) -> None:
            heard[name] = await heard_by(reader, f"{server.url}{path}")

        async with watching(server.url, "c1") as tab, anyio.create_task_group() as tasks:
            await tab.at_rest()
            for number, (name, path) in enumerate(STREAMS.items()):
                tasks.start_soon(read, name, path.format(f"s{number}"))
            await watched(server.url, len(STREAMS) + 1)
            await beats_of(f"{server.url}/v1/chats/subscribe?chat_id=c1", BEATS)
            body = {"type": "set_params", "client_request_id": "t", "patch": {"title": "after the silence"}}
            await command(server.url, "c1", body)
            await tab.until(lambda w: "thread_updated" in w.types())
            await beats_of(f"{server.url}/v1/chats/subscribe?chat_id=c1", BEATS)
            await server.stop()
    for name in STREAMS:
        bodies = [json.loads(data) for _, data in heard[name]]  # like users' code, which raises if there is no data
        assert any("after the silence" in data for _, data in heard[name]), name
        assert [body["seq"] for body in bodies[:1]] in (["0"], [0]), name


@pytest.mark.row("NET-4", "FE-5")
@pytest.mark.parametrize("reader", [*PYTHON, NODE])
async def test_a_foreign_reader_of_a_one_shot_wire_hands_on_frames_with_data_alone(tmp_path: Path, reader: str) -> None:
    if reader == NODE:
        node_package(NODE, "lib/cjs/index.js")
    heard: dict[str, list[Heard]] = {}
    async with configured(tmp_path, FAST + '[models]\ndefault = "demo/slow?delay=1&rate=0&words=3"\n') as server:

        async def read(path: str) -> None:
            heard[path] = await heard_by(reader, f"{server.url}{path}", body_for(path, "hi"))

        async with anyio.create_task_group() as tasks:
            for path in PATHS:
                tasks.start_soon(read, path)
    for path, frames in heard.items():
        assert len(frames) >= 2, f"{path}: {frames}"
        assert all(data for _, data in frames), f"{path}: {frames}"


@pytest.mark.row("NET-8", "EVT-4")
async def test_npms_eventsource_comes_back_sooner_than_it_would_by_itself(tmp_path: Path) -> None:
    """The test opens our stream and another server's stream, which sets a pause of 1.5 s instead of the library's 3 s.
    Both streams are cut, and our stream reconnects first."""
    entry = node_package("eventsource", "dist/index.cjs")
    async with AsyncExitStack() as stack:
        server = stack.enter_context(start("serve", "--port", "0", "--memory", log=tmp_path / "log"))
        await server.ready()
        line = await stack.enter_async_context(Proxy("line", ("127.0.0.1", int(server.url.rpartition(":")[2]))))
        plain = await stack.enter_async_context(PlainStream())
        program = [entry[0], str(Path(__file__).with_name("reconnect.cjs")), str(PEERS / "eventsource")]
        urls = [f"ours=http://127.0.0.1:{line.port}{STREAMS['one chat']}", f"plain={plain.url}"]
        process = await stack.enter_async_context(await anyio.open_process([*program, *urls]))
        stack.callback(process.kill)
        assert process.stdout is not None
        said = b""
        with anyio.fail_after(DEADLINE_SECONDS):
            while not {b"ours", b"plain"} <= set(said.split()):
                said += await process.stdout.receive()
            await watched(server.url, 1)
            plain.cut()
            line.reset()
            said = await process.stdout.receive()
    assert said.split()[:1] == [b"ours"]
