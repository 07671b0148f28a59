"""The common part of all providers with a vendor's SDK: the client, which is made once, and the masking of the key.

`openai/client.py`, `anthropic/messages.py` and `google/gemini.py` build on this class. The SDK is imported with the
first call, in a thread. The key is masked in every failure, since some servers repeat it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import anyio.to_thread
from msgspec.structs import replace

from threadcast.base.boundary import pass_on
from threadcast.providers.base import UNNAMED_MODEL, ModelInfo, Request
from threadcast.providers.failures import UNREADABLE, model_failed
from threadcast.providers.listed import Offer
from threadcast.providers.lists import ModelList
from threadcast.providers.public_prices import load_prices
from threadcast.providers.reader import AnswerReader
from threadcast.settings.models import BASE_URLS
from threadcast.settings.models import Provider as ProviderSettings
from threadcast_protocol.wire.errors import ModelFailed

if TYPE_CHECKING:
    import httpx2

    from threadcast.providers.sdk_errors import SdkErrors

__all__ = ["SdkProvider"]

ClientT = TypeVar("ClientT")

VERTEX_URL = "https://aiplatform.googleapis.com"

MAX_RETRIES = 2
"""Retries before the first byte, on 408, 409, 429, 5xx and connection errors, honouring Retry-After: the SDKs'
default."""


class SdkProvider(ABC, Generic[ClientT]):
    """A `Provider` without `stream`, which subclasses define. `listing` fetches the provider's own list of models; None
    when the list is not used."""

    usual_samplers: ClassVar[frozenset[str]] = frozenset()
    """The samplers that every server of this API accepts."""

    def __init__(
        self,
        name: str,
        settings: ProviderSettings,
        *,
        listing: ModelList | None = None,
        max_retries: int = MAX_RETRIES,
    ) -> None:
        self.name = name
        self.listing = listing
        self._settings = settings
        self._base_url = settings.base_url
        self._api_key = None if settings.api_key is None else settings.api_key.reveal()
        self._max_retries = max_retries
        self._client: ClientT | None = None
        self._opening = asyncio.Lock()

    def models(self) -> list[ModelInfo]:
        return self._settings.models

    def samplers(self, model: str) -> frozenset[str]:
        return self.usual_samplers

    def prefills(self, model: str) -> bool:
        """Return False, because for most APIs there is no way to continue a prefix that all servers support."""
        return False

    @property
    def offer(self) -> Offer:
        """Return the provider's own list of models, or an empty offer before the list arrived."""
        return (self.listing.offer if self.listing is not None else None) or Offer()

    async def _named(self, request: Request) -> Request:
        """Return `request` with the first model of the provider's list in place of `UNNAMED_MODEL`. A request that
        needs the list waits a moment for the first list."""
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
        except BaseException as wrong:  # boundary: the same error recurs at the first call, which reports it
            pass_on(wrong)

    @abstractmethod
    def _make_client(self) -> ClientT:
        """Import the SDK and make its client. Runs in a thread."""

    @abstractmethod
    async def _close(self, client: ClientT) -> None: ...

    async def _open(self) -> ClientT:
        async with self._opening:
            if self._client is None:
                # The client is made in a thread, because imports (0.5 to 1 s) and certificates (0.1 s) would hold up
                # every other chat.
                self._client = await anyio.to_thread.run_sync(self._prepared_client, abandon_on_cancel=True)
            return self._client

    def _prepared_client(self) -> ClientT:
        load_prices(self.price_url)
        return self._make_client()

    @property
    def price_url(self) -> str:
        """Return the address by which public price tables know this provider. Vertex AI has an address for each
        location, and the SDK knows these addresses."""
        is_usual = self._base_url in BASE_URLS.values()
        return VERTEX_URL if self._settings.vertex_project and is_usual else self._base_url

    @property
    def _timeout(self) -> "httpx2.Timeout":
        """Return the timeouts of the client."""
        import httpx2

        return httpx2.Timeout(self._settings.idle_timeout_seconds, connect=self._settings.connect_timeout_seconds)

    @property
    def _key(self) -> str:
        """Return the key for the SDK, which otherwise requires a key in the environment."""
        return self._api_key or "none"

    @contextmanager
    def _failures(self, errors: "SdkErrors", reader: AnswerReader) -> Iterator[None]:
        """Raise every failure of the block as ModelFailed. The key is masked in the error, because some servers repeat
        a refused key and the key must appear in neither log nor chat."""
        try:
            yield
        except ModelFailed as failure:
            self._masked(failure)
            raise
        except errors.exceptions as wrong:
            raise self._masked(errors.failure(wrong, reader.has_begun)) from wrong
        except TimeoutError as wrong:
            raise model_failed("timeout", f"no answer within {self._settings.idle_timeout_seconds} s") from wrong
        except UNREADABLE as wrong:
            # The decoder's message contains a path and a type, never the content.
            raise model_failed("malformed", f"{type(wrong).__name__}: {wrong}") from wrong
        except ValueError as wrong:  # the SDK refuses the request
            raise self._masked(model_failed("refused", str(wrong))) from wrong

    def _masked(self, failure: ModelFailed) -> ModelFailed:
        if self._api_key:
            failure.detail = failure.detail.replace(self._api_key, "***")
            failure.reason = failure.reason.replace(self._api_key, "***")
        return failure
