"""If a model's server or an MCP server redirects to another origin, that origin receives neither a key nor a
conversation."""

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest

from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, start, user_message

pytestmark = pytest.mark.anyio

KEY = "planted-key-of-the-operator"
WORDS = "planted words of the conversation"
KINDS = ["openai_chat", "openai_responses", "anthropic", "google"]


class Host(BaseHTTPRequestHandler):
    """Redirects each request to `away`, with the same method and body; without `away` the server answers 500 and
    records the request. Requests for a path with /again are not redirected."""

    heard: list[str]
    away: str
    status: int

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        self.heard.append(json.dumps([self.path, dict(self.headers), body]))
        is_last = not self.away or "/again" in self.path
        self.send_response(500 if is_last else self.status)
        if not is_last:
            self.send_header("Location", self.away.replace("PATH", self.path))
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST  # noqa: N815  # the base class looks methods up by these names

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the log lines out of the tests' output."""


Begin = Callable[..., tuple[str, list[str]]]


@pytest.fixture
def host() -> Iterator[Begin]:
    """Return a function that starts a server and returns its origin, with the requests that it receives."""
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def begin(away: str = "", status: int = 307) -> tuple[str, list[str]]:
        heard: list[str] = []
        mine = {"heard": heard, "away": away, "status": status}
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Mine", (Host,), mine))
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}", heard

    yield begin
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


Serve = Callable[[str], AbstractAsyncContextManager[Process]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    @asynccontextmanager
    async def serve(config: str) -> AsyncIterator[Process]:
        file = tmp_path / "threadcast.toml"
        file.write_text(config)
        with start("serve", "--memory", "--port", "0", "--config", str(file), log=tmp_path / "log") as server:
            yield await server.ready()

    return serve


def provider(kind: str, origin: str) -> str:
    return (
        f'[models]\ndefault = "far/tiny"\n[models.providers.far]\nkind = "{kind}"\nbase_url = "{origin}"\n'
        f'api_key = "{KEY}"\nmodels = [{{ name = "tiny" }}]\n'
    )


async def ask_model(server: Process) -> None:
    async with watching(server.url, "c1") as watcher:
        await command(server.url, "c1", user_message("a", WORDS))
        await watcher.at_rest()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirect_of_a_model_to_another_origin_is_refused(
    serve: Serve, host: Begin, kind: str, status: int
) -> None:
    elsewhere, heard_elsewhere = host()
    origin, heard = host(f"{elsewhere}PATH", status)
    async with serve(provider(kind, origin)) as server:
        await ask_model(server)
        assert any(WORDS in each for each in heard), "the model's own server was asked"
        assert heard_elsewhere == []
        log = server.log_text()
        assert "model.failed" in log and KEY not in log
        if kind != "google":  # its SDK follows no redirect at all
            assert "redirect.refused" in log and elsewhere in log


@pytest.mark.parametrize("away", ["//HOST/PATH", "https://ORIGIN", "http://user@HOST/", "http:\\\\\\\\HOST/"])
async def test_no_spelling_of_another_origin_is_followed(serve: Serve, host: Begin, away: str) -> None:
    elsewhere, heard_elsewhere = host()
    origin, heard = host(away.replace("HOST", elsewhere.partition("//")[2]).replace("ORIGIN", "127.0.0.1"))
    async with serve(provider("openai_chat", origin)) as server:
        await ask_model(server)
    assert heard and heard_elsewhere == []


async def test_a_redirect_within_the_origin_is_followed(serve: Serve, host: Begin) -> None:
    origin, heard = host("/again/PATH")
    async with serve(provider("openai_chat", origin)) as server:
        await ask_model(server)
    assert any("/again" in each and WORDS in each for each in heard)


async def test_a_redirect_of_an_mcp_server_to_another_origin_is_refused(serve: Serve, host: Begin) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    elsewhere, heard_elsewhere = host()
    origin, heard = host(f"{elsewhere}PATH")
    async with serve(f'[mcp.far]\nurl = "{origin}/mcp"\nheaders = {{ X-Key = "{KEY}" }}\n') as server:
        with anyio.fail_after(DEADLINE_SECONDS):
            while "mcp.down" not in server.log_text():
                await anyio.sleep(0.05)
    assert heard and heard_elsewhere == []
