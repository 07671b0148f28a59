"""Sign-in of the page: a token becomes a cookie that is accepted only in requests of this server's own page
(AUTH-1)."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from starlette.datastructures import Headers

from tests.support.server import Process, serving
from tests.support.tokens import token_of, tokens
from threadcast.api.session import is_own_origin

pytestmark = pytest.mark.anyio

CONFIG = """
[server]
cors_origins = ["https://app.example"]
""" + tokens(ann='permissions = ["approve"]\nroles = ["editor"]', bob="")

ANN = {"principal": "ann", "permissions": ["approve"], "roles": ["editor"], "has_token": True}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Process]:
    async with serving(tmp_path, config=CONFIG) as process:
        yield process


async def signed_in(client: httpx2.AsyncClient, origin: str, name: str = "ann") -> httpx2.Response:
    headers = {"Origin": origin, "Authorization": f"Bearer {token_of(name)}"}
    return await client.post("/v1/session", headers=headers)


@pytest.mark.row("AUTH-1")
async def test_a_token_becomes_a_cookie_that_speaks_for_it_until_it_is_taken_back(
    server: Process, client: httpx2.AsyncClient
) -> None:
    page = {"Origin": server.url}
    assert (await client.get("/v1/session")).status_code == 401
    for wrong in ({}, {"Authorization": "Bearer nobody"}):
        answer = await client.post("/v1/session", headers={**page, **wrong})
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert "set-cookie" not in answer.headers

    answer = await signed_in(client, server.url)
    assert (answer.status_code, answer.json()) == (200, ANN)
    cookie = answer.headers["set-cookie"].lower()
    port = server.url.rpartition(":")[2]
    assert cookie.startswith(f"threadcast-session-{port}={token_of('ann')};")
    assert {"httponly", "samesite=strict", "path=/", "max-age=2592000"} <= set(cookie.split("; "))
    assert "secure" not in cookie

    assert (await client.get("/v1/session")).json() == ANN
    command = {"type": "user_message", "client_request_id": "r", "content": "mine"}
    assert (await client.post("/v1/chats/c1/commands", json=command, headers=page)).status_code == 202

    answer = await client.delete("/v1/session", headers=page)
    assert (answer.status_code, answer.json()) == (200, {"status": "deleted"})
    assert (await client.get("/v1/session")).status_code == 401


@pytest.mark.row("AUTH-1")
async def test_the_cookie_does_not_count_where_another_page_made_the_browser_send_it(
    server: Process, client: httpx2.AsyncClient
) -> None:
    await signed_in(client, server.url)
    caps = "/v1/caps"
    assert (await client.get(caps)).status_code == 200
    assert (await client.get(caps, headers={"Sec-Fetch-Site": "same-origin"})).status_code == 200
    for site in ("same-site", "cross-site"):  # an image in a page that another port of this host serves
        assert (await client.get(caps, headers={"Sec-Fetch-Site": site})).status_code == 401
    # An origin that may call with its own token must not call with the page's cookie.
    assert (await client.get(caps, headers={"Origin": "https://app.example"})).status_code == 401
    command = {"type": "user_message", "client_request_id": "r", "content": "x"}
    for headers in ({}, {"Origin": "https://app.example"}):
        assert (await client.post("/v1/chats/c1/commands", json=command, headers=headers)).status_code == 401
    assert (await client.delete("/v1/session", headers={"Origin": "https://evil.example"})).status_code == 403


@pytest.mark.row("AUTH-1")
async def test_over_https_the_cookie_is_secure_and_no_other_host_can_have_set_it(client: httpx2.AsyncClient) -> None:
    host = "chat.example.org"
    page = {"Host": host, "Origin": f"https://{host}"}  # as behind a proxy that terminates TLS
    answer = await client.post("/v1/session", headers={**page, "Authorization": f"Bearer {token_of('ann')}"})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"__Host-threadcast-session={token_of('ann')};")
    assert "; Secure" in cookie
    client.cookies.clear()
    mine, tossed = f"__Host-threadcast-session={token_of('ann')}", f"threadcast-session={token_of('bob')}"
    answer = await client.get("/v1/session", headers={"Host": host, "Cookie": f"{tossed}; {mine}"})
    assert answer.json()["principal"] == "ann"
    foreign = {"Origin": "https://app.example", "Authorization": f"Bearer {token_of('ann')}"}
    assert "set-cookie" not in (await client.post("/v1/session", headers=foreign)).headers


@pytest.mark.row("AUTH-1")
async def test_a_page_that_came_by_http_does_not_speak_with_the_cookie_of_https(client: httpx2.AsyncClient) -> None:
    host = "chat.example.org"
    secure, plain = f"__Host-threadcast-session={token_of('ann')}", f"threadcast-session={token_of('ann')}"
    command = {"type": "user_message", "client_request_id": "r", "content": "x"}  # 200: the cookie was accepted before
    for origin, cookie, status in (
        (f"https://{host}", secure, 202),
        (f"https://{host}", plain, 401),  # another host may have set this cookie
        (f"http://{host}", plain, 200),
        (f"http://{host}", secure, 401),
        (f"http://{host}", f"{plain}; {secure}", 401),
        (f"ftp://{host}", plain, 403),
    ):
        headers = {"Host": host, "Origin": origin, "Cookie": cookie}
        answer = await client.post("/v1/chats/c1/commands", json=command, headers=headers)
        assert answer.status_code == status, (origin, cookie)


@pytest.mark.parametrize(
    ("origin", "scheme", "is_ours"),
    [
        ("https://a:1", "https", True),
        ("https://a:1", "http", True),
        ("http://a:1", "http", True),
        ("http://a:1", "https", False),
        ("http://a:2", "http", False),
        ("a:1", "http", False),
        ("null", "http", False),
    ],
)
def test_an_origin_is_ours_by_host_and_by_a_scheme_that_is_no_weaker(origin: str, scheme: str, is_ours: bool) -> None:
    assert is_own_origin(Headers({"host": "a:1", "origin": origin}), scheme) is is_ours


@pytest.mark.parametrize(
    "host", [b"a:b c;d=e", b"a:\xe9", b"[::1]:99 99; Domain=x", b"a:", b"a:123456", b"[::1]", b"a]:1"]
)
async def test_what_is_no_port_does_not_get_into_the_name_of_the_cookie(
    client: httpx2.AsyncClient, host: bytes
) -> None:
    answer = await client.delete("/v1/session", headers=[(b"host", host)])
    assert answer.status_code == 200
    assert answer.headers["set-cookie"].startswith("threadcast-session=")


@pytest.mark.row("AUTH-1")
async def test_who_says_to_be_somebody_else_is_refused(server: Process, client: httpx2.AsyncClient) -> None:
    await signed_in(client, server.url, "bob")
    assert (await client.get("/v1/caps", headers={"Threadcast-Principal": "bob"})).status_code == 200
    answer = await client.get("/v1/caps", headers={"Threadcast-Principal": "ann"})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    subscribe = "/v1/chats/subscribe?chat_id=c1"
    assert (await client.get(subscribe, headers={"Threadcast-Principal": "ann"})).status_code == 401


async def test_without_tokens_everybody_is_local_and_no_cookie_is_set(tmp_path: Path) -> None:
    async with serving(tmp_path) as process, httpx2.AsyncClient(base_url=process.url) as client:
        local = {"principal": "local", "permissions": ["approve", "diagnostics"], "roles": [], "has_token": False}
        assert (await client.get("/v1/session")).json() == local
        answer = await signed_in(client, process.url)
        assert answer.json() == local
        assert "set-cookie" not in answer.headers
