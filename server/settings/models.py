"""The servers of models, and which of their models are used for what."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from server.settings.values import Name, Seconds, Secret, Section

__all__ = ["DEMO_PROVIDER", "OPENAI_API", "Model", "Models", "Provider"]

DEMO_PROVIDER = "demo"
"""The provider that is always there and needs no key; its name cannot be given to another."""

OPENAI_API = "https://api.openai.com/v1"


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


class Provider(Section, frozen=True):
    """A server of models. Its name in the file is the prefix in `provider/model`."""

    kind: Literal["openai_chat", "script"] = "openai_chat"
    """How it is spoken to. openai_chat: the chat completions of OpenAI, which most servers of models speak. script: not
    at all, it plays `file`."""

    file: str = ""
    """Of a script: its scenes, as `examples/` have them. Its path from threadcast.toml."""

    base_url: str = OPENAI_API
    """Up to and including /v1; http://127.0.0.1:11434/v1 for Ollama."""

    api_key_env: str = ""
    """Name of the environment variable that holds the key. Empty: `api_key`, or no key at all."""

    api_key: Secret | None = None
    """The key itself. `api_key_env` keeps it out of the file."""

    connect_timeout_seconds: Seconds = 5.0
    """Raise it for servers behind slow tunnels."""

    idle_timeout_seconds: Seconds = 120.0
    """Silence in the middle of an answer, or before it, after which the call has failed. Raise it for local models
    that load first or think long."""

    models: list[Model] = []
    """The first one is the default model when `models.default` is not set."""

    def __post_init__(self) -> None:
        if (self.kind == "script") != bool(self.file):
            raise ValueError('file: a provider of the kind "script", and no other, has one')
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"base_url: {self.base_url!r} is no http(s) URL")


class Models(Section, frozen=True):
    default: str = ""
    """The model of chats that name none, as provider/model. Unset: the first model of the first provider, and
    demo/echo when there is none."""

    title: str = ""
    """A small, fast model that makes titles, as provider/model. Unset: the first line of a chat is its title."""

    summarizer: str = ""
    """A model that sums up what long histories leave out, as provider/model. Unset: no summaries."""

    fallback: list[str] = []
    """Models that answer, in this order, when the one that was asked is down before its first word."""

    providers: dict[Name, Provider] = {}

    def __post_init__(self) -> None:
        if DEMO_PROVIDER in self.providers:
            raise ValueError(f"providers: {DEMO_PROVIDER!r} is built in; choose another name")
        provider, slash, name = self.default.partition("/")
        known = [*self.providers, DEMO_PROVIDER]
        if self.default and (not slash or not name or provider not in known):
            raise ValueError(
                f"default: {self.default!r} must be written provider/model; known providers: {', '.join(known)}"
            )
        used_for = [("title", self.title), ("summarizer", self.summarizer)]
        for key, model in [*used_for, *(("fallback", each) for each in self.fallback)]:
            provider, slash, name = model.partition("/")
            if model and (not slash or not name or provider not in known):
                raise ValueError(f"{key}: {model!r} names no provider that is configured; known: {', '.join(known)}")
