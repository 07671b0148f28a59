"""Requests through a proxy: they are refused if the server has no tokens, and are accepted from the page if the server
knows its public address."""

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.server import start
from threadcast.settings.sources import BadSettings, load_settings

pytestmark = [pytest.mark.anyio, pytest.mark.row("SEC-9")]

TOKEN = "ann-secret-token"
WITH_TOKENS = f"[[auth.tokens]]\nid = 'ann'\nsha256 = '{hashlib.sha256(TOKEN.encode()).hexdigest()}'\n"
PUBLIC = "https://chat.example.com"

Serve = Callable[[str], AbstractAsyncContextManager[httpx2.AsyncClient]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    @asynccontextmanager
    async def serve(config: str) -> AsyncIterator[httpx2.AsyncClient]:
        (tmp_path / "threadcast.toml").write_text(config)
        arguments = ("serve", "--memory", "--port", "0", "--config", str(tmp_path / "threadcast.toml"))
        with start(*arguments, log=tmp_path / "log") as server:
            await server.ready()
            async with httpx2.AsyncClient(base_url=server.url, timeout=30) as client:
                yield client

    return serve


@pytest.mark.parametrize(
    "header",
    [
        {"Forwarded": "for=192.0.2.1"},
        {"X-Forwarded-For": "192.0.2.1"},
        {"X-Forwarded-Proto": "https"},
        {"X-Forwarded-Host": "chat.example.com"},
        {"X-Real-IP": "192.0.2.1"},
        {"Via": "1.1 proxy"},
    ],
    ids=lambda header: next(iter(header)),
)
async def test_a_server_without_tokens_refuses_what_comes_through_a_proxy(serve: Serve, header: dict[str, str]) -> None:
    async with serve("") as client:
        assert (await client.get("/v1/chats")).status_code == 200
        for request in (client.get("/v1/chats", headers=header), client.get("/", headers=header)):
            answer = await request
            assert answer.status_code == 403
            assert "configure auth.tokens" in answer.json()["detail"]
            assert next(iter(header)).lower() in answer.json()["detail"]


async def test_with_tokens_a_proxy_is_welcome(serve: Serve) -> None:
    async with serve(WITH_TOKENS) as client:
        headers = {"Authorization": f"Bearer {TOKEN}", "X-Forwarded-For": "192.0.2.1", "Via": "1.1 proxy"}
        assert (await client.get("/v1/chats", headers=headers)).status_code == 200


async def test_behind_a_proxy_that_rewrites_host_the_page_signs_in_and_posts(serve: Serve) -> None:
    async with serve(f"[server]\npublic_url = '{PUBLIC}'\n{WITH_TOKENS}") as client:
        page = {"Origin": PUBLIC}  # the Host header of this client has the name by which the proxy knows the server
        answer = await client.post("/v1/session", headers={**page, "Authorization": f"Bearer {TOKEN}"})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-threadcast-session=")
        assert "Secure" in cookie
        signed_in = {"Cookie": cookie.partition(";")[0]}
        body = {"type": "user_message", "client_request_id": "r1", "content": "hello"}
        posted = await client.post("/v1/chats/c1/commands", json=body, headers={**page, **signed_in})
        assert posted.status_code == 202
        assert (
            await client.get("/v1/chats", headers={**signed_in, "Sec-Fetch-Site": "same-origin"})
        ).status_code == 200
        for foreign in ("https://evil.example", "http://chat.example.com", str(client.base_url)):
            answer = await client.post("/v1/chats/c1/commands", json=body, headers={"Origin": foreign, **signed_in})
            assert answer.status_code == 403, foreign


@pytest.mark.parametrize("public", ["http://localhost:8000", PUBLIC])
async def test_a_public_address_does_not_let_in_names_that_lead_to_this_machine(serve: Serve, public: str) -> None:
    async with serve(f"[server]\npublic_url = '{public}'\n") as client:
        assert (await client.get("/v1/chats", headers={"Host": "rebound.example:8000"})).status_code == 403
        assert (await client.get("/v1/chats")).status_code == (403 if public == PUBLIC else 200)


async def test_without_a_public_address_such_a_post_is_refused_with_what_to_do(serve: Serve) -> None:
    async with serve(WITH_TOKENS) as client:
        headers = {"Origin": PUBLIC, "Authorization": f"Bearer {TOKEN}"}
        answer = await client.get("/v1/chats", headers=headers)
        assert answer.status_code == 403
        assert "server.public_url" in answer.json()["detail"]


@pytest.mark.parametrize("origin", ["*", "null"])
def test_without_tokens_no_foreign_page_may_be_let_in(origin: str) -> None:
    with pytest.raises(BadSettings, match=r"would let every web page .* Make a token with `threadcast token`"):
        load_settings({"THREADCAST_SERVER__CORS_ORIGINS": f'["{origin}"]'})


@pytest.mark.parametrize("address", ["chat.example.com", "https://chat.example.com/", "https://Chat.example.com"])
def test_an_address_that_browsers_would_write_otherwise_is_refused(address: str) -> None:
    with pytest.raises(BadSettings, match=r"public_url: .* is not a single origin; write https://host"):
        load_settings({"THREADCAST_SERVER__PUBLIC_URL": address})
