"""The provider for Gemini over Google's own SDK, with an API key or on Vertex AI. It needs the extra `google`, which is
imported at the first call.

The SDK brings authentication (a key; on Vertex the application default credentials), retries before the first byte, and
the addresses of the API. `google/raw.py` reads the chunks, and `google/answer.py` converts them into deltas.
`Providers` returns this provider, and the agent loop iterates over its deltas. Every error is raised as `ModelFailed`,
and nothing is retried once a byte has been passed on.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from threadcast.base.deadlines import Deadline
from threadcast.providers.base import Delta, Request
from threadcast.providers.failures import model_failed
from threadcast.providers.google.answer import Chunk, ChunkReader
from threadcast.providers.google.request import contents_and_config
from threadcast.providers.sdk import SdkProvider
from threadcast.providers.tolerant import Mender
from threadcast.settings.models import BASE_URLS

if TYPE_CHECKING:
    import httpx2
    from google.genai import Client
    from google.genai.types import GenerateContentResponse

__all__ = ["Google"]

RETRY_FIRST_SECONDS = 0.5
RETRY_MAX_SECONDS = 8.0
"""Maximum seconds between two attempts, because a person waits; the SDK's default is a minute."""


class _Read(NamedTuple):
    """The responses that arrived during a call, and the mender of its answer."""

    responses: "list[httpx2.Response]"
    mender: Mender


_reads: ContextVar[_Read | None] = ContextVar("_reads", default=None)
"""The `_Read` of the call that runs in this context."""


async def _note(response: "httpx2.Response") -> None:
    from httpx2 import AsyncByteStream

    from threadcast.providers.google.raw import RawChunks

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
    """A `Provider`. With `vertex_project` calls go to Vertex AI in `vertex_location`, without `api_key`. An empty
    `api_version` means the SDK's default."""

    usual_samplers = frozenset({"top_k", "seed", "stop"})
    _http: "httpx2.AsyncClient | None" = None

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Ask the model. Closing or cancelling the iterator closes the connection, which stops the model."""
        client = await self._open()
        from threadcast.providers.google.errors import ERRORS

        reader = ChunkReader()
        with self._failures(ERRORS, reader):
            async with aclosing(self._chunks(client, request, reader.mender)) as chunks:
                async for chunk in chunks:
                    for delta in reader.read(chunk):
                        yield delta
        for delta in reader.end():
            yield delta

    async def _chunks(self, client: "Client", request: Request, mender: Mender) -> AsyncGenerator[Chunk, None]:
        from google.genai.types import GenerateContentConfig

        from threadcast.providers.google.raw import RawChunks

        contents, config = contents_and_config(request)
        # Close the responses here: the SDK leaves them to the garbage collector when its reader stops.
        responses: list[httpx2.Response] = []
        read = _Read(responses, mender)
        try:
            # Without this deadline each retry would get the whole idle timeout again.
            async with Deadline(self._settings.idle_timeout_seconds):
                token = _reads.set(read)
                try:
                    stream: AsyncIterator[GenerateContentResponse] = await client.aio.models.generate_content_stream(
                        model=request.model,
                        contents=contents,  # dicts, which the SDK converts into its own types
                        config=GenerateContentConfig.model_validate(config),
                    )
                    chunk = await anext(stream, None)
                finally:
                    _reads.reset(token)
            while chunk is not None:
                raw = responses[-1].stream
                if not isinstance(raw, RawChunks):
                    raise model_failed("malformed", "another answer in place of a plain stream of events")
                while raw.chunks:
                    yield raw.chunks.popleft()
                chunk = await anext(stream, None)
        finally:
            for response in responses:
                await response.aclose()

    async def _before_request(self, request: "httpx2.Request") -> None:
        """Remove two headers of a request: the SDK's timeout, which the server would apply to the whole answer, and the
        offer of compression, which delays chunks at the sender."""
        request.extensions["timeout"] = self._timeout.as_dict()
        request.headers["Accept-Encoding"] = "identity"

    def _make_client(self) -> "Client":
        import httpx2
        from google.genai import Client
        from google.genai.types import HttpOptions, HttpRetryOptions

        import threadcast.providers.google.errors
        import threadcast.providers.google.raw  # noqa: F401
        from threadcast.providers.error_bodies import guard_errors
        from threadcast.providers.model_http import model_transport

        is_usual = self._base_url == BASE_URLS["google"]  # Vertex has an address for each location, which the SDK knows
        self._http = httpx2.AsyncClient(
            transport=model_transport(self._base_url),
            event_hooks={"request": [self._before_request], "response": [guard_errors, _note]},
            follow_redirects=False,
        )
        options = HttpOptions(
            httpx_async_client=self._http,
            base_url=None if is_usual else self._base_url,
            api_version=self._settings.api_version or None,
            retry_options=HttpRetryOptions(
                attempts=self._max_retries + 1, initial_delay=RETRY_FIRST_SECONDS, max_delay=RETRY_MAX_SECONDS
            ),
        )
        if self._settings.vertex_project:
            location = self._settings.vertex_location or "global"
            return Client(vertexai=True, project=self._settings.vertex_project, location=location, http_options=options)
        return Client(vertexai=False, api_key=self._key, http_options=options)

    async def _close(self, client: "Client") -> None:
        await client.aio.aclose()
        client.close()
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()
