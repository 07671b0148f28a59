"""Damages good inputs, as bytes and as JSON, because inputs that are almost valid reach further into a decoder than
noise.

Each choice is drawn from a `Random`, so the same numbers make the same bytes again. `run.py` passes the random numbers
of hypothesis, which then shrinks the damage.
"""

import json
import re
from collections.abc import Sequence
from random import Random

__all__ = ["damaged", "mutated", "pieces"]

INPUT_MAX_BYTES = 65_536
"""Maximum bytes of an input. Larger inputs take long and find no more errors in decoders; limits on size have separate
tests."""

_NUMBERS = (
    *("0", "-0", "-1", "1", "0.5", "-0.0", "1e400", "-1e400", "1e-400", "1E+2", "01", "+1", ".5", "1.", "0x10", "NaN"),
    *("Infinity", "-Infinity", str(2**31), str(2**53 + 1), str(2**63), str(-(2**63) - 1), str(2**64), str(10**30)),
    *("9" * 400, "9" * 5_000, "1" + "0" * 308, "0." + "3" * 400),
)
"""The last line has a number with more digits than `int()` reads by default (4300), and a number in a float's highest
decade."""

_TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\r\n",
    "\n\ndata: forged",
    "\ufeff",
    "\u2028",
    "\u0000\u001f\u007f",
    "‮rtl",
    "é" * 100,
    "𐐷",
    "A" * 129,
    "A" * 300,
    "../../etc/passwd",
    "subscribe",
    "__proto__",
    "$ref",
    "data:image/png;base64,",
    "data:image/png;base64,iVBORw0KGgo=",
    "/v1/chats/c/blobs/" + "a" * 64,
    "１２",  # digits that are not ASCII
    "²",
    "true",
    "null",
    "{}",
    "[]",
    "1-2-3",
    "0-0-0",
)

_RAW = (
    b"\xff",
    b"\xc0\x80",  # an overlong NUL
    b"\xed\xa0\x80",  # half of a surrogate pair, encoded as UTF-8 forbids
    b"\xf4\x90\x80\x80",  # beyond U+10FFFF
    b"\xef\xbb\xbf",
    b"\\ud800",
    b"\\udc00\\ud800",
    b"\\u0000",
    b"\\",
    b'"',
    b"\0",
    b"\r",
    b"\n",
    b"\r\n\r\n",
    b"\n\n",
    b":",
    b"data:",
    b"id: 1\0\n",
    b"retry: 1\n",
    b"event: x\n",
    b"[DONE]",
    b"{",
    b"}",
    b"[" * 300,
    b"[" * 5_000,
    b'{"a":' * 2_000,
    b"=",
    b"[[",
    b"'''",
    b"#",
    b"\t",
)


_WORD = re.compile(rb'(?<=[:,\[= ])"[^"\\]{0,200}"|-?[0-9][0-9.eE+-]*|[A-Za-z_]+')
_WORDS = (
    *(number.encode() for number in _NUMBERS),
    *(json.dumps(text, ensure_ascii=False).encode() for text in _TEXTS),
    *(
        b"true",
        b"false",
        b"null",
        b"[]",
        b"{}",
        b"[{}]",
        b"[null]",
        b'[""]',
        b'{"":1}',
        b'"user"',
        b'"type"',
        b'"text"',
    ),
    b"[" * 200 + b"]" * 200,
)


def mutated(random: Random, corpus: Sequence[bytes]) -> bytes:
    """Return an input of the corpus, changed in some places or unchanged."""
    data = random.choice(corpus)
    for _ in range(random.choice((0, 0, 1, 1, 1, 2, 3))):
        change = _json_changed if random.random() < 0.6 else damaged
        data = change(random, data, corpus)
    return data[:INPUT_MAX_BYTES]


def pieces(random: Random, data: bytes) -> list[bytes]:
    """Return the same bytes in pieces: all at once, byte by byte, or cut anywhere."""
    how = random.random()
    if how < 0.2 or len(data) < 2:
        return [data]
    if how < 0.4 and len(data) < 500:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(1, 9)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


# --- bytes


