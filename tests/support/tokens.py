"""Callers of a server that requires tokens: the configuration's tables and each caller's header."""

import hashlib

__all__ = ["bearer", "token_of", "tokens"]


def token_of(name: str) -> str:
    return f"{name}-secret-token"


def bearer(name: str) -> dict[str, str]:
    """Return the header by which a caller of `tokens` signs in."""
    return {"Authorization": f"Bearer {token_of(name)}"}


def tokens(**callers: str) -> str:
    """Return the tables `[[auth.tokens]]` of these callers, each with the further lines of its table."""
    tables = (
        f'\n[[auth.tokens]]\nid = "{name}"\nsha256 = "{hashlib.sha256(token_of(name).encode()).hexdigest()}"\n{lines}\n'
        for name, lines in callers.items()
    )
    return "".join(tables)
