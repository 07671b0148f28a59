"""The chunks of Gemini's stream as neutral deltas. Pure: no socket and no SDK; `gemini.py` feeds it.

One struct reads a chunk and skips what we do not name. Thoughts are reasoning; calls come whole, with or without an id;
code that the provider ran itself is a server block; what an answer is grounded on is citations. Parts that carry a
thought signature, and all parts beside such, leave as `ProviderData` for `google/request.py` to send back; an answer
without signatures keeps nothing. Images that a model draws are not asked for and not read.
"""

import msgspec

from protocol.mending import mend_text, mended_json
from protocol.messages import JsonObject, Usage
from server.providers.base import (
    Citation,
    Delta,
    Finished,
    FinishReason,
    ModelNamed,
    ProviderData,
    ReasoningDelta,
    ServerBlock,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from server.providers.failures import checked, model_failed
from server.providers.tolerant import Count, Decoder, Mender

__all__ = ["Chunk", "ChunkReader", "read_chunk"]


class FunctionCall(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    id: str | None = None
    args: JsonObject | None = None


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """`thought_signature` is base64."""

    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    function_call: FunctionCall | None = None
    executable_code: JsonObject | None = None
    code_execution_result: JsonObject | None = None


class Content(msgspec.Struct, frozen=True, rename="camel"):
    parts: list[Part] | None = None


class Grounding(msgspec.Struct, frozen=True, rename="camel"):
    grounding_chunks: list[JsonObject] | None = None


class Candidate(msgspec.Struct, frozen=True, rename="camel"):
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    grounding_metadata: Grounding | None = None


class TokenCounts(msgspec.Struct, frozen=True, rename="camel"):
    """What the answer took is `candidates` and, counted apart, `thoughts`."""

    prompt_token_count: Count | None = None
    tool_use_prompt_token_count: Count | None = None
    candidates_token_count: Count | None = None
    thoughts_token_count: Count | None = None
    total_token_count: Count | None = None
    cached_content_token_count: Count | None = None


class PromptFeedback(msgspec.Struct, frozen=True, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class Chunk(msgspec.Struct, frozen=True, rename="camel"):
    candidates: list[Candidate] | None = None
    usage_metadata: TokenCounts | None = None
    model_version: str | None = None
    prompt_feedback: PromptFeedback | None = None
    error: JsonObject | None = None


_chunks = Decoder(Chunk)


def read_chunk(data: bytes, mender: Mender) -> Chunk:
    """Decode a chunk. Raises ModelFailed: it is nested too deep. ValueError: it is no chunk."""
    return _chunks.decode(checked(data), mender)


_FINISH_REASONS: dict[str, FinishReason] = {
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "MODEL_ARMOR": "content_filter",
}

_SPOILT = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"})
"""The model wrote what nobody can read; asking again may help."""


class ChunkReader:
    """Turns the chunks of one answer into deltas. `has_begun`: some of them were passed on. `mender` is the one that
    its chunks were read with."""

    def __init__(self) -> None:
        self.has_begun = False
        self.mender = Mender()
        self._calls_count = 0
        self._model: str | None = None
        self._finish: FinishReason | None = None
        self._usage: UsageReported | None = None
        self._cited: list[JsonObject] = []
        self._text: list[str] = []
        self._unkept: list[ProviderData] = []
        self._is_keeping = False

    def read(self, chunk: Chunk) -> list[Delta]:
        """What `chunk` adds to the answer. Usage is kept for the end: each chunk has the count so far.

        Raises:
            ModelFailed: the model wrote a call that cannot be read.
        """
        deltas: list[Delta] = []
        if chunk.model_version and chunk.model_version != self._model:
            self._model = chunk.model_version
            deltas.append(ModelNamed(chunk.model_version))
        before = len(deltas)
        for candidate in (chunk.candidates or [])[:1]:
            for part in (candidate.content.parts or []) if candidate.content is not None else []:
                self._part(part, deltas)
            self._cite(candidate.grounding_metadata, deltas)
            self._stop(candidate)
        if chunk.usage_metadata is not None:
            self._usage = UsageReported(_usage(chunk.usage_metadata))
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            feedback = chunk.prompt_feedback
            reason = feedback.block_reason_message or f"The provider blocked this request ({feedback.block_reason})."
            deltas.append(TextDelta(reason))  # what is said instead of an answer
            self._finish = "content_filter"
        self.has_begun = self.has_begun or len(deltas) > before
        return self.mender.mend(deltas)

    def _part(self, part: Part, deltas: list[Delta]) -> None:
        kept: JsonObject = {}
        if part.function_call is not None:
            call = part.function_call
            arguments = mended_json(call.args or {}).decode()
            deltas.append(ToolCallDelta(self._calls_count, call.id or None, call.name, arguments))
            kept = {"call": self._calls_count}
            self._calls_count += 1
        elif part.executable_code is not None:
            deltas.append(ServerBlock({"type": "executable_code", **part.executable_code}))
            kept = {"executable_code": part.executable_code}
        elif part.code_execution_result is not None:
            deltas.append(ServerBlock({"type": "code_execution_result", **part.code_execution_result}))
            kept = {"code_execution_result": part.code_execution_result}
        elif part.text and part.thought:
            deltas.append(ReasoningDelta(part.text))
            kept = {"text": part.text, "thought": True} if part.thought_signature else {}
        elif part.text:
            deltas.append(TextDelta(part.text))
            if not part.thought_signature:
                self._text.append(part.text)
                return
            kept = {"text": part.text}
        if part.thought_signature:
            self._is_keeping = True
            # A signature may come at the very end, on a part without a word.
            kept = {**(kept or {"text": ""}), "thought_signature": part.thought_signature}
        if kept:
            self._keep(kept, deltas)

    def _keep(self, part: JsonObject, deltas: list[Delta]) -> None:
        """Parts wait for a signature; without one, the message says all there is."""
        self._keep_text()
        self._unkept.append(ProviderData(part))
        self._is_keeping = self._is_keeping or "executable_code" in part
        if self._is_keeping:
            deltas += self._unkept
            self._unkept = []

    def _keep_text(self) -> None:
        if self._text:
            self._unkept.append(ProviderData({"text": mend_text("".join(self._text))}))
            self._text = []

    def _cite(self, grounding: Grounding | None, deltas: list[Delta]) -> None:
        for source in (grounding.grounding_chunks or []) if grounding is not None else []:
            if source not in self._cited:  # later chunks may repeat them
                self._cited.append(source)
                deltas.append(Citation({"type": "grounding", **source}))

    def _stop(self, candidate: Candidate) -> None:
        reason = candidate.finish_reason
        if reason in _SPOILT:
            detail = f"finish_reason: {reason} {candidate.finish_message or ''}"
            raise model_failed("broken" if self.has_begun else "malformed", detail)
        if reason and reason != "FINISH_REASON_UNSPECIFIED":
            self._finish = _FINISH_REASONS.get(reason, "tool_calls" if self._calls_count else "stop")

    def end(self) -> list[Delta]:
        """The last deltas of a stream that ended by itself.

        Raises:
            ModelFailed: it ended without saying why the model stopped, so it was cut (`broken`) or was no answer.
        """
        if self._finish is None:
            raise model_failed("broken" if self.has_begun else "empty", "the stream ended without a finish reason")
        last: list[Delta] = self.mender.end()
        if self._is_keeping:
            self._keep_text()
            last += self.mender.mend([*self._unkept])
        if self._usage is not None:
            last.append(self._usage)
        return [*last, Finished(self._finish)]


def _usage(counts: TokenCounts) -> Usage:
    prompt = (counts.prompt_token_count or 0) + (counts.tool_use_prompt_token_count or 0)
    completion = (counts.candidates_token_count or 0) + (counts.thoughts_token_count or 0)
    return Usage(
        prompt,
        completion,
        prompt + completion if counts.total_token_count is None else counts.total_token_count,
        cache_read_input_tokens=counts.cached_content_token_count,
    )
