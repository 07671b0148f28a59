"""The seam to models: what a provider is asked and what it streams back, in neutral words.

The agent loop knows these types and no vendor. A provider is an async iterator of deltas; it raises
`protocol.errors.ModelFailed` with a code of PROV-7 and a fixed sentence, and never a foreign exception. A call that
broke before the first delta may have been retried inside; after the first delta never (DESIGN §7, §8).
"""

from collections.abc import AsyncGenerator
from typing import Literal, Protocol, TypeAlias

import msgspec

from protocol.messages import JsonObject, Message, Usage

__all__ = [
    "UNNAMED_MODEL",
    "Citation",
    "Delta",
    "Finished",
    "ModelInfo",
    "ModelNamed",
    "ModelParams",
    "Prefill",
    "Prices",
    "PromptProgress",
    "Provider",
    "ProviderData",
    "ReasoningDelta",
    "Request",
    "ServerBlock",
    "TextDelta",
    "ThinkingBlock",
    "TimingsReported",
    "ToolCallDelta",
    "ToolSpec",
    "UsageReported",
    "model_info",
]

UNNAMED_MODEL = "default"
"""The name of a provider's model when the operator has named none; it means the first model that the provider lists.
Servers of a single model answer to any name, so this name is sent while there is no list."""

FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter"]


Prefill: TypeAlias = Literal["auto", "none", "trailing", "prefix", "continue_final_message"]
"""How a wire is given the beginning of an answer: as the last message alone, with `prefix: true` in it, or with
`continue_final_message: true` beside the messages. auto: what the address or the model's name tells for certain."""


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    text: str


class ThinkingBlock(msgspec.Struct, frozen=True):
    """A finished thinking block as people may see it. What the provider wants back with it is `ProviderData`."""

    block: JsonObject


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A fragment of the call at `index`; `id` and `name` may come once, `arguments` is appended (PROV-4)."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class Citation(msgspec.Struct, frozen=True):
    citation: JsonObject


class ServerBlock(msgspec.Struct, frozen=True):
    block: JsonObject


class UsageReported(msgspec.Struct, frozen=True):
    usage: Usage


class TimingsReported(msgspec.Struct, frozen=True):
    timings: JsonObject


class PromptProgress(msgspec.Struct, frozen=True):
    """How far the model has read its prompt, before its first word: so many tokens of `total`, of which `cache` were
    known from an earlier call; `time_ms` since it began (llama.cpp's `prompt_progress`)."""

    total: int
    cache: int
    processed: int
    time_ms: float


class ModelNamed(msgspec.Struct, frozen=True):
    """The model that really answers, in the provider's words (EVT-14)."""

    model: str


class ProviderData(msgspec.Struct, frozen=True):
    """Opaque data to hand back in later calls (resume handles, encrypted reasoning). Never leaves the server."""

    data: JsonObject


class Finished(msgspec.Struct, frozen=True):
    """The last delta of a stream that ended well."""

    reason: FinishReason


Delta: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ThinkingBlock
    | ToolCallDelta
    | Citation
    | ServerBlock
    | UsageReported
    | TimingsReported
    | PromptProgress
    | ModelNamed
    | ProviderData
    | Finished
)


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model sees it; `input_schema` is JSON Schema of an object."""

    name: str
    description: str
    input_schema: JsonObject


class ModelParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Common parameters; None leaves the choice to the provider. `extra_body` passes through (PROV-5). Of the samplers
    (`protocol.params.SAMPLERS`) a provider sends those that `Provider.samplers` names, and leaves the others out."""

    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    max_tokens: int | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: list[str] | None = None
    reasoning_effort: str | None = None
    thinking_budget: int | None = None
    parallel_tool_calls: bool | None = None
    extra_body: JsonObject = {}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One model call. `model` is without the provider's prefix; `messages` is the model's view of the path.

    `prefix` is text already shown of this very answer, without white space at its end: a provider that `prefills` this
    model goes on after it, the others are never given one. `provider_data` is, by the id of an earlier answer, what
    this provider gave with it as `ProviderData`, in order.
    """

    model: str
    messages: list[Message]
    system: str = ""
    tools: list[ToolSpec] = []
    params: ModelParams = ModelParams()
    prefix: str = ""
    user: str = ""
    provider_data: dict[str, list[JsonObject]] = {}
    stream: bool = True
    """False: the answer is asked for in one piece and comes as one delta (PROV-3)."""


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """USD per million tokens. A price of the cache that is None is that of the prompt."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A model as `/v1/caps` shows it; `context_tokens` is the size of its window, `max_output_tokens` what it
    may write, where its provider wants to be told. What it does not take is left out of its requests (PROV-8)."""

    name: str
    context_tokens: int
    supports_tools: bool = True
    supports_images: bool = False
    supports_audio: bool = False
    supports_files: bool = False
    max_output_tokens: int | None = None
    streams: bool = True
    prices: Prices | None = None
    extra_body: JsonObject = {}


class Provider(Protocol):
    """One configured provider. `name` is the prefix in `provider/model`."""

    @property
    def name(self) -> str: ...

    def prefills(self, model: str) -> bool:
        """Return whether this model's API accepts the beginning of an answer and continues exactly behind it (DESIGN
        §7)."""

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Ask the model. Ends after `Finished`; closing it closes the connection.

        Raises:
            ModelFailed: with a code of PROV-7; nothing foreign passes.
        """

    def samplers(self, model: str) -> frozenset[str]:
        """Return which of `protocol.params.SAMPLERS` the provider sends for this model, as far as it knows now."""

    def models(self) -> list[ModelInfo]:
        """The models known without asking anybody; may be empty."""

    async def aclose(self) -> None: ...


def model_info(provider: Provider, model: str) -> ModelInfo | None:
    """What is known of the provider's model of that name; None for one that is not in its list."""
    return next((info for info in provider.models() if info.name == model), None)
