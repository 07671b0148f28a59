"""The server under test: sends requests, opens streams, and records which models and tools the server offers.

It uses only the URLs and headers of PROTOCOL §1. Model names of the transcripts are translated here (`--model`), both
in requests and in patterns. No request is repeated, because a conformance test must see the first answer. Exceptions
are streams and GETs that the server refuses with 429 and `Retry-After`: the players open hundreds of streams within
seconds, which is more than a server allows one caller.
"""

import re
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlsplit

import anyio
import httpx2
import msgspec

from threadcast_protocol.wire.loopback import is_loopback

__all__ = ["NotThere", "Target"]

DEFAULT_MODE = "agent"
"""The profile that the transcripts name, which `--mode` replaces."""

SILENCE_SECONDS = 45.0
"""Time limit of a silent stream: three heartbeats (PROTOCOL §4)."""

CONNECT_SECONDS = 5.0

REQUEST_SECONDS = 5.0
"""Time limit of an answer. A POST waits up to 2 s for its effect, an import up to 10 s (PROTOCOL §1, §3)."""

OPENINGS_MAX, RETRY_MAX_SECONDS = 5, 5.0
"""The maximum number of attempts for one stream or GET, and the longest pause in seconds between two attempts that a
server may ask for."""

CAPABILITIES = frozenset({"resume", "heartbeat", "run"})
"""Abilities that the probe checks before the transcripts and that transcripts may require."""

OF_MODELS = frozenset({"continues", "model_choice"})
"""Abilities that a profile of `--mode` has only if `plays` names them. `continues`: an answer can be continued; durable
agents refuse this. `model_choice`: the parameter `model` chooses among the server's models; agents ignore this
parameter."""


class NotThere(Exception):
    """No server of this protocol answers at the URL."""


