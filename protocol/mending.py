"""Repairs small faults in text and JSON from models and tools, where a refusal would lose the whole answer.

Half of a surrogate pair, a byte that is no UTF-8, `NaN` for a number, a raw control character in a string: servers send
each of them often, and none of them is a reason to lose an answer. Bodies of clients are not repaired (`bodies.py`).
"""

import json
import math
from typing import Any

import msgspec

__all__ = ["MENDED", "mend", "mend_text", "mended_json", "read_mended"]

MENDED = "\ufffd"
"""Unicode's replacement character, in place of characters that cannot be repaired."""


def mend_text(text: str) -> str:
    """Return `text` with adjacent halves of a surrogate pair joined to one character, and `MENDED` in place of a lone
    half. Python can hold halves, UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def mend(value: Any) -> Any:  # Any: JSON in, JSON out
    """Return a JSON value with each text repaired and None in place of numbers that are not finite."""
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
    """Decode JSON that a strict decoder refuses. Bytes that are no UTF-8 become `MENDED`; numbers that are not finite
    or have thousands of digits become None. Halves of surrogate pairs stay in their texts, because their other halves
    may come with the next piece; a caller with the whole text uses `mend_text`.

    Raises:
        ValueError: it is not JSON for other reasons.
        RecursionError: nested too deep; `bodies.is_too_deep` tells before.
    """
    text = data.decode("utf-8", "replace")
    return json.loads(text, strict=False, parse_constant=_nothing, parse_float=_finite, parse_int=_whole)


def mended_json(value: Any) -> bytes:  # Any: whatever msgspec encodes
    """Encode `value` as JSON, repaired if necessary.

    Raises:
        TypeError: JSON cannot represent `value`.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(mend(msgspec.to_builtins(value)))


def _nothing(_: str) -> None:
    """Returns None for NaN, Infinity and -Infinity."""


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _whole(digits: str) -> int | None:
    try:
        return int(digits)
    except ValueError:  # more digits than Python converts
        return None
