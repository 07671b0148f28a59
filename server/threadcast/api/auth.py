"""Authentication: finds the Principal of every request before any other processing (DESIGN §11, AUTH-1).

`Authenticator` is the interface; two implementations are built in. Without configured tokens every caller is the local
principal; in that case the settings refuse to listen beyond loopback, and `guard.py` keeps foreign web pages out. With
tokens, the server knows the SHA-256 of each token. Endpoints check access to chats. Neither the answer nor its timing
reveals how much of a guessed token was right.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Protocol

from threadcast_protocol.wire.errors import Unauthorized
from threadcast_protocol.wire.principal import LOCAL, Principal

__all__ = ["Authenticator", "LocalAuthenticator", "TokenAuthenticator", "hash_token"]


class Authenticator(Protocol):
    """Finds the Principal of a request; called once for each request, including event streams."""

    def authenticate(self, authorization: str | None) -> Principal:
        """Return the principal for the value of the `Authorization` header, which is None if the request has no such
        header.

        Raises:
            Unauthorized: the header names no known principal; the message may be shown to the caller.
        """


class LocalAuthenticator:
    """Attributes every request to the local principal and ignores its header."""

    def authenticate(self, authorization: str | None) -> Principal:
        return LOCAL


class TokenAuthenticator:
    """Accepts `Authorization: Bearer TOKEN` (RFC 6750 §2.1). `principals` maps the SHA-256 of each token, in
    hexadecimal, to the token's principal."""

    def __init__(self, principals: Mapping[str, Principal]) -> None:
        if not principals:
            raise ValueError("without tokens no request would be accepted")
        self._principals = dict(principals)

    def authenticate(self, authorization: str | None) -> Principal:
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized("a bearer token is required: Authorization: Bearer TOKEN")
        offered = hash_token(token)
        found: Principal | None = None
        for sha256, principal in self._principals.items():  # all are compared, so the time reveals no match
            if hmac.compare_digest(sha256, offered):
                found = principal
        if found is None:
            raise Unauthorized("the token is not known")
        return found


def hash_token(token: str) -> str:
    """Return the hash by which the configuration names a token. Tokens are 256 random bits, so a single fast hash is
    enough: a slow hash protects passwords that can be guessed."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
