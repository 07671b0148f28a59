"""Where the server listens, where it keeps what it knows, and who may call."""

import re
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Meta

from server.settings.shown import masked
from server.settings.store_url import CLUSTER_SCHEMES, SENTINEL_SCHEMES, parse_cluster_url, parse_sentinel_url
from server.settings.values import Name, Secret, Section

__all__ = ["Auth", "Endpoint", "OneShotPath", "Permission", "Server", "Store", "Token"]

Permission: TypeAlias = Literal["approve", "diagnostics"]

OneShotPath: TypeAlias = Literal["/chat", "/v1/agent/chat", "/api/chat/stream", "/v1/chat/completions"]
"""The endpoints for clients of older wires (PROTOCOL §14)."""


class Server(Section, frozen=True):
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
    """Where `threadcast worker` serves /metrics, /livez and /readyz, on `host`; 0: nowhere. `serve` and `web` have them
    on `port`. Set it, a different one for each worker of a machine, when something collects or probes them. With
    `--processes`, also of `web`: the first process has this port, the others the ones after it."""

    app: str = ""
    """A Python file whose tools are offered to models (`serve --app my_tools.py`). In threadcast.toml: its path from
    there."""

    frame_origins: list[str] = []
    """Origins whose pages may show the page in a frame, or open it, and hand it context ("self" is this server, with
    `pages`). Such a page can disguise what people click on, approvals included: name only origins that you trust as
    much as this server. Empty: no other page may."""

    pages: str = ""
    """A directory of web pages that are served at /pages/, such as a page that frames the chat. A relative path in
    threadcast.toml starts from that file. Everybody who reaches the port can read these pages, without a token."""

    def __post_init__(self) -> None:
        for origin in self.frame_origins:
            if origin != "self":
                _check_frame_origin(origin)
        for origin in self.cors_origins:
            parts = urlsplit(origin)
            if (
                origin != "*"
                and origin != "null"
                and (not parts.netloc or f"{parts.scheme}://{parts.netloc}" != origin)
            ):
                raise ValueError(f"cors_origins: {masked(origin)!r} is no origin; write it as scheme://host[:port]")


_FRAME_ORIGIN = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(:([1-9][0-9]{0,4}))?")
"""An origin as browsers write it (RFC 6454 §6.2): lower case, without path, and nothing that would mean more than one
host, or a second directive, in a Content Security Policy."""

_DEFAULT_PORTS = {"http": "80", "https": "443"}


def _check_frame_origin(origin: str) -> None:
    """Raise ValueError unless `origin` is written exactly as browsers write it, since it is compared as text."""
    found = _FRAME_ORIGIN.fullmatch(origin)
    if found is None:
        raise ValueError(
            f"frame_origins: {masked(origin)!r} is no single origin; write scheme://host[:port] in lower case, without "
            "a path, or self. There are no wildcards"
        )
    if found[5] == _DEFAULT_PORTS[found[1]] or int(found[5] or 1) > 65_535:
        raise ValueError(f"frame_origins: leave the port away in {origin!r}, as browsers do, or write a possible one")


class Store(Section, frozen=True):
    url: Secret | None = None
    """Redis ≥ 7.0 or Valkey, such as redis://127.0.0.1:6379/0; it may hold a password. Behind Sentinel:
    redis+sentinel://a:26379,b:26379,c:26379/service/0 (`rediss+sentinel` with TLS), with user and password of the
    primary before the hosts, and those of the sentinels as ?sentinel_username=…&sentinel_password=…; then a failover
    needs no restart. A Cluster by some of its nodes: redis+cluster://a:6379,b:6379 (`rediss+cluster` with TLS). Unset:
    a private store in `data_dir`. Set it to run several processes, or to keep the data elsewhere."""

    data_dir: str = ".threadcast"
    """Where the private store and the files of tools lie. Change it to keep several servers apart."""

    memory: bool = False
    """Keep nothing on disk: everything is gone at the end. For demonstrations and tests."""

    @property
    def data_path(self) -> Path:
        return Path(self.data_dir).expanduser()

    def __post_init__(self) -> None:
        scheme = "" if self.url is None else self.url.reveal().partition("://")[0]
        if self.url is not None and scheme in (*SENTINEL_SCHEMES, *CLUSTER_SCHEMES):
            parse = parse_sentinel_url if scheme in SENTINEL_SCHEMES else parse_cluster_url
            try:
                parse(self.url.reveal())
            except ValueError as wrong:
                raise ValueError(f"url: {wrong}") from None
        elif self.url is not None and scheme not in ("redis", "rediss", "unix"):
            raise ValueError(
                "url: write it as redis://host:port/database, rediss://…, unix:///path, "
                "redis+sentinel://host:port,host:port/service/database or redis+cluster://host:port,host:port"
            )
        elif self.url is not None:
            _check_plain_url(self.url.reveal())
        if self.url is not None and self.memory:
            raise ValueError("memory = true is for the private store; take either memory or url away")
        if not self.data_dir:
            raise ValueError("data_dir is empty")


def _check_plain_url(url: str) -> None:
    """Raise ValueError for a URL that redis-py would misread or could never reach. The sentence repeats no part of the
    URL, which may be a secret in the wrong place."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        if len(parts.path) < 2:
            raise ValueError("url: a path is missing; write it as unix:///path/of/the/socket")
        return
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError(
            "url: its port is no number from 1 to 65535. In a password, write @ : / ? # as %40 %3A %2F %3F %23"
        )
    if parts.path.strip("/") and not parts.path.strip("/").isdecimal():
        raise ValueError("url: what follows the last / is the number of the database, such as 0")


class Token(Section, frozen=True):
    """A client that may call. `threadcast token` makes one."""

    id: Name
    """The principal that the token speaks for: owns chats, is shown in events. Several tokens may share one."""

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the token, in hexadecimal; the token itself is nowhere in the configuration."""

    permissions: frozenset[Permission] = frozenset({"approve"})
    """approve: decide on tool calls that ask. diagnostics: see the traces of runs."""

    roles: frozenset[Name] = frozenset()
    """Who this caller is to the profiles: tools may want a role, prompts may name it."""

    turns_per_hour: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    """Runs that this principal may begin within an hour, 0: as many as it likes. Unset: `limits.turns_per_hour`."""

    turns_per_day: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    """The same within 24 hours. Unset: `limits.turns_per_day`."""


class Auth(Section, frozen=True):
    tokens: list[Token] = []
    """Empty: no authentication, and only loopback addresses may be listened on."""

    def __post_init__(self) -> None:
        if any(token.id == "system" for token in self.tokens):
            raise ValueError("tokens: the id 'system' is the server's own; choose another")
        if len({token.sha256 for token in self.tokens}) != len(self.tokens):
            raise ValueError("tokens: the same sha256 stands there twice")
        if len({(token.id, token.turns_per_hour, token.turns_per_day) for token in self.tokens}) != len(
            {token.id for token in self.tokens}
        ):
            raise ValueError("tokens: those of one id have different turns; they count together, so write the same")


class Endpoint(Section, frozen=True):
    """A one-shot endpoint and the assistant behind it, such as [endpoints."/v1/agent/chat"]."""

    profile: str = ""
    """The profile of chats that begin here, with its limits, guard and tools; a chat that exists keeps its own. Unset:
    the default profile."""

    mode: bool | list[str] = False
    """Whether callers may choose a profile by `mode`, in the body or the query. true: any profile; a list: these and
    `profile`; false: `mode` is not read here."""
