"""Decodes untrusted JSON from clients and models, or refuses it with an error message.

Bodies of requests, exports, and arguments and results of tools are decoded here; the server's own stored data is not.
JSON that this module accepts can be decoded and encoded everywhere else in the product, at any depth of the call stack.
"""

import re
from array import array
from itertools import accumulate
from typing import TypeVar

import msgspec

from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.errors import BadRequest, explain
from threadcast_protocol.wire.json_scan import SLICE_BYTES, OutsideStrings
from threadcast_protocol.wire.mending import mend, mend_text, read_mended
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["NESTING_MAX", "decode_body", "is_too_deep", "not_json", "read_json", "read_object"]

NESTING_MAX = 128
"""The maximum depth of nested lists and objects. A decoder is limited by the interpreter's stack, 1,000 calls by
default, and a web server, an actor and a relay leave different parts of this stack free. Without a common limit one of
these processes could accept JSON that another could not decode, and the chat would be lost. JSON of people and models
has fewer than 20 levels. RFC 8259 section 9 lets a parser set such a limit."""

_T = TypeVar("_T")

_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_half_pair = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def is_too_deep(body: bytes, limit: int = NESTING_MAX) -> bool:
    """Return whether this JSON nests lists and objects more than `limit` levels deep. The worst 16 MiB of JSON with few
    values take 80 ms, in slices; a typical body takes a microsecond."""
    if body.count(b"[") + body.count(b"{") <= limit:  # nearly always
        return False
    depth, scan = 0, OutsideStrings()
    for at in range(0, len(body), SLICE_BYTES):
        steps = array("b", scan.next(body[at : at + SLICE_BYTES]).translate(_STEPS, _BUT_BRACKETS))
        if max(accumulate(steps, initial=depth)) > limit:
            return True
        depth += sum(steps)
    return False


def decode_body(decoder: "msgspec.json.Decoder[_T]", body: bytes, nesting_max: int = NESTING_MAX) -> _T:
    """Decode the body of a request.

    Raises:
        BadRequest: the body is not JSON, is nested too deep, or has a missing field or a field of the wrong type.
            `path` is a JSON Pointer to the place.
    """
    try:
        decoded = decoder.decode(body)
    except msgspec.ValidationError as wrong:
        text, path = explain(wrong)
        raise BadRequest(text, path=path) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise BadRequest(not_json(body, wrong)) from None
    except RecursionError:
        raise _too_deep(nesting_max) from None
    if is_too_deep(body, nesting_max):  # checked last, because counting the brackets of other text takes longer
        raise _too_deep(nesting_max)
    return decoded


def not_json(body: bytes, wrong: Exception) -> str:
    """Return the sentence for a body that a decoder refused with `wrong`: msgspec reports bytes that are not UTF-8 by
    their offset in a string, and half of a surrogate pair (RFC 8259 §8.2) as a truncated body."""
    try:
        body.decode()
    except UnicodeDecodeError as invalid:
        return f"the body is not UTF-8 (byte {invalid.start})"
    if "truncated" in str(wrong) and (half := _half_pair.search(body)):
        return f"the body has half of a surrogate pair (byte {half.start()})"
    return f"the body is not JSON: {wrong}"


def _too_deep(limit: int) -> BadRequest:
    return BadRequest(f"the body is nested too deep: at most {limit} lists and objects inside each other")


def read_json(text: str, *, mends: bool = False) -> object:
    """Decode JSON that a model or a tool wrote. With `mends`, small faults are repaired first (`mending.py`).

    Raises:
        ValueError: `text` is not JSON, or is nested too deep.
    """
    try:
        data = (mend_text(text) if mends else text).encode()
        if not is_too_deep(data):
            return decode_any(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as wrong:
        if mends and not isinstance(wrong, RecursionError):
            return mend(read_mended(data))
        raise ValueError(str(wrong)) from None
    raise ValueError(f"more than {NESTING_MAX} lists and objects inside each other")


def read_object(text: str) -> JsonObject | None:
    """Decode the arguments of a tool call, repaired if necessary. Returns None if the text is not a JSON object; empty
    text is an empty object (LOOP-7)."""
    if not text.strip():
        return {}
    try:
        value = read_json(text, mends=True)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
