"""A client of the one-shot endpoints, which reads frames over real HTTP, each with its event, data and id.

The tests of these endpoints share it. The client makes requests in each format, and reads Server-Sent Events until the
server ends the stream.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2

from tests.support.server import DEADLINE_SECONDS, Process, command
from threadcast_protocol.framing.sse import CommentFrame, EventFrame, FrameParser
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["PATHS", "Shown", "ask", "body_for", "opened", "prepare"]

PATHS = ["/chat", "/v1/agent/chat", "/api/chat/stream", "/v1/chat/completions"]


class Shown(NamedTuple):
    """One answer that was read to its end."""

    frames: list[EventFrame]
    comments: list[str]
    headers: httpx2.Headers

    @property
    def events(self) -> list[str]:
        return [frame.event for frame in self.frames]

    @property
    def bodies(self) -> list[Any]:  # Any: JSON of foreign wires, of which tests read parts
        """Return the data of all frames that are JSON objects."""
        return [json.loads(frame.data) for frame in self.frames if frame.data.startswith("{")]

    def of(self, event: str) -> list[Any]:  # Any: as above
        return [json.loads(frame.data) for frame in self.frames if frame.event == event]

    def text(self, event: str = "text") -> str:
        return "".join(frame.data for frame in self.frames if frame.event == event)


async def ask(url: str, path: str, body: JsonObject, headers: dict[str, str] | None = None) -> Shown:
    """Post a request, and read the stream until the server ends it."""
    parser = FrameParser()
    frames: list[EventFrame] = []
    comments: list[str] = []
    async with opened(url, path, body, headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for chunk in answer.aiter_raw():
            for frame in parser.feed(chunk):
                if isinstance(frame, EventFrame):
                    frames.append(frame)
                elif isinstance(frame, CommentFrame):
                    comments.append(frame.text)
        return Shown(frames, comments, answer.headers)


@asynccontextmanager
async def opened(
    url: str, path: str, body: JsonObject, headers: dict[str, str] | None = None
) -> AsyncIterator[httpx2.Response]:
    """Open an answer; leaving the block drops the connection."""
    async with (
        httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client,
        client.stream("POST", url + path, json=body, headers=headers or {}) as answer,
    ):
        yield answer


def body_for(path: str, text: str, chat_id: str | None = None) -> JsonObject:
    """Return a request in the format of that endpoint."""
    match path:
        case "/chat":
            return {"message": text, "session_id": chat_id}
        case "/v1/agent/chat":
            return {"message": text, "context_type": "general", "conversation_id": chat_id}
        case "/api/chat/stream":
            return {"message": text, "conversation_id": chat_id}
        case _:
            metadata = {} if chat_id is None else {"metadata": {"chat_id": chat_id}}
            return {"messages": [{"role": "user", "content": text}], "stream": True, **metadata}


async def prepare(server: Process, chat_id: str, model: str, **params: object) -> None:
    """Make a chat that answers with `model`."""
    body = {"type": "set_params", "client_request_id": "prepare", "patch": {"model": model, **params}}
    answer = await command(server.url, chat_id, body)
    assert answer.json()["status"] == "applied"
