"""The table of URLs, and what stands around every one of them: CORS, the origin guard, the error boundary."""

from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp

from protocol.errors import NotFound
from protocol.ids import RESERVED_CHAT_IDS
from server.api import (
    approvals,
    blobs,
    caps,
    chats,
    commands,
    diagnostics,
    foreign,
    mcp,
    oneshot,
    session,
    streams,
    transfer,
)
from server.api.edge import Edge
from server.api.errors import ErrorBoundary, answer, error_response
from server.api.feed import feed
from server.api.guard import OriginGuard
from server.api.page import no_such_page, page_routes
from server.api.params import chat_params
from server.api.stream import subscribe

__all__ = ["ROUTES", "build_app"]

PREFLIGHT_SECONDS = 600


class _ChatSegment(StringConvertor):
    """Matches a chat id in a path, but not `feed` and the other fixed words there: their other methods belong to no
    chat."""

    regex = f"(?!(?:{'|'.join(sorted(RESERVED_CHAT_IDS))})$)[^/]+"


register_url_convertor("chat", _ChatSegment())


def _stream(path: str, endpoint: ASGIApp) -> Route:
    """A stream is read by GET alone: a HEAD would hold its connection open without ever getting a byte."""
    route = Route(path, endpoint, methods=["GET"])
    route.methods = {"GET"}
    return route


ROUTES = [
    _stream("/v1/chats/subscribe", subscribe),
    Route("/v1/chats/{chat_id}/commands", commands.post_command, methods=["POST"]),
    Route("/v1/chats/{chat_id}/typing", streams.type_in_chat, methods=["POST"]),
    Route("/v1/streams/{stream_id}", streams.change_stream, methods=["POST"]),
    Route("/v1/chats/{chat_id}/queue/{client_request_id}", commands.cancel_queued, methods=["DELETE"]),
    Route("/v1/chats/{chat_id}/blobs", blobs.upload_blob, methods=["POST"]),
    Route("/v1/chats/{chat_id}/blobs/{hash}", blobs.read_blob),
    Route("/v1/chats", chats.list_chats),
    Route("/v1/chats/{chat_id}/params", chat_params),
    Route("/v1/chats/{chat_id}/approvals", approvals.list_approvals),
    Route("/v1/chats/{chat_id}/approvals/{tool_name}", approvals.forget_approval, methods=["DELETE"]),
    Route("/v1/chats/{chat_id}/runs", diagnostics.traced_runs),
    Route("/v1/chats/{chat_id}/runs/{run_id}/diagnostics", diagnostics.run_diagnostics),
    _stream("/v1/chats/feed", feed),
    Route("/v1/chats/import", transfer.import_chats, methods=["POST"]),
    Route("/v1/chats/{chat_id}/export", transfer.export_chat),
    Route("/v1/chats/{chat_id:chat}", chats.read_chat),
    Route("/v1/chats/{chat_id:chat}", chats.delete_chat, methods=["DELETE"]),
    Route("/v1/trajectories", foreign.list_trajectories),
    Route("/v1/trajectories/{chat_id}", foreign.read_trajectory),
    Route("/v1/trajectories/{chat_id}", foreign.delete_trajectory, methods=["DELETE"]),
    _stream("/v1/sidebar/subscribe", foreign.sidebar),
    Route("/chat", oneshot.text_chat, methods=["POST"]),
    Route("/v1/agent/chat", oneshot.agent_chat, methods=["POST"]),
    Route("/api/chat/stream", oneshot.page_chat, methods=["POST"]),
    Route("/v1/chat/completions", oneshot.chat_completions, methods=["POST"]),
    Route("/v1/session", session.read_session),
    Route("/v1/session", session.open_session, methods=["POST"]),
    Route("/v1/session", session.close_session, methods=["DELETE"]),
    Route("/v1/caps", caps.caps),
    Route("/v1/providers", caps.providers),
    Route("/v1/chat-modes", caps.chat_modes),
    Route("/v1/tools", caps.tools),
    Route("/v1/mcp/resources", mcp.resources),
    Route("/v1/mcp/prompts", mcp.prompts),
    Route("/v1/ping", caps.ping),
    Route("/livez", caps.livez),
    Route("/readyz", caps.readyz),
    Route("/metrics", caps.metrics),
]
"""First match wins. `protocol/schema/openapi.json` describes the same ones; a test holds them together."""


def build_app(edge: Edge, *, cors_origins: list[str], checks_host: bool, pages: str = "") -> Starlette:
    """The web application. `checks_host`: see `guard.py`. `pages`: a directory that is served at /pages/."""
    app = Starlette(
        routes=[*ROUTES, *page_routes(edge.frame_origins, pages)],
        middleware=[
            Middleware(
                CORSMiddleware,
                allow_origins=cors_origins,
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["Authorization", "Content-Type", "Last-Event-ID", "Prefer", "Threadcast-Principal"],
                expose_headers=["Retry-After"],
                max_age=PREFLIGHT_SECONDS,
            ),
            Middleware(ErrorBoundary, requests=edge.metrics.http_requests, readiness=edge.readiness),
            Middleware(OriginGuard, allowed_origins=cors_origins, checks_host=checks_host),
        ],
        exception_handlers={404: _no_such_path, 405: _no_such_method},
    )
    app.state.edge = edge
    return app


async def _no_such_path(request: Request, wrong: Exception) -> Response:
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):  # somebody's browser
        return no_such_page(request.url.path)
    response = error_response(NotFound(f"there is no {request.url.path}; see protocol/PROTOCOL.md for what there is"))
    return _with_headers(response, wrong)


async def _no_such_method(request: Request, wrong: Exception) -> Response:
    """Answer 405 (RFC 9110 §15.5.6): `Allow` names the methods of all routes of the path. Only the page's files have no
    route."""
    at_path = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    allowed = {method for route in at_path for method in getattr(route, "methods", None) or ()} or {"GET", "HEAD"}
    body = {"detail": f"{request.url.path} does not take {request.method}", "code": "bad_request"}
    return _with_headers(answer(405, body, {"Allow": ", ".join(sorted(allowed))}), wrong)


def _with_headers(response: Response, wrong: Exception) -> Response:
    """Add the headers that whoever raised `wrong` wants in its answer, such as the policy of an operator's pages."""
    for name, value in (getattr(wrong, "headers", None) or {}).items():
        response.headers.setdefault(name, value)
    return response
