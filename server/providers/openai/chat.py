"""Any server that speaks OpenAI's chat completions: OpenAI itself, Ollama, llama.cpp, vLLM, gateways.

The call is `openai/client.py`'s. The stream is decoded by our own structs: above the cost of httpx2 itself, a small
part of what the SDK's typed stream takes (`bench/openai_chunks.py`). It knows nothing of chats and runs; `Providers`
hands it out, the agent loop iterates it. The one rule: an answer is whole only when the server said why it stopped.
"""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Unpack

from protocol.messages import JsonObject
from server.providers.base import (
    Citation,
    Delta,
    Finished,
    FinishReason,
    ModelNamed,
    Prefill,
    ReasoningDelta,
    Request,
    TextDelta,
    TimingsReported,
    UsageReported,
)
from server.providers.failures import model_failed
from server.providers.openai.chat_wire import (
    CallNumbers,
    Chunk,
    Spoken,
    finish_reason,
    prefill_at,
    request_body,
    usage_of,
)
from server.providers.openai.client import OPENAI_BASE_URL, OpenAIServer, SaidInStream
from server.providers.openai.samplers import takes_samplers
from server.providers.sdk import Reach
from server.providers.tolerant import Decoder, Mender

if TYPE_CHECKING:
    from openai import AsyncAPIResponse, AsyncOpenAI

__all__ = ["OPENAI_BASE_URL", "OpenAIChat"]

_DONE = b"[DONE]"
_chunks = Decoder(Chunk)


class OpenAIChat(OpenAIServer):
    """The `Provider`. `send_reasoning_back` is for servers that want `reasoning_content` again (PROV-6); `prefill` says
    how this server is given the beginning of an answer; `samplers` which of `protocol.params.SAMPLERS` it takes, and
    `program` what it is: None and '' leave both to its list of models."""

    def __init__(
        self,
        name: str,
        *,
        send_reasoning_back: bool = False,
        prefill: Prefill = "auto",
        samplers: frozenset[str] | None = None,
        program: str = "",
        **reach: Unpack[Reach],
    ) -> None:
        super().__init__(name, **reach)
        self._samplers = samplers
        self._program = program
        self._send_reasoning_back = send_reasoning_back
        self._prefill = prefill_at(self._base_url) if prefill == "auto" else prefill
        # OpenAI's reasoning models refuse `max_tokens`, most other servers know nothing else.
        self.max_tokens_field = "max_completion_tokens" if self._is_official else "max_tokens"

    def prefills(self, model: str) -> bool:
        return self._prefill != "none"

    def samplers(self, model: str) -> frozenset[str]:
        return takes_samplers(model, self.offer, program=self._program or self.offer.program, said=self._samplers)

    def _body(self, request: Request) -> JsonObject:
        return request_body(
            request,
            max_tokens_field=self.max_tokens_field,
            send_reasoning_back=self._send_reasoning_back,
            prefill=self._prefill,
            samplers=self.samplers(request.model),
            program=self._program or self.offer.program,
        )

    def _reader(self) -> "ChunkReader":
        return ChunkReader()

    def _call(
        self, client: "AsyncOpenAI", body: JsonObject
    ) -> "AbstractAsyncContextManager[AsyncAPIResponse[Any]]":  # Any: the type that the SDK would parse; we read raw
        return client.chat.completions.with_streaming_response.create(
            model=body["model"], messages=[], stream=True, extra_body=body
        )


class ChunkReader:
    """Chunks to deltas. `has_begun`: something of the answer has been passed on; `is_done`: the server said so."""

    def __init__(self) -> None:
        self.has_begun = False
        self.is_done = False
        self._mender = Mender()
        self._calls = CallNumbers()
        self._model: str | None = None
        self._finish: FinishReason | None = None
        self._usage: UsageReported | None = None

    def feed(self, data: bytes) -> list[Delta]:
        if data == _DONE:
            self.is_done = True
            return []
        chunk = _chunks.decode(data, self._mender)
        if chunk.error is not None:
            raise SaidInStream(chunk.error)
        return self._mender.mend(self.read(chunk))

    def read(self, chunk: Chunk) -> list[Delta]:
        """What `chunk` adds to the answer. Usage is kept for the end: some servers repeat a growing count."""
        deltas: list[Delta] = []
        if chunk.prompt_progress is not None:  # it has not begun to answer, so nothing else is said of it yet
            deltas.append(chunk.prompt_progress)
        elif chunk.model and chunk.model != self._model:
            self._model = chunk.model
            deltas.append(ModelNamed(chunk.model))
        for choice in chunk.choices or ():
            spoken = choice.delta or choice.message
            if spoken is not None:
                self._say(spoken, deltas)
            if choice.finish_reason == "error":
                raise model_failed("broken" if self.has_begun else "server_error", "finish_reason: error")
            if choice.finish_reason:
                self._finish = finish_reason(choice.finish_reason)
        if chunk.usage is not None:
            self._usage = UsageReported(usage_of(chunk.usage))
        if chunk.timings is not None:
            deltas.append(TimingsReported(chunk.timings))
        return deltas

    def _say(self, spoken: Spoken, deltas: list[Delta]) -> None:
        before = len(deltas)
        # Some servers send the reasoning under both names at once.
        if reasoning := spoken.reasoning_content or spoken.reasoning:
            deltas.append(ReasoningDelta(reasoning))
        # A refusal is what the model says instead of its answer.
        if text := spoken.content or spoken.refusal:
            deltas.append(TextDelta(text))
        if spoken.tool_calls:
            deltas.extend(self._calls.delta(fragment) for fragment in spoken.tool_calls)
        if spoken.annotations:
            deltas.extend(Citation(annotation) for annotation in spoken.annotations)
        self.has_begun = self.has_begun or len(deltas) > before

    def end(self) -> list[Delta]:
        """The last deltas of a stream that ended by itself.

        Raises:
            ModelFailed: it ended without saying why the model stopped, so it was cut (`broken`) or was no answer.
        """
        if self._finish is None and not (self.is_done and self.has_begun):
            raise model_failed("broken" if self.has_begun else "empty", "the stream ended without a finish reason")
        last: list[Delta] = [] if self._usage is None else [self._usage]
        return [*self._mender.end(), *last, Finished(self._finish or "stop")]
