"""Computes digests of JSON values. By such a digest, a decision names the arguments that the user was shown (PROTOCOL
§11)."""

import hashlib

import msgspec

__all__ = ["digest"]

_canonical = msgspec.json.Encoder(order="sorted")


def digest(parts: list[object]) -> str:
    """Return a digest of JSON values as 32 hexadecimal digits. The order of keys does not change the digest."""
    return hashlib.sha256(_canonical.encode(parts)).hexdigest()[:32]
