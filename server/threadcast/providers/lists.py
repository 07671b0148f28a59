"""Fetches a provider's own list of models in the background, keeps it, and renews it on request.

Requests wait only for the first list, and only for a moment. If a model server is down, slow or hostile, only its
models are missing in `/v1/caps`. A list stays in use until a newer list has been read.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib import import_module
from typing import NamedTuple

import anyio
import anyio.to_thread
import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from threadcast.providers.listed import Offer, read_list

__all__ = ["ListRequest", "ModelList", "list_request"]

FRESH_SECONDS = 300.0
"""Seconds after which a list is out of date. People install and withdraw models a few times a day."""

RETRY_SECONDS = 5.0
"""Seconds after which a failed fetch may be repeated: a user who has just started Ollama should not wait five
minutes."""

DEADLINE_SECONDS = 10.0
"""Deadline in seconds for fetching one list, from the first packet to the last. OpenRouter's list, about a megabyte,
takes one second."""

LIST_MAX_BYTES = 8 * 1024 * 1024
"""Maximum bytes of a list: eight times the longest list that we know."""

WAIT_SECONDS = 1.0
"""Seconds that a request, or a model call that needs the list, waits for the first list."""

_log: FilteringBoundLogger = structlog.get_logger()


class ListRequest(NamedTuple):
    """The request for a provider's list of models; `headers` contain the key. `takes`: see `read_list`."""

    url: str
    headers: dict[str, str]
    takes: frozenset[str] = frozenset()


def list_request(kind: str, base_url: str, api_key: str | None, *, api_version: str = "") -> ListRequest | None:
    """Return the request for the models of a provider of that kind; None for a kind without a list.

    OpenAI: `GET /models` (its API reference, which nearly all compatible servers follow). Anthropic: `GET
    /v1/models?limit=1000`. Google: `GET /v1beta/models?pageSize=1000`. The lists of Anthropic and Google have pages,
    and 1,000 is the largest page.
    """
    key, base = api_key or "", base_url.rstrip("/")
    match kind:
        case "openai_chat" | "openai_responses":
            takes = frozenset({"image", "file"}) if "//api.openai.com/" in f"{base}/" else frozenset[str]()
            return ListRequest(f"{base}/models", {"authorization": f"Bearer {key}"} if key else {}, takes)
        case "anthropic":
            # The key is in two headers: current SDKs send the first, and some older servers and gateways expect the
            # second.
            both = {"x-api-key": key, "authorization": f"Bearer {key}", "anthropic-version": "2023-06-01"}
            url = f"{base.removesuffix('/v1')}/v1/models?limit=1000"
            return ListRequest(url, both, frozenset({"image", "file"}))
        case "google":
            url = f"{base}/{api_version or 'v1beta'}/models?pageSize=1000"
            return ListRequest(url, {"x-goog-api-key": key}, frozenset({"image", "audio", "file"}))
        case _:
            return None


class ModelList:
    """The list of models of the provider `name`. The list stays empty unless `keep` runs in a task of the caller."""

    def __init__(self, name: str, request: ListRequest) -> None:
        self.offer: Offer | None = None
        """The latest list that was read; None before the first list."""
        self._name = name
        self._request = request
        self._is_fresh = False
        self._tried_at: float | None = None
        self._wanted = anyio.Event()
        self._tried = anyio.Event()
        self._failure = ""

    async def keep(self) -> None:
        """Fetch the list now, and again whenever `ask` or `latest` finds the list old. This method runs until it is
        cancelled."""
        while True:
            await self._fetch()
            self._tried_at = anyio.current_time()
            self._wanted = anyio.Event()
            self._tried.set()
            await self._wanted.wait()

    def ask(self) -> None:
        """Request a new list if the present list is old, without waiting for the answer."""
        if self._tried_at is None or self._wanted.is_set():
            return
        if anyio.current_time() - self._tried_at >= (FRESH_SECONDS if self._is_fresh else RETRY_SECONDS):
            self._tried = anyio.Event()
            self._wanted.set()

    async def latest(self) -> Offer:
        """Return the latest list, or an empty offer before the first list. Before the first list this method waits at
        most `WAIT_SECONDS`."""
        self.ask()
        if self.offer is None:
            with anyio.move_on_after(WAIT_SECONDS):
                await self._tried.wait()
        return self.offer or Offer()

    async def _fetch(self) -> None:
        await anyio.to_thread.run_sync(import_module, "httpx2")  # the first import takes 0.2 s
        import httpx2

        failure = ""
        try:
            with anyio.fail_after(DEADLINE_SECONDS):
                body = await _body(self._request)
            # Parsing also runs in a thread: a list of some megabytes takes tens of milliseconds.
            self.offer = await anyio.to_thread.run_sync(lambda: read_list(body, takes=self._request.takes))
        except (httpx2.HTTPError, httpx2.InvalidURL, _NoList, msgspec.MsgspecError, TimeoutError, ValueError) as wrong:
            # The error's message is left out, because it may repeat the address with a key in it.
            failure = f"{type(wrong).__name__}: {wrong}" if isinstance(wrong, _NoList) else type(wrong).__name__
        self._is_fresh = not failure
        if failure != self._failure:
            self._failure = failure
            if failure:
                _log.warning("models.not_listed", provider=self._name, error=failure)
        if not failure and self.offer is not None:
            _log.info("models.listed", provider=self._name, count=len(self.offer.models), program=self.offer.program)


class _NoList(Exception):
    """The server answered, but with something other than a list."""


async def _body(request: ListRequest) -> bytes:
    """Fetch the body; the body of an error response is not read. Raises httpx2.HTTPError, httpx2.InvalidURL,
    _NoList."""
    import httpx2

    # The client is made in a thread, because reading the certificates (0.1 s) would hold up every chat.
    client = await anyio.to_thread.run_sync(lambda: httpx2.AsyncClient(timeout=DEADLINE_SECONDS))
    body = bytearray()
    # The body is requested uncompressed, because a small compressed body may expand without bound.
    headers = {**request.headers, "accept": "application/json", "accept-encoding": "identity"}
    async with client, client.stream("GET", request.url, headers=headers) as response:
        if response.status_code != 200:
            raise _NoList(f"status {response.status_code}")
        pieces: AsyncGenerator[bytes] = response.aiter_raw()
        async with aclosing(pieces):
            async for piece in pieces:
                body += piece
                if len(body) > LIST_MAX_BYTES:
                    raise _NoList(f"the list is larger than {LIST_MAX_BYTES} bytes")
    return bytes(body)
