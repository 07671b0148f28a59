"""`threadcast token`: creates a bearer token and the configuration lines that accept it.

The configuration holds only the token's hash, so the token is shown once. The lines are printed to standard output,
ready for `>> threadcast.toml`. The token is printed to standard error, so that it is not written to the file.
"""

import json
import secrets
import sys
from collections.abc import Sequence

import msgspec

from threadcast.api.auth import hash_token
from threadcast.settings import Auth

__all__ = ["config_lines", "token"]

TOKEN_BYTES = 32
"""Random bytes of a token: 256 bits, as many as its hash has, so that the token cannot be guessed."""


def config_lines(principal_id: str, sha256: str, permissions: Sequence[str]) -> str:
    """Return an entry of `auth.tokens` as TOML."""
    words = ", ".join(json.dumps(permission) for permission in permissions)
    return (
        f"\n[[auth.tokens]]\nid = {json.dumps(principal_id)}\nsha256 = {json.dumps(sha256)}\npermissions = [{words}]\n"
    )


def token(principal_id: str, permissions: Sequence[str]) -> int:
    """Print a new token and its configuration lines. Returns the exit code.

    Raises:
        msgspec.ValidationError: the configuration does not accept the id or a permission.
    """
    made = f"tc_{secrets.token_urlsafe(TOKEN_BYTES)}"
    sha256 = hash_token(made)
    msgspec.convert({"tokens": [{"id": principal_id, "sha256": sha256, "permissions": list(permissions)}]}, Auth)
    print(f"The token of {principal_id}, shown this once:\n\n    {made}\n", file=sys.stderr)
    if "approve" not in permissions:
        print(
            f"{principal_id} may not approve tool calls. If this is the person who decides about them, add\n"
            "--permissions approve.\n",
            file=sys.stderr,
        )
    print(
        "Clients send it as `Authorization: Bearer …` (`threadcast chat` reads it from THREADCAST_TOKEN).\n"
        "Add these lines to the server's threadcast.toml:",
        file=sys.stderr,
        flush=True,
    )
    print(config_lines(principal_id, sha256, permissions), end="")
    return 0
