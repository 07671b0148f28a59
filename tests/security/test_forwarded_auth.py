"""Tools with `forward_auth` act with a credential of the caller, and never with a token of this server."""

import base64
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from tests.integration.mcp_harness import answers_in
from tests.integration.store_fixtures import fresh_url, valkey_server
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, start, user_message
from tests.support.tokens import bearer, token_of, tokens
from threadcast.settings.sources import BadSettings, load_settings
from threadcast.store.embedded.server_process import ServerProcess
from threadcast_client import Client

__all__ = ["valkey_server"]

pytestmark = [pytest.mark.anyio, pytest.mark.row("SEC-10", "TOOL-7")]

LENT = "Bearer credential-of-ann-for-the-service"
FORWARD = "Threadcast-Forward-Authorization"

Running = tuple[str, list[dict[str, str]]]
Begin = Callable[..., Running]


class Service(BaseHTTPRequestHandler):
    """Records the headers of its requests. /away leads to another origin."""

    heard: list[dict[str, str]]
    away: str

    def do_GET(self) -> None:
        self.heard.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(307 if self.path == "/away" else 200)
        self.send_header("Location", self.away)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the log lines out of the tests' output."""


@pytest.fixture
def service() -> Iterator[Begin]:
    """Return a function that starts a service and returns its origin, with the headers that it receives. The argument
    is the address to which /away leads."""
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def begin(away: str = "") -> tuple[str, list[dict[str, str]]]:
        heard: list[dict[str, str]] = []
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Mine", (Service,), {"heard": heard, "away": away}))
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}", heard

    yield begin
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def config(directory: Path, origin: str) -> Path:
    file = directory / "threadcast.toml"
    tools = "".join(
        f'[tools.{name}]\nurl = "{origin}/{name}"\ndescription = "A test."\nforward_auth = true\n'
        for name in ("mine", "away")
    )
    file.write_text(f'[models]\ndefault = "demo/tools"\n{tools}{tokens(ann="", bob="")}')
    return file


Serve = Callable[..., AbstractAsyncContextManager[Process]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    @asynccontextmanager
    async def serve(origin: str, **environment: str) -> AsyncIterator[Process]:
        arguments = ("serve", "--memory", "--port", "0", "--config", str(config(tmp_path, origin)))
        with start(*arguments, log=tmp_path / "log", environment=environment) as server:
            await server.ready()
            yield server

    return serve


async def call(server: Process, chat_id: str, tool: str, headers: dict[str, str]) -> tuple[str, bool]:
    """Let the demo model call a tool; returns the result as (text, failed)."""
    async with watching(server.url, chat_id, headers=bearer("ann")) as watcher:
        async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
            answer = await client.post(
                f"{server.url}/v1/chats/{chat_id}/commands",
                json=user_message(chat_id, f"call {tool} {{}}"),
                headers=headers,
            )
        assert answer.status_code == 202, answer.text
        await watcher.at_rest()
        ((text, failed),) = answers_in(watcher)
        return text, failed


async def test_our_own_token_is_never_sent_to_a_service(serve: Serve, service: Begin) -> None:
    origin, heard = service()
    async with serve(origin) as server, httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as client:
        text, failed = await call(server, "by-token", "mine", bearer("ann"))
        assert failed and FORWARD in text
        signed_in = await client.post("/v1/session", headers={**bearer("ann"), "Origin": server.url})
        cookie = {"Cookie": signed_in.headers["set-cookie"].partition(";")[0], "Origin": server.url}
        _, failed = await call(server, "by-cookie", "mine", cookie)
        assert failed
        assert heard == []
        ann, bob = token_of("ann"), token_of("bob")
        basic = base64.b64encode(f"user:{bob}".encode()).decode()
        for index, value in enumerate(
            (f"Bearer {ann}", f"bearer  {ann}", ann, f"Bearer {bob}", f"Basic {basic}", f'Digest key="{ann}"')
        ):
            answer = await client.post(
                f"/v1/chats/own-{index}/commands",
                json=user_message("r", "call mine {}"),
                headers={**bearer("ann"), FORWARD: value},
            )
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), value
            assert "a token of this server" in answer.json()["detail"] and ann not in answer.text
            assert (await client.get(f"/v1/chats/own-{index}", headers=bearer("ann"))).status_code == 404
        old = await client.post("/chat", json={"message": "call mine {}"}, headers={**bearer("ann"), FORWARD: ann})
        assert old.status_code == 400
        assert heard == []


