"""Who is calling: every request resolves to a Principal before anything else looks at it (DESIGN §11, AUTH-1).

`Authenticator` is the seam; two are built in. Without configured tokens there is one local caller, reached through
loopback only; with tokens, each is known by its SHA-256. Which chats a principal may see is not decided here. The
one rule: nobody learns from the answer, or from how long it took, how close a guess was.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection

from protocol.errors import Unauthorized
from protocol.principal import LOCAL, Principal
from server.settings import is_loopback

__all__ = ["Authenticator", "KnownToken", "LocalAuthenticator", "TokenAuthenticator", "hash_token"]


class Authenticator(Protocol):
    """Asked once for each request, event streams included; it may await."""

    async def authenticate(self, connection: HTTPConnection) -> Principal:
        """Who is calling.

        Raises:
            Unauthorized: nobody we know; the sentence is fit for the caller.
        """


class LocalAuthenticator:
    """Everybody who reaches the loopback address is the local principal; except pages of foreign websites.

    A browser on this machine reaches loopback too, on behalf of any page it shows: by a plain cross-origin POST,
    which needs no preflight, or by a name that was pointed at 127.0.0.1 (DNS rebinding). Either page could let a tool
    run and approve it. A browser tells the page's origin, and the name it used, so both must be ours.
    """

    def __init__(self, allowed_origins: Sequence[str] = ()) -> None:
        """`allowed_origins`: what `server.cors_origins` lets in; "*" is everybody."""
        self._allowed_origins = frozenset(allowed_origins)

    async def authenticate(self, connection: HTTPConnection) -> Principal:
        host = connection.headers.get("host", "")
        if host and not is_loopback(_host_name(f"//{host}")):
            raise Unauthorized(
                "this server has no auth.tokens, so it answers to localhost only; set them to use another name"
            )
        origin = connection.headers.get("origin")
        if origin is None or "*" in self._allowed_origins or origin in self._allowed_origins:
            return LOCAL
        if not is_loopback(_host_name(origin)):
            raise Unauthorized("this page's origin is not in server.cors_origins")
        return LOCAL


def _host_name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class KnownToken(msgspec.Struct, frozen=True):
    sha256: str
    principal: Principal


class TokenAuthenticator:
    """`Authorization: Bearer TOKEN` (RFC 6750 §2.1), known by its hash."""

    def __init__(self, tokens: Sequence[KnownToken]) -> None:
        if not tokens:
            raise ValueError("without tokens nobody could call")
        self._tokens = list(tokens)

    async def authenticate(self, connection: HTTPConnection) -> Principal:
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized("a bearer token is required: Authorization: Bearer TOKEN")
        offered = hash_token(token)
        found: Principal | None = None
        for known in self._tokens:  # all of them, always: where the match stands must not show in the time
            if hmac.compare_digest(known.sha256, offered):
                found = known.principal
        if found is None:
            raise Unauthorized("the token is not known")
        return found


def hash_token(token: str) -> str:
    """What the configuration holds of a token. Tokens are 256 random bits, so one plain hash is enough: there is
    nothing to guess that a slow hash would protect."""
    return hashlib.sha256(token.encode()).hexdigest()
