"""The events of Anthropic's Messages stream as neutral deltas. Pure: no socket and no SDK; `anthropic.py` feeds it.

One struct reads every event and skips what we do not name. Text, thinking and calls are passed on as they come; each
block that ended is kept whole. What clients see of thinking and of the provider's own tools is without signatures and
encrypted parts; the blocks as they came leave as `ProviderData`, one each, in order, for `anthropic/request.py` to send
back. An answer of text and calls alone needs none of that, and keeps nothing.
"""

from typing import Any

import msgspec

from protocol.mending import mend, mend_text
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
    ThinkingBlock,
    ToolCallDelta,
    UsageReported,
)
from server.providers.failures import model_failed
from server.providers.tolerant import Count, Mender
from server.providers.turns import arguments_object

__all__ = ["ErrorBody", "Event", "EventReader"]


class TokenCounts(msgspec.Struct, frozen=True):
    """`input_tokens` is without what was read from or written to the cache. Counts grow in the course of a stream."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None


class Head(msgspec.Struct, frozen=True):
    model: str = ""
    usage: TokenCounts | None = None


class Piece(msgspec.Struct, frozen=True):
    """What `delta` may hold in all events that have one."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    citation: JsonObject | None = None
    stop_reason: str | None = None
    stop_details: JsonObject | None = None


