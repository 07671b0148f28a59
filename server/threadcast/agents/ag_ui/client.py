"""One run at a remote agent over HTTP: a POST whose answer is a stream of events.

The agent is not trusted: its stream has bounds of size and silence, redirects are not followed, and its texts reach
people only as texts.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec

from threadcast.agents.ag_ui.events import Event, event_of
from threadcast.providers.model_http import model_transport
from threadcast.providers.sse_split import EventTooLarge, SseSplitter
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.loopback import is_loopback

__all__ = ["ATTEMPTS", "EVENT_MAX_BYTES", "STREAM_MAX_BYTES", "RemoteAgent"]

EVENT_MAX_BYTES = 4_194_304
"""Maximum bytes of an event, the same as for MCP servers. Decoding such an event takes 10 ms."""

STREAM_MAX_BYTES = 67_108_864
"""Maximum bytes of the stream of one run: a hundred times the longest answers of today's models with all their
frames."""

CONNECT_SECONDS = 5.0

ATTEMPTS = 4
PAUSES_SECONDS = (0.5, 1.0, 2.0)
"""The pauses before a run that has not begun is requested again."""

NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout)
"""Failures after which the agent cannot have begun the run."""

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
"""The statuses after which another request may succeed (RFC 9110 §15, RFC 6585 §4, RFC 8470)."""


class RemoteAgent:
    """A remote agent. `silence_seconds` is the maximum time without a byte from the agent."""

    def __init__(self, url: str, headers: Mapping[str, str], silence_seconds: float) -> None:
        self._url = url
        self._headers = {**headers, "Accept": "text/event-stream", "Content-Type": "application/json"}
        self._silence_seconds = silence_seconds
        self._transport = model_transport(url)

    @asynccontextmanager
    async def run(self, body: Mapping[str, Any]) -> AsyncIterator[AsyncIterator[list[Event]]]:
        """Begin a run, wait for its first events, and yield an iterator over all events as they arrive. A request is
        repeated if it has not reached the agent or the agent has refused it for now.

        Raises:
            ModelFailed: the agent cannot be reached, refuses, is silent, or sends something other than a stream of
            events.
        """
        data = msgspec.json.encode(body)
        timeout = httpx2.Timeout(self._silence_seconds, connect=CONNECT_SECONDS)
        trust_env = not is_loopback(httpx2.URL(self._url).host)
        async with httpx2.AsyncClient(
            timeout=timeout, follow_redirects=False, trust_env=trust_env, transport=self._transport
        ) as client:
            for number in range(ATTEMPTS):
                is_last = number == ATTEMPTS - 1
                try:
                    async with client.stream("POST", self._url, content=data, headers=self._headers) as answer:
                        if answer.status_code == 200:
                            events = _events(answer)
                            yield _with(await anext(events, None), events)
                            return
                        if answer.status_code not in RETRIED or is_last:
                            raise _refused(answer.status_code)
                except httpx2.HTTPError as wrong:
                    if is_last or not isinstance(wrong, NOT_SENT):
                        raise _lost(wrong) from wrong
                await asyncio.sleep(PAUSES_SECONDS[number])


async def _events(answer: httpx2.Response) -> AsyncIterator[list[Event]]:
    """Yield the events of each piece of an answer, skipping pieces without events. Raises ModelFailed."""
    splitter = SseSplitter(EVENT_MAX_BYTES)
    size = 0
    try:
        async for piece in answer.aiter_bytes():
            size += len(piece)
            if size > STREAM_MAX_BYTES:
                raise ModelFailed("llm_error", f"The agent sent more than {STREAM_MAX_BYTES:,} bytes and was stopped.")
            found = [event for data in splitter.feed(piece) if (event := event_of(data)) is not None]
            if found:
                yield found
    except EventTooLarge:
        sentence = f"The agent sent an event of more than {EVENT_MAX_BYTES:,} bytes and was stopped."
        raise ModelFailed("llm_error", sentence) from None
    except (ValueError, RecursionError) as wrong:
        raise ModelFailed("llm_error", "The agent sent what is no event of AG-UI.", detail=str(wrong)) from None


async def _with(first: list[Event] | None, events: AsyncIterator[list[Event]]) -> AsyncIterator[list[Event]]:
    """Yield the first events and then the others. Raises ModelFailed: the connection was lost before the end."""
    if first is not None:
        yield first
    try:
        async for more in events:
            yield more
    except httpx2.HTTPError as wrong:
        raise _lost(wrong) from wrong


def _refused(status: int) -> ModelFailed:
    if status in (401, 403):
        return ModelFailed("auth_failed", "The agent refused the server's credentials.", status=status)
    if status == 429:
        return ModelFailed("rate_limited", "The agent is asked too often now.", status=status)
    return ModelFailed("llm_error", f"The agent answered with the status {status}.", status=status)


def _lost(wrong: Exception) -> ModelFailed:
    if isinstance(wrong, httpx2.ConnectError | httpx2.ConnectTimeout):
        return ModelFailed("connection", "The agent cannot be reached.", detail=type(wrong).__name__)
    if isinstance(wrong, httpx2.ReadTimeout):
        return ModelFailed("timeout", "The agent sent nothing for too long.", detail=type(wrong).__name__)
    return ModelFailed("stream_error", "The connection to the agent was lost.", detail=type(wrong).__name__)
