"""Digests of JSON values, which bind decisions to what was shown (PROTOCOL §11)."""

import hashlib

import msgspec

__all__ = ["digest"]

_canonical = msgspec.json.Encoder(order="sorted")


def digest(parts: list[object]) -> str:
    """Return a digest of JSON values, which does not depend on the order of keys."""
    return hashlib.sha256(_canonical.encode(parts)).hexdigest()[:32]
