"""What every provider behind a vendor's SDK shares: where it is reached, its client made once, its key kept.

It knows no vendor and no wire; `openai/client.py`, `anthropic/messages.py` and `google/gemini.py` build on it. The SDK
is imported with the first call, in a thread. The one rule: the key never stands in a failure, whoever repeats it.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, TypedDict, TypeVar, Unpack

import anyio.to_thread
from msgspec.structs import replace

from protocol.errors import ModelFailed
from server.foreign import pass_on
from server.providers.base import UNNAMED_MODEL, ModelInfo, Request
from server.providers.failures import model_failed
from server.providers.listed import Offer
from server.providers.lists import ModelList

if TYPE_CHECKING:
    import httpx2

__all__ = ["Reach", "SdkProvider"]

ClientT = TypeVar("ClientT")

CONNECT_TIMEOUT_SECONDS = 10.0
"""Name resolution, TCP and TLS to a distant server take 1 to 3 s on a bad line."""

IDLE_TIMEOUT_SECONDS = 120.0
"""No byte for so long, retries included, means that none will come. Reasoning models are silent for a minute or more;
a model on a small machine may need longer to read its prompt: raise it there."""

MAX_RETRIES = 2
"""The SDKs' default: before the first byte, on 408, 409, 429, 5xx and connection errors, honouring Retry-After."""


class Reach(TypedDict, total=False):
    """Where a provider is, and how patient we are with it. `api_key` None is for local servers that ask for none;
    seconds bound silence, never an answer."""

    base_url: str
    api_key: str | None
    models: list[ModelInfo] | None
    connect_timeout_seconds: float
    idle_timeout_seconds: float
    max_retries: int
    listing: ModelList | None
    """Where its own list of models is kept, if it has one that matters."""


class SdkProvider(ABC, Generic[ClientT]):
    """A `Provider` but for its `stream`."""

    usual_base_url: ClassVar[str] = ""
    usual_samplers: ClassVar[frozenset[str]] = frozenset()
    """The samplers of its API, at every server."""

    def __init__(self, name: str, **reach: Unpack[Reach]) -> None:
        self.name = name
        self._base_url = reach.get("base_url", self.usual_base_url)
        self._api_key = reach.get("api_key")
        self._models = reach.get("models") or []
        self._idle_timeout_seconds = reach.get("idle_timeout_seconds", IDLE_TIMEOUT_SECONDS)
        self._connect_timeout_seconds = reach.get("connect_timeout_seconds", CONNECT_TIMEOUT_SECONDS)
        self._max_retries = reach.get("max_retries", MAX_RETRIES)
        self.listing = reach.get("listing")
        self._client: ClientT | None = None
        self._opening = asyncio.Lock()

    def models(self) -> list[ModelInfo]:
        return list(self._models)

    def samplers(self, model: str) -> frozenset[str]:
        return self.usual_samplers

    def prefills(self, model: str) -> bool:
        """Return False: most APIs have no way to continue a prefix that all their servers follow."""
        return False

    @property
    def offer(self) -> Offer:
        """Return the provider's own list of models, or an empty one before it came."""
        return (self.listing.offer if self.listing is not None else None) or Offer()

    async def _named(self, request: Request) -> Request:
        """Return `request` with the first model of the list in place of `UNNAMED_MODEL`. A request that needs the list
        waits a moment for the first one."""
        if self.listing is None:
            return request
        params = request.params
        if request.model != UNNAMED_MODEL and (params.top_k, params.min_p, params.repetition_penalty) == (None,) * 3:
            self.listing.ask()
            return request
        offered = [info.name for info in (await self.listing.latest()).models]
        if request.model != UNNAMED_MODEL:
            return request
        return replace(request, model=offered[0]) if offered and UNNAMED_MODEL not in offered else request

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await self._close(client)

    async def warm_up(self) -> None:
        """Open the client now, so that the first answer does not wait for it."""
        try:
            await self._open()
        except BaseException as wrong:  # boundary: what fails now fails again at the first call, which says so
            pass_on(wrong)

    @abstractmethod
    def _make_client(self) -> ClientT:
        """Import the SDK and make its client. Runs in a thread."""

    @abstractmethod
    async def _close(self, client: ClientT) -> None: ...

    async def _open(self) -> ClientT:
        async with self._opening:
            if self._client is None:
                # In a thread: imports (0.5 to 1 s) and certificates (0.1 s) would hold up every other chat.
                self._client = await anyio.to_thread.run_sync(self._make_client, abandon_on_cancel=True)
            return self._client

    @property
    def _timeout(self) -> "httpx2.Timeout":
        """For a client. httpx2 comes with the SDK, so nobody imports it before."""
        import httpx2

        return httpx2.Timeout(self._idle_timeout_seconds, connect=self._connect_timeout_seconds)

    @property
    def _key(self) -> str:
        """For the SDK, which insists on one or would look for it in the environment, where ours do not come from."""
        return self._api_key or "none"

    def _private(self, failure: ModelFailed) -> ModelFailed:
        """Mask the key in an error: some servers repeat a refused key, which must reach neither log nor chat."""
        if self._api_key:
            failure.detail = failure.detail.replace(self._api_key, "***")
            failure.reason = failure.reason.replace(self._api_key, "***")
        return failure

    def _silent(self) -> ModelFailed:
        return model_failed("timeout", f"no answer within {self._idle_timeout_seconds} s")
