"""All of Unicode: every scalar value except NUL, in texts that a message may have."""

__all__ = ["UNICODE_TEXTS"]

_ALL = "".join(map(chr, [*range(1, 0xD800), *range(0xE000, 0x110000)]))
_STEP = 50_000
"""Characters of a text: at most 200 kB, below the 256 KiB of a message."""

UNICODE_TEXTS = [f"<{_ALL[at : at + _STEP]}>" for at in range(0, len(_ALL), _STEP)]
"""23 texts; the brackets keep the white space at their ends."""
