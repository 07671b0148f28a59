"""Serves the page at `/` and at its links, from the files in `static` that `scripts/web build` makes, and an operator's
own pages (`server.pages`) at `/pages/`.

A file under `assets/` has a hash of its content in its name, so browsers may cache it for ever. Browsers revalidate
`index.html` each time; the server returns it for every link into the page (`/c/<chat>`). A server without these files
explains how to build them. The page uses the public endpoints like any other client.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from threadcast.api.errors import error_response
from threadcast_protocol.wire.errors import NotFound

__all__ = ["STATIC", "Assets", "icon", "no_such_page", "page_routes"]

STATIC = Path(__file__).parents[1] / "static"
"""The directory of the built files; the repository does not contain it."""

_POLICY = (
    "default-src 'self'; img-src 'self' data: blob: https:; media-src 'self' data: blob:; "
    "style-src 'self' 'unsafe-inline'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors "
)
"""The policy of the page (CSP Level 3): only this server's scripts run, so text of models and tools is shown but never
run. Images may come from any https address, because the page loads an answer's images after the user's click. Inline
styles are allowed for `_MISSING`; the page has none."""

_DIAGRAM_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "sandbox allow-scripts; frame-ancestors 'self' "
)
"""The policy of the frame that draws diagrams from a model's text: the frame has no origin and fetches nothing but
scripts. Mermaid writes inline styles. https://www.w3.org/TR/CSP3/#directive-sandbox"""

HEADERS = {
    "Content-Security-Policy": f"{_POLICY}'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_PLAIN = """\
<!doctype html><html lang="en"><meta charset="utf-8"><title>Threadcast</title>
<body style="font: 1rem/1.6 system-ui; max-width: 40rem; margin: 4rem auto; padding: 0 1rem">
<h1>{title}</h1>
<p>{text}</p>
<p><a href="/">the page</a> · <a href="/v1/caps">/v1/caps</a> · <a href="/readyz">/readyz</a></p>
"""

_MISSING = _PLAIN.format(
    title="The page is not built",
    text="This server runs, and its API answers, but the files of its page are missing. In a clone, with "
    "Node.js 20 or newer, <code>scripts/web build</code> makes them; a package from a release holds them. Then load "
    "this again.",
)


def page_routes(frame_origins: Sequence[str] = (), pages: str = "") -> list[BaseRoute]:
    """Return the routes of the page, and of the operator's pages in the directory `pages`; '' means that the operator
    has no pages. Only pages of `frame_origins` may show the page in a frame; "self" is this server's own origin."""
    ancestors = " ".join("'self'" if each == "self" else each for each in frame_origins) or "'none'"
    headers = {**HEADERS, "Content-Security-Policy": _POLICY + ancestors}

    async def page(_: Request) -> Response:
        """Answer `/` and the page's own links."""
        index = STATIC / "index.html"
        if not index.is_file():
            return HTMLResponse(_MISSING, 503, HEADERS)
        return FileResponse(index, headers={**headers, "Cache-Control": "no-cache"})

    async def diagram(_: Request) -> Response:
        """Return the document of the frame that draws diagrams. The policy must allow all enclosing frames, not only
        the direct parent."""
        policy = _DIAGRAM_POLICY + " ".join(each for each in frame_origins if each != "self")
        return _built("diagram.html", {"Content-Security-Policy": policy.strip(), "Cache-Control": "no-cache"})

    async def to_pages(_: Request) -> Response:
        return RedirectResponse("/pages/", headers=HEADERS)

    own = [Route("/pages", to_pages), Mount("/pages", _Pages(pages))] if pages else []
    return [
        Route("/", page),
        Route("/c/{chat_id}", page),
        Route("/diagram", diagram),
        Route("/favicon.svg", icon),
        # Clients that accept gzip get a third of the bytes; each browser fetches the files once for each build.
        Mount("/assets", GZipMiddleware(Assets(), compresslevel=6)),
        *own,
    ]


class _Pages(StaticFiles):
    """Serves an operator's pages. These pages share the page's origin, and therefore its cookies and storage, so they
    may run only this server's scripts, too. Every answer has that policy, including a 404.html, a redirect and an
    error."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory=directory, html=True)

    async def get_response(self, path: str, scope: Scope) -> Response:
        if any(part.startswith(".") for part in Path(path).parts if part != "."):  # .git and .env must not be served
            raise HTTPException(404, headers=HEADERS)
        try:
            response = await super().get_response(path, scope)
        except HTTPException as wrong:
            raise HTTPException(wrong.status_code, wrong.detail, {**(wrong.headers or {}), **HEADERS}) from None
        response.headers.update({**HEADERS, "Cache-Control": "no-cache"})
        if "location" in response.headers:  # without the host, since any client may choose the Host header
            response.headers["Location"] = urlsplit(response.headers["location"]).path
        return response


def no_such_page(path: str) -> Response:
    """Answer a browser at an address that does not exist: a page with status 404 and links to the addresses that
    exist."""
    text = f"This is a Threadcast server, and it has nothing at <code>{escape(path)}</code>. A chat is at /c/ID."
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return HTMLResponse(_PLAIN.format(title="There is nothing here", text=text), 404, headers)


class Assets(StaticFiles):
    """Serves the files that have their hash in their name."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC / "assets", check_dir=False)

    async def check_config(self) -> None:
        """Skip the check that the directory exists: if it is missing, each file is simply not found."""

    def file_response(self, *found: Any, **more: Any) -> Response:  # Any: the arguments are passed on unchanged
        response = super().file_response(*found, **more)
        response.headers.update({**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"})
        # The frame of diagrams has no origin, and a module is fetched with CORS. These files are public.
        response.headers["Access-Control-Allow-Origin"] = "*"
        return response


async def icon(_: Request) -> Response:
    """The icon in the browser's tab, which browsers request on their own."""
    return _built("favicon.svg", {"Cache-Control": "max-age=86400"})


def _built(name: str, headers: dict[str, str]) -> Response:
    """Return a file that the build makes, or 404 without a build."""
    if not (STATIC / name).is_file():
        return error_response(NotFound("the page is not built"))
    return FileResponse(STATIC / name, headers={**HEADERS, **headers})
