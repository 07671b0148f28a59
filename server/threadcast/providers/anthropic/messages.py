"""The provider for Anthropic's Messages API over Anthropic's own SDK, at Anthropic or on Vertex AI. It needs the extra
`anthropic` (on Vertex AI `anthropic-vertex`), which is imported at the first call.

The SDK brings authentication, retries before the first byte (with Retry-After) and connection pooling. Our own structs
decode the raw stream: this takes half the time of the SDK's typed stream, and later requests send the blocks back to
the provider unchanged. `Providers` returns this provider, and the agent loop iterates over its deltas. Every error is
raised as `ModelFailed`, and nothing is retried once a byte has been passed on.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING

from threadcast.base.deadlines import Deadline
from threadcast.providers.anthropic.events import Event, EventReader
from threadcast.providers.anthropic.request import DEFAULT_MAX_TOKENS, request_body, takes_prefill
from threadcast.providers.base import Delta, Request, model_info
from threadcast.providers.failures import checked, model_failed
from threadcast.providers.sdk import SdkProvider
from threadcast.providers.sse_split import SseSplitter
from threadcast.providers.tolerant import Decoder
from threadcast.settings.models import BASE_URLS
from threadcast_protocol.wire.messages import JsonObject

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncAnthropicVertex

__all__ = ["Anthropic"]

VERTEX_VERSION = "vertex-2023-10-16"
"""The version of the API on Vertex AI, from Google's and Anthropic's documentation of Claude on Vertex AI. Each version
of the SDK sends another value; a fixed value keeps the format of the events. `extra_body` can override it."""

MAX_PAUSES = 10
"""Maximum pauses of one answer. The provider pauses an answer after several calls of its own tools."""

_event_data = Decoder(Event)


class Anthropic(SdkProvider["AsyncAnthropic | AsyncAnthropicVertex"]):
    """A `Provider`. A call with a prefill disables thinking, as the API requires.

    With `vertex_project` in the settings, calls go to Vertex AI in `vertex_location` ('' is `global`), with the
    application default credentials of the machine and without `api_key`. The API of Vertex AI differs in two ways: the
    model is in the path (`…/publishers/anthropic/models/MODEL:streamRawPredict`) and not in the body, and the body has
    `anthropic_version: vertex-2023-10-16` (Anthropic's documentation, "Claude on Vertex AI").
    """

    usual_samplers = frozenset({"top_k", "stop"})

    @property
    def _root_url(self) -> str:
        """Return the base URL without /v1, which the SDK adds itself."""
        return self._base_url.rstrip("/").removesuffix("/v1")

    def prefills(self, model: str) -> bool:
        prefill = self._settings.prefill
        return takes_prefill(model) if prefill == "auto" else prefill != "none"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Ask the model. Closing or cancelling the iterator closes the connection, which stops the model."""
        client = await self._open()
        from threadcast.providers.anthropic.errors import ERRORS

        info = model_info(self, request.model)
        max_tokens = info.max_output_tokens if info is not None else None
        is_caching = self._settings.prompt_caching
        body = request_body(request, max_tokens=max_tokens or DEFAULT_MAX_TOKENS, is_caching=is_caching)
        reader = EventReader()
        with self._failures(ERRORS, reader):
            for _ in range(MAX_PAUSES):
                asked = {**body, "messages": [*body["messages"], *_so_far(reader)]}
                async with aclosing(self._events(client, asked)) as events:
                    async for data in events:
                        for delta in reader.read(_event_data.decode(checked(data), reader.mender)):
                            yield delta
                if not reader.is_paused:
                    break
                reader.next_call()
        for delta in reader.end():
            yield delta

    async def _events(
        self, client: "AsyncAnthropic | AsyncAnthropicVertex", body: JsonObject
    ) -> AsyncGenerator[bytes, None]:
        """Yield the data of each event of one call."""
        from threadcast.providers.model_http import plain_pieces

        # The body is passed as `extra_body`, which the SDK merges into its own body, because the SDK would traverse all
        # messages that it receives as typed arguments. On Vertex AI the SDK moves the model from its own body into the
        # path, so our body must not contain a model.
        laid_over = body
        if self._settings.vertex_project:
            laid_over = {"anthropic_version": VERTEX_VERSION, **body}
            del laid_over["model"]
        call = client.messages.with_streaming_response.create(
            model=body["model"], max_tokens=body["max_tokens"], messages=[], stream=True, extra_body=laid_over
        )
        async with AsyncExitStack() as stack:
            # Without this deadline each retry would get the whole idle timeout again.
            async with Deadline(self._settings.idle_timeout_seconds):
                response = await stack.enter_async_context(call)
            if response.headers.get("content-type", "").startswith("application/json"):
                raise model_failed("malformed", "a whole JSON answer in place of a stream of events")
            splitter = SseSplitter()
            async for piece in plain_pieces(response.http_response) or response.iter_bytes():
                for data in splitter.feed(piece):
                    yield data

    def _make_client(self) -> "AsyncAnthropic | AsyncAnthropicVertex":
        from anthropic import AsyncAnthropic, AsyncAnthropicVertex, DefaultAsyncHttpxClient

        import threadcast.providers.anthropic.errors  # noqa: F401
        from threadcast.providers.error_bodies import guard_errors
        from threadcast.providers.model_http import model_transport

        http = DefaultAsyncHttpxClient(
            transport=model_transport(self._root_url),
            timeout=self._timeout,
            event_hooks={"response": [guard_errors]},
        )
        if self._settings.vertex_project:
            return AsyncAnthropicVertex(
                project_id=self._settings.vertex_project,
                region=self._settings.vertex_location or "global",
                # Vertex AI has an address for each location, and the SDK knows these addresses.
                base_url=None if self._root_url == BASE_URLS["anthropic"] else f"{self._root_url}/v1",
                http_client=http,
                timeout=self._timeout,
                max_retries=self._max_retries,
            )
        return AsyncAnthropic(
            api_key=self._key,
            base_url=self._root_url,
            http_client=http,
            timeout=self._timeout,
            max_retries=self._max_retries,
        )

    async def _close(self, client: "AsyncAnthropic | AsyncAnthropicVertex") -> None:
        await client.close()


def _so_far(reader: EventReader) -> list[JsonObject]:
    return [{"role": "assistant", "content": reader.blocks}] if reader.blocks else []
