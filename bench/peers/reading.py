"""A reader that follows a peer's stream frame by frame, as its client would, and compares the shown text with the
answer.

Called by `trials.py`. The text on the screen is judged, not the received bytes. It is built as the peer's documentation
tells clients to.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable

import httpx2

from bench.peers.peer import Cannot, Frame, Peer, Request
from bench.peers.scripted import TOKEN

__all__ = ["Screen", "begin", "frames", "numbers"]

READ_SECONDS = 12.0
"""The silence after which a stream counts as stuck."""


async def begin(peer: Peer, client: httpx2.AsyncClient, chat: str, prompt: str) -> None:
    """Request an answer, if the request is not the first reader's stream. Raises Cannot if it is refused."""
    request = peer.begin(chat, prompt)
    async with client.stream(
        request.method, peer.begin_url() + request.path, headers=request.headers, content=request.body
    ) as answer:
        if answer.status_code >= 300:
            raise Cannot(f"refused: {answer.status_code} {(await answer.aread())[:200].decode(errors='replace')}")
        came = b""
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            peer.begun(chat, await answer.aread())
            return
        async for piece in answer.aiter_bytes():
            came += piece
            if peer.begun(chat, came):
                return


class Screen:
    """The text that one tab shows."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self.shown = ""
        self.last: Frame | None = None

    @property
    def count(self) -> int:
        return self.shown.count("~")

    async def read(self, peer: Peer, request: Request, enough: Callable[["Screen"], bool], seconds: float) -> float:
        """Read until `enough`, the end of the stream, or `seconds` have passed. Returns the seconds until new text was
        shown, or infinity. Raises Cannot if the request is refused."""
        begun = time.monotonic()
        before, first = self.count, float("inf")
        async for frame in frames(self._client, peer, request, begun + seconds):
            self.shown = peer.fold(self.shown, frame)
            frame = peer.placed(frame)
            self.last = frame if frame.id or not self.last else Frame(frame.data, frame.event, self.last.id)
            if self.count > before and first == float("inf"):
                first = time.monotonic() - begun
            if peer.settled(frame) and enough(self):
                break
        return first

    def verdict(self, tokens: int) -> str:
        """Return whether the text is the whole answer, with each token once, in order."""
        return judged(numbers(self.shown), tokens)


def numbers(shown: str) -> list[int]:
    return [int(found[1]) for found in TOKEN.finditer(shown.encode())]


def judged(found: list[int], tokens: int) -> str:
    """The judgement in words: `exact`, or the difference."""
    if found == list(range(tokens)):
        return "exact"
    times = Counter(found)
    repeated = sum(count - 1 for count in times.values())
    missing = tokens - len(times)
    wrong = [f"{missing} of {tokens} missing"] if missing else []
    wrong += [f"{repeated} shown twice"] if repeated else []
    return ", ".join(wrong) or "out of order"


async def frames(client: httpx2.AsyncClient, peer: Peer, request: Request, until: float) -> AsyncIterator[Frame]:
    """Yield the frames of one stream until it ends or breaks, or the monotonic clock reaches `until`."""
    timeout = httpx2.Timeout(READ_SECONDS, read=max(0.1, min(READ_SECONDS, until - time.monotonic())))
    try:
        async with client.stream(
            request.method,
            peer.url + request.path,
            headers={"Accept": "text/event-stream", **request.headers},
            content=request.body or None,
            timeout=timeout,
        ) as answer:
            if answer.status_code != 200:
                raise Cannot(f"{answer.status_code} {(await answer.aread())[:200].decode(errors='replace')}")
            found: dict[str, str] = {}
            async for line in answer.aiter_lines():
                if line:
                    name, _, value = line.partition(":")
                    value = value.removeprefix(" ")
                    found[name] = f"{found[name]}\n{value}" if name == "data" and name in found else value
                elif found:
                    yield Frame(found.get("data", ""), found.get("event", ""), found.get("id", ""))
                    found = {}
                if time.monotonic() > until:
                    return
    except httpx2.TransportError:
        return
