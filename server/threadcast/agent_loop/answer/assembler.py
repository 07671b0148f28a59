"""Turns a provider's deltas into delta operations, and at the end into the finished answer. Pure: no clock, no waiting.

Text passes unchanged. Tool calls are merged from fragments by index (PROV-4), and the full list is published as soon as
a call has its name. A call id that is missing, malformed or already used in this chat is replaced; the provider's id is
kept as a private fact.
"""

from collections.abc import Callable, Container, Mapping

import msgspec

from threadcast.agent_loop.calls.hiding import hidden_call
from threadcast.agent_loop.outcomes import Answer
from threadcast.providers.base import (
    AgentDataDelta,
    Citation,
    Delta,
    Finished,
    ModelNamed,
    PromptProgress,
    ProviderData,
    ReasoningDelta,
    ServerBlock,
    TextDelta,
    ThinkingBlock,
    TimingsReported,
    ToolCallDelta,
    UsageReported,
)
from threadcast.tools.base import read_arguments
from threadcast_protocol.wire.deltas import (
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
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import FunctionCall, JsonObject, Message, ToolCall, Usage

__all__ = ["Assembler", "UsedCallIds"]

CALL_ID_MAX_CHARS = 128

PUBLISHED_AT_ONCE_CHARACTERS = 256
GROWTH_SHARE = 0.25
"""Short arguments are published with each fragment. Longer arguments are published again when they have grown by this
share. Therefore the published text stays below five times the length of the text that the model wrote."""

ARGUMENTS_MAX_CHARACTERS = 256_000
"""The maximum length of the arguments of all calls of an answer together, the same as for a tool's result."""


CALLS_MAX_COUNT = 128
"""The maximum number of calls in one answer, which is the limit of providers for one request. Each new call publishes
the list of all calls."""

ANSWER_MAX_CHARACTERS = 1_000_000
"""The maximum length of an answer's text and reasoning together: twice the longest answers of today's models (128,000
tokens). A model that writes more is stopped, because each snapshot of its chat contains the answer."""


class _OpenCall:
    """A call whose fragments still arrive. The arguments are kept as parts, which are joined when the list of calls is
    published."""

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name = ""
        self.parts: list[str] = []
        self.characters = 0

    def arguments(self) -> str:
        if len(self.parts) > 1:
            self.parts = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""


class UsedCallIds:
    """The ids of the calls of a chat's messages. The ids are collected when a call is looked up for the first time,
    because most answers have no calls."""

    def __init__(self, nodes: Mapping[str, Message]) -> None:
        self._nodes = nodes
        self._ids: set[str] | None = None

    def __contains__(self, call_id: object) -> bool:
        if self._ids is None:
            self._ids = {call.id for node in self._nodes.values() for call in node.tool_calls}
        return call_id in self._ids


class Assembler:
    """Assembles the answer of one model call. `used_ids` are the call ids that this chat has used. `reasoning` is
    "stream" to show the model's reasoning, "log" to keep it for the server alone, or "off" to drop it (EVT-7). `hides`
    is called with the name of a tool, and returns whether the tool's arguments are hidden from clients (EVT-8)."""

    def __init__(
        self,
        used_ids: Container[str],
        new_call_id: Callable[[], str],
        *,
        reasoning: str = "stream",
        hides: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self._used_ids = used_ids
        self._new_call_id = new_call_id
        self._hides = hides
        self.shows_reasoning = reasoning == "stream"
        self._logs_reasoning = reasoning == "log"
        self._reasoning: list[str] = []
        self._published_characters = -1
        self._characters = 0
        self._calls: dict[int, _OpenCall] = {}
        self._thinking: list[JsonObject] = []
        self.with_cost: Callable[[Usage], Usage] = lambda usage: usage
        """Adds the cost to the usage that the model reports."""
        self.has_started = False
        self.prompt_read: int | None = None
        """The share of the prompt that the model has read, in percent; None if the provider does not report it."""
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.timings: JsonObject | None = None
        self.model: str | None = None
        self.provider_ids: dict[str, str] = {}
        self.provider = ""
        self.provider_data: list[JsonObject] = []

    def feed(self, delta: Delta) -> DeltaOp | None:
        """Return the operation by which `delta` changes the message, or None if readers see no change.

        Raises:
            ModelFailed: the answer is too long.
        """
        if isinstance(delta, PromptProgress):
            return self._progress(delta)
        self.has_started = True
        match delta:
            case TextDelta():
                self._count(delta.text)
                return AppendContent(delta.text) if delta.text else None
            case ReasoningDelta():
                self._count(delta.text)
                if self._logs_reasoning:
                    self._reasoning.append(delta.text)
                return AppendReasoning(delta.text) if delta.text and self.shows_reasoning else None
            case ToolCallDelta():
                return self._fragment(delta)
            case ThinkingBlock():
                self._thinking.append(delta.block)
                return SetThinkingBlocks(list(self._thinking)) if self.shows_reasoning else None
            case Citation():
                return AddCitation(delta.citation)
            case ServerBlock():
                return AddServerContentBlock(delta.block)
            case UsageReported():
                self.usage = self.with_cost(delta.usage)
                return SetUsage(self.usage)
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
            case AgentDataDelta():
                return None  # a separate event, not a part of the answer
            case Finished():
                self.finish_reason = delta.reason
                return None

    def _progress(self, read: PromptProgress) -> DeltaOp | None:
        """Return the operation that shows how much of the prompt was read. The share is shown at the beginning and
        after each twentieth, so that a provider cannot fill the log with reports."""
        if not read.total > 0 or not 0 <= read.processed <= read.total:
            return None
        twentieth = 20 * read.processed // read.total
        if self.has_started or (self.prompt_read is not None and twentieth <= 20 * self.prompt_read // 100):
            return None
        self.prompt_read = 100 * read.processed // read.total
        return MergeExtra({"prompt_progress": msgspec.to_builtins(read)})

    def _count(self, text: str) -> None:
        self._characters += len(text)
        if self._characters > ANSWER_MAX_CHARACTERS:
            raise ModelFailed(
                "llm_error", f"The model wrote more than {ANSWER_MAX_CHARACTERS} characters and was stopped."
            )

    def _fragment(self, delta: ToolCallDelta) -> DeltaOp | None:
        call = self._calls.get(delta.index)
        if call is None:
            if len(self._calls) >= CALLS_MAX_COUNT:
                raise ModelFailed("llm_error", f"The model asked for more than {CALLS_MAX_COUNT} calls at once.")
            call = self._calls[delta.index] = _OpenCall(self._unused_id(delta.id))
        if delta.name:
            call.name += delta.name
        if delta.arguments:
            call.parts.append(delta.arguments)
            call.characters += len(delta.arguments)
        return self._publish_calls(is_new=bool(delta.name), is_hidden=self._hides(call.name))

    def _publish_calls(self, *, is_new: bool, is_hidden: bool) -> DeltaOp | None:
        """Return the list of calls if a name is new or the arguments have grown enough. With a full list for each token
        of long arguments, the published text would grow quadratically."""
        characters = sum(call.characters for call in self._calls.values())
        if characters > ARGUMENTS_MAX_CHARACTERS:
            raise ModelFailed(
                "llm_error", f"The model wrote more than {ARGUMENTS_MAX_CHARACTERS} characters of arguments."
            )
        least = self._published_characters + max(1, int(self._published_characters * GROWTH_SHARE))
        if not is_new and is_hidden:
            return None
        if not is_new and PUBLISHED_AT_ONCE_CHARACTERS < characters < least:
            return None
        named = self.tool_calls()
        if not named:
            return None
        self._published_characters = characters
        return SetToolCalls([hidden_call(call) if self._hides(call.function.name) else call for call in named])

    def _unused_id(self, wanted: str | None) -> str:
        taken = {call.id for call in self._calls.values()}
        if wanted and len(wanted) <= CALL_ID_MAX_CHARS and wanted not in self._used_ids and wanted not in taken:
            return wanted
        made = self._new_call_id()
        if wanted:
            self.provider_ids[made] = wanted
        return made

    def tool_calls(self) -> list[ToolCall]:
        """Return the calls whose names are known, in the provider's order."""
        named = [call for _, call in sorted(self._calls.items()) if call.name.strip()]
        return [
            ToolCall(id=call.id, index=index, function=FunctionCall(call.name, call.arguments()))
            for index, call in enumerate(named)
        ]

    def answer(self, *, is_broken: bool = False) -> Answer:
        """Return the answer after the end of the stream. If the stream broke, the answer has only complete calls. A
        call is complete if its arguments are a JSON object (LOOP-9)."""
        calls = self.tool_calls()
        if is_broken:
            calls = [
                call
                for call in calls
                if call.function.arguments.strip() and read_arguments(call.function.arguments) is not None
            ]
        return Answer(
            calls=calls,
            finish_reason=self.finish_reason,
            usage=self.usage,
            timings=self.timings,
            model=self.model,
            has_nameless_calls=any(not call.name.strip() for call in self._calls.values()),
            provider_ids=self.provider_ids,
            hidden_reasoning="".join(self._reasoning),
            provider=self.provider,
            provider_data=self.provider_data,
        )
