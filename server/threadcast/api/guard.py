"""Protects a local server against requests from foreign web pages.

Any web page can send simple POSTs to 127.0.0.1, and by DNS rebinding even read the answers. So a request is refused if
its Origin is neither this server's own nor configured. Without authentication, the Host header must also be a loopback
name (OWASP: Cross-Site Request Forgery Prevention; DNS rebinding). Programs other than browsers send no Origin, and are
not affected.

A server without tokens also refuses requests that came through a proxy: such requests appear to come from loopback, so
everybody who can reach the proxy would have the rights of the server's owner. With tokens, a proxy may send another
Host header than the browser did; in that case `server.public_url` names this server's own origin.

The middleware also reads the page's session cookie: if the cookie is valid for the request, the middleware puts its
token into `Authorization`, so that endpoints need no cookies.
"""

from collections.abc import Collection, Set

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from threadcast.api.edge import PRINCIPAL_HEADER
from threadcast.api.session import bearer_of_cookie, is_own_origin
from threadcast_protocol.wire.errors import BadRequest, Forbidden
from threadcast_protocol.wire.loopback import is_loopback

__all__ = ["OriginGuard"]


_PUBLIC = "/assets/"
"""The path of the page's scripts and style sheets, which are public. The page draws diagrams in a frame without an
origin, whose requests have the origin `null` (https://html.spec.whatwg.org/multipage/browsers.html#origin)."""


_PROXIED = frozenset(
    {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip"}
)
"""Headers that proxies add (RFC 7239 §4, RFC 9110 §7.6.3, and the older names of nginx, Caddy and others). Browsers do
not send them."""


_ONCE = frozenset({b"authorization", b"host", b"origin", b"sec-fetch-site", PRINCIPAL_HEADER})
"""Headers that a request may have at most once."""


class OriginGuard:
    """ASGI middleware that raises Forbidden for requests of foreign pages, and of proxies if there are no tokens.

    `has_tokens`: callers must name a token. `public_url`: `server.public_url`, or ''.
    """

    def __init__(
        self, app: ASGIApp, *, allowed_origins: Collection[str], has_tokens: bool, public_url: str = ""
    ) -> None:
        self._app = app
        self._allowed = frozenset(allowed_origins)
        self._has_tokens = has_tokens
        self._scheme, _, host = public_url.partition("://")
        self._host = host.encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            names = {name for name, _ in scope["headers"]}
            if len(names) < len(scope["headers"]):
                _check_once(scope)
            if not self._has_tokens:
                _check_local(scope, names)
            if self._host:  # the address that the browser called, even if the proxy changed the header
                others = [header for header in scope["headers"] if header[0] != b"host"]
                scope["headers"], scope["scheme"] = [(b"host", self._host), *others], self._scheme
                if not self._has_tokens:
                    _check_local(scope, names)  # public_url shows that users come from other machines
            if b"origin" in names:
                self._check_origin(scope)
            if self._has_tokens:
                _sign_in_by_cookie(scope)
        await self._app(scope, receive, send)

    def _check_origin(self, scope: Scope) -> None:
        """Raise Forbidden for the request of a foreign page."""
        headers = Headers(scope=scope)
        origin = headers["origin"]
        if is_own_origin(headers, scope.get("scheme", "http")) or _is_public(scope, origin):
            return
        if "*" not in self._allowed and origin not in self._allowed:
            raise Forbidden(
                f"the origin {origin!r} is not among server.cors_origins; if this server has that address behind a "
                "proxy, set server.public_url"
            )


def _sign_in_by_cookie(scope: Scope) -> None:
    """Put the token of the session cookie into `Authorization`, unless the request has a token."""
    headers = Headers(scope=scope)
    if headers.get("authorization"):
        return
    token = bearer_of_cookie(headers, scope["method"], scope.get("scheme", "http"))
    if token is not None:
        others = [header for header in scope["headers"] if header[0] != b"authorization"]
        scope["headers"] = [*others, (b"authorization", f"Bearer {token}".encode("latin-1"))]


def _check_once(scope: Scope) -> None:
    """Raise BadRequest if a header that identifies the sender of the request occurs twice: a proxy in front may have
    used the other value (RFC 9110 §5.3)."""
    told = [name for name, _ in scope["headers"] if name in _ONCE]
    if len(told) > len(set(told)):
        twice = next(name.decode() for name in told if told.count(name) > 1)
        raise BadRequest(f"the request has the header {twice} more than once")


def _check_local(scope: Scope, names: Set[bytes]) -> None:
    """Raise BadRequest if the request names no host, and Forbidden if the host is not loopback or the request came
    through a proxy. `names` are the names of its headers."""
    host: str = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    if not host:
        raise BadRequest("the request has no Host header (RFC 9112 §3.2)")
    if not is_loopback(_name_of(host)):
        raise Forbidden(f"this server answers on loopback only, not as {host!r}; configure auth.tokens")
    if not _PROXIED.isdisjoint(names):
        proxied = next(name.decode() for name, _ in scope["headers"] if name in _PROXIED)
        raise Forbidden(
            f"this server has no tokens, and the request came through a proxy (it has the header {proxied}): everybody "
            "who reaches the proxy could read and steer all chats; configure auth.tokens"
        )


def _name_of(host: str) -> str:
    """Return the host of a Host header, without its port; IPv6 without brackets (RFC 9110 §7.2)."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _is_public(scope: Scope, origin: str) -> bool:
    return origin == "null" and scope["method"] in ("GET", "HEAD") and scope["path"].startswith(_PUBLIC)
