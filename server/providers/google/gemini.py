"""Gemini over Google's own SDK, with an API key or on Vertex AI: the extra `google`, imported at the first call.

The SDK brings authentication (a key; on Vertex the application default credentials), retries before the first byte and
the addresses. The chunks are read by us (`google/raw.py`) and become deltas in `google/answer.py`. It knows nothing of
chats and runs; `Providers` hands it out, the agent loop iterates it. The one rule: whatever goes wrong leaves as
`ModelFailed`, and nothing is retried once a byte has been passed on.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, Unpack

from server.deadlines import Deadline
from server.providers.base import Delta, Request
from server.providers.failures import UNREADABLE, model_failed
from server.providers.google.answer import Chunk, ChunkReader
from server.providers.google.request import contents_and_config
from server.providers.sdk import Reach, SdkProvider
from server.providers.tolerant import Mender

if TYPE_CHECKING:
    import httpx2
    from google.genai import Client
    from google.genai.types import GenerateContentResponse

__all__ = ["GOOGLE_BASE_URL", "Google"]

GOOGLE_BASE_URL = "https://generativelanguage.googleapis.com"

RETRY_FIRST_SECONDS = 0.5
RETRY_MAX_SECONDS = 8.0
"""The SDK waits up to a minute between two attempts; a person is waiting here."""


class _Read(NamedTuple):
    """Handles the responses that come during a call."""

    responses: "list[httpx2.Response]"
    mender: Mender


_reads: ContextVar[_Read | None] = ContextVar("_reads", default=None)
"""Of the call that is made in this context."""


async def _note(response: "httpx2.Response") -> None:
    from httpx2 import AsyncByteStream

    from server.providers.google.raw import RawChunks

    read = _reads.get()
    if read is None:
        return
    read.responses.append(response)
    is_plain = response.headers.get("content-encoding", "identity") == "identity"
    kind = response.headers.get("content-type", "")
    if response.is_success and is_plain and kind.startswith("text/event-stream"):
        assert isinstance(response.stream, AsyncByteStream)
        response.stream = RawChunks(response.stream, read.mender)


class Google(SdkProvider["Client"]):
    """A `Provider`. With `vertex_project` it speaks to Vertex AI in `vertex_location` and `api_key` is not used.
    `api_version` '' is the SDK's choice."""

    usual_base_url = GOOGLE_BASE_URL
    usual_samplers = frozenset({"top_k", "seed", "stop"})

    def __init__(
        self,
        name: str,
        *,
        api_version: str = "",
        vertex_project: str = "",
        vertex_location: str = "",
        **reach: Unpack[Reach],
    ) -> None:
        super().__init__(name, **reach)
        self._api_version = api_version
        self._vertex = (vertex_project, vertex_location or "global") if vertex_project else None
        self._http: httpx2.AsyncClient | None = None

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Ask the model. Closing or cancelling the iterator closes the connection, which stops the model."""
        client = await self._open()
        from server.providers.google.errors import FOREIGN_ERRORS, from_exception

        reader = ChunkReader()
        try:
            async with aclosing(self._chunks(client, request, reader.mender)) as chunks:
                async for chunk in chunks:
                    for delta in reader.read(chunk):
                        yield delta
        except FOREIGN_ERRORS as wrong:
            raise self._private(from_exception(wrong, has_begun=reader.has_begun)) from wrong
        except TimeoutError as wrong:
            raise self._silent() from wrong
        except UNREADABLE as wrong:
            # The decoder's sentence names a place and a type, never the content.
            raise model_failed("malformed", f"{type(wrong).__name__}: {wrong}") from wrong
        except ValueError as wrong:  # the SDK's objection to a request
            raise self._private(model_failed("refused", str(wrong))) from wrong
        for delta in reader.end():
            yield delta

    async def _chunks(self, client: "Client", request: Request, mender: Mender) -> AsyncGenerator[Chunk, None]:
        from google.genai.types import GenerateContentConfig

        from server.providers.google.raw import RawChunks

        contents, config = contents_and_config(request)
        # What the SDK leaves to the garbage collector when its reader stops is closed here: the responses themselves.
        responses: list[httpx2.Response] = []
        read = _Read(responses, mender)
        try:
            # Without this deadline each retry would be given the whole idle time again.
            async with Deadline(self._idle_timeout_seconds):
                token = _reads.set(read)
                try:
                    stream: AsyncIterator[GenerateContentResponse] = await client.aio.models.generate_content_stream(
                        model=request.model,
                        contents=contents,  # dicts, which it reads into its own types
                        config=GenerateContentConfig.model_validate(config),
                    )
                    chunk = await anext(stream, None)
                finally:
                    _reads.reset(token)
            while chunk is not None:
                raw = responses[-1].stream
                if not isinstance(raw, RawChunks):
                    raise model_failed("malformed", "another answer where a plain stream of events was asked for")
                while raw.chunks:
                    yield raw.chunks.popleft()
                chunk = await anext(stream, None)
        finally:
            for response in responses:
                await response.aclose()

    async def _before_request(self, request: "httpx2.Request") -> None:
        """The SDK's own timeout is told to the server as the time that the whole answer may take. Packed pieces would
        have to be unpacked before they are read, and are waited for by whoever packs them."""
        request.extensions["timeout"] = self._timeout.as_dict()
        request.headers["Accept-Encoding"] = "identity"

    def _make_client(self) -> "Client":
        import httpx2
        from google.genai import Client
        from google.genai.types import HttpOptions, HttpRetryOptions

        import server.providers.google.errors
        import server.providers.google.raw  # noqa: F401
        from server.providers.error_bodies import guard_errors
        from server.providers.model_http import model_transport

        is_usual = self._base_url == GOOGLE_BASE_URL  # Vertex has an address for each location, which the SDK knows
        self._http = httpx2.AsyncClient(
            transport=model_transport(self._base_url),
            event_hooks={"request": [self._before_request], "response": [guard_errors, _note]},
            follow_redirects=False,
        )
        options = HttpOptions(
            httpx_async_client=self._http,
            base_url=None if is_usual else self._base_url,
            api_version=self._api_version or None,
            retry_options=HttpRetryOptions(
                attempts=self._max_retries + 1, initial_delay=RETRY_FIRST_SECONDS, max_delay=RETRY_MAX_SECONDS
            ),
        )
        if self._vertex is not None:
            project, location = self._vertex
            return Client(vertexai=True, project=project, location=location, http_options=options)
        return Client(vertexai=False, api_key=self._key, http_options=options)

    async def _close(self, client: "Client") -> None:
        await client.aio.aclose()
        client.close()
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()
