"""The configurations of docs/proxies.md, run by the real nginx and the real Caddy, over TLS and with a real server."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from tests.ports import free_port
from tests.support.proxies import KINDS, Proxy, program_of, proxied
from tests.support.reader import Watcher, watching
from tests.support.server import Process, serving, user_message
from tests.support.tokens import bearer, tokens
from threadcast.base.telemetry import Metrics
from threadcast.http import server as http_server
from threadcast.http.admission import LOOPBACK, Connections
from threadcast.http.sockets import listening
from threadcast.settings.limits import DEFAULT_LIMITS, Limits
from threadcast_protocol.wire.blobs import BLOB_MAX_BYTES

pytestmark = [pytest.mark.anyio, pytest.mark.slow(60)]

ANN = bearer("ann")
DEADLINE_SECONDS = 60.0


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    if program_of(found) is None:
        pytest.skip(f"{found}: no program; the wheels of requirements/test.txt have one for Linux")
    return found


@asynccontextmanager
async def behind(
    kind: str, directory: Path, monkeypatch: pytest.MonkeyPatch, limits: str = "", **changes: str
) -> AsyncIterator[tuple[Proxy, Process, httpx2.AsyncClient]]:
    """Run a server with tokens behind the proxy; yield the proxy, the server and a client of the proxy."""
    port = free_port()
    with proxied(kind, f"http://127.0.0.1:{port}", directory / "proxy", changes) as proxy:
        monkeypatch.setenv("SSL_CERT_FILE", str(proxy.authority))
        callers = tokens(ann='permissions = ["approve", "metrics"]')
        config = f"[server]\npublic_url = '{proxy.url}'\n[limits]\n{limits}\n{callers}"
        async with (
            serving(directory, "--port", str(port), config=config) as server,
            httpx2.AsyncClient(base_url=proxy.url, timeout=DEADLINE_SECONDS) as client,
        ):
            yield proxy, server, client


async def test_a_page_is_loaded_signed_in_and_used_through_the_proxy(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind(kind, tmp_path, monkeypatch) as (proxy, server, client):
        assert await anyio.to_thread.run_sync(proxy.alpn) == "h2"
        page = await client.get("/")
        assert page.status_code == 200
        script = re.search(r'src="(/assets/[^"]+\.js)"', page.text)
        assert script is not None
        assert (await client.get(script[1])).headers["content-type"].startswith("text/javascript")

        assert (await client.get("/v1/chats", headers={"X-Forwarded-For": "192.0.2.7"})).status_code == 401
        assert '"address":"127.0.0.1"' in server.log_text()
        assert "192.0.2.7" not in server.log_text(), "a caller chooses the address under which it is known"
        own = {"Origin": proxy.url}
        signed_in = await client.post("/v1/session", headers={**own, **ANN})
        assert signed_in.status_code == 200, signed_in.text
        cookie = signed_in.headers["set-cookie"]
        assert cookie.startswith("__Host-") and "Secure" in cookie
        as_ann = {"Cookie": cookie.partition(";")[0]}
        client.cookies.clear()
        message = user_message("r1", "hello")
        posted = await client.post("/v1/chats/c1/commands", json=message, headers={**own, **as_ann})
        assert posted.status_code == 202, posted.text
        async with watching(proxy.url, "c1", headers={**as_ann, "Sec-Fetch-Site": "same-origin"}) as mine:
            await mine.at_rest()

        foreign = {"Origin": "https://evil.example", **as_ann}
        refused = await client.post("/v1/chats/c1/commands", json=message, headers=foreign)
        assert refused.status_code == 403
        assert refused.json()["code"] == "forbidden"
        claimed = {"X-Forwarded-Host": "evil.example", "Host": "evil.example", **foreign}
        if kind == "nginx":  # Caddy has no site with another name, and sends an empty answer to such a request
            assert (await client.post("/v1/chats/c1/commands", json=message, headers=claimed)).status_code == 403
            plain = await client.get(f"{proxy.plain_url}/chat?a=b")
            assert (plain.status_code, plain.headers["location"]) == (308, f"{proxy.url}/chat?a=b")


async def test_deltas_arrive_through_the_proxy_as_they_are_made_and_a_client_that_leaves_is_noticed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind(kind, tmp_path, monkeypatch) as (proxy, server, client):
        async with (
            watching(server.url, "c1", headers=ANN) as direct,
            watching(proxy.url, "c1", headers=ANN) as through,
        ):
            essay = user_message("r1", "go", params={"model": "demo/essay?words=100000&rate=20"})
            assert (await client.post("/v1/chats/c1/commands", json=essay, headers=ANN)).status_code == 202
            for wanted in (10, 15, 20):  # a buffer of 4 KiB would delay some 30 events
                await direct.until(lambda w, wanted=wanted: len(w.events) >= wanted)  # type: ignore[misc] # a default
                await through.until(lambda w, wanted=wanted: len(w.events) >= wanted)  # type: ignore[misc] # likewise
                assert len(direct.events) - len(through.events) < 5
        with anyio.fail_after(DEADLINE_SECONDS):
            while "threadcast_subscribers_inflight 0.0" not in (await metrics_of(server)):
                await anyio.sleep(0.05)
        await client.post("/v1/chats/c1/commands", json={"type": "abort", "client_request_id": "r2"}, headers=ANN)


async def metrics_of(server: Process) -> str:
    async with httpx2.AsyncClient() as client:
        return (await client.get(f"{server.url}/metrics", headers=ANN)).text


async def test_a_stream_resumes_without_a_gap_when_the_proxy_is_reloaded(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind(kind, tmp_path, monkeypatch) as (proxy, _, client):
        mine = Watcher("c1")
        essay = user_message("r1", "go", params={"model": "demo/essay?words=200&rate=40"})
        async with watching(proxy.url, "c1", headers=ANN, watcher=mine):
            assert (await client.post("/v1/chats/c1/commands", json=essay, headers=ANN)).status_code == 202
            await mine.until(lambda w: len(w.events) > 5)
            await anyio.to_thread.run_sync(proxy.replace)
            with anyio.fail_after(DEADLINE_SECONDS):
                while not mine.has_ended:
                    await anyio.sleep(0.01)
        resuming = {**ANN, "Last-Event-ID": mine.last_id}
        async with watching(proxy.url, "c1", headers=resuming, watcher=mine):  # a gap would fail in `take`
            await mine.at_rest()
        assert mine.snapshots == 1, "the stream was not resumed"


async def test_uploads_of_the_full_size_pass_and_larger_ones_get_the_server_s_refusal(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = DEFAULT_LIMITS.body_max_bytes
    assert most == BLOB_MAX_BYTES
    async with behind(kind, tmp_path, monkeypatch) as (proxy, _, client):
        kept = await client.post("/v1/chats/c1/blobs", content=bytes(most), headers=ANN)
        assert kept.status_code == 201, kept.text[:500]
        for size in (most + 1, 2 * most):
            try:
                refused = await client.post("/v1/chats/c1/blobs", content=bytes(size), headers=ANN)
            except httpx2.TransportError:
                assert kind == "caddyfile", "only Caddy may reset a connection on which a body still arrives"
                continue
            assert refused.status_code == 413
            if kind == "nginx" and size == most + 1:
                assert refused.json()["code"] == "too_large"
        jsonl = {"content-type": "application/x-ndjson", **ANN}
        imported = await client.post("/v1/chats/import", content=b'{"x":1}\n' * (2 * most // 8), headers=jsonl)
        assert imported.status_code == 400, imported.text[:500]
        assert imported.json()["code"] == "bad_request"
        unknown = await client.post("/v1/chats/c1/blobs", content=bytes(200_000), headers=bearer("eve"))
        assert unknown.status_code == 401
        assert unknown.json()["code"] == "unauthorized", proxy.log()


async def test_many_people_behind_one_proxy_are_not_counted_as_one_address(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = "connections_per_address = 3"
    async with behind(kind, tmp_path, monkeypatch, limits) as (proxy, _, client), AsyncExitStack() as stack:
        for number in range(20):
            await stack.enter_async_context(watching(proxy.url, f"c{number}", headers=ANN))
        assert (await client.get("/v1/chats", headers=ANN)).status_code == 200


async def test_nginx_bounds_the_connections_of_one_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if program_of("nginx") is None:
        pytest.skip("nginx is not installed")
    changes = {"limit_conn threadcast 1000;": "limit_conn threadcast 3;"}
    async with (
        behind("nginx", tmp_path, monkeypatch, **changes) as (proxy, _, client),
        watching(proxy.url, "c1", headers=ANN),
        watching(proxy.url, "c2", headers=ANN),
        watching(proxy.url, "c3", headers=ANN),
    ):
        assert (await client.get("/v1/chats", headers=ANN)).status_code == 429


class Recorded:
    """An application that records the headers and the client's port of each request."""

    def __init__(self) -> None:
        self.headers: list[list[tuple[str, str]]] = []
        self.ports: list[int] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers.append([(name.decode(), value.decode()) for name, value in scope["headers"]])
        self.ports.append(scope["client"][1])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


