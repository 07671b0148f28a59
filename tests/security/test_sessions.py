"""Attacks on the identity of a request: cookies that another party has set, headers that come twice, forged hosts."""

from collections.abc import Iterator

import anyio
import httpx2
import pytest

from tests.support.server import Process, started_server
from tests.support.tokens import bearer, token_of, tokens

pytestmark = pytest.mark.anyio

PUBLIC = "https://chat.example.com"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    base = tmp_path_factory.mktemp("sessions")
    (base / "pages" / "inner").mkdir(parents=True)
    (base / "pages" / "inner" / "index.html").write_text("a page")
    config = f"[server]\npublic_url = '{PUBLIC}'\npages = '{base / 'pages'}'\n" + tokens(ann="", mallory="")
    with started_server(base, config=config) as process:
        yield process.wait_ready()


async def _raw(server: Process, *lines: str) -> bytes:
    """Send a request of these lines and return the answer."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    with anyio.fail_after(30):
        async with await anyio.connect_tcp(host, int(port)) as connection:
            await connection.send("\r\n".join([*lines, "Connection: close", "", ""]).encode())
            answer = bytearray()
            async for chunk in connection:
                answer += chunk
            return bytes(answer)


async def test_a_cookie_that_another_host_has_planted_signs_nobody_in(server: Process) -> None:
    """Another host of the domain can set cookies for the whole domain, but no cookie with the prefix `__Host-`."""
    planted = {"Cookie": f"threadcast-session={token_of('mallory')}"}
    async with httpx2.AsyncClient(base_url=server.url, timeout=30) as client:
        for more in ({"Origin": PUBLIC}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {}):
            answer = await client.get("/v1/session", headers={**planted, **more})
            assert answer.status_code == 401, (more, answer.text)
        both = f"threadcast-session={token_of('mallory')}; __Host-threadcast-session={token_of('ann')}"
        answer = await client.get("/v1/session", headers={"Cookie": both, "Sec-Fetch-Site": "same-origin"})
        assert answer.json()["principal"] == "ann"


async def test_signing_in_and_out_over_https_removes_the_cookie_of_a_visit_without(server: Process) -> None:
    async with httpx2.AsyncClient(base_url=server.url, timeout=30) as client:
        signed_in = await client.post("/v1/session", headers={"Origin": PUBLIC, **bearer("ann")})
        signed_out = await client.delete("/v1/session", headers={"Origin": PUBLIC})
    for answer, kept in ((signed_in, token_of("ann")), (signed_out, '""')):
        secure, plain = answer.headers.get_list("set-cookie")
        assert secure.startswith(f"__Host-threadcast-session={kept};")
        assert {"HttpOnly", "Secure", "SameSite=strict", "Path=/"} <= set(secure.split("; "))
        assert plain.startswith('threadcast-session="";') and "Max-Age=0" in plain


async def test_a_cookie_does_not_replace_the_token_of_a_request(server: Process) -> None:
    cookie = {"Cookie": f"__Host-threadcast-session={token_of('mallory')}", "Origin": PUBLIC}
    async with httpx2.AsyncClient(base_url=server.url, timeout=30) as client:
        answer = await client.post("/v1/session", headers={**cookie, **bearer("ann")})
        assert answer.json()["principal"] == "ann"
        assert token_of("mallory") not in str(answer.headers)
        assert (await client.get("/v1/session", headers={**cookie, "Authorization": "Bearer x"})).status_code == 401


@pytest.mark.parametrize("name", ["Authorization", "authorization", "Origin", "Threadcast-Principal"])
async def test_a_header_that_tells_who_calls_may_come_once(server: Process, name: str) -> None:
    first, second = (f"Bearer {token_of('ann')}", f"Bearer {token_of('mallory')}") if "uth" in name else (PUBLIC, "x")
    answer = await _raw(server, "GET /v1/session HTTP/1.1", "Host: x", f"{name}: {first}", f"{name.title()}: {second}")
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b"more than once" in answer


@pytest.mark.parametrize("path", ["/v1/chats/", "/pages", "/pages/inner", "//evil.example/pages/inner", "/v1/caps/"])
async def test_no_redirect_leads_to_a_host_that_the_client_named(server: Process, path: str) -> None:
    answer = await _raw(
        server, f"GET {path} HTTP/1.1", "Host: evil.example", f"Authorization: Bearer {token_of('ann')}"
    )
    locations = [line for line in answer.split(b"\r\n") if line.lower().startswith(b"location:")]
    assert b"evil.example" not in b"".join(locations)
    if path.startswith("/pages"):
        assert locations == [f"location: {path}/".encode()]
    else:
        assert answer.startswith(b"HTTP/1.1 404 "), answer
