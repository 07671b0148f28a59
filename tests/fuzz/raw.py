"""Sends requests byte by byte that no client library would send: odd ids, headers and queries, and bytes that are not
HTTP.

`odd_request` makes well-formed requests with strange values; `broken_requests` makes changed bytes, pipelined requests,
halves of requests, and slow pieces. The server must answer with a status below 500, or end the connection, before the
deadline. The module implements HTTP alone, and has no rules about chats.
"""

import socket
import time
from collections.abc import Sequence
from random import Random
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from tests.fuzz.mutator import damaged, pieces
from tests.fuzz.served import HEADERS

__all__ = ["Answer", "NoAnswer", "ask", "broken_request", "odd_request", "send_raw"]

DEADLINE_SECONDS = 10.0

_VALUES = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1-2-3",
        "999999999999999-1-1",
        "9" * 400,
        "a" * 300,
        "*",
        "%00",
        "%ff",
        "\xff\xfe",
        "é",
        "²",
    ),
    *("feed", "import", "subscribe", "..", "../..", "a/b", "a%2Fb", "c1", "null", "[]", "{}", '"', "'", "\t", "a;b=c"),
    *("wait=1", "wait=-1", "wait=99999999", "wait=²", "respond-async, wait=0", 'W/"x"', "text/html", "*/*;q=x"),
    *(
        "application/json; charset=utf-16",
        "multipart/form-data",
        "gzip",
        "br;q=",
        "identity",
        "chunked",
        "100-continue",
    ),
    *(
        "Bearer",
        "Bearer ",
        "Basic eDp5",
        "Bearer é",
        "https://evil.example",
        "null",
        "http://",
        "bytes=0-",
        "abcdef-1-2-3",
    ),
)

_HEADERS = (
    *(
        "Last-Event-ID",
        "Prefer",
        "If-None-Match",
        "Accept",
        "Accept-Encoding",
        "Content-Type",
        "Content-Encoding",
        "Range",
    ),
    *(
        "Origin",
        "Host",
        "Idempotency-Key",
        "Authorization",
        "Expect",
        "X-Forwarded-For",
        "Cookie",
        "Traceparent",
        "Upgrade",
    ),
)

