"""Provider deltas to delta operations, and at the end the finished message. Pure: no clock, no waiting.

The text goes through as it comes. Tool calls are merged from fragments by index (PROV-4) and published as the full
list as soon as a call has its name. A call id that is missing, malformed or already used in this chat is replaced;
the provider's own is kept for the private log.
"""

from collections.abc import Callable, Container

import msgspec

from protocol.deltas import (
    AddCitation,
    AddServerContentBlock,
    AppendContent,
    AppendReasoning,
    DeltaOp,
    MergeExtra,
    SetThinkingBlocks,
    SetToolCalls,
    SetUsage,
)
from protocol.messages import FunctionCall, JsonObject, ToolCall, Usage
from server.providers.base import (
    Citation,
    Delta,
    Finished,
    ModelNamed,
    ProviderData,
    ReasoningDelta,
    ServerBlock,
    TextDelta,
    ThinkingBlock,
    TimingsReported,
    ToolCallDelta,
    UsageReported,
)

__all__ = ["Assembler"]

CALL_ID_MAX_CHARS = 128


class _OpenCall:
    """One call as far as it has come. Arguments are kept as parts, joined when the list is published."""

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name = ""
        self.parts: list[str] = []

    def arguments(self) -> str:
        if len(self.parts) > 1:
            self.parts = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""


class Assembler:
    """One model call. `used_ids` are the call ids that this chat has seen."""

    def __init__(
        self, used_ids: Container[str], new_call_id: Callable[[], str], *, show_reasoning: bool = True
    ) -> None:
        self._used_ids = used_ids
        self._new_call_id = new_call_id
        self._show_reasoning = show_reasoning
        self._calls: dict[int, _OpenCall] = {}
        self._thinking: list[JsonObject] = []
        self.has_started = False
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.timings: JsonObject | None = None
        self.model: str | None = None
        self.provider_ids: dict[str, str] = {}
        self.provider_data: list[JsonObject] = []

    def feed(self, delta: Delta) -> DeltaOp | None:
        """What the message becomes by `delta`, or None when nothing shows."""
        self.has_started = True
        match delta:
            case TextDelta():
                return AppendContent(delta.text) if delta.text else None
            case ReasoningDelta():
                return AppendReasoning(delta.text) if delta.text and self._show_reasoning else None
            case ToolCallDelta():
                return self._fragment(delta)
            case ThinkingBlock():
                self._thinking.append(delta.block)
                return SetThinkingBlocks(list(self._thinking)) if self._show_reasoning else None
            case Citation():
                return AddCitation(delta.citation)
            case ServerBlock():
                return AddServerContentBlock(delta.block)
            case UsageReported():
                self.usage = delta.usage
                return SetUsage(delta.usage)
            case TimingsReported():
                self.timings = delta.timings
                return MergeExtra({"timings": delta.timings})
            case ModelNamed():
                if delta.model == self.model:
                    return None
                self.model = delta.model
                return MergeExtra({"model": delta.model})
            case ProviderData():
                self.provider_data.append(delta.data)
                return None
            case Finished():
                self.finish_reason = delta.reason
                return None

    def _fragment(self, delta: ToolCallDelta) -> DeltaOp | None:
        call = self._calls.get(delta.index)
        if call is None:
            call = self._calls[delta.index] = _OpenCall(self._unused_id(delta.id))
        if delta.name:
            call.name += delta.name
        if delta.arguments:
            call.parts.append(delta.arguments)
        named = self.tool_calls()
        return SetToolCalls(named) if named else None

    def _unused_id(self, wanted: str | None) -> str:
        taken = {call.id for call in self._calls.values()}
        if wanted and len(wanted) <= CALL_ID_MAX_CHARS and wanted not in self._used_ids and wanted not in taken:
            return wanted
        made = self._new_call_id()
        if wanted:
            self.provider_ids[made] = wanted
        return made

    def tool_calls(self) -> list[ToolCall]:
        """The calls whose names are known, in the provider's order."""
        named = [call for _, call in sorted(self._calls.items()) if call.name]
        return [
            ToolCall(id=call.id, index=index, function=FunctionCall(call.name, call.arguments()))
            for index, call in enumerate(named)
        ]

    def complete_calls(self) -> list[ToolCall]:
        """The calls of a broken stream that surely came whole: their arguments are a JSON object (LOOP-9)."""
        return [call for call in self.tool_calls() if _is_object(call.function.arguments)]


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False
