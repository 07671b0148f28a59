"""Finds the bytes of JSON that are outside of strings, without decoding the JSON.

Brackets and commas outside of strings tell how deep JSON is nested, and how many values it has. Texts are read in
slices, so that other threads run in between.
"""

__all__ = ["SLICE_BYTES", "OutsideStrings"]

SLICE_BYTES = 262_144
"""The bytes of one slice, which is read in at most 5 ms."""


class OutsideStrings:
    """Reads one text, slice by slice. For text that is not JSON the result has no meaning; a decoder
    refuses such text later."""

    def __init__(self) -> None:
        self._is_in_string = False
        self._held = b""

    def next(self, piece: bytes) -> bytes:
        """Return the bytes of the next slice that are outside of strings, without quotation marks."""
        piece = self._held + piece
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        self._held = b"\\" if backslashes % 2 else b""  # this backslash escapes a byte of the next slice
        piece = piece[: len(piece) - len(self._held)]
        # Pairs of backslashes are removed first: then a backslash before a quotation mark always escapes it.
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[self._is_in_string :: 2])
        self._is_in_string ^= len(parts) % 2 == 0
        return outside
