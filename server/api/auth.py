"""Who is calling: every request resolves to a Principal before anything else looks at it (DESIGN §11, AUTH-1).

`Authenticator` is the seam; two are built in. Without configured tokens there is one local caller: the settings refuse
to listen beyond loopback then, and `guard.py` keeps foreign web pages out. With tokens, each is known by its SHA-256.
Which chats a principal may see is not decided here. The one rule: nobody learns from the answer, or from how long it
took, how close a guess was.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Protocol

import msgspec

from protocol.errors import Unauthorized
from protocol.principal import LOCAL, Principal

__all__ = ["Authenticator", "KnownToken", "LocalAuthenticator", "TokenAuthenticator", "hash_token"]


class Authenticator(Protocol):
    """Asked once for each request, event streams included."""

    def authenticate(self, authorization: str | None) -> Principal:
        """Who is calling, from the `Authorization` header; None when there is none.

        Raises:
            Unauthorized: nobody we know; the sentence is fit for the caller.
        """


class LocalAuthenticator:
    """Whoever reaches this server is the local principal, whatever they send."""

    def authenticate(self, authorization: str | None) -> Principal:
        return LOCAL


class KnownToken(msgspec.Struct, frozen=True):
    sha256: str
    principal: Principal


class TokenAuthenticator:
    """`Authorization: Bearer TOKEN` (RFC 6750 §2.1), known by its hash."""

    def __init__(self, tokens: Sequence[KnownToken]) -> None:
        if not tokens:
            raise ValueError("without tokens nobody could call")
        self._tokens = list(tokens)

    def authenticate(self, authorization: str | None) -> Principal:
        scheme, _, token = (authorization or "").partition(" ")
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
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