_PATHS = (
    *(("GET", path) for path in ("/v1/chats", "/v1/trajectories", "/v1/caps", "/v1/tools", "/v1/chats/subscribe")),
    *(("GET", path) for path in ("/v1/chats/{}", "/v1/chats/{}/params", "/v1/chats/{}/runs", "/v1/chats/{}/export")),
    *(
        ("GET", path)
        for path in ("/v1/chats/{}/blobs/{}", "/v1/chats/{}/runs/{}/diagnostics", "/v1/trajectories/{}", "/{}")
    ),
    *(
        ("POST", path)
        for path in ("/v1/chats/{}/commands", "/v1/chats/{}/typing", "/v1/streams/{}", "/v1/chats/{}/blobs")
    ),
    *(
        ("POST", path)
        for path in ("/v1/chats/import", "/chat", "/v1/agent/chat", "/api/chat/stream", "/v1/chat/completions")
    ),
    *(("DELETE", path) for path in ("/v1/chats/{}", "/v1/chats/{}/queue/{}", "/v1/trajectories/{}")),
    *((verb, "/v1/chats/{}") for verb in ("PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "QUERY")),
)

_FIELDS = (
    *("chat_id", "stream_id", "from", "presence", "blobs", "limit", "cursor", "state", "q", "parent_id", "view", "at"),
    *("mode", "scope", "on_disconnect", "", "x"),
)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class NoAnswer(Exception):
    """At the deadline the connection was still open, without a whole answer."""


def _value(random: Random) -> str:
    return (
        random.choice(_VALUES) if random.random() < 0.7 else random.randbytes(random.randrange(1, 12)).decode("latin-1")
    )


def odd_request(random: Random, bodies: Sequence[bytes]) -> tuple[str, bytes]:
    """Return a method and a request with this method that a parser accepts: its values are strange, its framing is
    correct."""
    method, template = random.choice(_PATHS)
    path = template
    while "{}" in path:
        value = _value(random)
        path = path.replace("{}", quote(value.encode("latin-1"), safe=random.choice(("", "%/", "/"))) or "-", 1)
    if random.random() < 0.6:
        fields = [(random.choice(_FIELDS), _value(random)) for _ in range(random.choice((1, 2, 3, 70, 250)))]
        path += "?" + "&".join(f"{name}={quote(value.encode('latin-1'), safe='%')}" for name, value in fields)
    sent = {"Host": "127.0.0.1", **HEADERS, "Connection": "close"}
    for _ in range(random.randrange(4)):
        value = "".join(each for each in _value(random) if each == "\t" or (each >= " " and each != "\x7f"))
        sent[random.choice(_HEADERS)] = value
    body = b""
    if method == "POST":
        body = random.choice(bodies)
        if random.random() < 0.4:
            body = damaged(random, body, bodies)
        sent["Content-Length"] = str(len(body))
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    return method, f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


def broken_request(random: Random, bodies: Sequence[bytes]) -> bytes:
    """Return one or several pipelined requests, perhaps with a mistake anywhere."""
    whole = b"".join(odd_request(random, bodies)[1] for _ in range(random.choice((1, 1, 2, 5))))
    if random.random() < 0.5:
        whole = whole.replace(b"Connection: close\r\n", random.choice(_FRAMES), 1)
    for _ in range(random.randrange(4)):
        whole = damaged(random, whole, [whole])
    return whole[: random.randrange(len(whole) + 1)] if random.random() < 0.3 else whole


_FRAMES = (
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked, chunked\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Content-Length: 1\r\nContent-Length: 2\r\n",
    b"X-Long: " + b"a" * 70_000 + b"\r\n",
    b"X: a\r\n" * 300,
    b" folded: yes\r\n",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
    b"Expect: 100-continue\r\n",
    b"",
)


def _connected(url: str) -> socket.socket:
    place = urlsplit(url)
    return socket.create_connection((place.hostname, place.port), DEADLINE_SECONDS)


def ask(url: str, method: str, request: bytes) -> Answer:
    """Return the answer to one request; for a stream, only the head of the answer.

    Raises:
        NoAnswer: the deadline passed.
    """
    ends_at = time.monotonic() + DEADLINE_SECONDS
    came = bytearray()
    with _connected(url) as connection:
        connection.sendall(request)
        while True:
            head, found, body = bytes(came).partition(b"\r\n\r\n")
            if found:
                answer = _answer(head, body)
                if answer.status == 100:
                    del came[: len(head) + 4]
                    continue
                is_whole = len(body) >= int(answer.headers.get("content-length", 1 << 62))
                if is_whole or method == "HEAD" or answer.headers.get("content-type", "").startswith("text/event-"):
                    return answer
            connection.settimeout(max(0.01, ends_at - time.monotonic()))
            try:
                chunk = connection.recv(65_536)
            except TimeoutError:
                raise NoAnswer(f"no answer within {DEADLINE_SECONDS:g} s to {request[:300]!r}") from None
            if not chunk:
                if not found:
                    raise NoAnswer(f"the connection ended without an answer to {request[:300]!r}")
                return answer
            came += chunk


def _answer(head: bytes, body: bytes) -> Answer:
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = (line.partition(":") for line in lines)
    return Answer(int(first.split(" ")[1]), {name.lower(): value.strip() for name, _, value in fields}, body)


def send_raw(url: str, data: bytes, random: Random) -> bytes:
    """Return all bytes until the server closes the connection; of a stream, only the bytes up to its beginning.

    Raises:
        NoAnswer: the server neither answered nor closed before the deadline.
    """
    ends_at = time.monotonic() + DEADLINE_SECONDS
    came = bytearray()
    with _connected(url) as connection:
        try:
            for piece in pieces(random, data)[:64]:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65_536):
                came += chunk
                if b"text/event-stream" in came:
                    break
                connection.settimeout(max(0.01, ends_at - time.monotonic()))
        except TimeoutError:
            raise NoAnswer(f"still open after {DEADLINE_SECONDS:g} s: {data[:300]!r}") from None
        except OSError:  # the server may also answer by a reset or close
            pass
    return bytes(came)
