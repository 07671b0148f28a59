"""Anthropic's Messages API over its own SDK, at Anthropic or on Vertex AI: the extra `anthropic` (on Vertex AI
`anthropic-vertex`), imported at the first call.

The SDK brings authentication, retries before the first byte (with Retry-After) and connection pooling. The stream is
read raw and decoded by our own structs: half of what the typed one takes, and blocks go back to the provider exactly as
they came. It knows nothing of chats and runs; `Providers` hands it out, the agent loop iterates it. The one rule:
whatever goes wrong leaves as `ModelFailed`, and nothing is retried once a byte has been passed on.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Unpack

from protocol.messages import JsonObject
from server.deadlines import Deadline
from server.providers.anthropic.events import Event, EventReader
from server.providers.anthropic.request import DEFAULT_MAX_TOKENS, request_body, takes_prefill
from server.providers.base import Delta, Prefill, Request, model_info
from server.providers.failures import UNREADABLE, checked, model_failed
from server.providers.sdk import Reach, SdkProvider
from server.providers.sse_split import SseSplitter
from server.providers.tolerant import Decoder

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncAnthropicVertex

__all__ = ["ANTHROPIC_BASE_URL", "Anthropic"]

ANTHROPIC_BASE_URL = "https://api.anthropic.com"

VERTEX_VERSION = "vertex-2023-10-16"
"""The version of the API on Vertex AI, as Google's and Anthropic's documentation of Claude on Vertex AI name it. Each
version of the SDK has a value of its own; a fixed one keeps the events as we read them. `extra_body` may name
another."""

MAX_PAUSES = 10
"""How often one answer may pause for the provider's own tools; each pause comes after several of their calls."""

_event_data = Decoder(Event)


class Anthropic(SdkProvider["AsyncAnthropic | AsyncAnthropicVertex"]):
    """A `Provider`. `prefill`: "auto" goes by the models' names, any other way but "none" says that all models asked
    here take one; a call that is given the beginning of its answer goes without thinking, as the API wants it.
    `is_caching`: prompts are marked to be kept at the provider for a few minutes.

    With `vertex_project` the models are asked on Vertex AI in `vertex_location` ('' is `global`), with the application
    default credentials of the machine; `api_key` is not used then. There the API is the same but for three things: the
    model stands in the path (`…/publishers/anthropic/models/MODEL:streamRawPredict`) and not in the body, and the body
    has `anthropic_version: vertex-2023-10-16` (Anthropic's documentation, "Claude on Vertex AI").
    """

    usual_base_url = ANTHROPIC_BASE_URL
    usual_samplers = frozenset({"top_k", "stop"})

    def __init__(
        self,
        name: str,
        *,
        prefill: Prefill = "auto",
        is_caching: bool = True,
        vertex_project: str = "",
        vertex_location: str = "",
        **reach: Unpack[Reach],
    ) -> None:
        super().__init__(name, **reach)
        self._prefill = prefill
        self._vertex = (vertex_project, vertex_location or "global") if vertex_project else None
        # The SDK adds /v1 itself, and everybody else's base URL ends with it.
        self._base_url = self._base_url.rstrip("/").removesuffix("/v1")
        self._is_caching = is_caching

    def prefills(self, model: str) -> bool:
        return takes_prefill(model) if self._prefill == "auto" else self._prefill != "none"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Ask the model. Closing or cancelling the iterator closes the connection, which stops the model."""
        client = await self._open()
        from server.providers.anthropic.errors import FOREIGN_ERRORS, from_error_body, from_exception

        info = model_info(self, request.model)
        max_tokens = info.max_output_tokens if info is not None else None
        body = request_body(request, max_tokens=max_tokens or DEFAULT_MAX_TOKENS, is_caching=self._is_caching)
        reader = EventReader()
        try:
            for _ in range(MAX_PAUSES):
                asked = {**body, "messages": [*body["messages"], *_so_far(reader)]}
                async with aclosing(self._events(client, asked)) as events:
                    async for data in events:
                        event = _event_data.decode(checked(data), reader.mender)
                        if event.error is not None:
                            raise self._private(from_error_body(event.error, has_begun=reader.has_begun))
                        for delta in reader.read(event):
                            yield delta
                if not reader.is_paused:
                    break
                reader.next_call()
        except FOREIGN_ERRORS as wrong:
            raise self._private(from_exception(wrong, has_begun=reader.has_begun)) from wrong
        except TimeoutError as wrong:
            raise self._silent() from wrong
        except UNREADABLE as wrong:
            # The decoder's sentence names a place and a type, never the content.
            raise model_failed("malformed", f"{type(wrong).__name__}: {wrong}") from wrong
        for delta in reader.end():
            yield delta

    async def _events(
        self, client: "AsyncAnthropic | AsyncAnthropicVertex", body: JsonObject
    ) -> AsyncGenerator[bytes, None]:
        """The data of each event of one call."""
        # The body goes as `extra_body`, which the SDK lays over its own: it would walk through every typed message.
        # On Vertex AI the SDK moves the model from its own body into the path, so ours must not bring it back.
        laid_over = body
        if self._vertex is not None:
            laid_over = {"anthropic_version": VERTEX_VERSION, **body}
            del laid_over["model"]
        call = client.messages.with_streaming_response.create(
            model=body["model"], max_tokens=body["max_tokens"], messages=[], stream=True, extra_body=laid_over
        )
        async with AsyncExitStack() as stack:
            # Without this deadline each retry would be given the whole idle time again.
            async with Deadline(self._idle_timeout_seconds):
                response = await stack.enter_async_context(call)
            if response.headers.get("content-type", "").startswith("application/json"):
                raise model_failed("malformed", "a whole JSON answer where a stream of events was asked for")
            splitter = SseSplitter()
            async for piece in response.iter_bytes():
                for data in splitter.feed(piece):
                    yield data

    def _make_client(self) -> "AsyncAnthropic | AsyncAnthropicVertex":
        from anthropic import AsyncAnthropic, AsyncAnthropicVertex, DefaultAsyncHttpxClient

        import server.providers.anthropic.errors  # noqa: F401
        from server.providers.error_bodies import guard_errors
        from server.providers.model_http import model_transport

        http = DefaultAsyncHttpxClient(
            transport=model_transport(self._base_url),
            timeout=self._timeout,
            event_hooks={"response": [guard_errors]},
        )
        if self._vertex is not None:
            project, location = self._vertex
            return AsyncAnthropicVertex(
                project_id=project,
                region=location,
                # Vertex AI has an address for each location, which the SDK knows.
                base_url=None if self._base_url == ANTHROPIC_BASE_URL else f"{self._base_url}/v1",
                http_client=http,
                timeout=self._timeout,
                max_retries=self._max_retries,
            )
        return AsyncAnthropic(
            api_key=self._key,
            base_url=self._base_url,
            http_client=http,
            timeout=self._timeout,
            max_retries=self._max_retries,
        )

    async def _close(self, client: "AsyncAnthropic | AsyncAnthropicVertex") -> None:
        await client.close()


def _so_far(reader: EventReader) -> list[JsonObject]:
    return [{"role": "assistant", "content": reader.blocks}] if reader.blocks else []
