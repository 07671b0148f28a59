"""The server under test: requests, subscriptions, and what it offers of models and tools.

Black box: URLs and headers of PROTOCOL §1, nothing else. Model names of the transcripts are translated here
(`--model`), in what is sent and in what is expected. Nothing is tried twice: a conformance test wants the first answer.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlsplit

import anyio
import httpx2
import msgspec

from protocol.loopback import is_loopback

__all__ = ["NotThere", "Target"]

SILENCE_SECONDS = 45.0
"""Three heartbeats (PROTOCOL §4)."""

CONNECT_SECONDS = 5.0

ANSWER_SECONDS = 5.0
"""For an answer that does not wait: a post waits up to 2 s for an effect, an import up to 10 s (PROTOCOL §1, §3)."""


CAPABILITIES = frozenset({"resume", "heartbeat", "run"})
"""What the probe looks for before any transcript, and transcripts may require."""


class NotThere(Exception):
    """Nobody answers at the URL, or it is no server of this protocol."""


class Target:
    """Enter it once; several players share it."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        models: Mapping[str, str] | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.url = url.rstrip("/")
        self.answer_seconds = answer_seconds
        self.hung = anyio.Event()
        """Set when it has not done something in time."""
        self.cannot: dict[str, str] = {}
        """Abilities that this server lacks, each with a sentence; no later check waits for them (`probe.py`,
        `ending.py`)."""
        self._models = dict(models or {})
        self._offered_models: frozenset[str] | None = None
        self._offered_tools: dict[str, str] | None = None
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx2.Timeout(answer_seconds, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None),  # every player holds a few streams; players are bounded
            transport=transport,
            trust_env=not is_loopback(urlsplit(url).hostname or ""),  # no proxy leads to our own machine
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, wrong, where)

    async def look(self) -> None:
        """Learn what the server offers (PROTOCOL §13). Raises NotThere."""
        try:
            caps = await self._http.get(f"{self.url}/v1/caps")
            tools = await self._http.get(f"{self.url}/v1/tools")
        except httpx2.TransportError as wrong:
            why = "no answer came in time" if isinstance(wrong, httpx2.TimeoutException) else str(wrong)
            raise NotThere(f"{self.url}: nobody answers there ({why})") from None
        if caps.status_code == 401:
            raise NotThere(f"{self.url} wants a token; give one with --token or THREADCAST_TOKEN")
        match _json(caps):
            case {"chat_models": dict() as models} if caps.status_code == 200:
                self._offered_models = frozenset(models)
        match _json(tools):
            case list() as listed if tools.status_code == 200:
                self._offered_tools = {
                    str(tool.get("name")): str(tool.get("policy")) for tool in listed if isinstance(tool, dict)
                }

    def lacks(self, requires: list[str]) -> list[str]:
        """Which of a transcript's requirements the server says that it has not. What it does not say, it may have."""
        return [each for each in requires if not self._has(each)]

    def _has(self, requirement: str) -> bool:
        kind, _, name = requirement.partition(":")
        if kind in CAPABILITIES:
            return kind not in self.cannot
        if kind == "model":
            if "run" in self.cannot:
                return False
            wanted = self.model(name).partition("?")[0]
            return self._offered_models is None or wanted in self._offered_models
        if self._offered_tools is None:
            return True
        return name in self._offered_tools and (kind != "client_tool" or self._offered_tools[name] == "client")

    def model(self, name: str) -> str:
        """The server's name for a model of the transcripts. Options behind "?" are the demo models' own, so a
        replacement of the plain name drops them."""
        return self._models.get(name) or self._models.get(name.partition("?")[0]) or name

    def translate(self, value: object) -> object:
        """`value` with the model names in it replaced, wherever a key is called `model`."""
        match value:
            case dict():
                return {
                    key: self.model(item) if key == "model" and isinstance(item, str) else self.translate(item)
                    for key, item in value.items()
                }
            case list():
                return [self.translate(item) for item in value]
            case _:
                return value

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float | None = None,
    ) -> httpx2.Response:
        """Send a request and return its whole answer. `wait_seconds`: for the answer, beyond what `Prefer` asks for;
        without it, `answer_seconds`. Raises httpx2.TransportError."""
        headers = _with_kind(body, headers)
        found = re.search(r"wait=([0-9]+)", headers.get("Prefer", ""))
        seconds = (wait_seconds or self.answer_seconds) + (int(found[1]) if found else 0)
        timeout = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
        return await self._http.request(method, self.url + path, content=body, headers=headers, timeout=timeout)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Open an event stream; its status is not checked. Raises httpx2.TransportError."""
        accepts = {"Accept": "text/event-stream", **_with_kind(body, headers)}
        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        async with self._http.stream(
            method, self.url + path, content=body, headers=accepts, timeout=timeout
        ) as response:
            yield response

    @asynccontextmanager
    async def subscribe(
        self, chat_id: str, *, last_event_id: str | None = None, in_query: bool = False
    ) -> AsyncIterator[httpx2.Response]:
        """Open the stream of one chat; resumed by header, or by query. Raises httpx2.TransportError."""
        resumes = last_event_id is not None
        query = f"&from={quote(last_event_id or '', safe='')}" if resumes and in_query else ""
        headers = {"Last-Event-ID": last_event_id or ""} if resumes and not in_query else {}
        async with self.stream("GET", f"/v1/chats/subscribe?chat_id={chat_id}{query}", headers=headers) as response:
            yield response


def _with_kind(body: bytes | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    return {**({"Content-Type": "application/json"} if body is not None else {}), **(headers or {})}


def _json(response: httpx2.Response) -> object:
    try:
        found: object = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        return None
    return found
