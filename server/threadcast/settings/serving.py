"""The settings of the server's address, its store, its callers, and its one-shot endpoints."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Meta

from threadcast.settings.shown import masked
from threadcast.settings.values import Name, Secret, Section
from threadcast.store.url import CLUSTER_SCHEMES, SENTINEL_SCHEMES, parse_cluster_url, parse_sentinel_url

__all__ = ["Auth", "Endpoint", "OneShotPath", "Permission", "Server", "Store", "Token"]

Permission: TypeAlias = Literal["approve", "diagnostics", "metrics"]

OneShotPath: TypeAlias = Literal["/chat", "/v1/agent/chat", "/api/chat/stream", "/v1/chat/completions"]
"""The endpoints for clients of older protocols (PROTOCOL §14)."""


class Server(Section, frozen=True):
    host: str = "127.0.0.1"
    """Address to listen on. Change it ("0.0.0.0") to serve other machines; then `auth.tokens` must be set."""

    port: Annotated[int, Meta(ge=0, le=65_535)] = 8000
    """Port to listen on. Change it when another program uses the port; 0 means any free port."""

    cors_origins: list[str] = []
    """Origins whose pages may call this server, such as "https://app.example.com"; "*" for all. Set it if another
    server serves your GUI."""

    public_url: str = ""
    """The address under which browsers reach this server, such as "https://chat.example.com". Set it behind a proxy
    that changes the Host header of the browser; otherwise the page's POST requests are refused with 403."""

    trusted_proxies: list[str] = []
    """Addresses or networks of reverse proxies, such as "10.0.0.7" or "172.16.0.0/12". The connections of a proxy carry
    requests of many people and do not count against `limits.connections_per_address`. Connections from this machine
    never count."""

    log_format: Literal["auto", "json", "pretty"] = "auto"
    """Format of the logs. auto: pretty on a terminal, else JSON."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is logged. Set it to debug to look for the cause of a problem."""

    metrics_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """Port on which `threadcast worker` serves /metrics, /livez and /readyz, on `metrics_host`. 0: no port. `serve` and
    `web` serve them on `port`. Set a different port for each worker of a machine when a monitoring system reads these
    pages. With `--processes` of `worker` or `web`, the first process uses this port and each further process uses the
    next port."""

    metrics_host: str = "127.0.0.1"
    """Address on which `metrics_port` listens. The port needs no token, so change it ("0.0.0.0") only where no other
    machine than the monitoring system can reach the port, such as inside a cluster."""

    app: str = ""
    """A Python file whose tools are offered to models (`serve --app my_tools.py`). A relative path in threadcast.toml
    starts from that file."""

    programs_user: str = ""
    """The user for programs that tools start, and for MCP servers with a `command`, if Threadcast runs as root.
    Empty: "nobody". Programs of another user can read neither Threadcast's environment, with all keys, nor its store.
    The user needs access to the programs and their files. "root" gives programs all rights of Threadcast."""

    frame_origins: list[str] = []
    """Origins whose pages may show the chat page in a frame, or open it, and pass context to it ("self" is this server,
    with `pages`). Such a page can disguise what people click on, including approvals, so list only origins that you
    trust as much as this server. Empty: no other page may do this."""

    pages: str = ""
    """A directory of web pages that are served at /pages/, such as a page that frames the chat. A relative path in
    threadcast.toml starts from that file. Anyone who reaches the port can read these pages without a token."""

    def __post_init__(self) -> None:
        if self.public_url:
            _check_browser_origin(self.public_url, "public_url")
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy, strict=False)
            except ValueError:
                raise ValueError(
                    f"trusted_proxies: {proxy!r} is no address or network; write it as 10.0.0.7 or 10.0.0.0/8"
                ) from None
        for origin in self.frame_origins:
            if origin != "self":
                _check_browser_origin(origin, "frame_origins", ", or self")
        for origin in self.cors_origins:
            parts = urlsplit(origin)
            if (
                origin != "*"
                and origin != "null"
                and (not parts.netloc or f"{parts.scheme}://{parts.netloc}" != origin)
            ):
                raise ValueError(
                    f"cors_origins: {masked(origin)!r} is not an origin; write it as https://host or https://host:8000"
                )


_BROWSER_ORIGIN = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(:([1-9][0-9]{0,4}))?")
"""An origin as browsers write it (RFC 6454 §6.2): in lower case, without a path, and without characters that would mean
several hosts or a second directive in a Content Security Policy."""

_DEFAULT_PORTS = {"http": "80", "https": "443"}


def _check_browser_origin(origin: str, field: str, others: str = "") -> None:
    """Raise ValueError unless `origin` is written exactly as browsers write it, since it is compared as text."""
    found = _BROWSER_ORIGIN.fullmatch(origin)
    if found is None:
        raise ValueError(
            f"{field}: {masked(origin)!r} is not a single origin; write https://host or https://host:8000 in lower "
            f"case, without a path{others}. Wildcards are not supported"
        )
    if found[5] == _DEFAULT_PORTS[found[1]] or int(found[5] or 1) > 65_535:
        raise ValueError(f"{field}: leave out the port in {origin!r}, as browsers do, or write a valid port")


