"""What a browser must not do to a server on this machine.

A page from anywhere can send simple POSTs to 127.0.0.1, and by DNS rebinding even read the answers. So a request with
an Origin that is neither this server's own nor configured is refused, and without authentication the Host header
must be a loopback name (OWASP: Cross-Site Request Forgery Prevention; DNS rebinding). Programs send no Origin and
notice nothing.

The session cookie of the page is read here too: where the cookie counts, its token is put into `Authorization`, so
that endpoints need not know about cookies.
"""

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from protocol.errors import Forbidden
from protocol.loopback import is_loopback
from server.api.session import bearer_of_cookie, is_own_origin

__all__ = ["OriginGuard"]


_PUBLIC = "/assets/"
"""The page's scripts and style sheets, the same for everybody. The page draws diagrams in a frame without an origin,
which asks with the origin `null` (https://html.spec.whatwg.org/multipage/browsers.html#origin)."""


class OriginGuard:
    """ASGI middleware. `checks_host`: the server has no tokens, so `Host` must be a loopback name. Raises Forbidden."""

    def __init__(self, app: ASGIApp, *, allowed_origins: Collection[str], checks_host: bool) -> None:
        self._app = app
        self._allowed = frozenset(allowed_origins)
        self._checks_host = checks_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host, scheme = headers.get("host", ""), scope.get("scheme", "http")
            if self._checks_host and not is_loopback(_name_of(host)):
                raise Forbidden(f"this server answers on loopback only, not as {host!r}; configure auth.tokens")
            origin = headers.get("origin")
            is_foreign = origin is not None and not is_own_origin(headers, scheme) and not _is_public(scope, origin)
            if is_foreign and "*" not in self._allowed and origin not in self._allowed:
                raise Forbidden(f"the origin {origin!r} is not among server.cors_origins")
            if not self._checks_host and not headers.get("authorization"):
                token = bearer_of_cookie(headers, scope["method"], scheme)
                if token is not None:
                    others = [header for header in scope["headers"] if header[0] != b"authorization"]
                    scope["headers"] = [*others, (b"authorization", f"Bearer {token}".encode("latin-1"))]
        await self._app(scope, receive, send)


def _name_of(host: str) -> str:
    """The host of a Host header, without its port; IPv6 without brackets (RFC 9110 §7.2)."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _is_public(scope: Scope, origin: str) -> bool:
    return origin == "null" and scope["method"] in ("GET", "HEAD") and scope["path"].startswith(_PUBLIC)