def damaged(random: Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """Return the bytes with damage in one place."""
    at = random.randrange(len(data) + 1)
    match random.randrange(20):
        case 0 if data:  # a bit
            at = min(at, len(data) - 1)
            return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]
        case 1:  # cut off
            return data[:at]
        case 2:  # a hole
            return data[:at] + data[at + random.randrange(1, 20) :]
        case 3:  # insert a token that is special to some decoder
            return data[:at] + random.choice(_RAW) + data[at:]
        case 4:  # replace bytes by such a token
            put = random.choice(_RAW)
            return data[:at] + put + data[at + len(put) :]
        case 5:  # said twice
            end = at + random.randrange(1, 60)
            return data[:end] + data[at:end] * random.randrange(1, 4) + data[end:]
        case 6:  # two halves
            other = random.choice(corpus)
            return data[:at] + other[random.randrange(len(other) + 1) :]
        case 7:  # noise
            return data[:at] + random.randbytes(random.randrange(1, 9)) + data[at:]
        case _:  # another JSON word in the place of a JSON word, or of any word
            word = _WORD.search(data, at) or _WORD.search(data)
            if word is None:
                return data[:at] + random.choice(_WORDS) + data[at:]
            return data[: word.start()] + random.choice(_WORDS) + data[word.end() :]


# --- JSON


def _json_changed(random: Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """Return JSON that was changed: the whole input, a line of it or the data of an event. If none of these is JSON,
    the input is damaged as bytes."""
    lines = data.split(b"\n")
    at = random.randrange(len(lines)) if len(lines) > 1 else 0
    for place in (at, *(at + step for step in range(1, 4) if at + step < len(lines))):
        head, line = (b"data: ", lines[place][6:]) if lines[place].startswith(b"data: {") else (b"", lines[place])
        if line[:1] in (b"{", b"["):
            try:
                changed = _tree_changed(random, line, corpus)
            except (ValueError, RecursionError):  # not JSON any more, or nested too deeply to encode
                changed = None
            if changed is not None:
                lines[place] = head + changed
                return b"\n".join(lines)
    return damaged(random, data, corpus)


def _tree_changed(random: Random, text: bytes, corpus: Sequence[bytes]) -> bytes | None:
    tree = json.loads(text)
    slots = _slots(tree)
    if not slots:
        return None
    holder, key = random.choice(slots)
    mark = None
    match random.randrange(9):
        case 0 | 1:  # another kind of value
            holder[key] = random.choice((None, True, False, [], {}, [[]], [None], {"": {}}, 0, -1, "x", 1.5))
        case 2:
            mark = random.choice(_NUMBERS)
        case 3:
            holder[key] = random.choice(_TEXTS)
        case 4 if isinstance(holder, dict):
            value = holder.pop(key)
            if random.random() < 0.5:  # otherwise remove the value
                holder[random.choice((f"{key}x", "", "\0", "type", "__class__"))] = value
        case 5:  # a value from elsewhere
            other_holder, other_key = random.choice(slots)
            holder[key] = json.loads(json.dumps(other_holder[other_key]))
        case 6:  # deep
            depth = random.choice((10, 130, 400, 900, 3_000))
            opener, closer = random.choice((("[", "]"), ('{"a":', "}")))
            mark = opener * depth + random.choice(("1", "null", "[]")) + closer * depth
        case 7:  # a value of another input
            other_slots = _slots(json.loads(random.choice(corpus).split(b"\n")[0]))
            if other_slots:
                other_holder, other_key = random.choice(other_slots)
                holder[key] = other_holder[other_key]
        case _:  # the same key twice
            mark = json.dumps(holder[key]) + ',"' + str(key) + '":' + random.choice(('"x"', "1", "null", "{}"))
    if mark is not None:
        holder[key] = _MARK
    written = json.dumps(tree, ensure_ascii=random.random() < 0.5, separators=(",", ":"))
    if mark is not None:
        written = written.replace(f'"{_MARK}"', mark, 1)
    return written.encode("utf-8", "surrogatepass")


_MARK = "~put something here~"


def _slots(tree: object) -> "list[tuple[dict[str, object], str]]":
    """Return every place below the root of a tree that holds a value. The items of a list are treated as those of a
    dict."""
    found: list[tuple[dict[str, object], str]] = []
    waiting = [tree]
    while waiting and len(found) < 2_000:
        holder = waiting.pop()
        if isinstance(holder, dict):
            found += [(holder, key) for key in holder]
            waiting += holder.values()
        elif isinstance(holder, list):
            found += [(holder, at) for at in range(len(holder))]  # type: ignore[misc]  # indexed alike
            waiting += holder
    return found
