"""Converts the chunks of Gemini's stream into neutral deltas. Pure: no socket and no SDK; `gemini.py` calls it.

One struct decodes a chunk and skips unknown fields. Thoughts become reasoning, code that the provider ran becomes a
server block, and grounding becomes citations. Calls come whole, with or without an id. In an answer with thought
signatures all parts are emitted as `ProviderData` for `google/request.py` to send back; for an answer without
signatures no parts are kept. Generated images are neither requested nor read.
"""

import msgspec

from threadcast.providers.base import (
    Citation,
    Delta,
    FinishReason,
    ProviderData,
    ReasoningDelta,
    ServerBlock,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from threadcast.providers.failures import checked, model_failed
from threadcast.providers.reader import AnswerReader
from threadcast.providers.tolerant import Count, Decoder, Mender
from threadcast_protocol.wire.mending import mend_text, mended_json
from threadcast_protocol.wire.messages import JsonObject, Usage

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
    """The tokens of an answer are `candidates` plus the separate `thoughts`."""

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
    """Decode a chunk. Raises ModelFailed for data that is nested too deep, ValueError for data that is not a chunk."""
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
"""Finish reasons that mean unreadable output of the model; a new call may help."""


class ChunkReader(AnswerReader):
    """Turns the chunks of one answer into deltas. The chunks must have been decoded with the `mender` of this
    reader."""

    def __init__(self) -> None:
        super().__init__()
        self._calls_count = 0
        self._cited: list[JsonObject] = []
        self._text: list[str] = []
        self._unkept: list[ProviderData] = []
        self._is_keeping = False

    def read(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas of `chunk`. Usage is emitted at the end, since each chunk has the count so far.

        Raises:
            ModelFailed: the model wrote a call that cannot be decoded.
        """
        deltas = self._named(chunk.model_version)
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
            deltas.append(TextDelta(reason))  # this text replaces the answer
            self._finish = "content_filter"
        return self._passed_on(deltas)

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
            # A signature may come at the very end, on a part without text.
            kept = {**(kept or {"text": ""}), "thought_signature": part.thought_signature}
        if kept:
            self._keep(kept, deltas)

    def _keep(self, part: JsonObject, deltas: list[Delta]) -> None:
        """Collect a part. Parts are emitted only if a signature comes; otherwise the message contains their whole
        content."""
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
            if source not in self._cited:  # later chunks may repeat sources
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
        ended = super().end()
        if not self._is_keeping:
            return ended
        self._keep_text()
        return [*self.mender.mend([*self._unkept]), *ended]


def _usage(counts: TokenCounts) -> Usage:
    prompt = (counts.prompt_token_count or 0) + (counts.tool_use_prompt_token_count or 0)
    completion = (counts.candidates_token_count or 0) + (counts.thoughts_token_count or 0)
    return Usage(
        prompt,
        completion,
        prompt + completion if counts.total_token_count is None else counts.total_token_count,
        cache_read_input_tokens=counts.cached_content_token_count,
    )
