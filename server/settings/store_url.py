"""The URL of a store behind Sentinel, taken apart: who is asked, for which service, and how the primary is spoken to.

    redis+sentinel://[user:password@]host[:port],host[:port]/service[/database][?option=value]

It reaches nothing; `settings/serving.py` refuses what it cannot read, `store/sentinel.py` connects. `rediss+sentinel`
means TLS, to the sentinels and to the primary. User, password and database are the primary's; the sentinels' own stand
in the options `sentinel_username` and `sentinel_password`. All other options are redis-py's and hold for both. The
rule: no message repeats a part of the URL, since any of it may be a secret put in the wrong place.
"""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

__all__ = ["SENTINEL_SCHEMES", "SentinelUrl", "parse_sentinel_url"]

SENTINEL_SCHEMES = ("redis+sentinel", "rediss+sentinel")

SENTINEL_PORT = 26_379
"""The one that Sentinel listens on unless told otherwise (redis.io, High availability with Redis Sentinel)."""

_SHAPE = "write it as redis+sentinel://[user:password@]host:port,host:port/service/database"
_URL = re.compile(r"(?P<scheme>[a-z+]+)://(?P<authority>[^/?#]*)/(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?")
_HOST = re.compile(r"^(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<name>[^\s:\[\]/@]+))(?::(?P<port>[0-9]{1,5}))?$")
_SERVICE = re.compile(r"^[A-Za-z0-9._-]+$")
"""What Sentinel itself lets a service be called (sentinel.c: letters, digits and ".-_")."""


class SentinelUrl(NamedTuple):
    """`sentinels` and `primary` are URLs as redis-py reads them; the primary's host is whatever the sentinels say."""

    sentinels: tuple[str, ...]
    service: str
    primary: str


def parse_sentinel_url(url: str) -> SentinelUrl:
    """Raises ValueError, in words for people."""
    # Not urlsplit: some versions of it refuse a list of bracketed hosts, and name the whole of what they refuse.
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
    sentinels = tuple(f"{scheme}://{mine}{_address(host)}{query}" for host in hosts.split(","))
    return SentinelUrl(sentinels, service, f"{scheme}://{credentials}{at}primary.invalid/{database or 0}{query}")


def _address(text: str) -> str:
    found = _HOST.match(text.strip())
    if found is None or not 0 < int(found["port"] or SENTINEL_PORT) < 65_536:
        raise ValueError(f"{_SHAPE}; each sentinel is a host, or host:port, between commas")
    host = f"[{found['six']}]" if found["six"] else found["name"]
    return f"{host}:{found['port'] or SENTINEL_PORT}"
