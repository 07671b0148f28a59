"""Secrets are planted in every input, and then searched for in every output.

A provider returns its key in its own errors. A caller's token is in `Authorization`, and HTTP tools receive and return
it. An MCP server receives a secret in a header and returns it. The prompt contains a secret word. No event, snapshot,
export, list, metric, log line or stored key may show one of these secrets; the prompt is only in the traces, for a
caller who may see them.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import redis

from tests.integration.fake_openai import CUT, DONE, STOP, FakeOpenAI, Reply, chunk, failure, serve_fake_openai, text
from tests.integration.oneshot_client import PATHS, body_for, opened
from tests.integration.store_fixtures import fresh_url
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, command, start, user_message
from threadcast.store.compression import FIRST_BYTES, decompressed
from threadcast.store.embedded.server_process import ServerProcess

pytestmark = pytest.mark.anyio

KEY = "sk-planted-provider-key-5f1c"
CALLER = "planted-caller-token-91ab"
TOOL = "planted-tool-credential-77de"
PROMPT = "planted prompt: the word is heliotrope"

CONFIG = """
[server]
log_level = "debug"

[[auth.tokens]]
id = "ann"
sha256 = "{ann}"
permissions = [{permissions}]

[models.providers.fake]
base_url = "{model}"
api_key = "{key}"
models = [{{ name = "tiny" }}]

[profiles.agent]
system_prompt = "{prompt}"

[mcp.shop]
url = "{shop}"
headers = {{ Authorization = "Bearer {tool}", X-Key = "{tool}" }}
"""

SERVICE = """
[tools.{name}]
url = "{origin}/{name}"
headers = {{ X-Key = "{tool}" }}
forward_auth = true
description = "An HTTP service that says whom it saw."
input_schema = {{ type = "object", properties = {{}} }}
"""
SERVICES = {"says": 200, "breaks": 500, "sends_away": 302}
"""HTTP tools by name, and their answers, which always quote the headers of the request."""

LENT = "planted-lent-credential-83cd"
HEADERS = {"Authorization": f"Bearer {CALLER}", "Threadcast-Forward-Authorization": f"Bearer {LENT}"}


class _Telltale(BaseHTTPRequestHandler):
    """A tool server that refuses every request and quotes the request's headers in its refusal."""

    def do_POST(self) -> None:
        said = f"refused: {dict(self.headers)}".encode()
        self.send_response(401, f"not {self.headers.get('X-Key')}")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def do_GET(self) -> None:
        status = SERVICES.get(self.path.strip("/"))
        if status is None:
            self.do_POST()
            return
        self.server.heard.append(dict(self.headers))  # type: ignore[attr-defined]  # ours, in `telltale`
        said = f"I saw {dict(self.headers)}".encode()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"/elsewhere?key={self.headers['X-Key']}&as={self.headers['Authorization']}")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def do_DELETE(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: object) -> None:
        return None


