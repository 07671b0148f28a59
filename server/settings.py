"""Every knob of the server, once: its unit, its default, and when to change it.

Frozen structs, one for each section of `threadcast.toml`. Their defaults work on a laptop. Where values come from
(file, environment, flags) is `settings_sources.py`'s business; rooms are handed the values they need and none reads
the environment. A rule that joins several values stands in the section's `__post_init__`, so that no settings exist
that break it. The one rule: secrets are `Secret`s, which never show themselves in `repr`, `str` or a log line.
"""

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from protocol.tool_names import SERVER_NAME

__all__ = [
    "DEMO_PROVIDER",
    "OPENAI_API",
    "Auth",
    "Limits",
    "Mcp",
    "Model",
    "Models",
    "Profile",
    "Provider",
    "Secret",
    "Server",
    "Settings",
    "Store",
    "Token",
    "Tool",
    "is_loopback",
]

Name: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
Bytes: TypeAlias = Annotated[int, Meta(ge=1_024, le=4_294_967_296)]
Permission: TypeAlias = Literal["approve", "diagnostics"]

DEMO_PROVIDER = "demo"
"""The provider that is always there and needs no key; its name cannot be given to another."""

OPENAI_API = "https://api.openai.com/v1"


class Secret:
    """A string that does not show itself; only `reveal` tells."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret('***')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Server(_Section, frozen=True):
    host: str = "127.0.0.1"
    """Address to listen on. Change it ("0.0.0.0") to serve other machines; then `auth.tokens` must be set."""

    port: Annotated[int, Meta(ge=0, le=65_535)] = 8000
    """Change it when another program has the port; 0 takes any free one."""

    cors_origins: list[str] = []
    """Origins whose pages may call this server, such as "https://app.example.com"; "*" for all. Change it when a GUI
    is served from elsewhere."""

    log_format: Literal["auto", "json", "pretty"] = "auto"
    """auto: pretty on a terminal, else JSON."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """debug while hunting something."""

    metrics_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """Where `threadcast worker` serves its metrics, on `host`; 0: nowhere. `serve` and `web` have /metrics. Set it, a
    different one for each worker of a machine, when something collects them."""

    app: str = ""
    """A Python file whose tools are offered to models (`serve --app my_tools.py`)."""

    def __post_init__(self) -> None:
        for origin in self.cors_origins:
            parts = urlsplit(origin)
            if (
                origin != "*"
                and origin != "null"
                and (not parts.netloc or f"{parts.scheme}://{parts.netloc}" != origin)
            ):
                raise ValueError(f"cors_origins: {origin!r} is no origin; write it as scheme://host[:port]")


class Store(_Section, frozen=True):
    url: Secret | None = None
    """Redis ≥ 7.0 or Valkey, such as redis://127.0.0.1:6379/0; it may hold a password. Unset: a private store in
    `data_dir`. Set it to run several processes, or to keep the data elsewhere."""

    data_dir: str = ".threadcast"
    """Where the private store and the files of tools lie. Change it to keep several servers apart."""

    memory: bool = False
    """Keep nothing on disk: everything is gone at the end. For demonstrations and tests."""

    @property
    def data_path(self) -> Path:
        return Path(self.data_dir).expanduser()

    def __post_init__(self) -> None:
        if self.url is not None and self.url.reveal().partition("://")[0] not in ("redis", "rediss", "unix"):
            raise ValueError("url: write it as redis://host:port/database, rediss://… or unix:///path")
        if self.url is not None and self.memory:
            raise ValueError("memory = true is for the private store; take either memory or url away")
        if not self.data_dir:
            raise ValueError("data_dir is empty")


class Token(_Section, frozen=True):
    """A client that may call. `threadcast token` makes one."""

    id: Name
    """The principal that the token speaks for: owns chats, is shown in events. Several tokens may share one."""

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the token, in hexadecimal; the token itself is nowhere in the configuration."""

    permissions: frozenset[Permission] = frozenset({"approve"})
    """approve: decide on tool calls that ask. diagnostics: see the traces of runs."""


class Auth(_Section, frozen=True):
    tokens: list[Token] = []
    """Empty: no authentication, and only loopback addresses may be listened on."""

    def __post_init__(self) -> None:
        if any(token.id == "system" for token in self.tokens):
            raise ValueError("tokens: the id 'system' is the server's own; choose another")
        if len({token.sha256 for token in self.tokens}) != len(self.tokens):
            raise ValueError("tokens: the same sha256 stands there twice")


class Model(_Section, frozen=True):
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


class Provider(_Section, frozen=True):
    """A server of models. Its name in the file is the prefix in `provider/model`."""

    kind: Literal["openai_chat"] = "openai_chat"
    """How it is spoken to: the chat completions of OpenAI, which most servers of models speak."""

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
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"base_url: {self.base_url!r} is no http(s) URL")


class Models(_Section, frozen=True):
    default: str = ""
    """The model of chats that name none, as provider/model. Unset: the first model of the first provider, and
    demo/echo when there is none."""

    title: str = ""
    """A small, fast model that makes titles, as provider/model. Unset: the first line of a chat is its title."""

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
        provider, slash, name = self.title.partition("/")
        if self.title and (not slash or not name or provider not in known):
            raise ValueError(f"title: {self.title!r} names no provider that is configured; known: {', '.join(known)}")


