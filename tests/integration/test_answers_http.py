"""Sends every method to every path of the OpenAPI document: a refusal names the allowed methods, and no cache stores an
answer."""

import json
import re
from collections.abc import Iterator

import httpx2
import pytest

from tests.support.server import DEADLINE_SECONDS, ROOT, Process
from threadcast_protocol.wire.messages import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.row("ERR-5")]

PATHS: dict[str, JsonObject] = json.loads((ROOT / "protocol/schema/openapi.json").read_text())["paths"]
KEPT_BY_NOBODY = ("no-store", "nosniff")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
STREAMS = {
    *("/v1/chats/subscribe", "/v1/chats/feed", "/v1/sidebar/subscribe"),
    *("/v1/responses/{response_id}", "/mcp"),
}


def allowed_at(path: str) -> set[str]:
    """Return the allowed methods; wherever GET is allowed, HEAD is too, except for streams."""
    documented = {method.upper() for method in PATHS[path] if method.upper() in METHODS}
    return documented | ({"HEAD"} if "GET" in documented and path not in STREAMS else set())


def address(path: str) -> str:
    """Return the path with an id of the right form in each place."""
    return re.sub(r"\{hash\}", "a" * 64, path).replace("{chat_id}", "nothing-here").replace("{", "").replace("}", "")


def refused() -> Iterator[tuple[str, str]]:
    for path in PATHS:
        for method in METHODS:
            if method not in allowed_at(path):
                yield method, path


def is_json(answer: httpx2.Response) -> bool:
    return answer.headers.get("content-type", "").startswith("application/json")


async def test_a_method_that_a_path_does_not_take_is_405_and_names_those_that_it_takes(server: Process) -> None:
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as client:
        for method, path in refused():
            answer = await client.request(method, address(path))
            assert answer.status_code == 405, f"{method} {path}: {answer.status_code}"
            allowed = {each.strip() for each in answer.headers["allow"].split(",")}
            assert allowed == allowed_at(path), f"{method} {path}"
            if method != "HEAD":
                assert answer.json()["code"] == "bad_request"
            assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == (
                "no-store",
                "nosniff",
            )
    assert len(list(refused())) > 3 * len(PATHS)


async def test_every_answer_with_json_is_kept_by_no_cache(server: Process) -> None:
    seen: dict[str, set[str]] = {}
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as client:
        for path in PATHS:
            for method in allowed_at(path):
                content = b'{"nonsense":1}' if method == "POST" else None
                async with client.stream(method, address(path), content=content) as answer:
                    if path in STREAMS and answer.status_code == 200:
                        continue
                    await answer.aread()
                if is_json(answer):
                    headers = (answer.headers["cache-control"], answer.headers["x-content-type-options"])
                    assert headers == KEPT_BY_NOBODY, f"{method} {path}"
                    seen.setdefault(path, set()).add(method)
    not_json = {"/metrics", "/v1/ping", "/v1/chats/feed", "/v1/sidebar/subscribe"}
    assert set(PATHS) - set(seen) <= not_json, "each of them was asked, and answered with JSON"


@pytest.mark.parametrize("path", ["/v1/chats/{}", "/v1/chats/{}?view=tree", "/v1/chats/{}?at=0", "/v1/chats/{}/export"])
async def test_what_a_chat_says_is_kept_by_no_cache_either(server: Process, chat_id: str, path: str) -> None:
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as client:
        body = {"type": "user_message", "client_request_id": "a", "content": "hi"}
        await client.post(f"/v1/chats/{chat_id}/commands", json=body, headers={"Prefer": "wait=20"})
        answer = await client.get(path.format(chat_id))
    assert answer.status_code == 200
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == KEPT_BY_NOBODY


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


async def test_a_browser_at_a_wrong_address_is_shown_a_page_and_a_program_gets_json(server: Process) -> None:
    async with httpx2.AsyncClient(base_url=server.url) as client:
        page = await client.get("/nonsense/<script>", headers={"Accept": BROWSER})
        assert page.status_code == 404
        assert page.headers["content-type"].startswith("text/html")
        assert "&lt;script&gt;" in page.text and "<script>" not in page.text, "an address is text, nothing else"
        assert 'href="/"' in page.text
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert page.headers["cache-control"] == "no-store"
        for accept in ("application/json", "*/*", ""):
            answer = await client.get("/nonsense", headers={"Accept": accept})
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        posted = await client.post("/nonsense", headers={"Accept": BROWSER}, json={})
        assert posted.json()["code"] == "not_found"
        chat = await client.get("/v1/chats/nothing-here", headers={"Accept": BROWSER})
        assert chat.json()["code"] == "not_found", "what is an endpoint answers everybody alike"


async def test_the_pages_files_are_read_only(server: Process) -> None:
    async with httpx2.AsyncClient(base_url=server.url) as client:
        for path in ("/", "/c/hello", "/favicon.svg", "/assets/x.js"):
            answer = await client.post(path, json={})
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD"), path