STORE_MEMORY_MIN_BYTES = 16_777_216
"""The smallest `store.memory_max_bytes`. An empty store takes some MB, so it could not even start with less."""


class Store(Section, frozen=True):
    url: Secret | None = None
    """Address of Redis ≥ 7.0 or Valkey, such as redis://127.0.0.1:6379/0; the address may contain a password. Behind
    Sentinel: redis+sentinel://a:26379,b:26379,c:26379/service/0 (`rediss+sentinel` with TLS), with user and password of
    the primary before the hosts, and user and password of the sentinels as ?sentinel_username=…&sentinel_password=…;
    then a failover needs no restart. For a Cluster, some of its nodes: redis+cluster://a:6379,b:6379 (`rediss+cluster`
    with TLS). Unset: a private store in `data_dir`. Set it to run several processes, or to keep the data elsewhere."""

    data_dir: str = ".threadcast"
    """The directory of the private store and of the tools' files. Change it to run several servers on one machine."""

    memory: bool = False
    """Whether to keep all data in memory only, so that it is lost at the end. Use it for demonstrations and tests."""

    memory_max_bytes: Annotated[int, Meta(ge=0)] = 0
    """Maximum bytes of memory of the private store; a full store refuses new messages, and discards nothing. 0: half
    of the memory of the machine or container, because the store may need as much again while it rewrites its file. Set
    it where other programs need the memory."""

    erase_after_seconds: Annotated[float, Meta(ge=1, le=3_000)] = 1_800.0
    """Seconds after the deletion of a chat until the private store writes its file anew, without the deleted content.
    Writing takes some 10 s for each GB, so half an hour keeps the promise of one hour, at two rewrites an hour at
    most. Lower it if deleted content must be gone sooner."""

    @property
    def data_path(self) -> Path:
        return Path(self.data_dir).expanduser()

    def __post_init__(self) -> None:
        if 0 < self.memory_max_bytes < STORE_MEMORY_MIN_BYTES:
            raise ValueError(
                f"memory_max_bytes: write at least {STORE_MEMORY_MIN_BYTES} (16 MiB), or 0 for half of the memory"
            )
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
            raise ValueError("memory = true is for the private store; remove either memory or url")
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
            "url: its port is not a number from 1 to 65535. In a password, write @ : / ? # as %40 %3A %2F %3F %23"
        )
    if parts.path.strip("/") and not parts.path.strip("/").isdecimal():
        raise ValueError("url: the part after the last / must be the number of the database, such as 0")


class Token(Section, frozen=True):
    """A token with which clients may call. `threadcast token` makes one."""

    id: Name
    """The name of the caller, who owns chats and is shown in events. Several tokens may have the same name."""

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the token, in hexadecimal. The configuration never contains the token itself."""

    permissions: frozenset[Permission] = frozenset({"approve"})
    """approve: the caller may approve or deny tool calls. diagnostics: the caller may see the traces of runs.
    metrics: the caller may read /metrics, which tells about the work of all callers."""

    approves_for: frozenset[Name] = frozenset()
    """Callers in whose chats this caller decides about calls of tools with `approver = "another"`. This caller needs
    the permission approve. The approver sees the arguments of these calls and nothing else of the chats."""

    roles: frozenset[Name] = frozenset()
    """Roles of the caller. A tool may require a role, and a prompt may contain the roles."""

    turns_per_hour: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    """Maximum runs that this caller may begin within an hour. 0: no limit. Unset: `limits.turns_per_hour`."""

    turns_per_day: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    """Maximum runs that this caller may begin within 24 hours. 0: no limit. Unset: `limits.turns_per_day`."""


class Auth(Section, frozen=True):
    tokens: list[Token] = []
    """The tokens of all callers. Empty: no authentication; the server then listens only on loopback addresses."""

    def __post_init__(self) -> None:
        for token in self.tokens:
            if token.approves_for and "approve" not in token.permissions:
                raise ValueError(f"tokens: {token.id} has approves_for, but not the permission approve")
            if token.id in token.approves_for:
                raise ValueError(f"tokens: {token.id} cannot approve for itself; leave it out of approves_for")
        if any(token.id == "system" for token in self.tokens):
            raise ValueError("tokens: the id 'system' is reserved for the server; choose another id")
        if len({token.sha256 for token in self.tokens}) != len(self.tokens):
            raise ValueError("tokens: two tokens have the same sha256")
        if len({(token.id, token.turns_per_hour, token.turns_per_day) for token in self.tokens}) != len(
            {token.id for token in self.tokens}
        ):
            raise ValueError("tokens: tokens of one id count their runs together, so write the same turns for them")


class Endpoint(Section, frozen=True):
    """The assistant of a one-shot endpoint, such as [endpoints."/v1/agent/chat"]."""

    profile: str = ""
    """The profile of chats that begin at this endpoint. An existing chat keeps its profile. Unset: the default
    profile."""

    mode: bool | list[str] = False
    """Whether callers may choose a profile by `mode`, in the body or the query. true: any profile. A list: the profiles
    in it and `profile`. false: `mode` is ignored."""
