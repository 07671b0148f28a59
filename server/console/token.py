"""`threadcast token`: a new bearer token, and the lines that let it in.

The configuration holds its hash alone, so the token is shown once. The lines go to standard output, ready for
`>> threadcast.toml`; the token goes to standard error, so that it does not land in the file with them.
"""

import json
import secrets
import sys
from collections.abc import Sequence

import msgspec

from server.api.auth import hash_token
from server.settings import Auth

__all__ = ["config_lines", "token"]

TOKEN_BYTES = 32
"""As many random bits as the hash has; nothing to guess."""


def config_lines(principal_id: str, sha256: str, permissions: Sequence[str]) -> str:
    """An entry of `auth.tokens` as TOML."""
    words = ", ".join(json.dumps(permission) for permission in permissions)
    return (
        f"\n[[auth.tokens]]\nid = {json.dumps(principal_id)}\nsha256 = {json.dumps(sha256)}\npermissions = [{words}]\n"
    )


def token(principal_id: str, permissions: Sequence[str]) -> int:
    """Print both; the exit code.

    Raises:
        msgspec.ValidationError: the configuration would not take this id, or a permission.
    """
    made = f"tc_{secrets.token_urlsafe(TOKEN_BYTES)}"
    entry = {"id": principal_id, "sha256": hash_token(made), "permissions": list(permissions)}
    msgspec.convert({"tokens": [entry]}, Auth)
    print(f"The token of {principal_id}, shown this once:\n\n    {made}\n", file=sys.stderr)
    print(
        "Clients send it as `Authorization: Bearer …` (`threadcast chat` takes it from THREADCAST_TOKEN).",
        file=sys.stderr,
    )
    print("The server takes these lines in threadcast.toml:", file=sys.stderr, flush=True)
    print(config_lines(principal_id, hash_token(made), permissions), end="")
    return 0
