"""Signs the page's user in and out, with a cookie that scripts cannot read (PROTOCOL §1).

The cookie holds the token itself, so every process can check it without a store of sessions, and removing a token from
the configuration ends its sessions. `HttpOnly` hides the cookie from scripts, and `SameSite=Strict` keeps it out of
requests that other sites cause (RFC 6265bis §5.6.7). Neither attribute stops another origin of the same site, such as
another port of the same host, so the cookie is accepted only in requests of this server's own page
(`bearer_of_cookie`).
"""

import re

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import Response

from threadcast.api.auth import LocalAuthenticator
from threadcast.api.edge import caller_of, edge_of
from threadcast.api.errors import answer
from threadcast.api.operation import Answer, Operation
from threadcast_protocol.wire.http import Status
from threadcast_protocol.wire.server_info import Session

__all__ = ["bearer_of_cookie", "close_session", "is_own_origin", "open_session", "read_session", "wants_tokens"]

SESSION_SECONDS = 30 * 24 * 3600
"""Seconds that a browser stays signed in. Use of the session does not prolong this time: an answer that arrives after
the user has signed out would otherwise set the cookie again."""

_NAME = "threadcast-session"

_PORT = re.compile(r"(?:\[[^\]]*\]|[^:\]]*):([0-9]{1,5})")
"""Matches the port of a Host header (RFC 9110 §7.2), which becomes part of the cookie's name. The pattern is strict,
because a client may send any text in that header."""


@Operation(
    "POST",
    "/v1/session",
    "openSession",
    "Sign in: set the token of `Authorization` as a cookie that scripts cannot read.",
    tag="server",
    answers={200: Answer("The principal that is signed in.", Session)},
)
async def open_session(request: Request) -> Response:
    """`POST /v1/session` with `Authorization: Bearer TOKEN`: returns the principal, and sets the cookie.

    Raises:
        Unauthorized: the token is missing or not known.
    """
    response = _told(request)
    token = request.headers["authorization"].partition(" ")[2].strip() if "authorization" in request.headers else ""
    if token and wants_tokens(request) and is_own_origin(request.headers, request.url.scheme):
        _set_cookie(response, request.headers, token, SESSION_SECONDS)
    return response


@Operation(
    "GET",
    "/v1/session",
    "readSession",
    "Read which principal the caller is.",
    tag="server",
    answers={200: Answer("The caller's principal.", Session)},
)
async def read_session(request: Request) -> Response:
    """`GET /v1/session`: returns the caller's principal, and whether the server wants tokens.

    Raises:
        Unauthorized: the server does not know the caller.
    """
    return _told(request)


@Operation(
    "DELETE",
    "/v1/session",
    "closeSession",
    "Sign out: delete the cookie.",
    tag="server",
    answers={200: Answer("Signed out.", Status)},
    is_open=True,
)
async def close_session(request: Request) -> Response:
    """`DELETE /v1/session`: deletes the cookie. The request needs no token, and also succeeds without a cookie."""
    response = answer(200, Status("deleted"))
    _set_cookie(response, request.headers, "", 0)
    return response


def bearer_of_cookie(headers: Headers, method: str, scheme: str) -> str | None:
    """Return the token of the session cookie; None if there is no cookie, or if another site's page may have caused the
    request. `scheme` is the request's scheme as this server sees it.

    Over https only the cookie with the prefix counts: another host of the same domain, or an attacker on the network,
    can set a cookie without the prefix. Such a cookie would sign the user in to the attacker's account, in which the
    attacker reads the user's messages (RFC 6265bis §8.6).

    Browsers send `Origin` with every request except plain GETs (Fetch, "append a request `Origin` header"). For plain
    GETs, `Sec-Fetch-Site` tells whether the page is this server's; browsers omit this header over plain HTTP from
    another machine.
    """
    cookies = cookie_parser(headers.get("cookie", ""))
    secure = cookies.get(f"__Host-{_name(headers)}")
    token = secure or cookies.get(_name(headers))
    if not token or (not secure and _is_https(headers, scheme)):
        return None
    if "origin" in headers:
        is_ours = is_own_origin(headers, "https" if secure else scheme)
    else:
        is_ours = method in ("GET", "HEAD") and headers.get("sec-fetch-site", "none") in ("same-origin", "none")
    return token if is_ours else None


def is_own_origin(headers: Headers, scheme: str) -> bool:
    """Return whether a page of this server sent the request; False if no page sent it.

    `scheme` is the scheme of the request. An https page of the same host is always accepted: behind a proxy that ends
    TLS this server sees http, and only the owner of the certificate can send such a page. An http page is accepted only
    if the request is http too: an attacker on the network can forge an http page, which must not get access to a server
    that uses https.
    """
    kind, _, host = headers.get("origin", "").partition("://")
    return host == headers.get("host") and (kind == "https" or kind == scheme == "http")


def _told(request: Request) -> Response:
    _, principal = caller_of(request)
    return answer(200, Session(principal.id, principal.permissions, principal.roles, wants_tokens(request)))


def wants_tokens(request: Request) -> bool:
    """Return whether callers must name a token."""
    return not isinstance(edge_of(request).auth, LocalAuthenticator)


def _name(headers: Headers) -> str:
    """Return the cookie's name, which includes the port. Browsers share cookies between the ports of a host, so two
    servers on one machine would overwrite each other's cookie."""
    found = _PORT.fullmatch(headers.get("host", ""))
    return f"{_NAME}-{found[1]}" if found else _NAME


def _set_cookie(response: Response, headers: Headers, token: str, seconds: int) -> None:
    """Set the cookie, or delete it if `seconds` is 0. Behind a proxy that ends TLS, only the browser's `Origin` shows
    that the page uses https. The prefix prevents other hosts of the domain from setting this cookie (RFC 6265bis
    §4.1.3.2)."""
    plain = _name(headers)
    is_secure = headers.get("origin", "").startswith("https://")
    name = f"__Host-{plain}" if is_secure else plain
    response.set_cookie(name, token, max_age=seconds, path="/", secure=is_secure, httponly=True, samesite="strict")
    if is_secure:  # a cookie of an earlier visit without TLS
        response.set_cookie(plain, "", max_age=0, path="/", httponly=True, samesite="strict")


def _is_https(headers: Headers, scheme: str) -> bool:
    return scheme == "https" or headers.get("origin", "").startswith("https://")
