"""Requests, other than commands in JSON, whose handling is meant to be slow: imports, blobs, pictures in messages,
queries, cookies, other headers, and paths. `bench.bombs` sends them.

Each request has the largest size that the server reads: headers of 32 KiB, a body of 16 MiB, or a line of 32 MiB.
"""

import base64
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from threadcast.chat.import_files import LINE_MAX_BYTES
from threadcast.settings.limits import DEFAULT_LIMITS

__all__ = ["Bomb", "inputs", "long_headers"]


class Bomb(NamedTuple):
    """A request. `name` describes the filling and the field."""

    name: str
    path: str
    body: bytes
    headers: Mapping[str, str] = {}
    method: str = "POST"


HEAD_BYTES = DEFAULT_LIMITS.header_max_bytes - 1_000
BODY_BYTES = DEFAULT_LIMITS.body_max_bytes - 1_000

_HEADER_LINE = (
    b'{"type":"chat","format":1,"chat_id":"imported","leaf_id":null,"message_count":1,"payload_count":0,'
    b'"agent_count":0,"thread":{}}\n'
)

LINES: dict[str, tuple[bytes, bytes]] = {
    "a message's content": (
        _HEADER_LINE + b'{"type":"message","message":{"message_id":"m1","role":"user","content":',
        b"}}\n",
    ),
    "a message's unknown field": (
        _HEADER_LINE + b'{"type":"message","message":{"message_id":"m1","role":"user","content":"x","unknown":',
        b"}}\n",
    ),
    "an agent": (_HEADER_LINE + b'{"type":"background_agent","agent":{"a":', b"}}\n"),
    "a payload": (_HEADER_LINE + b'{"type":"payload","payload":', b"}\n"),
    "a blob": (_HEADER_LINE + b'{"type":"blob","hash":"x","mime":"image/png","data":', b"}\n"),
    "the header's context": (_HEADER_LINE.replace(b'"thread":{}}\n', b'"thread":{"context":{"a":'), b"}}}\n"),
}
"""The places in a line of an import that accept any JSON: the text before and after each place."""