class _Block(msgspec.Struct, frozen=True):
    """What we read of a block that begins; the block itself is kept as it came."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    signature: str = ""
    citations: list[JsonObject] | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    type: str = ""
    message: str = ""


class Event(msgspec.Struct, frozen=True):
    type: str
    message: Head | None = None
    content_block: JsonObject | None = None
    delta: Piece | None = None
    usage: TokenCounts | None = None
    error: ErrorBody | None = None


_FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}

_PLAIN = frozenset({"text", "tool_use"})
_HIDDEN = ("signature", "encrypted_content", "encrypted_index", "encrypted_stdout", "data")
"""Keys of opaque parts, which only the provider reads. `data` is that of redacted thinking."""


class EventReader:
    """One answer, of one call or of several when the provider paused between them (`next_call`).

    `has_begun`: something of the answer has been passed on. `is_paused`: its own tools took long, and it wants to be
    asked again with `blocks` as they are.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self.mender = Mender()
        self.blocks: list[JsonObject] = []
        self._block: JsonObject | None = None
        self._parts: list[str] = []
        self._calls_count = 0
        self._model: str | None = None
        self._stop: str | None = None
        self._counts: dict[str, int] = {}
        self._earlier = Usage(0, 0, 0)
        self._unkept: list[ProviderData] = []
        self._is_keeping = False

    @property
    def is_paused(self) -> bool:
        return self._stop == "pause_turn"

    def next_call(self) -> None:
        """The answer goes on in another stream."""
        self._earlier, self._counts, self._stop = self._usage(), {}, None

    def read(self, event: Event) -> list[Delta]:
        """What `event` adds to the answer. Raises msgspec.ValidationError: a block of no shape that we know."""
        deltas: list[Delta] = []
        match event.type:
            case "content_block_delta" if event.delta is not None:
                self._grow(event.delta, deltas)
            case "content_block_start" if event.content_block is not None:
                self._open(event.content_block, deltas)
            case "content_block_stop":
                self._close(deltas)
            case "message_start" if event.message is not None:
                if event.message.model and event.message.model != self._model:
                    self._model = event.message.model
                    deltas.append(ModelNamed(event.message.model))
                self._count(event.message.usage)
            case "message_delta":
                self._count(event.usage)
                if event.delta is not None and event.delta.stop_reason:
                    self._end(event.delta, deltas)
        self.has_begun = self.has_begun or any(not isinstance(delta, ModelNamed) for delta in deltas)
        return self.mender.mend(deltas)

    def _open(self, block: JsonObject, deltas: list[Delta]) -> None:
        msgspec.convert(block, _Block)  # raises
        self._block, self._parts = block, []
        if block.get("type") == "tool_use":
            deltas.append(ToolCallDelta(self._calls_count, block.get("id"), block.get("name")))
            self._calls_count += 1
        elif text := block.get("text"):
            self._say(str(text), deltas)

    def _grow(self, piece: Piece, deltas: list[Delta]) -> None:
        match piece.type:
            case "text_delta":
                self._say(piece.text, deltas)
            case "thinking_delta":
                self._parts.append(piece.thinking)
                if piece.thinking:
                    deltas.append(ReasoningDelta(piece.thinking))
            case "input_json_delta":
                self._parts.append(piece.partial_json)
                if piece.partial_json and self._block is not None and self._block.get("type") == "tool_use":
                    deltas.append(ToolCallDelta(self._calls_count - 1, arguments=piece.partial_json))
            case "signature_delta" if self._block is not None:
                self._block["signature"] = self._block.get("signature", "") + piece.signature
            case "citations_delta" if piece.citation is not None and self._block is not None:
                self._block["citations"] = [*(self._block.get("citations") or []), piece.citation]
                deltas.append(Citation(_public(piece.citation)))

    def _say(self, text: str, deltas: list[Delta]) -> None:
        self._parts.append(text)
        if text:
            deltas.append(TextDelta(text))

    def _close(self, deltas: list[Delta]) -> None:
        block, self._block = self._block, None
        if block is None:
            return
        whole, kind = mend_text("".join(self._parts)), block.get("type")
        if self.mender.is_needed:
            block = mend(block)
        kept = block
        match kind:
            case "text" | "thinking":
                block[kind] = whole
            case "tool_use":
                extras = {key: value for key, value in block.items() if key not in ("id", "name", "input")}
                kept = {**extras, "call": self._calls_count - 1}
            case _:
                if whole:  # a tool of the provider's own; its arguments come in pieces, too
                    block["input"] = arguments_object(whole)
        if block.get("citations") is None:
            block.pop("citations", None)
        self.blocks.append({**block, "input": arguments_object(whole)} if kind == "tool_use" else block)
        if kind not in _PLAIN:
            is_thinking = kind in ("thinking", "redacted_thinking")
            if kind != "thinking" or whole:  # some models send the signature alone
                deltas.append(ThinkingBlock(_public(block)) if is_thinking else ServerBlock(_public(block)))
        self._keep(kept, deltas, is_plain=kind in _PLAIN and not block.get("citations"))

    def _keep(self, block: JsonObject, deltas: list[Delta], *, is_plain: bool) -> None:
        """Plain blocks wait for one that is not: without it, the message says all there is."""
        self._unkept.append(ProviderData(block))
        self._is_keeping = self._is_keeping or not is_plain
        if self._is_keeping:
            deltas += self._unkept
            self._unkept = []

    def _end(self, delta: Piece, deltas: list[Delta]) -> None:
        self._stop = delta.stop_reason
        explanation = (delta.stop_details or {}).get("explanation")
        if self._stop == "refusal" and explanation and not self.blocks:
            deltas.append(TextDelta(str(explanation)))  # what is said instead of an answer

    def _count(self, counts: TokenCounts | None) -> None:
        if counts is not None:
            self._counts.update({key: n for key, n in msgspec.structs.asdict(counts).items() if n is not None})

    def _usage(self) -> Usage:
        """The prompt's tokens with the cached ones, as everybody else counts them."""
        written, read = (self._counts.get(f"cache_{way}_input_tokens") for way in ("creation", "read"))
        earlier = self._earlier
        prompt = earlier.prompt_tokens + self._counts.get("input_tokens", 0) + (written or 0) + (read or 0)
        completion = earlier.completion_tokens + self._counts.get("output_tokens", 0)
        return Usage(
            prompt,
            completion,
            prompt + completion,
            cache_creation_input_tokens=_sum(earlier.cache_creation_input_tokens, written),
            cache_read_input_tokens=_sum(earlier.cache_read_input_tokens, read),
        )

    def end(self) -> list[Delta]:
        """The last deltas of a stream that ended by itself.

        Raises:
            ModelFailed: it ended without saying why the model stopped, so it was cut (`broken`) or was no answer.
        """
        if self._stop is None:
            raise model_failed("broken" if self.has_begun else "empty", "the stream ended without a stop reason")
        last: list[Delta] = [UsageReported(self._usage())] if self._counts else []
        return [*self.mender.end(), *last, Finished(_FINISH_REASONS.get(self._stop, "stop"))]


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None and b is None else (a or 0) + (b or 0)


def _public(value: Any) -> Any:  # Any: JSON in, JSON out
    """`value` without the parts that only the provider can read."""
    if isinstance(value, dict):
        return {key: _public(inner) for key, inner in value.items() if key not in _HIDDEN}
    return [_public(inner) for inner in value] if isinstance(value, list) else value
