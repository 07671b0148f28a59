"""The page's files over HTTP: their caching and policy headers, and the answers of a server without them."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import httpx2
import pytest
from starlette.applications import Starlette

from threadcast.api import page as rooms

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


def get(
    path: str,
    frame_origins: Sequence[str] = (),
    pages: str = "",
    method: str = "GET",
    headers: dict[str, str] | None = None,
) -> httpx2.Response:
    app = Starlette(routes=rooms.page_routes(frame_origins, pages))

    async def ask() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, headers=headers)

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


def test_exactly_the_origins_that_are_named_may_frame_the_page_and_its_links(built: Path) -> None:
    for path in ("/", "/c/some-chat"):
        policy = _policy(get(path, ["self", "https://app.example.com:8443"]).headers)
        assert "frame-ancestors 'self' https://app.example.com:8443" in policy
        assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in _policy(get("/favicon.svg", ["self"]).headers)


def test_the_frame_of_diagrams_has_no_origin_fetches_nothing_and_stands_in_the_page_alone(built: Path) -> None:
    assert get("/diagram").status_code == 404
    (built / "diagram.html").write_text(HTML)
    policy = _policy(get("/diagram", ["self", "https://app.example.com"]).headers)
    assert {"default-src 'none'", "script-src 'self'", "sandbox allow-scripts"} <= set(policy)
    assert "frame-ancestors 'self' https://app.example.com" in policy
    assert "frame-ancestors 'self'" in _policy(get("/diagram").headers)
    assert get(f"/{SCRIPT}").headers["access-control-allow-origin"] == "*"  # its modules are fetched with CORS


def test_an_operators_pages_are_served_with_a_policy_of_their_own_and_nothing_hidden_is(
    built: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pages = tmp_path_factory.mktemp("pages")
    (pages / "index.html").write_text("<!doctype html>host")
    (pages / "host.js").write_text("go()")
    (pages / ".env").write_text("KEY=not for the web")
    (pages / ".git").mkdir()
    (pages / ".git" / "config").write_text("not for the web")
    (pages / "out").symlink_to(built / "secret.txt")
    for path, text in (("/pages/", "<!doctype html>host"), ("/pages/host.js", "go()")):
        answer = get(path, ["self"], str(pages))
        assert (answer.status_code, answer.text) == (200, text)
        assert {"default-src 'self'", "frame-ancestors 'none'"} <= set(_policy(answer.headers))
        assert answer.headers["cache-control"] == "no-cache"
    for path in (".env", ".git/config", "%2eenv", "out", "../secret.txt", "%2e%2e/secret.txt", "nothing"):
        answer = get(f"/pages/{path}", ["self"], str(pages))
        assert answer.status_code == 404, path
        assert "not for the web" not in answer.text
    assert get("/pages/").status_code == 404


def test_every_answer_about_an_operators_pages_has_the_policy(
    built: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pages = tmp_path_factory.mktemp("pages")
    (pages / "404.html").write_text("<!doctype html><script src=//evil.example></script>")
    (pages / "host.js").write_text("go()")
    (pages / "inner").mkdir()
    (pages / "inner" / "index.html").write_text("<!doctype html>")
    etag = get("/pages/host.js", pages=str(pages)).headers["etag"]
    for answer, status in (
        (get("/pages/nothing", pages=str(pages)), 404),
        (get("/pages/.env", pages=str(pages)), 404),
        (get("/pages/inner", pages=str(pages)), 307),
        (get("/pages/host.js", pages=str(pages), headers={"If-None-Match": etag}), 304),
        (get("/pages/host.js", pages=str(pages), method="POST"), 405),
    ):
        assert answer.status_code == status
        assert all(answer.headers.get(name) == value for name, value in rooms.HEADERS.items()), status
