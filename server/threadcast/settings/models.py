"""The settings of model providers and their models."""

import re
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta
from msgspec.structs import force_setattr

from threadcast.settings.shown import check_http_url
from threadcast.settings.values import Name, Seconds, Secret, Section

__all__ = [
    "BASE_URLS",
    "CONTEXT_TOKENS",
    "DEMO_PROVIDER",
    "OPENAI_API",
    "UNNAMED_MODEL",
    "VARIABLE",
    "Model",
    "Models",
    "Prefill",
    "Provider",
]

DEMO_PROVIDER = "demo"
"""The name of the built-in provider, which needs no key. Other providers cannot have this name."""

UNNAMED_MODEL = "default"
"""The name of a provider's model when the operator has named none; it means the first model that the provider lists.
Servers of a single model accept any name, so this name is sent before the list is known."""

Prefill: TypeAlias = Literal["auto", "none", "trailing", "prefix", "continue_final_message"]
"""How a request passes the beginning of an answer, always as the last message. trailing: without a further field.
prefix: with `prefix: true` in that message. continue_final_message: with `continue_final_message: true` beside the
messages. auto: the address or the model's name determines the way. none: never."""

OPENAI_API = "https://api.openai.com/v1"

BASE_URLS = {"anthropic": "https://api.anthropic.com", "google": "https://generativelanguage.googleapis.com"}
"""The default addresses of providers, by kind."""

VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""The pattern of names of environment variables that hold keys."""

CONTEXT_TOKENS = 128_000
"""The context size, in tokens, of models for which neither the operator nor the provider's list gives a size."""

Price = Annotated[float, Meta(ge=0)]


class Model(Section, frozen=True):
    """A model that clients can pick from a list. Clients can also name models that are not listed."""

    name: Annotated[str, Meta(min_length=1)]
    """The provider's name for the model."""

    context_tokens: Annotated[int, Meta(ge=1_000)] = CONTEXT_TOKENS
    """The size of the context in tokens. Set it for small local models, where long chats fail otherwise."""

    supports_tools: bool = True
    supports_images: bool = False
    """Attachments that the model does not support are left out of requests, with a note in their place."""

    supports_audio: bool = False
    supports_files: bool = False
    """Whether the model reads files such as PDF. Every model gets text files as text."""

    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    """Maximum tokens of an answer to a request without `max_tokens`. Only `anthropic` requires a value, by default
    8192; raise it for models that write more."""

    streams: bool = True
    """Whether answers are streamed. False: each answer is requested as a whole and shown in one piece."""

    extra_body: dict[str, Any] = {}  # Any: passed through as it is
    """Fields that are added to each request, for options that only this provider's server has, such as { top_k = 20 }
    (PROV-5)."""

    price_input: Price | None = None
    """USD per million tokens. The cost of answers and chats is computed from this price and `price_output`, in place of
    the published price of the provider. Unset: the published price, if there is one."""

    price_output: Price | None = None
    price_cache_read: Price | None = None
    """The price of tokens of the prompt that the provider reads from its cache. Unset: `price_input`."""

    price_cache_write: Price | None = None
    """The price of tokens of the prompt that the provider writes to its cache. Unset: `price_input`."""

    def __post_init__(self) -> None:
        if (self.price_input is None) != (self.price_output is None):
            raise ValueError(f"{self.name}: price_input and price_output must be set together")