class Profile(_Section, frozen=True):
    """An assistant that clients choose by the thread's `mode`. The one called `agent` is the default."""

    title: str = ""
    """Shown to people; empty: the profile's name."""

    description: str = ""
    system_prompt: str | None = None
    """Unset: a plain helpful assistant."""

    tools: list[str] | None = None
    """Names of the tools it is offered; unset: all."""

    model: str = ""
    """Unset: `models.default`."""

    max_rounds: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Unset: `limits.max_rounds`."""

    params: dict[str, Any] = {}  # Any: checked against the bounds of thread parameters when the server starts
    """Defaults of optional thread parameters (PROTOCOL §16), such as `temperature`."""


class Tool(_Section, frozen=True):
    """The operator's word on one tool, above what the tool says of itself. Unset: as the tool says."""

    enabled: bool = True
    policy: Literal["auto", "ask", "deny", "preview", "client"] | None = None
    timeout_seconds: Seconds | None = None
    retry: Literal["once", "idempotent", "safe"] | None = None
    """May it run again after its worker died in the middle? Only if that does no harm."""

    description: str = ""
    """Together with `policy = "client"` this makes a tool that clients carry out: what the model is told of it."""

    input_schema: dict[str, Any] = {}  # Any: JSON Schema, passed on to models as it is
    """Of such a tool: JSON Schema of its arguments, an object."""


class Mcp(_Section, frozen=True):
    """An MCP server, whose tools models may be offered as `mcp__NAME__TOOL`. Needs the extra `mcp`."""

    command: str = ""
    """A program that speaks MCP over its standard input and output; it is started with the server."""

    args: list[str] = []
    env: dict[str, Secret] = {}
    """Added to PATH, HOME and the like; nothing else of our own environment is passed on."""

    url: str = ""
    """Instead of a command: where a server speaks MCP over streamable HTTP."""

    headers: dict[str, Secret] = {}
    """Sent with every request to `url`, such as Authorization."""

    policy: Literal["auto", "ask", "deny"] = "ask"
    """For all its tools; `tools.mcp__NAME__TOOL.policy` says otherwise for one. auto: only for servers that do no
    harm, whatever a model asks of them."""

    timeout_seconds: Seconds | None = None
    """For a call, a resource or a prompt. Unset: `limits.tool_timeout_seconds`."""

    enabled: bool = True

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server needs either a command or a url")
        if self.url:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.netloc:
                raise ValueError(f"url: {self.url!r} is no http(s) URL")


class Limits(_Section, frozen=True):
    worker_max_chats: Count = 2_000
    """Chats with an open run in one worker. Lower it on small machines; more workers take the rest."""

    lease_seconds: Seconds = 3.5
    """How long a dead worker's chats wait for another: work goes on after at most this and a sweep. Raise it on
    machines that stall for seconds."""

    beat_seconds: Seconds = 1.1
    """How often a worker says that it is alive; three times within a lease, so that two lost beats cost nothing."""

    sweep_seconds: Seconds = 0.4
    """How often a worker looks for chats that wait. Raise it to spare the store when many workers share it."""

    drain_seconds: Seconds = 5.0
    """What a stopping process gives running work to reach a safe point. Below the 10 s that container engines wait
    before they kill."""

    body_max_bytes: Bytes = 16_777_216
    """The largest request body. Raise it for large images, and the proxy's limit with it."""

    body_timeout_seconds: Seconds = 30.0
    """How long a request body may take to arrive, and a second more for each 32 KiB of it that came. Raise it when
    clients sit behind links that stall."""

    subscriber_buffer_bytes: Bytes = 262_144
    """What waits for one slow reader before it is given a snapshot instead. Memory: this times the slow readers."""

    subscriber_stall_seconds: Seconds = 60.0
    """A reader that takes no byte for so long is disconnected."""

    streams_per_principal: Count = 256
    """Open event streams of one caller in one process; more are answered 429. Raise it when all users of a GUI come
    with one token."""

    streams_max: Count = 20_000
    """Open event streams of one process; more are answered 429. Lower it on small machines: an idle one costs 16 kB."""

    heartbeat_seconds: Annotated[float, Meta(gt=0, le=40)] = 15.0
    """Silence after which a stream says that it lives. Clients give up after 45 s. Lower it below the idle timeout of
    a proxy in between."""

    max_rounds: Annotated[int, Meta(ge=1, le=100)] = 20
    """Model calls in one run. Raise it for agents that work long."""

    tool_timeout_seconds: Seconds = 30.0
    """For tools that name no timeout of their own."""

    def __post_init__(self) -> None:
        if self.beat_seconds * 2 > self.lease_seconds:
            raise ValueError("beat_seconds must be at most half of lease_seconds, or one late beat loses every chat")


class Settings(_Section, frozen=True):
    """All of it, as `threadcast.toml` holds it."""

    server: Server = Server()
    store: Store = Store()
    auth: Auth = Auth()
    models: Models = Models()
    profiles: dict[Name, Profile] = {}
    tools: dict[Name, Tool] = {}
    mcp: dict[Name, Mcp] = {}
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        for name in self.mcp:
            if not SERVER_NAME.fullmatch(name):
                raise ValueError(
                    f"mcp: {name!r} cannot be the name of an MCP server, since its tools' names begin with it; use up "
                    "to 24 letters, digits, - and single _ between them"
                )
        if not self.auth.tokens and not is_loopback(self.server.host):
            raise ValueError(
                f"server.host = {self.server.host!r} would let everybody in who can reach this machine, since no "
                "auth.tokens are set. Make a token with `threadcast token` and put its lines into threadcast.toml, "
                "or listen on 127.0.0.1"
            )


def is_loopback(host: str) -> bool:
    """Is this a name or address that only this machine reaches (RFC 6761 §6.3 for names)?"""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False
