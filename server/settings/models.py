"""The servers of models, and which of their models are used for what."""

import re
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import force_setattr

from server.settings.shown import check_http_url
from server.settings.values import Name, Seconds, Secret, Section

__all__ = ["BASE_URLS", "DEMO_PROVIDER", "OPENAI_API", "VARIABLE", "Model", "Models", "Provider"]

DEMO_PROVIDER = "demo"
"""The provider that is always there and needs no key; its name cannot be given to another."""

OPENAI_API = "https://api.openai.com/v1"

BASE_URLS = {"anthropic": "https://api.anthropic.com", "google": "https://generativelanguage.googleapis.com"}
"""Of kinds with an address of their own."""

VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""What the names of environment variables look like that hold keys."""

Price = Annotated[float, Meta(ge=0)]


class Model(Section, frozen=True):
    """A model that clients can pick from a list. Models that are not listed can be named all the same."""

    name: Annotated[str, Meta(min_length=1)]
    """As the provider knows it."""

    context_tokens: Annotated[int, Meta(ge=1_000)] = 128_000
    """The size of its window; set it for small local models, or long chats fail there."""

    supports_tools: bool = True
    supports_images: bool = False
    """What is not supported is left out of requests; the model reads a note in its place."""

    supports_audio: bool = False
    supports_files: bool = False
    """Files as such, PDF for instance. Text files go to every model, as text."""

    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    """What it may write in one answer when nobody says `max_tokens`. Only `anthropic` must be told one, and is told
    8192; raise it for models that write more."""

    streams: bool = True
    """False: it is asked for whole answers, each shown in one piece."""

    extra_body: dict[str, Any] = {}  # Any: passed through as it is
    """Put into each of its requests, for what only this server knows, such as { top_k = 20 } (PROV-5)."""

    price_input: Price | None = None
    """USD per million tokens. With `price_output` set, too, answers and chats say what they cost."""

    price_output: Price | None = None
    price_cache_read: Price | None = None
    """Of the prompt's tokens that come from the provider's cache. Unset: as `price_input`."""

    price_cache_write: Price | None = None

    def __post_init__(self) -> None:
        if (self.price_input is None) != (self.price_output is None):
            raise ValueError(f"{self.name}: price_input and price_output must be set together")


class Provider(Section, frozen=True):
    """A server of models. Its name in the file is the prefix in `provider/model`."""

    kind: Literal["openai_chat", "openai_responses", "anthropic", "google", "script"] = "openai_chat"
    """How it is spoken to: the chat completions of OpenAI, which most servers of models speak; its Responses API, which
    keeps a model's reasoning from call to call; or Anthropic's or Google's own API, each with the extra of that name.
    script: not at all, it plays `file`."""

    file: str = ""
    """Of a script: its scenes, as `examples/` have them. Its path from threadcast.toml."""

    base_url: str = OPENAI_API
    """Up to and including /v1; http://127.0.0.1:11434/v1 for Ollama. `anthropic` and `google` have their own."""

    api_key_env: str = ""
    """Name of the environment variable that holds the key, of letters, digits and _. Empty: `api_key`, or no key at
    all."""

    api_key: Secret | None = None
    """The key itself. `api_key_env` keeps it out of the file."""

    connect_timeout_seconds: Seconds = 5.0
    """Raise it for servers behind slow tunnels."""

    idle_timeout_seconds: Seconds = 120.0
    """Silence in the middle of an answer, or before it, after which the call has failed. Raise it for local models
    that load first or think long."""

    prefill: Literal["auto", "none", "trailing", "prefix", "continue_final_message"] = "auto"
    """How the server is given the beginning of an answer that it must go on with. `openai_chat`: trailing (llama.cpp,
    Ollama, many models of OpenRouter: the last message, if it is the assistant's, is continued), prefix (DeepSeek
    under /beta, Mistral), continue_final_message (vLLM), none; auto knows the addresses of Mistral and DeepSeek and
    takes none for all others. `anthropic`: auto goes by the model's name, up to Claude 4.5; trailing and none hold for
    all its models. Without a prefill a model is asked to go on, and after a crash it begins again."""

    prompt_caching: bool = True
    """Only `anthropic`: what a prompt begins with is kept there for five minutes. It costs a quarter more once and a
    tenth from then on; turn it off for chats of one question."""

    api_version: str = ""
    """Only `google`: v1, v1beta. Empty: what its SDK chooses."""

    vertex_project: str = ""
    """Only `google` and `anthropic`: the project whose Vertex AI is asked, with the credentials of the machine (ADC)
    and no key. Claude on Vertex AI needs the extra `anthropic-vertex`."""

    vertex_location: str = "global"
    """Where in Vertex AI: global, us, eu, or a region such as europe-west4."""

    send_reasoning_back: bool = False
    """Show the model its earlier reasoning (chat completions only); some servers want it with tool calls (PROV-6)."""

    program: Literal["", "llama.cpp", "vllm", "sglang", "ollama"] = ""
    """Only `openai_chat`: what serves the models, which says which samplers it takes; llama.cpp also tells how far it
    has read a prompt. Empty: what its list of models tells, if anything."""

    samplers: list[Literal["top_k", "min_p", "repetition_penalty", "seed", "stop"]] | None = None
    """Only `openai_chat`: the samplers that may be sent; others are refused. Unset: as `program` says, else seed and
    stop, since OpenAI and others answer 400 to what they do not know."""

    models: list[Model] = []
    """The first one is the default model when `models.default` is not set. Empty: what the provider lists itself."""

    def __post_init__(self) -> None:
        if self.api_key_env and not VARIABLE.fullmatch(self.api_key_env):  # not shown: it may be the key itself
            raise ValueError("api_key_env: this is no name of a variable; write one such as OPENAI_API_KEY")
        if (self.kind == "script") != bool(self.file):
            raise ValueError('file: a provider of the kind "script", and no other, has one')
        ways = {"openai_chat": ("trailing", "prefix", "continue_final_message"), "anthropic": ("trailing",)}
        if self.prefill not in ("auto", "none", *ways.get(self.kind, ())):
            raise ValueError(f"prefill: {self.prefill!r} is not spoken by providers of the kind {self.kind!r}")
        if self.vertex_project and self.kind not in ("google", "anthropic"):
            raise ValueError('vertex_project: only providers of the kinds "google" and "anthropic" are on Vertex AI')
        if self.kind != "openai_chat" and (self.program or self.samplers is not None):
            raise ValueError('program and samplers: only providers of the kind "openai_chat" have them')
        if self.base_url == OPENAI_API and self.kind in BASE_URLS:
            force_setattr(self, "base_url", BASE_URLS[self.kind])
        check_http_url("base_url", self.base_url)
        if "?" in self.base_url or "#" in self.base_url:  # both SDKs and our own requests append paths
            raise ValueError("base_url: it must have no query (?) and no fragment (#), since paths are appended")


class Models(Section, frozen=True):
    default: str = ""
    """The model of chats that name none, as provider/model. Unset: the first model that is configured; else the first
    one that a server with a `base_url` of its own lists; else, of OpenAI, Anthropic and Google, none, and chats must
    choose. demo/echo when there is no provider."""

    title: str = ""
    """A small, fast model that makes titles, as provider/model. Unset: the first line of a chat is its title."""

    summarizer: str = ""
    """A model that sums up what long histories leave out, as provider/model. Unset: no summaries."""

    fallback: list[str] = []
    """Models that answer, in this order, when the one that was asked is down before its first word."""

    demo: bool | None = None
    """Are the demo models and tools offered? Unset: only while no provider is configured but such of the kind `script`,
    or where this file names a model of theirs."""

    show_reasons: bool = True
    """Show people what a model's provider said when it refused or failed, with secrets taken out. Set it to false where
    people should not learn who the provider is or that a bill is not paid; the server's log has the provider's words
    either way."""

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
                raise ValueError(f"{key}: {model!r} names no provider that is configured; {advice}")
