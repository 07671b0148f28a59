"""Tools of HTTP services behind a real `threadcast`: the tests check what the services receive and return, and that no
other program sees the credentials."""

import json
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from tests.integration.mcp_harness import answers_in
from tests.integration.store_fixtures import fresh_url
from tests.support.reader import watching
from tests.support.server import Process, command, start, user_message
from threadcast.store.embedded.server_process import ServerProcess

pytestmark = pytest.mark.anyio

TOKEN = "Bearer planted-token-of-the-caller"
KEY = "planted-key-of-the-operator"


class Service(BaseHTTPRequestHandler):
    """Records its requests. /echo quotes the request's headers, /moved redirects to another origin, /broken fails."""

    asked: list[tuple[str, str, dict[str, str], str]]

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        self.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        status = 302 if self.path.startswith("/moved") else 500 if self.path.startswith("/broken") else 200
        answer = json.dumps({"path": self.path, "headers": dict(self.headers)}).encode()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/echo/elsewhere")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET  # noqa: N815  # the base class looks methods up by these names

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the log lines out of the tests' output."""


@pytest.fixture
def service() -> Iterator[tuple[str, list[tuple[str, str, dict[str, str], str]]]]:
    asked: list[tuple[str, str, dict[str, str], str]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Mine", (Service,), {"asked": asked}))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def config(base: Path, url: str) -> Path:
    tools = "".join(
        f'[tools.{name}]\nurl = "{url}/{path}"\ndescription = "a test"\n{more}\n'
        for name, path, more in [
            ("echo", "echo/{id}", f'headers = {{ X-Api-Key = "{KEY}" }}'),
            ("mine", "echo/{id}", "forward_auth = true"),
            ("save", "save", 'method = "POST"\npolicy = "auto"'),
            ("moved", "moved", "forward_auth = true"),
            ("broken", "broken", "forward_auth = true"),
        ]
    )
    file = base / "threadcast.toml"
    file.write_text(f'[models]\ndefault = "demo/tools"\n{tools}')
    return file


async def results(url: str, chat_id: str, *calls: str, request_id: str = "a") -> list[tuple[str, bool]]:
    async with watching(url, chat_id) as watcher:
        text = "\n".join(f"call {each}" for each in calls)
        await command(url, chat_id, user_message(request_id, text), {"Authorization": TOKEN})
        await watcher.at_rest()
        return answers_in(watcher)


@pytest.mark.row("TOOL-6", "TOOL-7", "AUTH-3", "LOOP-5")
async def test_a_service_is_asked_with_the_callers_rights_and_nothing_else_ever_sees_them(
    service: tuple[str, list[tuple[str, str, dict[str, str], str]]], tmp_path: Path, chat_id: str
) -> None:
    url, asked = service
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "d"), "--config", str(config(tmp_path, url))]
    with start(*arguments, log=tmp_path / "log") as process:
        await process.ready()
        calls = ['echo {"id":"a b","q":[1,"x&y"]}', 'mine {"id":"1"}', 'save {"title":"t"}', "moved", "broken"]
        told = await results(process.url, chat_id, *calls)
        assert [failed for _, failed in told] == [False, False, False, True, True]
        assert told[3][0].startswith("The service answered 302.") and "500" in told[4][0]
        by_path = {path: (method, body, headers.get("authorization")) for method, path, headers, body in asked}
        assert len(asked) == len(by_path)
        assert by_path == {  # in no order: read-only tools run at the same time
            "/echo/a%20b?q=1&q=x%26y": ("GET", "", None),
            "/echo/1": ("GET", "", TOKEN),
            "/save": ("POST", '{"title":"t"}', None),
            "/moved": ("GET", "", TOKEN),
            "/broken": ("GET", "", TOKEN),
        }
        assert [headers["x-api-key"] for _, _, headers, _ in asked if "x-api-key" in headers] == [KEY]
        async with httpx2.AsyncClient() as client:
            tools = (await client.get(f"{process.url}/v1/tools")).text
            assert '"source":"http"' in tools
            pages = [f"/v1/chats/{chat_id}", f"/v1/chats/{chat_id}/export", "/metrics"]
            seen = tools + "".join([(await client.get(process.url + page)).text for page in pages])
        seen += json.dumps(told) + process.log_text()
        await process.stop()
    stored = b"".join(file.read_bytes() for file in (tmp_path / "d").rglob("*") if file.is_file())
    for secret in ("planted-token-of-the-caller", KEY):
        assert secret not in seen and secret.encode() not in stored


