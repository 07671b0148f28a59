"""What people are shown of settings: no secret, and no secret part of a URL; and the check of URLs that shows nothing.

The part of a URL before its `@` and the values of its query are masked, because each may be a secret.
"""

import re
from urllib.parse import urlsplit

import msgspec

from server.settings.store_url import shown_url
from server.settings.values import Secret

__all__ = ["check_http_url", "masked", "shown"]

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*://"
_WHOLE = re.compile(_SCHEME)
_INSIDE = re.compile(rf"{_SCHEME}\S*[^\s;,.:)\]}}'\"]")
"""A URL in a sentence, without the punctuation after it."""


def masked(text: str) -> str:
    """Return `text` with every URL in it as `shown_url` shows it. A text that begins with a URL is taken for one as a
    whole, also with spaces in it."""
    if _WHOLE.match(text):
        return shown_url(text)
    return _INSIDE.sub(lambda found: shown_url(found[0]), text)


def shown(value: object) -> str:
    """Return a value as text, with the URLs masked that stand in it at any depth."""
    if isinstance(value, Secret):
        return "***"
    return masked(value) if isinstance(value, str) else _inside(value)


def _inside(value: object) -> str:
    if isinstance(value, str):
        return repr(masked(value))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inside, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_inside(key)}: {_inside(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, msgspec.Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return f"{type(value).__name__}({', '.join(f'{name}={_inside(inner)}' for name, inner in fields)})"
    return repr(value)


def check_http_url(name: str, url: str) -> None:
    """Raise ValueError when `url` is no http(s) URL with a host and, if it has a port, a possible one. The message does
    not show it."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # its words may repeat a part of the URL
        is_one = False
    if not is_one:
        raise ValueError(f"{name}: this is no http(s) URL; write it as https://host[:port]/path")
