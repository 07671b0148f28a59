"""Builds the web application from the list of all endpoints and the middleware: CORS, the error boundary and the origin
guard."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp

from threadcast.api import approvals, blobs, caps, chats, commands, diagnostics, mcp, session, streams, transfer
from threadcast.api.edge import Edge
from threadcast.api.errors import ErrorBoundary, answer, error_response
from threadcast.api.feed import feed
from threadcast.api.guard import OriginGuard
from threadcast.api.operation import Endpoint
from threadcast.api.page import no_such_page, page_routes
from threadcast.api.params import chat_params
from threadcast.api.refused_tokens import RefusedTokens
from threadcast.api.stream import subscribe
from threadcast.compat import oneshot
from threadcast.compat import startup as foreign
from threadcast.compat.doors import BUILT, door_routes
from threadcast_protocol.wire.errors import NotFound
from threadcast_protocol.wire.http import Failure

__all__ = ["all_endpoints", "build_app", "no_route"]

PREFLIGHT_SECONDS = 600


_OWN: list[Endpoint] = [
    subscribe,
    commands.post_command,
    streams.type_in_chat,
    streams.change_stream,
    commands.cancel_queued,
    blobs.upload_blob,
    blobs.read_blob,
    chats.list_chats,
    chat_params,
    approvals.list_approvals,
    approvals.forget_approval,
    approvals.list_questions,
    approvals.answer_question,
    diagnostics.traced_runs,
    diagnostics.run_diagnostics,
    feed,
    transfer.import_chats,
    transfer.export_chat,
    chats.read_chat,
    chats.delete_chat,
    foreign.list_trajectories,
    foreign.read_trajectory,
    foreign.delete_trajectory,
    foreign.sidebar,
    oneshot.text_chat,
    oneshot.agent_chat,
    oneshot.page_chat,
    session.read_session,
    session.open_session,
    session.close_session,
    caps.caps,
    caps.providers,
    caps.chat_modes,
    caps.tools,
    mcp.resources,
    mcp.prompts,
    caps.ping,
    caps.livez,
    caps.readyz,
    caps.metrics,
]
"""The endpoints that do not belong to a door. The first endpoint with a matching path handles a request. Each endpoint
declares its path next to its handler."""


def all_endpoints() -> list[Endpoint]:
    """Return all endpoints, including the endpoints of all doors. The OpenAPI document is made from this list."""
    return [*_OWN, *(route for route in door_routes(BUILT) if isinstance(route, Endpoint))]


class _Application(Starlette):
    """Starlette without its own two layers of error handling, because `ErrorBoundary` handles their errors, too. The
    layers would take 4 % of the CPU of a join (`bench.join`)."""

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = self.router
        for middleware, arguments, options in reversed(self.user_middleware):
            app = middleware(app, *arguments, **options)
        return app


def build_app(
    edge: Edge,
    *,
    cors_origins: list[str],
    has_tokens: bool,
    public_url: str = "",
    pages: str = "",
    trusted_proxies: Sequence[str] = (),
) -> Starlette:
    """Return the web application. Without tokens, the guard accepts only requests from this machine (`guard.py`).
    `public_url` is the setting `server.public_url`. The directory `pages` is served at /pages/; with '', no directory
    is served."""
    cors = Middleware(
        CORSMiddleware,
        allow_origins=cors_origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=[
            "Authorization",
            "Content-Type",
            "Last-Event-ID",
            "Prefer",
            "Threadcast-Forward-Authorization",
            "Threadcast-Principal",
        ],
        expose_headers=["Retry-After"],
        max_age=PREFLIGHT_SECONDS,
    )
    app = _Application(
        routes=[*_OWN, *door_routes(edge.doors.open), *page_routes(edge.frame_origins, pages)],
        middleware=[
            *([cors] if cors_origins else ()),  # without it, the guard refuses every request of a foreign origin
            Middleware(
                ErrorBoundary,
                requests=edge.metrics.http_requests,
                readiness=edge.readiness,
                refused_tokens=RefusedTokens(edge.limits, trusted_proxies),
                no_route=no_route,
            ),
            Middleware(OriginGuard, allowed_origins=cors_origins, has_tokens=has_tokens, public_url=public_url),
        ],
    )
    app.state.edge = edge
    app.router.redirect_slashes = False  # a redirect would contain the Host header's value, which clients choose
    return app


def no_route(request: Request, wrong: HTTPException) -> Response:
    """Return the answer to a request that no endpoint handles: for an unknown path, for a file that the process may not
    read (401), or for a method that the path does not support."""
    if wrong.status_code == 405:
        response = _no_such_method(request)
    elif wrong.status_code not in (401, 404):
        response = answer(wrong.status_code, Failure(wrong.detail, "bad_request"))
    elif request.method == "GET" and "text/html" in request.headers.get("accept", ""):  # a browser
        return no_such_page(request.url.path)
    else:
        error = NotFound(f"there is no {request.url.path}; protocol/PROTOCOL.md lists the endpoints")
        response = error_response(error)
    for name, value in (wrong.headers or {}).items():  # such as the policy of an operator's pages
        response.headers.setdefault(name, value)
    return response


def _no_such_method(request: Request) -> Response:
    """Answer with status 405 (RFC 9110 §15.5.6). The header `Allow` lists the methods of all routes of the path. Only
    the page's files have no route."""
    at_path = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    allowed = {method for route in at_path for method in getattr(route, "methods", None) or ()} or {"GET", "HEAD"}
    body = Failure(f"{request.url.path} does not support {request.method}", "bad_request")
    return answer(405, body, {"Allow": ", ".join(sorted(allowed))})
