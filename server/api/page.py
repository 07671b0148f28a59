"""The page itself: what `scripts/web build` makes of `web/app`, read from `server/static`, at `/` and at its links; and
an operator's own pages (`server.pages`) at `/pages/`.

Two kinds of files. What lies under `assets/` has a hash of its content in its name, so browsers may keep it for ever;
`index.html` is asked for anew each time, and is the answer to every link into the page (`/c/<chat>`). A server
without these files says how to get them. It knows no chat: the page asks the public endpoints like any other client.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from protocol.errors import NotFound
from server.api.errors import error_response

__all__ = ["STATIC", "Assets", "assets", "icon", "no_such_page", "page_routes"]

STATIC = Path(__file__).parents[1] / "static"
"""Made by the build, in no repository."""

_POLICY = (
    "default-src 'self'; img-src 'self' data: blob: https:; media-src 'self' data: blob:; "
    "style-src 'self' 'unsafe-inline'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors "
)
"""What a model or a tool writes is shown, never run (CSP Level 3): scripts come from here alone. Images may come from
where an answer says, once somebody has asked for one. Inline styles are for `_MISSING`: the page itself has none."""

_DIAGRAM_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "sandbox allow-scripts; frame-ancestors 'self' "
)
"""For the frame that draws diagrams, of what a model wrote: it has no origin and fetches nothing but scripts. Mermaid
writes inline styles. https://www.w3.org/TR/CSP3/#directive-sandbox"""

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
    text="This server runs, and its API answers; what is missing are the files of its page. In a clone, with "
    "Node.js 20 or newer, <code>scripts/web build</code> makes them; a package from a release holds them. Then load "
    "this again.",
)


def page_routes(frame_origins: Sequence[str] = (), pages: str = "") -> list[BaseRoute]:
    """The routes of the page, and of the operator's pages in the directory `pages` ('': none). Only pages of
    `frame_origins` may show the page in a frame ("self": this server's own)."""
    ancestors = " ".join("'self'" if each == "self" else each for each in frame_origins) or "'none'"
    headers = {**HEADERS, "Content-Security-Policy": _POLICY + ancestors}

    async def page(_: Request) -> Response:
        """`/` and the page's own links."""
        index = STATIC / "index.html"
        if not index.is_file():
            return HTMLResponse(_MISSING, 503, HEADERS)
        return FileResponse(index, headers={**headers, "Cache-Control": "no-cache"})

    async def diagram(_: Request) -> Response:
        """The document of that frame. Every page around it must be allowed: those around the page, too."""
        document = STATIC / "diagram.html"
        if not document.is_file():
            return error_response(NotFound("the page is not built"))
        policy = _DIAGRAM_POLICY + " ".join(each for each in frame_origins if each != "self")
        return FileResponse(
            document, headers={**HEADERS, "Content-Security-Policy": policy.strip(), "Cache-Control": "no-cache"}
        )

    own = [Mount("/pages", _Pages(pages))] if pages else []
    return [
        Route("/", page),
        Route("/c/{chat_id}", page),
        Route("/diagram", diagram),
        Route("/favicon.svg", icon),
        Mount("/assets", assets()),
        *own,
    ]


class _Pages(StaticFiles):
    """An operator's pages. They share the page's origin, and with it what a browser keeps for that, so their scripts
    come from here alone as well. Every answer says so: also a 404.html, a redirect and an error."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory=directory, html=True)

    async def get_response(self, path: str, scope: Scope) -> Response:
        if any(part.startswith(".") for part in Path(path).parts if part != "."):  # .git, .env: no pages
            raise HTTPException(404, headers=HEADERS)
        try:
            response = await super().get_response(path, scope)
        except HTTPException as wrong:
            raise HTTPException(wrong.status_code, wrong.detail, {**(wrong.headers or {}), **HEADERS}) from None
        response.headers.update({**HEADERS, "Cache-Control": "no-cache"})
        return response


def no_such_page(path: str) -> Response:
    """Answer a browser at an address that does not exist: a page with status 404 and links to the addresses that
    exist."""
    text = f"This is a Threadcast server, and it has nothing at <code>{escape(path)}</code>. A chat is at /c/ID."
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return HTMLResponse(_PLAIN.format(title="There is nothing here", text=text), 404, headers)


class Assets(StaticFiles):
    """The files that have their hash in their name."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC / "assets", check_dir=False)

    async def check_config(self) -> None:
        """A server without the page has none of its files either; each is then not found."""

    def file_response(self, *found: Any, **more: Any) -> Response:  # Any: passed on as it comes
        response = super().file_response(*found, **more)
        response.headers.update({**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"})
        # The frame of diagrams has no origin, and a module is fetched with CORS. These files are secret to nobody.
        response.headers["Access-Control-Allow-Origin"] = "*"
        return response


def assets() -> ASGIApp:
    """Those files, packed for whoever takes gzip: a third of the bytes, once for each browser and build."""
    return GZipMiddleware(Assets(), compresslevel=6)


async def icon(_: Request) -> Response:
    """What browsers show in the tab; they ask for it by themselves."""
    file = STATIC / "favicon.svg"
    if not file.is_file():
        return error_response(NotFound("the page is not built"))
    return FileResponse(file, headers={**HEADERS, "Cache-Control": "max-age=86400"})