async def test_the_server_is_told_the_caller_s_address_and_not_what_the_caller_claims(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Recorded()
    with listening("127.0.0.1", 0) as listener:
        upstream = f"http://127.0.0.1:{listener.getsockname()[1]}"
        connections = Connections(Limits(), 100, Metrics(), LOOPBACK)
        async with http_server.serving(listener, app, connections):
            with proxied(kind, upstream, tmp_path / "proxy") as proxy:
                monkeypatch.setenv("SSL_CERT_FILE", str(proxy.authority))
                async with httpx2.AsyncClient(base_url=proxy.url, timeout=DEADLINE_SECONDS) as client:
                    claims = {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "a.b"}
                    for _ in range(10):
                        assert (await client.get("/", headers=claims)).status_code == 200
                    assert (await client.get("/", headers={"Cookie": "a" * 30_000})).status_code == 200
                    answer = await client.get("/", headers={"Cookie": "a" * 80_000})
                    assert answer.status_code in (400, 431)
    assert len(app.headers) == 11, "headers that are too large are refused before the server"
    told = dict(app.headers[0])
    assert told["x-forwarded-for"] == "127.0.0.1"
    assert told["x-forwarded-proto"] == "https"
    assert told["x-forwarded-host"].partition(":")[0] == "localhost"
    assert told["host"].partition(":")[0] == "localhost"
    assert len(set(app.ports)) <= 2, "the connection to the server is not kept"