LINE_FILLINGS: dict[str, Callable[[int], bytes]] = {
    "millions of lists": lambda size: b"[" + b"[]," * (size // 3 - 2) + b"[]]",
    "millions of keys": lambda size: b"{" + b",".join(b'"k%d":0' % number for number in range(size // 12)) + b"}",
    "a text of escapes": lambda size: b'"' + b"\\u00e9" * (size // 6 - 1) + b'"',
    "a text of brackets": lambda size: b'"' + b"[{" * (size // 2 - 2) + b'"',
    "a text of escaped quotation marks": lambda size: b'"[' + b'\\"' * (size // 2 - 200) + b"[" * 200 + b'"',
    "base64": lambda size: b'"' + b"AAAA" * (size // 4 - 1) + b'"',
}

PICTURES: dict[str, bytes] = {
    "zeroes": bytes(1_000_000),
    "a png without an end": b"\x89PNG\r\n\x1a\n" + (b"\x00\x00\x00\x01tEXta\x00\x00\x00\x00" * 70_000),
    "a png of many bytes": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\xff\xff\x00\x00\xff\xff\x08\x06\x00\x00\x00"
    + zlib.compress(bytes(8_000_000)),
    "a jpeg of markers": b"\xff\xd8" + b"\xff\xe0\x00\x02" * 250_000,
    "a gif of blocks": b"GIF89a\xff\xff\xff\xff\x00\x00\x00" + b"!\xf9\x01\x00\x00" * 200_000,
    "a webp of chunks": b"RIFF\xff\xff\xff\x7fWEBP" + b"ABCD\x00\x00\x00\x00" * 120_000,
}
"""Contents of pictures; each is repeated until it has the size of a body."""

HEADERS: dict[str, str] = {
    "semicolons": ";",
    "pairs": "a=b; ",
    "quotation marks": '"',
    "octal escapes": 'a="\\054\\054"; ',
    "commas": ",",
    "wildcards": "*/*;q=0.1,",
    "tags": 'W/"a",',
    "spaces": " \t",
    "colons": ":",
    "brackets": "[",
    "digits": "9",
    "percent": "%41",
}

HEADER_NAMES: dict[str, tuple[str, str]] = {
    "Cookie": ("GET", "/v1/chats"),
    "Prefer": ("POST", "/v1/chats/bombed/commands"),
    "Accept": ("POST", "/v1/chat/completions"),
    "Content-Type": ("POST", "/v1/chats/bombed/blobs"),
    "Origin": ("GET", "/v1/chats"),
    "Host": ("GET", "/v1/chats"),
    "Authorization": ("GET", "/v1/chats"),
    "Last-Event-ID": ("GET", "/v1/chats/feed?limit=x"),
    "If-None-Match": ("GET", "/v1/chats/bombed/blobs/" + 64 * "0"),
    "Accept-Encoding": ("GET", "/"),
    "Threadcast-Principal": ("GET", "/v1/chats"),
}
"""Headers that the server reads, each with a request that reads it."""

QUERIES: dict[str, str] = {
    "separators": "&",
    "semicolons": ";",
    "pairs": "a=1&",
    "chats": "chat_id=c&",
    "percent": "q=%25%41&",
    "one long text": "q",
    "broken percent": "%",
    "plus": "q=+",
}

QUERIED = ["/v1/chats?q=", "/v1/chats?cursor=", "/v1/chats/subscribe?chat_id=bombed&last_event_id=x&", "/v1/caps?"]

PATHS: dict[str, str] = {"slashes": "/", "letters": "a/", "percent": "%2f", "dots": "../", "unicode": "%ff"}


def inputs() -> Iterator[Bomb]:
    """Yield all requests, about a hundred."""
    size = LINE_MAX_BYTES - 10_000
    for filling, made in LINE_FILLINGS.items():
        value = made(size)
        for place, (before, after) in LINES.items():
            yield Bomb(f"{filling} as {place} of an import", "/v1/chats/import", before + value + after)
    yield Bomb("millions of short lines as an import", "/v1/chats/import", _HEADER_LINE + b"{}\n" * 5_000_000)
    yield Bomb("millions of headers as an import", "/v1/chats/import", _HEADER_LINE * 150_000)
    for name, part in PICTURES.items():
        whole = (part * (BODY_BYTES // len(part) + 1))[:BODY_BYTES]
        for kind in ("image/png", "application/octet-stream"):
            yield Bomb(f"{name} as a blob of {kind}", "/v1/chats/bombed/blobs", whole, {"content-type": kind})
        encoded = base64.b64encode(whole[: BODY_BYTES * 3 // 4 - 3_000]).decode()
        for wrapped, text in {
            "": encoded,
            ", broken,": encoded[:-3] + "%",
            ", with spaces,": encoded[:-1] + " ",
        }.items():
            url = f'{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{text}"}}}}'
            message = f'{{"type":"user_message","client_request_id":"{name}","content":[{url}]}}'
            yield Bomb(f"{name}{wrapped} as a picture of a message", "/v1/chats/bombed/commands", message.encode())
    forms = {
        "application/x-www-form-urlencoded": b"a=b&" * (BODY_BYTES // 4),
        "multipart/form-data; boundary=x": b"--x\r\n\r\n\r\n" * (BODY_BYTES // 9),
    }
    for kind, body in forms.items():
        for path in ("/v1/chats/bombed/commands", "/v1/chats/import", "/v1/session"):
            yield Bomb(f"a form ({kind}) to {path}", path, body, {"content-type": kind})
    yield from long_headers()
    for path in QUERIED:
        for filling, unit in QUERIES.items():
            yield Bomb(f"{filling} as the query of {path}", path + unit * (HEAD_BYTES // len(unit)), b"", method="GET")
    for filling, unit in PATHS.items():
        yield Bomb(f"{filling} as a path", "/v1/chats/" + unit * (HEAD_BYTES // len(unit)), b"", method="GET")


def long_headers() -> Iterator[Bomb]:
    """Yield the requests with a long header."""
    for name, (method, path) in HEADER_NAMES.items():
        for filling, unit in HEADERS.items():
            long = unit * (HEAD_BYTES // len(unit))
            if (
                long != long.strip()
            ):  # a client refuses to send it: no value begins or ends with a space (RFC 9110 §5.5)
                long = f"x{long}x"
            yield Bomb(f"{filling} as {name}", path, b"{}" if method == "POST" else b"", {name: long}, method)
