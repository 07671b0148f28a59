"""JSON from strangers, clients and models alike: decoded, or refused, with a sentence where somebody can read it.

Bodies, exports, arguments and results come through here; what we read back of our own does not. It knows no struct. The
one rule: what is accepted here can be decoded and encoded everywhere else in the house, however deep in calls that is.
"""

import re
from array import array
from itertools import accumulate
from typing import TypeVar

import msgspec

from protocol.errors import BadRequest, explain
from protocol.mending import mend, mend_text, read_mended
from protocol.messages import JsonObject

__all__ = ["NESTING_MAX", "decode_body", "is_too_deep", "read_json", "read_object"]

NESTING_MAX = 128
"""Lists and objects inside each other. A decoder's depth is that of the interpreter's stack, 1,000 calls by default,
of which a web server, an actor and a relay use different parts: what one of them could just decode, another could not,
and its chat would be lost. People and models write below 20 (RFC 8259 section 9 lets a parser set such a limit)."""

_T = TypeVar("_T")

_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # possessive: never goes back, whatever it is given
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def is_too_deep(body: bytes, limit: int = NESTING_MAX) -> bool:
    """Return whether this JSON nests more than `limit` lists and objects inside each other. The worst 16 MiB of JSON
    take a second, as decoding them does; what people send takes a microsecond."""
    if body.count(b"[") + body.count(b"{") <= limit:  # nearly always
        return False
    steps = _STRINGS.sub(b"", body).translate(_STEPS, _BUT_BRACKETS)
    return max(accumulate(array("b", steps)), default=0) > limit


def decode_body(decoder: "msgspec.json.Decoder[_T]", body: bytes, nesting_max: int = NESTING_MAX) -> _T:
    """What the bytes say.

    Raises:
        BadRequest: not JSON, nested too deep, missing field or wrong type; `path` is a JSON Pointer to the place.
    """
    try:
        decoded = decoder.decode(body)
    except msgspec.ValidationError as wrong:
        text, path = explain(wrong)
        raise BadRequest(text, path=path) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise BadRequest(f"the body is not JSON: {wrong}") from None
    except RecursionError:
        raise _too_deep(nesting_max) from None
    if is_too_deep(body, nesting_max):  # last, since brackets that are no JSON would take longer to count
        raise _too_deep(nesting_max)
    return decoded


def _too_deep(limit: int) -> BadRequest:
    return BadRequest(f"the body is nested too deep: at most {limit} lists and objects inside each other")


def read_json(text: str, *, mends: bool = False) -> object:
    """Decode JSON that a model or a tool wrote; with `mends`, repair small faults in it first (`mending.py`).

    Raises:
        ValueError: it is not JSON, or nested too deep.
    """
    try:
        data = (mend_text(text) if mends else text).encode()
        if not is_too_deep(data):
            return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as wrong:
        if mends and not isinstance(wrong, RecursionError):
            return mend(read_mended(data))
        raise ValueError(str(wrong)) from None
    raise ValueError(f"more than {NESTING_MAX} lists and objects inside each other")


def read_object(text: str) -> JsonObject | None:
    """Decode the arguments of a call, repaired if necessary. Returns None for JSON that is no object; empty text is an
    empty object (LOOP-7)."""
    if not text.strip():
        return {}
    try:
        value = read_json(text, mends=True)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
