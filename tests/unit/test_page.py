"""The page's files over HTTP: what browsers may keep, what they may run, and what a server without them says."""

from pathlib import Path

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from server.api import page as rooms

HTML = "<!doctype html><title>Threadcast</title>"
SCRIPT = "assets/index-BHR4xr9K.js"


@pytest.fixture
def static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rooms, "STATIC", tmp_path)
    return tmp_path


@pytest.fixture
def built(static: Path) -> Path:
    (static / "assets").mkdir()
    (static / "index.html").write_text(HTML)
    (static / "favicon.svg").write_text("<svg/>")
    (static / SCRIPT).write_text("run()")
    (static / "secret.txt").write_text("not for the web")
    return static


def get(path: str) -> httpx2.Response:
    routes = [Route("/", rooms.page), Route("/c/{chat_id}", rooms.page), Route("/favicon.svg", rooms.icon)]
    app = Starlette(routes=[*routes, Mount("/assets", rooms.assets())])

    async def ask() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    return anyio.run(ask)


@pytest.mark.parametrize("path", ["/", "/c/some-chat"])
def test_the_page_and_every_link_into_it_are_the_same_file_asked_for_anew_each_time(built: Path, path: str) -> None:
    answer = get(path)
    assert (answer.status_code, answer.text) == (200, HTML)
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["etag"]


def test_scripts_travel_packed(built: Path) -> None:
    (built / SCRIPT).write_text("run();" * 500)
    answer = get(f"/{SCRIPT}")
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.text == "run();" * 500


def test_files_with_a_hash_in_their_name_may_be_kept_for_ever(built: Path) -> None:
    answer = get(f"/{SCRIPT}")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert "javascript" in answer.headers["content-type"]


@pytest.mark.parametrize("path", ["/", f"/{SCRIPT}", "/favicon.svg"])
def test_scripts_come_from_the_server_alone_and_nobody_frames_the_page(built: Path, path: str) -> None:
    headers = get(path).headers
    policy = {word: rest for word, _, rest in (each.partition(" ") for each in _policy(headers))}
    assert policy["default-src"] == "'self'"
    assert not {"script-src", "connect-src", "worker-src"} & policy.keys(), "these are default-src's, which is strict"
    assert policy["frame-ancestors"] == policy["object-src"] == policy["base-uri"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def _policy(headers: httpx2.Headers) -> list[str]:
    return [each.strip() for each in headers["content-security-policy"].split(";")]


@pytest.mark.parametrize(
    "path", ["/assets/../index.html", "/assets/%2e%2e/secret.txt", "/assets/nothing.js", "/assets/", "/assets"]
)
def test_nothing_beside_the_assets_can_be_read(built: Path, path: str) -> None:
    answer = get(path)
    assert answer.status_code in (307, 404)
    assert "not for the web" not in answer.text


def test_a_server_without_the_page_says_how_to_get_it_and_lets_nobody_keep_that(static: Path) -> None:
    for path in ("/", "/c/some-chat"):
        answer = get(path)
        assert answer.status_code == 503
        assert "scripts/web build" in answer.text
        assert answer.headers["content-security-policy"]
        assert "max-age" not in answer.headers.get("cache-control", "")
    assert get(f"/{SCRIPT}").status_code == 404
    assert get("/favicon.svg").json()["code"] == "not_found"
