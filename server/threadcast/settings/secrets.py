"""Finds every secret in a tree of settings, for the redactor of logs and traces."""

from collections.abc import Iterator, Mapping
from urllib.parse import unquote, unquote_plus

import msgspec

from threadcast.settings.values import Secret

__all__ = ["secrets_of"]


def secrets_of(settings: object) -> Iterator[str]:
    """Yield every secret in a tree of settings. A secret URL also yields its passwords, and a secret such as `Bearer X`
    also yields X."""
    if isinstance(settings, Secret):
        value = settings.reveal()
        yield value
        scheme, space, rest = value.partition(" ")
        if space and scheme.isalpha():
            yield rest.strip()
        if "://" in value:
            yield from _passwords_in(value)
    elif isinstance(settings, msgspec.Struct):
        for name in settings.__struct_fields__:
            yield from secrets_of(getattr(settings, name))
    elif isinstance(settings, Mapping):
        for value in settings.values():
            yield from secrets_of(value)
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from secrets_of(value)


def _passwords_in(url: str) -> Iterator[str]:
    """Yield the passwords of a URL, as written and decoded: the password before the first host, and those among the
    options.

    This function does not use urlsplit, because some versions refuse a list of bracketed hosts.
    """
    location, _, options = url.partition("://")[2].partition("?")
    authority = location.partition("/")[0]
    password = authority.rpartition("@")[0].partition(":")[2]
    if password:
        yield password
        yield unquote(password)
    for option in options.split("&"):
        name, _, password = option.partition("=")
        if password and "password" in name:
            yield password
            yield unquote_plus(password)
