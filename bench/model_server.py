"""A model server that uses little CPU time: it sends scripted answers as OpenAI chat completions, chunk by chunk.

It answers every `POST .../chat/completions` in the same way: one SSE event of about 200 bytes for each token, in the
chunked coding of real servers, each as a separate write, 50 tokens a second for each stream by default. The text of
each token is the time when it was written, so that a reader knows its age. The server runs in its own process and is
controlled over a pipe. Each stream has its own timetable, so that a late stream catches up.
"""

import asyncio
import math
import multiprocessing
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import cast

import uvloop

__all__ = ["STAMP", "TOKENS_PER_SECOND", "ModelServer", "model_server"]

TOKENS_PER_SECOND = 50
"""The pace of the budget (DESIGN §13): a chunk every 20 ms."""

STAMP = "@"
"""The text before the time in each token. The time is in nanoseconds of the machine's monotonic clock; a blank
follows."""

_BODY_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"bench",'
    b'"choices":[{"index":0,"delta":{"content":"%s"},"logprobs":null,"finish_reason":%s}]}\n\n'
)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


_END = _chunk(_EVENT % (b"", b'"stop"')) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class _Answers(asyncio.Protocol):
    """One connection, which sends requests one after the other."""

    def __init__(self, plan: "_Plan") -> None:
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._asked = bytearray()
        self._whole = 0
        self._left = 0
        self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has its own classes with the same methods

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._plan.streaming_count -= 1

    def data_received(self, data: bytes) -> None:
        self._asked += data
        if not self._whole:  # searched for once: a body may have megabytes
            head, ended, _ = self._asked.partition(b"\r\n\r\n")
            length = _BODY_LENGTH.search(head)
            if not ended or length is None:
                return
            self._whole = len(head) + len(ended) + int(length[1])
        if len(self._asked) < self._whole:
            return
        self._plan.asked_bytes, self._whole = self._whole, 0
        self._asked.clear()
        self._transport.write(_HEAD)
        self._left = self._plan.tokens_count
        self._plan.streaming_count += 1
        if self._left == 1:  # the answer of an instant model
            self._due = self._loop.time()
            self._speak()
            return
        # Streams that began at the same time must not write at the same time.
        self._due = self._loop.time() + self._plan.next_share() * self._plan.interval_seconds
        self._timer = self._loop.call_at(self._due, self._speak)

    def _speak(self) -> None:
        if self._transport.is_closing():
            return
        text = f"{STAMP}{time.monotonic_ns()} ".encode()
        self._transport.write(_chunk(_EVENT % (text, b"null")))
        self._plan.sent_count += 1
        self._left -= 1
        if self._left <= 0 or self._plan.streaming_count > self._plan.keep_count:
            self._transport.write(_END)
            self._plan.streaming_count -= 1
            self._timer = None
            return
        self._due += self._plan.interval_seconds
        self._timer = self._loop.call_at(self._due, self._speak)


class _Plan:
    """The state that all streams of the process share."""

    def __init__(self) -> None:
        self.tokens_count = 1
        self.interval_seconds = 1 / TOKENS_PER_SECOND
        self.sent_count = 0
        self.streaming_count = 0
        self.keep_count: float = math.inf
        self.asked_bytes = 0
        self._begun_count = 0

    def next_share(self) -> float:
        """Return the fraction of an interval by which the next stream is delayed. The golden ratio spreads any number
        of streams evenly."""
        self._begun_count += 1
        return self._begun_count * 0.618034 % 1

    def tell(self, pipe: Connection) -> None:
        """Carry out one order and answer with a count."""
        order, number = pipe.recv()
        if order == "tokens":
            self.tokens_count, self.keep_count = number, math.inf
        elif order == "pace":
            self.interval_seconds = 1 / number
        elif order == "keep":
            self.keep_count = number
        pipe.send({"streaming": self.streaming_count, "asked": self.asked_bytes}.get(order, self.sent_count))


def _serve(listener: socket.socket, pipe: Connection) -> None:
    async def run() -> None:
        plan = _Plan()
        loop = asyncio.get_running_loop()
        loop.add_reader(pipe.fileno(), plan.tell, pipe)
        server = await loop.create_server(lambda: _Answers(plan), sock=listener, backlog=1_024)
        await server.serve_forever()

    uvloop.run(run())


class ModelServer:
    """The handle of the process in the measuring program. `url` is the base URL for a provider."""

    def __init__(self, url: str, pid: int, pipe: Connection) -> None:
        self.url = url
        self.pid = pid
        self._pipe = pipe

    def answer_with(self, tokens_count: int, tokens_per_second: int = TOKENS_PER_SECOND) -> None:
        """Set the number of tokens of all later answers, and the pace of each. A single token is sent at once."""
        self._ask("pace", tokens_per_second)
        self._ask("tokens", tokens_count)

    def stop_answers(self) -> None:
        """End each answer at its next token, also later answers, until `answer_with` is called again."""
        self.keep_answers(0)

    def keep_answers(self, count: int) -> None:
        """End answers until only `count` answers are streaming, and allow no more than these until `answer_with` is
        called again."""
        self._ask("keep", count)

    def sent_count(self) -> int:
        """Return the number of tokens written so far in all streams."""
        return self._ask("count", 0)

    def streaming_count(self) -> int:
        """Return the number of answers that are written now."""
        return self._ask("streaming", 0)

    def asked_bytes(self) -> int:
        """Return the size of the last request, with its head."""
        return self._ask("asked", 0)

    def _ask(self, order: str, number: int) -> int:
        self._pipe.send((order, number))
        if not self._pipe.poll(10):
            raise TimeoutError("the model server does not answer")
        answer: int = self._pipe.recv()
        return answer


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """Start a model server for a block, on a free port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_serve, args=(listener, theirs), daemon=True)
    child.start()
    assert child.pid is not None
    try:
        yield ModelServer(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", child.pid, ours)
    finally:
        listener.close()
        child.terminate()
        child.join(5)
