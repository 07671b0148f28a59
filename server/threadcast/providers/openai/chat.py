"""The provider for servers with OpenAI's chat-completions API: OpenAI itself, Ollama, llama.cpp, vLLM, gateways.

`openai/client.py` makes the call. The stream is decoded by our own structs, at a small part of the cost of the SDK's
typed stream (`bench/openai_chunks.py`). `Providers` returns this provider, and the agent loop iterates over its deltas.
An answer is complete only when the server sent a finish reason.
"""

from urllib.parse import urlsplit

from threadcast.providers.base import (
    Citation,
    Delta,
    Prefill,
    ReasoningDelta,
    Request,
    TextDelta,
    TimingsReported,
    UsageReported,
)
from threadcast.providers.failures import model_failed
from threadcast.providers.openai.causes import from_error_body
from threadcast.providers.openai.chat_wire import (
    CallNumbers,
    Chunk,
    Spoken,
    finish_reason,
    prefill_at,
    request_body,
    usage_of,
)
from threadcast.providers.openai.client import OpenAIReader, OpenAIServer
from threadcast.providers.openai.samplers import takes_samplers
from threadcast.providers.tolerant import Decoder
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["OpenAIChat"]

_DONE = b"[DONE]"
_chunks = Decoder(Chunk)


class OpenAIChat(OpenAIServer):
    """The `Provider`. The settings `samplers`, `program` and `send_reasoning_back` apply to this API alone (PROV-6)."""

    path = "/chat/completions"

    @property
    def max_tokens_field(self) -> str:
        """Return the name of the field that limits the tokens: OpenAI's reasoning models refuse `max_tokens`, and most
        other servers accept only `max_tokens`."""
        host = urlsplit(self._base_url).hostname or ""
        is_official = host.endswith((".openai.com", ".openai.azure.com"))
        return "max_completion_tokens" if is_official else "max_tokens"

    @property
    def _prefill(self) -> Prefill:
        return prefill_at(self._base_url) if self._settings.prefill == "auto" else self._settings.prefill

    @property
    def _program(self) -> str:
        return self._settings.program or self.offer.program

    def prefills(self, model: str) -> bool:
        return self._prefill != "none"

    def samplers(self, model: str) -> frozenset[str]:
        return takes_samplers(model, self.offer, program=self._program, said=self._settings.samplers)

    def _body(self, request: Request) -> JsonObject:
        return request_body(
            request,
            max_tokens_field=self.max_tokens_field,
            send_reasoning_back=self._settings.send_reasoning_back,
            prefill=self._prefill,
            samplers=self.samplers(request.model),
            program=self._program,
        )

    def _reader(self) -> "ChunkReader":
        return ChunkReader()


class ChunkReader(OpenAIReader):
    """Converts chunks into deltas."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = CallNumbers()

    def feed(self, data: bytes) -> list[Delta]:
        if data == _DONE:
            self.is_done = True
            return []
        chunk = _chunks.decode(data, self.mender)
        if chunk.error is not None:
            raise from_error_body(chunk.error, has_begun=self.has_begun)
        return self.mender.mend(self.read(chunk))

    def read(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas of `chunk`. Usage is emitted at the end, since some servers repeat a growing count."""
        deltas: list[Delta] = []
        if chunk.prompt_progress is not None:  # the answer has not begun, so the chunk has no other content
            deltas.append(chunk.prompt_progress)
        else:
            deltas += self._named(chunk.model)
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
        # Some servers send the reasoning under both names.
        if reasoning := spoken.reasoning_content or spoken.reasoning:
            deltas.append(ReasoningDelta(reasoning))
        # A refusal is text in place of an answer.
        if text := spoken.content or spoken.refusal:
            deltas.append(TextDelta(text))
        if spoken.tool_calls:
            deltas.extend(self._calls.delta(fragment) for fragment in spoken.tool_calls)
        if spoken.annotations:
            deltas.extend(Citation(annotation) for annotation in spoken.annotations)
        self.has_begun = self.has_begun or len(deltas) > before

    def end(self) -> list[Delta]:
        if self.is_done and self.has_begun:  # some servers end a whole answer without a finish reason
            self._finish = self._finish or "stop"
        return super().end()
