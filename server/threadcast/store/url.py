"""Parses the URL of a store with several servers: addresses, service, credentials and options.

    redis+sentinel://[user:password@]host[:port],host[:port]/service[/database][?option=value]
    redis+cluster://[user:password@]host[:port],host[:port][?option=value]

This module opens no connection. `settings/serving.py` refuses invalid URLs, and `store/topology/` connects. The scheme
`rediss+sentinel` means TLS to the sentinels and to the primary. User, password and database belong to the primary. The
credentials of the sentinels are the options `sentinel_username` and `sentinel_password`. All other options are options
of redis-py, and apply to the primary and to the sentinels. Error messages contain no part of the URL, because any part
may be a misplaced secret. `shown_url` shows only parts that cannot be secret, and masks an invalid URL completely.
"""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

__all__ = [
    "CLUSTER_SCHEMES",
    "SENTINEL_SCHEMES",
    "ClusterUrl",
    "SentinelUrl",
    "parse_cluster_url",
    "parse_sentinel_url",
    "shown_url",
]

SENTINEL_SCHEMES = ("redis+sentinel", "rediss+sentinel")
CLUSTER_SCHEMES = ("redis+cluster", "rediss+cluster")

SENTINEL_PORT = 26_379
"""Sentinel's default port (redis.io, High availability with Redis Sentinel)."""

NODE_PORT = 6_379
"""Redis's default port."""

_CLUSTER_SHAPE = "write it as redis+cluster://[user:password@]host:port,host:port, without a database"
_SHAPE = "write it as redis+sentinel://[user:password@]host:port,host:port/service/database"
_URL = re.compile(r"(?P<scheme>[a-z+]+)://(?P<authority>[^/?#]*)/(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?")
_CLUSTER_URL = re.compile(r"(?P<scheme>rediss?\+cluster)://(?P<authority>[^/?#]*)/?0?(?P<query>\?[^#]*)?")
_PLACE = r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?"
_SHOWABLE = re.compile(
    r"(?P<scheme>[a-z+]+://)(?:(?P<credentials>[^/?#@]*)@)?"
    rf"(?P<place>(?:{_PLACE}(?:,{_PLACE})*)?(?:/[^?#@]*)?)(?:\?(?P<query>[^#@]*))?"
)
_HOST = re.compile(r"^(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<name>[^\s:\[\]/@]+))(?::(?P<port>[0-9]{1,5}))?$")
_SERVICE = re.compile(r"^[A-Za-z0-9._-]+$")
"""The service names that Sentinel accepts (sentinel.c: letters, digits and ".-_")."""


class SentinelUrl(NamedTuple):
    """The parts of a Sentinel URL. `sentinels` and `primary` are URLs for redis-py. The host in `primary` is a
    placeholder, which the sentinels' answer replaces."""

    sentinels: tuple[str, ...]
    service: str
    primary: str


def parse_sentinel_url(url: str) -> SentinelUrl:
    """Parse the URL of a store behind Sentinel. Raises ValueError with a sentence for users."""
    # urlsplit is not used: some of its versions refuse a list of bracketed hosts, and repeat the list in their error.
    parts = _URL.fullmatch(url)
    if parts is None or parts["scheme"] not in SENTINEL_SCHEMES:
        raise ValueError(_SHAPE)
    scheme = parts["scheme"].partition("+")[0]
    credentials, at, hosts = parts["authority"].rpartition("@")
    service, _, database = parts["path"].partition("/")
    if not _SERVICE.match(service) or not re.fullmatch("[0-9]*", database):
        raise ValueError(f"{_SHAPE}; the service is the name that the sentinels monitor, the database a number")
    own = {"sentinel_username": "", "sentinel_password": ""}
    options: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts["query"] or "", keep_blank_values=True):
        if name in own:
            own[name] = value
        else:
            options.append((name, value))
    query = f"?{urlencode(options)}" if options else ""
    mine = ":".join(quote(value, safe="") for value in own.values()) + "@" if any(own.values()) else ""
    wrong = f"{_SHAPE}; each sentinel is a host, or host:port, between commas"
    sentinels = tuple(f"{scheme}://{mine}{_address(host, SENTINEL_PORT, wrong)}{query}" for host in hosts.split(","))
    return SentinelUrl(sentinels, service, f"{scheme}://{credentials}{at}primary.invalid/{database or 0}{query}")


class ClusterUrl(NamedTuple):
    """The parts of a Cluster URL. `seeds` are addresses, `host:port`; each seed can report the other nodes."""

    scheme: str
    credentials: str
    seeds: tuple[str, ...]
    query: str

    def of(self, address: str) -> str:
        """Return the URL of one node for redis-py. All nodes have the same credentials and options."""
        return f"{self.scheme}://{self.credentials}{address}/0{self.query}"


def parse_cluster_url(url: str) -> ClusterUrl:
    """Parse the URL of a Cluster. Raises ValueError with a sentence for users."""
    parts = _CLUSTER_URL.fullmatch(url)
    if parts is None:
        raise ValueError(_CLUSTER_SHAPE)
    credentials, at, hosts = parts["authority"].rpartition("@")
    wrong = f"{_CLUSTER_SHAPE}; each node is a host, or host:port, between commas"
    seeds = tuple(_address(host, NODE_PORT, wrong) for host in hosts.split(","))
    return ClusterUrl(parts["scheme"].partition("+")[0], credentials + at, seeds, parts["query"] or "")


def shown_url(url: str) -> str:
    """Return the URL for display: `redis://ann:***@127.0.0.1:6379/0`. Values of options other than `db` are masked,
    too. A text that is not a store's URL becomes `***`."""
    parts = _SHOWABLE.fullmatch(url)
    if parts is None:
        return "***"
    user, colon, password = (parts["credentials"] or "").partition(":")
    name = f"{user}{colon}" if password else ""  # without a password, the user may be a secret such as a key
    credentials = "" if parts["credentials"] is None else f"{name}***@"
    options = parse_qsl(parts["query"] or "", keep_blank_values=True)
    query = "&".join(f"{name}={value if name == 'db' else '***'}" for name, value in options)
    return f"{parts['scheme']}{credentials}{parts['place']}{'?' if query else ''}{query}"


def _address(text: str, usual_port: int, wrong: str) -> str:
    found = _HOST.match(text.strip())
    if found is None or not 0 < int(found["port"] or usual_port) < 65_536:
        raise ValueError(wrong)
    host = f"[{found['six']}]" if found["six"] else found["name"]
    return f"{host}:{found['port'] or usual_port}"