async def test_the_lent_credential_goes_to_the_named_origin_alone(serve: Serve, service: Begin) -> None:
    elsewhere, heard_elsewhere = service()
    origin, heard = service(f"{elsewhere}/mine")
    proxy, heard_by_proxy = service()
    async with serve(origin, http_proxy=proxy, HTTP_PROXY=proxy, all_proxy=proxy) as server:
        lent = {**bearer("ann"), FORWARD: LENT}
        assert await call(server, "mine", "mine", lent) == ("ok", False)
        text, failed = await call(server, "away", "away", lent)
        assert failed and "307" in text
        assert [each["authorization"] for each in heard] == [LENT, LENT]
        assert all(token_of("ann") not in json.dumps(each) for each in heard)
        assert heard_elsewhere == heard_by_proxy == []
        assert "credential-of-ann" not in server.log_text()


async def test_too_long_a_credential_is_refused(serve: Serve, service: Begin) -> None:
    origin, _ = service()
    async with serve(origin) as server, httpx2.AsyncClient(base_url=server.url) as client:
        answer = await client.post(
            "/v1/chats/c/commands",
            json=user_message("r", "call mine {}"),
            headers={**bearer("ann"), FORWARD: "x" * 8_193},
        )
        assert answer.status_code == 400 and "8192 characters" in answer.json()["detail"]


async def test_the_python_client_lends_a_credential_with_its_commands(serve: Serve, service: Begin) -> None:
    origin, heard = service()
    async with (
        serve(origin) as server,
        Client(server.url, token_of("ann"), forward_authorization=lambda: LENT) as client,
        client.chat("lent") as chat,
    ):
        await chat.ask("call mine {}")
    assert [each["authorization"] for each in heard] == [LENT]


async def test_a_worker_takes_no_token_of_ours_from_an_older_web_process(
    service: Begin, valkey_server: ServerProcess, tmp_path: Path
) -> None:
    """The web process is configured without the worker's tokens. Therefore it does not recognise ann's token as a token
    of this server, and keeps the token for forwarding, as an older version did."""
    origin, heard = service()
    environment = {"REDIS_URL": fresh_url(valkey_server)}
    worker_file = config(tmp_path, origin)
    (tmp_path / "old").mkdir()
    web_file = config(tmp_path / "old", origin)
    web_file.write_text(web_file.read_text().partition("[[auth.tokens]]")[0])
    with (
        start("worker", "--config", str(worker_file), log=tmp_path / "log", environment=environment) as worker,
        start("web", "--port", "0", "--config", str(web_file), log=tmp_path / "log", environment=environment) as web,
    ):
        await worker.ready()
        await web.ready()
        _, failed = await call(web, "old", "mine", bearer("ann"))
        assert failed
        assert "authorization.own_token" in worker.log_text()
    assert heard == []


@pytest.mark.parametrize("host", ["api.example.com", "10.0.0.7", "localhost.example.com", "127.0.0.1.example.com"])
async def test_plain_http_is_for_this_machine_only(tmp_path: Path, host: str) -> None:
    with pytest.raises(BadSettings, match="unencrypted"):
        load_settings({}, file=str(config(tmp_path, f"http://{host}")))
    for allowed in (f"https://{host}", "http://localhost:1", "http://[::1]:1", "http://127.0.0.2"):
        assert load_settings({}, file=str(config(tmp_path, allowed)))
