"""Makes JSON decoders for texts that callers, models or tools wrote, in which no number takes long to read.

msgspec takes 6 to 9 us for some numbers near the ends of a float's range, such as `1.7976931348623157e308` and
`5e-324`. A body with 50,000 of them, which is the maximum number of values in a body, held the interpreter's lock for
half a second, and so did every later read of the stored values (`bench.bombs`). Python's own `float` takes at most
0.6 us for each of these numbers, and for every other fraction.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

__all__ = ["decode_any", "decoder"]

DECODERS_KEPT = 256
"""The number of decoders that are kept. Making a decoder for each recorded value took a sixth of the CPU of a replay of
10,000 operations (`bench.agents`)."""


def _read_fraction(text: str) -> float:
    """Return the number that `text` names. Raises ValueError if no float is that large: JSON has no infinity (RFC 8259
    §6)."""
    number = float(text)
    if math.isinf(number):
        raise ValueError("Number out of range")
    return number


def decoder(
    kind: Any,  # Any: a type hint
    dec_hook: Callable[[type, Any], Any] | None = None,  # Any: as msgspec's own
) -> msgspec.json.Decoder[Any]:  # Any: the caller states the type, since unions are no `type`
    """Return a decoder for `kind`, a type or a union of types. `dec_hook` is msgspec's. The most
    recently used decoders are kept."""
    try:
        return _kept(kind, dec_hook)
    except TypeError:  # `kind` cannot be a key, or msgspec does not decode it, which the next line then reports
        return _made(kind, dec_hook)


def _made(kind: Any, dec_hook: Callable[[type, Any], Any] | None) -> msgspec.json.Decoder[Any]:  # Any: as above
    return msgspec.json.Decoder(kind, dec_hook=dec_hook, float_hook=_read_fraction)


_kept = lru_cache(maxsize=DECODERS_KEPT)(_made)


_any: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Any, float_hook=_read_fraction)  # Any: any JSON


def decode_any(data: bytes | str) -> Any:  # Any: any JSON
    """Return the decoded JSON. Raises msgspec.DecodeError, or UnicodeDecodeError if `data` is not UTF-8."""
    return _any.decode(data)
