"""The interface of model providers: vendor-neutral requests, and the deltas that a provider streams back.

The agent loop uses only these types. A provider is an async iterator of deltas; it raises
`threadcast_protocol.wire.errors.ModelFailed` with a code of PROV-7 and a fixed sentence, and never a foreign exception.
A provider may retry a call that broke before the first delta, never after it (DESIGN §7, §8).
"""

from collections.abc import AsyncGenerator
from typing import Literal, Protocol, TypeAlias

import msgspec

from threadcast.providers.unchanged import Unchanged
from threadcast.settings.models import UNNAMED_MODEL, Prefill
from threadcast.settings.models import Model as ModelInfo
from threadcast_protocol.wire.messages import JsonObject, Message, Usage
from threadcast_protocol.wire.principal import Principal

__all__ = [
    "AGENTS",
    "UNNAMED_MODEL",
    "AgentDataDelta",
    "Citation",
    "Delta",
    "Finished",
    "ModelInfo",
    "ModelNamed",
    "ModelParams",
    "Prefill",
    "PromptProgress",
    "Provider",
    "ProviderData",
    "ReasoningDelta",
    "Request",
    "RunInfo",
    "ServerBlock",
    "TextDelta",
    "ThinkingBlock",
    "TimingsReported",
    "ToolCallDelta",
    "ToolSpec",
    "UsageReported",
    "model_info",
]

AGENTS = "agents/"
"""The prefix of the full names by which operators' agents appear among the models."""

FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter"]


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    text: str


class ThinkingBlock(msgspec.Struct, frozen=True):
    """A finished thinking block as users may see it. `ProviderData` holds the opaque parts that go back to the
    provider."""

    block: JsonObject


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A fragment of the call at `index`; `id` and `name` come at most once, and `arguments` continues the earlier
    fragments (PROV-4)."""

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
    """Progress of the model in reading its prompt, before its first word: tokens read of `total`, tokens from the
    `cache` of an earlier call, and `time_ms` since the start (llama.cpp's `prompt_progress`)."""

    total: int
    cache: int
    processed: int
    time_ms: float


class ModelNamed(msgspec.Struct, frozen=True):
    """The name of the model that actually answers, as the provider reports it (EVT-14)."""

    model: str


class ProviderData(msgspec.Struct, frozen=True):
    """Opaque data that later calls send back to the provider (resume handles, encrypted reasoning). Clients never
    receive this data."""

    data: JsonObject


class AgentDataDelta(msgspec.Struct, frozen=True):
    """Data of an operator's agent for clients (the event `agent_data`). It is no part of the answer."""

    type: str
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
    | AgentDataDelta
    | Finished
)


class ToolSpec(msgspec.Struct, frozen=True):
    """The description of a tool for a model. `input_schema` is the JSON Schema of an object."""

    name: str
    description: str
    input_schema: JsonObject


class ModelParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Common parameters; None leaves the choice to the provider. `extra_body` is sent unchanged (PROV-5). A provider
    sends only those samplers (`threadcast.chat.params.SAMPLERS`) that `Provider.samplers` returns."""

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


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The run for which a model call is made. Only operators' agents read these fields; no other provider sends them.

    `params` are all parameters that are set for the run, `principal` is the user who began the run, and `shown` is the
    text of this answer that people have seen already.
    """

    chat_id: str
    run_id: str
    round: int
    principal: Principal
    params: JsonObject
    context: JsonObject
    metadata: JsonObject
    shown: str = ""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One model call. `model` is the name of the model without the provider's prefix; `messages` are the messages that
    the model reads.

    `prefix` is the text of this answer that was already shown, without white space at the end. A prefix is set only if
    `prefills` is true for this model; the model then continues after the prefix. `provider_data` maps the id of an
    earlier answer to the `ProviderData` that this provider emitted with that answer, in order.
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
    """Whether the answer is streamed; otherwise the answer is requested as a whole and arrives as one delta
    (PROV-3)."""

    unchanged: Unchanged | None = None
    """The beginning of `messages` that the chat's later requests share; None if that beginning is short or unknown."""

    run: RunInfo | None = None
    """None for a call beside a run, such as the call for a title."""


class Provider(Protocol):
    """One configured provider. `name` is the prefix in `provider/model`."""

    @property
    def name(self) -> str: ...

    def prefills(self, model: str) -> bool:
        """Return whether this model's API accepts the beginning of an answer and continues exactly behind it (DESIGN
        §7)."""

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Call the model. The iterator ends after `Finished`; closing it closes the connection.

        Raises: ModelFailed: the call failed; the code is one of PROV-7. A provider never raises exceptions of its SDK.
        """

    def samplers(self, model: str) -> frozenset[str]:
        """Return the samplers (of `threadcast.chat.params.SAMPLERS`) that the provider sends to this model, as far as
        they are known now."""

    def models(self) -> list[ModelInfo]:
        """Return the models that are known without a request; the list may be empty."""

    async def aclose(self) -> None: ...


def model_info(provider: Provider, model: str) -> ModelInfo | None:
    """Return the information about the provider's model of that name; None for a model that is not in its list."""
    return next((info for info in provider.models() if info.name == model), None)
