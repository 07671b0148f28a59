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
from protocol.errors import ModelFailed
from protocol.messages import FunctionCall, JsonObject, ToolCall, Usage
from server.agent.calls.hiding import hidden_call
from server.agent.outcomes import Answer
from server.providers.base import (
    Citation,
    Delta,
    Finished,
    ModelNamed,
    Prices,
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
from server.providers.prices import with_cost
from server.tools.base import read_arguments

__all__ = ["Assembler"]

CALL_ID_MAX_CHARS = 128

PUBLISHED_AT_ONCE_CHARACTERS = 256
GROWTH_SHARE = 0.25
"""Short arguments are shown as they come; longer ones when they have grown by a quarter, so that all that is sent stays
below five times what was written."""

ARGUMENTS_MAX_CHARACTERS = 256_000
"""Of all calls of one answer: what a tool's result may hold, too."""


CALLS_MAX_COUNT = 128
"""Of one answer: what providers promise to offer at once; the list of all is sent with each new one."""

ANSWER_MAX_CHARACTERS = 1_000_000
"""Of one answer's text and reasoning together: twice what the longest answers of today's models hold (128,000 tokens).
A model that never ends stops here, and costs no more than this in every snapshot of its chat."""


class _OpenCall:
    """One call as far as it has come. Arguments are kept as parts, joined when the list is published."""

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name = ""
        self.parts: list[str] = []
        self.characters = 0

    def arguments(self) -> str:
        if len(self.parts) > 1:
            self.parts = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""


class Assembler:
    """One model call. `used_ids` are the call ids that this chat has seen. `reasoning`: stream shows it, log keeps it
    for the server alone, off drops it (EVT-7). `hides`: names of tools whose arguments are not
        streamed (EVT-8)."""

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
        self.prices: Prices | None = None
        """Of the model that is asked; its usage says the cost."""
        self.has_started = False
        self.prompt_read: int | None = None
        """How much of the prompt the model has read, in percent; None when it does not tell."""
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.timings: JsonObject | None = None
        self.model: str | None = None
        self.provider_ids: dict[str, str] = {}
        self.provider = ""
        self.provider_data: list[JsonObject] = []

    def feed(self, delta: Delta) -> DeltaOp | None:
        """What the message becomes by `delta`, or None when nothing shows.

        Raises:
            ModelFailed: the answer is longer than one may be.
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
                self.usage = with_cost(delta.usage, self.prices)
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
            case Finished():
                self.finish_reason = delta.reason
                return None

    def _progress(self, read: PromptProgress) -> DeltaOp | None:
        """Return the progress of reading the prompt that is shown: the beginning and each twentieth once, so that no
        model server can fill the log with it."""
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
        """The list as it stands, when it has a new name or has grown enough: a full list for each token of long
        arguments would be quadratic."""
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
        """The calls whose names are known, in the provider's order."""
        named = [call for _, call in sorted(self._calls.items()) if call.name.strip()]
        return [
            ToolCall(id=call.id, index=index, function=FunctionCall(call.name, call.arguments()))
            for index, call in enumerate(named)
        ]

    def answer(self, *, is_broken: bool = False) -> Answer:
        """What is left to say when the stream has ended. Of a broken one only the calls count that surely came whole:
        their arguments are a JSON object (LOOP-9)."""
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
