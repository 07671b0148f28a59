"""Pictures for tests: they begin as their formats do, and Threadcast checks only that beginning."""

import base64
import hashlib

__all__ = ["JPEG", "PNG", "data_url", "hash_of", "png_of"]

PNG = b"\x89PNG\r\n\x1a\n" + b"tiny"
JPEG = b"\xff\xd8\xff" + b"tiny"


def png_of(size_bytes: int) -> bytes:
    """Return bytes that Threadcast's checks accept as a PNG of that size."""
    return (PNG + bytes(range(256)) * (size_bytes // 256))[:size_bytes].ljust(size_bytes, b"x")


def data_url(image: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def hash_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
