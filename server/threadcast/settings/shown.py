"""Formats settings for display with secrets masked, and checks URLs without showing them.

The part of a URL before its `@` and the values of its query are masked, because each may be a secret.
"""

import re
from urllib.parse import urlsplit

import msgspec

from threadcast.settings.values import Secret
from threadcast.store.url import shown_url

__all__ = ["check_http_url", "masked", "shown"]

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*://"
_WHOLE = re.compile(_SCHEME)
_INSIDE = re.compile(rf"{_SCHEME}\S*[^\s;,.:)\]}}'\"]")
"""A URL in a sentence, without the punctuation after it."""


def masked(text: str) -> str:
    """Return `text` with every URL masked as by `shown_url`. A text that begins with a URL is treated as one URL, even
    if it contains spaces."""
    if _WHOLE.match(text):
        return shown_url(text)
    return _INSIDE.sub(lambda found: shown_url(found[0]), text)


def shown(value: object) -> str:
    """Return a value as text, with URLs at any depth masked."""
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
    """Raise ValueError if `url` is not an http(s) URL with a host, or has an invalid port. The message does not show
    the URL."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the error's message may repeat a part of the URL
        is_one = False
    if not is_one:
        raise ValueError(f"{name}: this is not an http(s) URL; write it as https://host/path or https://host:8000/path")
