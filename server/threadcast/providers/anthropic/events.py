"""Converts the events of Anthropic's Messages stream into neutral deltas. Pure: no socket and no SDK; `messages.py`
calls it.

One struct decodes every event and skips unknown fields. Text, thinking and calls are passed on in pieces; each finished
block is kept as a whole. Clients see thinking and the provider's own tools without signatures and encrypted parts. The
original blocks are emitted in order, each as one `ProviderData`, and `request.py` sends them back. No blocks are kept
for an answer that consists only of text and calls.
"""

from typing import Any

import msgspec

from threadcast.providers.anthropic.causes import cause_of
from threadcast.providers.base import (
    Citation,
    Delta,
    FinishReason,
    ProviderData,
    ReasoningDelta,
    ServerBlock,
    TextDelta,
    ThinkingBlock,
    ToolCallDelta,
    UsageReported,
)
from threadcast.providers.failures import model_failed
from threadcast.providers.reader import AnswerReader
from threadcast.providers.tolerant import Count
from threadcast.providers.turns import arguments_object
from threadcast_protocol.wire.mending import mend, mend_text
from threadcast_protocol.wire.messages import JsonObject, Usage

__all__ = ["ErrorBody", "Event", "EventReader"]


class TokenCounts(msgspec.Struct, frozen=True):
    """Token counts, which grow in the course of a stream. `input_tokens` excludes tokens read from or written to the
    cache."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None


class Head(msgspec.Struct, frozen=True):
    model: str = ""
    usage: TokenCounts | None = None


class Piece(msgspec.Struct, frozen=True):
    """The fields of the key `delta`, in all events that have this key."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    citation: JsonObject | None = None
    stop_reason: str | None = None
    stop_details: JsonObject | None = None


class _Block(msgspec.Struct, frozen=True):
    """The fields read from a block's start; the block itself is kept unchanged."""

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
"""Keys of opaque parts, which only the provider reads. `data` belongs to redacted thinking."""


class EventReader(AnswerReader):
    """Reads one answer, which comes from several calls if the provider pauses it (`next_call`). `blocks` are the
    finished blocks of the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[JsonObject] = []
        self._block: JsonObject | None = None
        self._parts: list[str] = []
        self._calls_count = 0
        self._stop: str | None = None
        self._counts: dict[str, int] = {}
        self._earlier = Usage(0, 0, 0)
        self._unkept: list[ProviderData] = []
        self._is_keeping = False

    @property
    def is_paused(self) -> bool:
        """Return whether the provider paused the answer because its own tools took long. The provider then expects
        another call with the same `blocks`."""
        return self._stop == "pause_turn"

    def next_call(self) -> None:
        """Prepare for the next stream of the same answer."""
        self._earlier, self._counts = self._total(), {}
        self._stop = self._finish = None

    def read(self, event: Event) -> list[Delta]:
        """Return the deltas of `event`.

        Raises:
            ModelFailed: the event reports an error.
            msgspec.ValidationError: a block has an unknown shape.
        """
        if (error := event.error) is not None:
            cause = "broken" if self.has_begun else cause_of(500, error.message, error.type)
            raise model_failed(cause, f"error in the stream: {error.type}: {error.message}", body=error.message)
        deltas: list[Delta] = []
        match event.type:
            case "content_block_delta" if event.delta is not None:
                self._grow(event.delta, deltas)
            case "content_block_start" if event.content_block is not None:
                self._open(event.content_block, deltas)
            case "content_block_stop":
                self._close(deltas)
            case "message_start" if event.message is not None:
                deltas += self._named(event.message.model)
                self._count(event.message.usage)
            case "message_delta":
                self._count(event.usage)
                if event.delta is not None and event.delta.stop_reason:
                    self._end(event.delta, deltas)
        return self._passed_on(deltas)

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
                if whole:  # a tool of the provider, whose arguments come in fragments too
                    block["input"] = arguments_object(whole)
        if block.get("citations") is None:
            block.pop("citations", None)
        self.blocks.append({**block, "input": arguments_object(whole)} if kind == "tool_use" else block)
        if kind not in _PLAIN:
            is_thinking = kind in ("thinking", "redacted_thinking")
            if kind != "thinking" or whole:  # some models send a signature without thinking
                deltas.append(ThinkingBlock(_public(block)) if is_thinking else ServerBlock(_public(block)))
        self._keep(kept, deltas, is_plain=kind in _PLAIN and not block.get("citations"))

    def _keep(self, block: JsonObject, deltas: list[Delta], *, is_plain: bool) -> None:
        """Collect a block. Plain blocks are emitted only if an opaque block follows; otherwise the message contains
        their whole content."""
        self._unkept.append(ProviderData(block))
        self._is_keeping = self._is_keeping or not is_plain
        if self._is_keeping:
            deltas += self._unkept
            self._unkept = []

    def _end(self, delta: Piece, deltas: list[Delta]) -> None:
        self._stop = delta.stop_reason
        self._finish = _FINISH_REASONS.get(self._stop or "", "stop")
        explanation = (delta.stop_details or {}).get("explanation")
        if self._stop == "refusal" and explanation and not self.blocks:
            deltas.append(TextDelta(str(explanation)))  # this text replaces the answer

    def _count(self, counts: TokenCounts | None) -> None:
        if counts is not None:
            self._counts.update({key: n for key, n in msgspec.structs.asdict(counts).items() if n is not None})

    def _total(self) -> Usage:
        """Return the usage; the prompt's tokens include cached tokens, as with other providers."""
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
        if self._counts:
            self._usage = UsageReported(self._total())
        return super().end()


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None and b is None else (a or 0) + (b or 0)


def _public(value: Any) -> Any:  # Any: JSON in, JSON out
    """Return a JSON value without the parts that only the provider can read."""
    if isinstance(value, dict):
        return {key: _public(inner) for key, inner in value.items() if key not in _HIDDEN}
    return [_public(inner) for inner in value] if isinstance(value, list) else value