@contextmanager
def telltale(heard: list[dict[str, str]]) -> Iterator[str]:
    """Its origin. Run the server, and add the requests to its HTTP tools to `heard`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Telltale)
    server.heard = heard  # type: ignore[attr-defined]  # read by the handler
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()


@pytest.mark.row("ERR-2", "DIAG-4", "CTX-8", "AUTH-3", "TOOL-7")
@pytest.mark.parametrize("permissions", ['"approve"', '"approve", "diagnostics"'])
async def test_planted_secrets_come_out_nowhere(tmp_path: Path, valkey_server: ServerProcess, permissions: str) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    store_url = fresh_url(valkey_server)
    config = tmp_path / "threadcast.toml"
    heard: list[dict[str, str]] = []
    with serve_fake_openai() as model, telltale(heard) as origin, redis.Redis.from_url(store_url) as store:
        config.write_text(
            CONFIG.format(
                ann=hashlib.sha256(CALLER.encode()).hexdigest(),
                permissions=permissions,
                model=model.base_url,
                key=KEY,
                prompt=PROMPT,
                shop=f"{origin}/mcp",
                tool=TOOL,
            )
            + "".join(SERVICE.format(name=name, origin=origin, tool=TOOL) for name in SERVICES)
        )
        arguments = ["serve", "--port", "0", "--config", str(config)]
        with start(*arguments, log=tmp_path / "log", environment={"REDIS_URL": store_url}) as server:
            await server.ready()
            seen = await _everything_said(model, server.url)
            traces = await _traces(server.url)
            stored = _dump(store)
        said = server.log_text()
    assert model.asked and all(asked.headers["authorization"] == f"Bearer {KEY}" for asked in model.asked)
    assert [(h["X-Key"], h["Authorization"]) for h in heard] == [(TOOL, f"Bearer {LENT}")] * len(SERVICES)
    assert "model.failed" in said and "run.finished" in said

    for secret in (KEY, CALLER, LENT, TOOL):
        assert secret not in said
        assert secret not in traces
        assert secret not in stored
        for where, words in seen.items():
            assert secret not in words, where
    assert PROMPT not in said
    may_see = "diagnostics" in permissions
    assert (PROMPT in traces) == may_see
    for where, words in seen.items():
        assert PROMPT not in words or (may_see and where == "POST /api/chat/stream"), where


async def _everything_said(model: FakeOpenAI, url: str) -> dict[str, str]:
    """Run chats with every kind of failure, and return, by endpoint, the answers of all endpoints about these chats."""
    # Secrets of other owners are masked, too: the adapter itself masks only its own key.
    said = f"Incorrect API key provided: {KEY}, {TOOL}, Bearer {CALLER}"
    error = {"message": said, "type": "auth", "param": KEY}
    told = f"data: {json.dumps({'error': error})}\n\n".encode()
    broken: list[list[Reply]] = [
        [failure(401, error)],
        [failure(400, error)],
        [failure(500, error)] * 5,
        [Reply([text("half"), told])],
        [Reply([text("half"), CUT])],
        [Reply([b"data: {" + KEY.encode() + b"\n\n"])],
        [Reply([text("whole"), STOP, DONE])],
        [Reply([_calls(), chunk(finish_reason="tool_calls"), DONE]), Reply([text("so it is"), STOP, DONE])],
    ]
    seen: dict[str, str] = {}
    async with watching(url, "c1", headers=HEADERS) as watcher, watching(url, "c1", headers=HEADERS) as other:
        await watcher.until(lambda w: w.state is not None)
        for number, replies in enumerate(broken):
            model.replies = list(replies)
            answer = await command(url, "c1", user_message(f"r{number}", "hello"), HEADERS)
            seen[f"receipt {number}"] = answer.text + str(answer.headers)
            await _ended(watcher, number + 1)
        await _ended(other, len(broken))
        seen["events"], seen["other events"] = json.dumps(watcher.frames), json.dumps(other.frames)
        outcomes = [frame["outcome"] for frame in watcher.frames if frame.get("outcome")]
        assert watcher.state is not None
        results = [str(m.content) for m in watcher.state.nodes.values() if m.role == "tool"]
        assert len(results) == len(SERVICES) and "I saw" in results[0]
        assert outcomes == ["error"] * (len(broken) - 2) + ["complete"] * 2
    async with watching(url, "c1", headers=HEADERS) as late:
        await late.until(lambda w: w.state is not None)
        seen["snapshot"] = json.dumps(late.frames)
    for path in PATHS:
        model.replies = [failure(401, error)]
        async with opened(url, path, body_for(path, "hello"), HEADERS) as answer:
            seen[f"POST {path}"] = (await answer.aread()).decode()
    paths = ["", "?view=tree", "?at=3", "/export", "/params"]
    rest = ["/v1/chats", "/v1/trajectories", "/v1/trajectories/c1", "/v1/caps", "/v1/providers", "/v1/chat-modes"]
    rest += ["/v1/tools", "/v1/mcp/resources", "/v1/mcp/prompts", "/readyz", "/metrics", "/nowhere"]
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS, headers=HEADERS, base_url=url) as client:
        for path in [*(f"/v1/chats/c1{path}" for path in paths), *rest]:
            got = await client.get(path)
            seen[path] = got.text + str(got.headers)
        wrong = await client.get("/v1/chats", headers={"Authorization": f"Basic {CALLER}"})
        seen["401"] = wrong.text + str(wrong.headers)
        async with client.stream("GET", "/v1/chats/feed") as feed:
            seen["feed"] = await anext(feed.aiter_text())
    assert "c1" in seen["feed"] and "hello" in seen["/v1/chats/c1/export"]
    return seen


def _calls() -> bytes:
    """Return calls of all HTTP tools at once."""
    calls = [
        {"index": index, "id": f"c{index}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        for index, name in enumerate(SERVICES)
    ]
    return chunk(delta={"tool_calls": calls})


async def _ended(watcher: Watcher, runs: int) -> None:
    await watcher.until(lambda w: sum(1 for frame in w.frames if frame.get("outcome")) >= runs)


async def _traces(url: str) -> str:
    """Return all traces of the chat, or the refusal to show them."""
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS, headers=HEADERS, base_url=url) as client:
        runs = await client.get("/v1/chats/c1/runs")
        if runs.status_code != 200:
            return runs.text
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(runs.json()["runs"]) < 8:
                await anyio.sleep(0.02)
                runs = await client.get("/v1/chats/c1/runs")
        each = [await client.get(f"/v1/chats/c1/runs/{run['run_id']}/diagnostics") for run in runs.json()["runs"]]
    shown = runs.text + "".join(trace.text for trace in each)
    assert "Incorrect API key provided" in shown, "the provider's words are there, without the key"
    return shown


def _dump(store: "redis.Redis") -> str:
    """Return every key with its whole content, with compressed parts decompressed."""
    found: list[bytes] = []
    for key in store.scan_iter("*"):
        kind: Any = store.type(key)  # Any: the stub assumes that replies are decoded
        value: Any = None  # Any: replies of every shape
        match kind:
            case b"string":
                value = store.get(key)
            case b"hash":
                value = store.hgetall(key)
            case b"stream":
                value = store.xrange(key)
            case b"zset":
                value = store.zrange(key, 0, -1)
            case b"list":
                value = store.lrange(key, 0, -1)
        found += [key, *_bytes_in(value)]
    return b"\n".join(found).decode(errors="replace")


def _bytes_in(value: Any) -> Iterator[bytes]:  # Any: replies of Redis, of every shape
    if isinstance(value, bytes):
        yield value
        start = value.find(FIRST_BYTES)
        if start >= 0:
            yield decompressed(value[start:])
    elif isinstance(value, dict):
        for pair in value.items():
            yield from _bytes_in(pair)
    elif isinstance(value, list | tuple | set):
        for inner in value:
            yield from _bytes_in(inner)