class Provider(Section, frozen=True):
    """A model provider. The provider's name in the file is the prefix in `provider/model`."""

    kind: Literal["openai_chat", "openai_responses", "anthropic", "google", "script"] = "openai_chat"
    """The API of the provider: the chat completions of OpenAI, which most model servers offer; OpenAI's Responses API,
    which keeps a model's reasoning from call to call; or Anthropic's or Google's own API, each with the extra of that
    name. script: no API; the provider plays `file`."""

    file: str = ""
    """The file with the scenes of a script, as in `examples/`. A relative path starts from threadcast.toml."""

    base_url: str = OPENAI_API
    """The address of the API, up to and including /v1; http://127.0.0.1:11434/v1 for Ollama. `anthropic` and `google`
    have other defaults."""

    api_key_env: str = ""
    """The name of the environment variable that holds the key; letters, digits and _ are allowed. Empty: `api_key`, or
    no key."""

    api_key: Secret | None = None
    """The key itself. `api_key_env` keeps the key out of the file."""

    connect_timeout_seconds: Seconds = 5.0
    """Seconds to connect to the provider. Raise it for servers behind slow tunnels."""

    idle_timeout_seconds: Seconds = 120.0
    """Seconds of silence, before or during an answer, after which the call fails. Raise it for local models that load
    first or think long."""

    prefill: Prefill = "auto"
    """How a request passes the beginning of an answer that the model must continue. For `openai_chat`, `trailing` sends
    this beginning as the last message (llama.cpp, Ollama, many models of OpenRouter); `prefix` is for Mistral and for
    DeepSeek under /beta; `continue_final_message` is for vLLM; `none` never sends it. `auto` means `prefix` at the
    addresses of Mistral and DeepSeek, else `none`. For `anthropic`, `auto` sends it to models up to Claude 4.5, which
    are recognized by name; `trailing` and `none` apply to all models. If a request has no prefill, the model receives
    an instruction to continue, and after a crash the answer begins again."""

    prompt_caching: bool = True
    """Only `anthropic`: whether the provider caches the beginning of a prompt for five minutes. Cached tokens cost a
    quarter more the first time and a tenth afterwards. Turn it off for chats that consist of one question."""

    api_version: str = ""
    """Only `google`: v1 or v1beta. Empty: the default of the SDK."""

    vertex_project: str = ""
    """Only `google` and `anthropic`: the project on Vertex AI, used with the credentials of the machine (ADC) and
    without a key. Claude on Vertex AI needs the extra `anthropic-vertex`."""

    vertex_location: str = "global"
    """The location in Vertex AI: global, us, eu, or a region such as europe-west4."""

    send_reasoning_back: bool = False
    """Only `openai_chat`: whether to send the model its earlier reasoning, which some servers require with tool calls
    (PROV-6)."""

    program: Literal["", "llama.cpp", "vllm", "sglang", "ollama"] = ""
    """Only `openai_chat`: the software of the server, which determines the samplers that it accepts. llama.cpp also
    reports its progress in reading a prompt. Empty: the software that the server's list of models names, if any."""

    samplers: list[Literal["top_k", "min_p", "repetition_penalty", "seed", "stop"]] | None = None
    """Only `openai_chat`: the samplers that may be sent; other samplers are refused. Unset: the samplers of `program`,
    else seed and stop, since OpenAI and others answer 400 to unknown fields."""

    models: list[Model] = []
    """The models of the provider. The first model is the default when `models.default` is not set. Empty: the
    provider's own list."""

    def __post_init__(self) -> None:
        # The error does not repeat the value, because the value may be the key.
        if self.api_key_env and not VARIABLE.fullmatch(self.api_key_env):
            raise ValueError("api_key_env: this is not the name of a variable; write a name such as OPENAI_API_KEY")
        if (self.kind == "script") != bool(self.file):
            raise ValueError('file: providers of the kind "script" must have a file, and other providers cannot')
        ways = {"openai_chat": ("trailing", "prefix", "continue_final_message"), "anthropic": ("trailing",)}
        if self.prefill not in ("auto", "none", *ways.get(self.kind, ())):
            raise ValueError(f"prefill: {self.prefill!r} is not available for providers of the kind {self.kind!r}")
        if self.vertex_project and self.kind not in ("google", "anthropic"):
            raise ValueError('vertex_project: only providers of the kinds "google" and "anthropic" can use Vertex AI')
        if self.kind != "openai_chat" and (self.program or self.samplers is not None):
            raise ValueError('program and samplers: only providers of the kind "openai_chat" have them')
        if self.base_url == OPENAI_API and self.kind in BASE_URLS:
            force_setattr(self, "base_url", BASE_URLS[self.kind])
        check_http_url("base_url", self.base_url)
        if "?" in self.base_url or "#" in self.base_url:  # both SDKs and our own requests append paths to the URL
            raise ValueError("base_url: it must have no query (?) and no fragment (#), since paths are appended")


class Models(Section, frozen=True):
    default: str = ""
    """The model of chats that choose no model, as provider/model. Unset: the first configured model, else the first
    model in the list of a server with its own `base_url`. The models of OpenAI, Anthropic and Google are never a
    default, so each chat must choose. Without a provider: demo/echo."""

    title: str = ""
    """A small, fast model that makes the titles of chats, as provider/model. Unset: the title of a chat is its first
    line."""

    summarizer: str = ""
    """A model, as provider/model, that summarizes the messages that long histories leave out. Unset: no summaries."""

    fallback: list[str] = []
    """Models to ask, in this order, when a model is down before its first word."""

    demo: bool | None = None
    """Whether the demo models and tools are offered. Unset: only while all configured providers are of the kind
    `script`, or if the configuration names a demo model. Once there are tokens, only demo tools that a `[tools.NAME]`
    table or a profile's list of tools names are offered."""

    show_reasons: bool = True
    """Whether users see the provider's error message when a call was refused or failed, without secrets. Set it to
    false where users should not learn who the provider is or that a bill is not paid; the server's log always has the
    message."""

    providers: dict[Name, Provider] = {}

    def __post_init__(self) -> None:
        if DEMO_PROVIDER in self.providers:
            raise ValueError(f"providers: {DEMO_PROVIDER!r} is built in; choose another name")
        known = [*self.providers, DEMO_PROVIDER]
        used_for = [("default", self.default), ("title", self.title), ("summarizer", self.summarizer)]
        for key, model in [*used_for, *(("fallback", each) for each in self.fallback)]:
            provider, slash, name = model.partition("/")
            if model and (not slash or not name or provider not in known):
                advice = f"write PROVIDER/MODEL; the providers are {', '.join(known)}"
                raise ValueError(f"{key}: {model!r} does not begin with the name of a configured provider; {advice}")