@pytest.mark.row("TOOL-7", "GATE-5")
async def test_an_accepted_preview_is_carried_out_with_the_rights_of_who_accepted_it(
    service: tuple[str, list[tuple[str, str, dict[str, str], str]]], tmp_path: Path, chat_id: str
) -> None:
    url, asked = service
    file = tmp_path / "threadcast.toml"
    save = f'[tools.save_article]\nurl = "{url}/save"\nmethod = "POST"\ndescription = "a test"\nforward_auth = true\n'
    file.write_text(f'[models]\ndefault = "demo/tools"\n{save}')
    app = tmp_path / "app.py"
    app.write_text("from tests.integration.preview_tools import article, propose_article\n")
    arguments = ["--config", str(file), "--app", str(app), "--data-dir", str(tmp_path / "d")]
    with start("serve", "--port", "0", *arguments, log=tmp_path / "log") as process:
        await process.ready()
        async with watching(process.url, chat_id) as watcher:
            await command(process.url, chat_id, user_message("a", 'call propose_article {"title":"Tides"}'))
            await watcher.at_rest()
            (shown,) = [frame for frame in watcher.frames if frame["type"] == "payload_added"]
            decide = {"type": "tool_decision", "client_request_id": "d", "payload_id": shown["payload_id"]}
            await command(process.url, chat_id, {**decide, "accepted": True}, {"Authorization": TOKEN})
            await watcher.until(lambda w: any(f.get("approval", "")[:6] == "commit" for f in w.frames))
            assert [f["approval"] for f in watcher.frames if "approval" in f][-1] == "committed"
    assert [(path, headers.get("authorization")) for _, path, headers, _ in asked] == [("/save", TOKEN)]


@pytest.mark.row("TOOL-7", "AUTH-3")
async def test_a_worker_asks_the_web_process_and_is_told_when_nobody_holds_it_any_more(
    service: tuple[str, list[tuple[str, str, dict[str, str], str]]],
    valkey_server: ServerProcess,
    tmp_path: Path,
    chat_id: str,
) -> None:
    url, asked = service
    file = config(tmp_path, url)
    file.write_text(file.read_text().replace("forward_auth = true", 'forward_auth = true\npolicy = "ask"'))
    environment = {"THREADCAST_STORE__URL": fresh_url(valkey_server)}
    arguments = ["--config", str(file), "--data-dir", str(tmp_path / "d")]
    decide = {"type": "tool_decision", "client_request_id": "d", "accepted": True}

    def web() -> AbstractContextManager[Process]:
        return start("web", "--port", "0", *arguments, log=tmp_path / "log", environment=environment)

    with start("worker", *arguments, log=tmp_path / "log", environment=environment) as worker:
        await worker.ready()
        for who, killed in ((chat_id, False), (f"{chat_id}-2", True)):
            with web() as first, web() as second:
                await first.ready()
                await second.ready()
                async with watching(second.url, who) as watcher:
                    await command(first.url, who, user_message("a", 'call mine {"id":"1"}'), {"Authorization": TOKEN})
                    await watcher.until(lambda w: w.state is not None and w.state.runtime.pause_reasons)
                    assert watcher.state is not None
                    call_id = watcher.state.runtime.pause_reasons[0].tool_call_id
                    if killed:
                        first.kill()
                    await command(second.url, who, {**decide, "tool_call_id": call_id})
                    await watcher.at_rest()
                    ((text, failed),) = answers_in(watcher)
            assert failed is killed
            assert not killed or text.startswith(
                "The caller's authorization for this service is not held, or no longer;"
            )
    assert [headers.get("authorization") for _, _, headers, _ in asked] == [TOKEN]
    assert "planted-token" not in (tmp_path / "log").read_text()