class Target:
    """A client of the server under test, shared by all players. Use it as an async context manager."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        models: Mapping[str, str] | None = None,
        mode: str = "",
        plays: Collection[str] = (),
        transport: httpx2.AsyncBaseTransport | None = None,
        answer_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """Open nothing yet. With `mode`, the chats choose this profile, which behaves like the models `plays`."""
        self.url = url.rstrip("/")
        self.answer_seconds = answer_seconds
        self.hung = anyio.Event()
        """Set when the server has missed a deadline."""
        self.cannot: dict[str, str] = {}
        """Maps each ability that this server lacks to a sentence. Later checks do not wait for such an ability
        (`probe.py`, `ending.py`)."""
        self._models = dict(models or {})
        self._mode = mode
        self._plays = frozenset(plays)
        self._mode_model = ""
        """The model that the profile's answers name; '' if the server does not report it."""
        self._offered_models: frozenset[str] | None = None
        self._offered_tools: dict[str, str] | None = None
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx2.Timeout(answer_seconds, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None),  # each player holds a few streams
            transport=transport,
            trust_env=not is_loopback(urlsplit(url).hostname or ""),  # a proxy cannot reach the loopback address
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, wrong, where)

    async def look(self) -> None:
        """Ask the server for its models, tools and profiles (PROTOCOL §13). Raises NotThere."""
        try:
            caps = await self._http.get(f"{self.url}/v1/caps")
            tools = await self._http.get(f"{self.url}/v1/tools")
            modes = await self._http.get(f"{self.url}/v1/chat-modes") if self._mode else None
        except httpx2.TransportError as wrong:
            why = "no answer came in time" if isinstance(wrong, httpx2.TimeoutException) else str(wrong)
            raise NotThere(f"{self.url} does not answer ({why}); start a server there, or correct the URL") from None
        if caps.status_code == 401:
            raise NotThere(f"{self.url} needs a token; set --token or THREADCAST_TOKEN")
        match _json(caps):
            case {"chat_models": dict() as models} if caps.status_code == 200:
                self._offered_models = frozenset(models)
        match _json(tools):
            case list() as listed if tools.status_code == 200:
                self._offered_tools = {
                    str(tool.get("name")): str(tool.get("policy")) for tool in listed if isinstance(tool, dict)
                }
        if modes is not None:
            self._look_at_mode(_json(modes))

    def _look_at_mode(self, listed: object) -> None:
        """Find the chosen profile in the list of profiles. Raises NotThere."""
        items = listed.get("modes") if isinstance(listed, dict) else None
        found = {str(each.get("id")): each for each in items or () if isinstance(each, dict)}
        if self._mode not in found:
            raise NotThere(f"{self.url} has no profile {self._mode!r}; it has {', '.join(sorted(found)) or 'none'}")
        self._mode_model = str(found[self._mode].get("model") or "")

    def lacks(self, requires: list[str]) -> list[str]:
        """Return the requirements that the server is known to lack. If a server reports no models or no tools, it is
        assumed to have all that are required."""
        return [each for each in requires if not self._has(each)]

    def why_lacking(self, requires: list[str]) -> str:
        """Return the sentence about the requirements that the server lacks."""
        wants = ", ".join(each.replace(":", " ") for each in requires)
        played = {each.removeprefix("model:") for each in requires if each in OF_MODELS or each.startswith("model:")}
        if self._mode and not played <= self._plays:
            return f"the profile {self._mode} is not said to play: {wants}"
        return f"not played without {wants}" if self.cannot else f"the server does not offer: {wants}"

    def _has(self, requirement: str) -> bool:
        kind, _, name = requirement.partition(":")
        if kind in CAPABILITIES:
            return kind not in self.cannot
        if kind in OF_MODELS:
            return not self._mode or kind in self._plays
        if kind == "model":
            if "run" in self.cannot or (self._mode and name not in self._plays):
                return False
            wanted = self.model(name).partition("?")[0]
            return self._offered_models is None or wanted in self._offered_models
        if self._offered_tools is None:
            return True
        return name in self._offered_tools and (kind != "client_tool" or self._offered_tools[name] == "client")

    def model(self, name: str) -> str:
        """Return the server's name for a model of the transcripts. The options after "?" belong to the demo models, so
        they are dropped when the name is replaced."""
        return self._models.get(name) or self._models.get(name.partition("?")[0]) or name

    def translate(self, value: object) -> object:
        """Return `value`, a request or a pattern, with the names of models and profiles replaced. With a mode, a
        pattern that names the model of an answer gets the model of the profile."""
        match value:
            case dict():
                translated = {key: self._translated(key, item) for key, item in value.items()}
                if self._mode_model and translated.get("type") == "stream_started" and "model" in translated:
                    translated["model"] = self._mode_model
                return translated
            case list():
                return [self.translate(item) for item in value]
            case _:
                return value

    def outgoing(self, value: object) -> object:
        """Return a request with translated names. With a mode, parameters that choose a model also choose the mode."""
        return self._with_mode(self.translate(value)) if self._mode else self.translate(value)

    def _with_mode(self, value: object) -> object:
        match value:
            case dict():
                return {
                    key: self._chosen(item) if key in ("patch", "params") else self._with_mode(item)
                    for key, item in value.items()
                }
            case list():
                return [self._with_mode(item) for item in value]
            case _:
                return value

    def _chosen(self, params: object) -> object:
        chooses = isinstance(params, dict) and "model" in params and "mode" not in params
        return {**params, "mode": self._mode} if chooses and isinstance(params, dict) else params

    def _translated(self, key: str, value: object) -> object:
        if key == "model" and isinstance(value, str):
            return self.model(value)
        if key == "mode" and self._mode and isinstance(value, str) and value.lower() == DEFAULT_MODE:
            return self._mode.upper() if value.isupper() else self._mode
        return self.translate(value)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float | None = None,
    ) -> httpx2.Response:
        """Send a request and return its whole answer. A GET that is answered 429 with `Retry-After` is repeated, as in
        `stream`.

        `wait_seconds`: time limit of the answer (default: `answer_seconds`). The time in a `Prefer` header is added.
        Raises httpx2.TransportError.
        """
        headers = _with_kind(body, headers)
        found = re.search(r"wait=([0-9]+)", headers.get("Prefer", ""))
        seconds = (wait_seconds or self.answer_seconds) + (int(found[1]) if found else 0)
        timeout = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
        tries = OPENINGS_MAX if method == "GET" else 1
        while True:
            tries -= 1
            url = self.url + path
            response = await self._http.request(method, url, content=body, headers=headers, timeout=timeout)
            pause_seconds = _pause_of(response) if tries else None
            if pause_seconds is None:
                return response
            await anyio.sleep(pause_seconds)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Open an event stream. The status of the answer is not checked. A GET that is answered 429 with `Retry-After`
        is repeated after that time. Raises httpx2.TransportError."""
        accepts = {"Accept": "text/event-stream", **_with_kind(body, headers)}
        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        tries = OPENINGS_MAX if method == "GET" else 1
        while True:
            tries -= 1
            async with self._http.stream(
                method, self.url + path, content=body, headers=accepts, timeout=timeout
            ) as response:
                pause_seconds = _pause_of(response) if tries else None
                if pause_seconds is None:
                    yield response
                    return
            await anyio.sleep(pause_seconds)

    @asynccontextmanager
    async def subscribe(
        self, chat_id: str, *, last_event_id: str | None = None, in_query: bool = False
    ) -> AsyncIterator[httpx2.Response]:
        """Open the stream of one chat.

        `last_event_id`: resume after this id, which is sent in the query if `in_query`, else in a header. Raises
        httpx2.TransportError.
        """
        resumes = last_event_id is not None
        query = f"&from={quote(last_event_id or '', safe='')}" if resumes and in_query else ""
        headers = {"Last-Event-ID": last_event_id or ""} if resumes and not in_query else {}
        async with self.stream("GET", f"/v1/chats/subscribe?chat_id={chat_id}{query}", headers=headers) as response:
            yield response


def _with_kind(body: bytes | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    return {**({"Content-Type": "application/json"} if body is not None else {}), **(headers or {})}


def _pause_of(response: httpx2.Response) -> float | None:
    """Return the seconds after which a refused stream may be opened again; None if the answer is not such a refusal."""
    asked = response.headers.get("Retry-After", "") if response.status_code == 429 else ""
    return float(asked) if asked.isdecimal() and float(asked) <= RETRY_MAX_SECONDS else None


def _json(response: httpx2.Response) -> object:
    try:
        found: object = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        return None
    return found
