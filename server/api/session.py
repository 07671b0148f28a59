"""Sign-in of the page: a token becomes a cookie that no script can read, and who is signed in (PROTOCOL §1).

The cookie holds the token itself, so that every process knows it without a store of sessions, and taking a token out
of the configuration ends its sessions too. `HttpOnly` keeps it from scripts, `SameSite=Strict` from requests that
other sites cause (RFC 6265bis §5.6.7). Neither stops another origin of the same site, such as another port of the
same host, so the cookie counts only in requests that this server's own page sent (`bearer_of_cookie`).
"""

import re

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import Response

from server.api.auth import LocalAuthenticator
from server.api.edge import edge_of
from server.api.errors import answer

__all__ = ["bearer_of_cookie", "close_session", "is_own_origin", "open_session", "read_session"]

SESSION_SECONDS = 30 * 24 * 3600
"""How long a browser stays signed in. It is not prolonged by use: an answer that was under way while somebody signed
out would set the cookie again."""

_NAME = "threadcast-session"

_PORT = re.compile(r"(?:\[[^\]]*\]|[^:\]]*):([0-9]{1,5})")
"""Of a Host header (RFC 9110 §7.2). Anybody may send anything there, and it becomes part of a cookie's name."""


async def open_session(request: Request) -> Response:
    """`POST /v1/session` with `Authorization: Bearer TOKEN`: who that is, and the cookie.

    Raises:
        Unauthorized: the token is missing or not known.
    """
    response = _told(request)
    token = request.headers["authorization"].partition(" ")[2].strip() if "authorization" in request.headers else ""
    if token and _wants_tokens(request) and is_own_origin(request.headers, request.url.scheme):
        _set_cookie(response, request.headers, token, SESSION_SECONDS)
    return response


async def read_session(request: Request) -> Response:
    """`GET /v1/session`: who is calling, and how the server knows.

    Raises:
        Unauthorized: nobody that the server knows.
    """
    return _told(request)


async def close_session(request: Request) -> Response:
    """`DELETE /v1/session`: takes the cookie back. It asks for no token, and succeeds without a cookie too."""
    response = answer(200, {"status": "deleted"})
    _set_cookie(response, request.headers, "", 0)
    return response


def bearer_of_cookie(headers: Headers, method: str, scheme: str) -> str | None:
    """The token of the session cookie; None without a cookie, and where another page may have made the browser send it.
    `scheme` is that of the request, as this server sees it.

    Browsers name the origin in every request but plain GETs (Fetch, "append a request `Origin` header"), and say how
    the page that asks stands to this server (`Sec-Fetch-Site`; not over plain HTTP from another machine).
    """
    cookies = cookie_parser(headers.get("cookie", ""))
    secure = cookies.get(f"__Host-{_name(headers)}")
    token = secure or cookies.get(_name(headers))
    if not token:
        return None
    if "origin" in headers:
        is_ours = is_own_origin(headers, "https" if secure else scheme)
    else:
        is_ours = method in ("GET", "HEAD") and headers.get("sec-fetch-site", "none") in ("same-origin", "none")
    return token if is_ours else None


def is_own_origin(headers: Headers, scheme: str) -> bool:
    """Whether the page that asks came from this server; False where no page asks.

    `scheme` is that of the request. A page of the same host that came by https counts always: behind a proxy that ends
    TLS this server sees http, and nobody without the certificate can send such a page. One that came by http counts
    only while the request is http, too: whoever is on the line can write such a page, and must not reach by it what
    https protects.
    """
    kind, _, host = headers.get("origin", "").partition("://")
    return host == headers.get("host") and (kind == "https" or kind == scheme == "http")


def _told(request: Request) -> Response:
    principal = edge_of(request).principal(request.scope)
    body = {"principal": principal.id, "permissions": principal.permissions, "roles": principal.roles}
    return answer(200, {**body, "has_token": _wants_tokens(request)})


def _wants_tokens(request: Request) -> bool:
    return not isinstance(edge_of(request).auth, LocalAuthenticator)


def _name(headers: Headers) -> str:
    """Cookies know no ports, so the name holds it: two servers of one machine would take each other's away."""
    found = _PORT.fullmatch(headers.get("host", ""))
    return f"{_NAME}-{found[1]}" if found else _NAME


def _set_cookie(response: Response, headers: Headers, token: str, seconds: int) -> None:
    """Behind a proxy that ends TLS only the browser knows that it came by https, and its Origin says so. The prefix
    keeps other hosts of the domain from setting this cookie (RFC 6265bis §4.1.3.2)."""
    is_secure = headers.get("origin", "").startswith("https://")
    name = f"__Host-{_name(headers)}" if is_secure else _name(headers)
    response.set_cookie(name, token, max_age=seconds, path="/", secure=is_secure, httponly=True, samesite="strict")
