"""Names that a client gives: to its commands, to its streams and to itself."""

import secrets

__all__ = ["new_id", "new_request_id"]


def new_id(prefix: str) -> str:
    """80 random bits, as the server's own ids."""
    return f"{prefix}_{secrets.token_hex(10)}"


def new_request_id() -> str:
    """For a command that is built by hand."""
    return new_id("req")
