"""Creates the ids that a client chooses: for its commands, its streams and itself."""

import secrets

__all__ = ["new_id", "new_request_id"]


def new_id(prefix: str) -> str:
    """Return a new id with 128 random bits. The id cannot be guessed, and no other client makes the same id by
    chance."""
    return f"{prefix}_{secrets.token_hex(16)}"


def new_request_id() -> str:
    """Return a request id for a command that is passed to `Chat.send` as a dict or a struct."""
    return new_id("req")
