"""Keeps HTTP clients from following redirects to another origin.

A client that follows a redirect sends the request again, with its body and most of its headers. For another origin,
httpx2 removes `Authorization`, but it sends keys in other headers (`x-api-key`, `x-goog-api-key`) and the conversation.
Import this module only where httpx2 is installed.
"""

import httpx2
import structlog

__all__ = ["keep_origin"]

_log = structlog.get_logger()

_DEFAULT_PORTS = {"http": 80, "https": 443}


def keep_origin(response: httpx2.Response) -> None:
    """Make a redirect to another origin an ordinary failed answer, by removing its `Location`. Call it in a response
    hook, which runs before redirects are followed. A change of scheme or port is another origin (RFC 6454 §4)."""
    if not response.has_redirect_location:
        return
    here = response.request.url
    try:
        there = here.join(response.headers["location"])
    except (httpx2.InvalidURL, ValueError):
        there = None
    if there is None or _origin(there) != _origin(here):
        del response.headers["location"]
        _log.warning("redirect.refused", origin=_shown(here), to="" if there is None else _shown(there))


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or _DEFAULT_PORTS.get(url.scheme)


def _shown(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"
