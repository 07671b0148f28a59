"""Repairs small faults in text and JSON from models and tools, so that a fault does not lose the whole answer.

Servers often send half of a surrogate pair, a byte that is not UTF-8, `NaN` as a number, or a raw control character in
a string. Bodies of clients are not repaired (`bodies.py`).
"""

import json
import math
from typing import Any

import msgspec

__all__ = ["MENDED", "mend", "mend_text", "mended_json", "read_mended"]

MENDED = "\ufffd"
"""Unicode's replacement character, for characters that cannot be repaired."""


def mend_text(text: str) -> str:
    """Return `text` without lone surrogates, which UTF-8 cannot encode. Two adjacent halves of a surrogate pair are
    joined to one character; a single half becomes `MENDED`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def mend(value: Any) -> Any:  # Any: JSON in, JSON out
    """Return a JSON value with repaired texts, and with None in place of numbers that are not finite."""
    match value:
        case str():
            return mend_text(value)
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {mend_text(key) if isinstance(key, str) else key: mend(inner) for key, inner in value.items()}
        case list() | tuple():
            return [mend(inner) for inner in value]
        case _:
            return value


def read_mended(data: bytes) -> Any:  # Any: JSON
    """Decode JSON that a strict decoder refuses. Bytes that are not UTF-8 become `MENDED`; numbers that are not finite
    or have thousands of digits become None. Halves of surrogate pairs are kept, because the other half may follow in
    the next piece; apply `mend_text` to the whole text.

    Raises:
        ValueError: `data` is not JSON, even after these repairs.
        RecursionError: the JSON is nested too deep; `bodies.is_too_deep` checks this in advance.
    """
    text = data.decode("utf-8", "replace")
    return json.loads(text, strict=False, parse_constant=lambda _: None, parse_float=_finite, parse_int=_whole)


def mended_json(value: Any) -> bytes:  # Any: whatever msgspec encodes
    """Encode `value` as JSON, repaired if necessary.

    Raises:
        TypeError: JSON cannot represent `value`.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(mend(msgspec.to_builtins(value)))


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _whole(digits: str) -> int | None:
    try:
        return int(digits)
    except ValueError:  # the number has more digits than Python converts
        return None
