"""Random secrets, one for each thing that a principal can own, and the search for them in bytes."""

import base64
import re
from collections.abc import Iterator, Mapping
from random import Random
from urllib.parse import unquote_to_bytes

from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Canaries", "strings_of"]

LEARNT_MIN_CHARACTERS = 16
"""Shorter ids of the server are not secrets: ids such as `call_0_0` of the demo models are the same in all chats."""

_ESCAPE = re.compile(rb"\\u([0-9a-fA-F]{4})")


class Canaries:
    """Makes secrets and finds them. Other principals may learn an id, for instance from an address, but never
    content."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._label_of: dict[str, str] = {}
        self._ids: set[str] = set()
        self._pattern: re.Pattern[bytes] | None = None

    def content(self, label: str) -> str:
        """Return a new secret of 24 hexadecimal digits for content, which no other principal may ever see."""
        made = f"zq{self._random.getrandbits(88):022x}"
        self._add(made, label)
        return made

    def id(self, label: str) -> str:
        """Return a new secret that is a valid id, and that others may learn."""
        made = self.content(label)
        self._ids.add(made)
        return made

    def learn_id(self, value: str, label: str) -> None:
        """Treat an id that the server made, such as the id of a message or a run, as a secret."""
        if len(value) >= LEARNT_MIN_CHARACTERS and value not in self._label_of:
            self._add(value, label)
            self._ids.add(value)

    @property
    def labels(self) -> dict[str, str]:
        """Return all secrets, each with the name of its object."""
        return dict(self._label_of)

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self._ids)

    @property
    def contents(self) -> frozenset[str]:
        return frozenset(self._label_of.keys() - self._ids)

    def found(self, data: bytes) -> set[str]:
        """Return the secrets in `data`. The search finds secrets in any case, percent-encoded, with JSON escapes, in
        hexadecimal, and in Base64 at any of its three offsets."""
        if self._pattern is None:
            self._forms = {form: value for value in self._label_of for form in _forms(value)}
            self._pattern = re.compile(b"|".join(re.escape(form) for form in self._forms), re.IGNORECASE)
            self._folded = {form.lower(): value for form, value in self._forms.items()}
        plain = _ESCAPE.sub(lambda found: chr(int(found[1], 16)).encode("utf-8", "replace"), data)
        looked_at = {data, plain, unquote_to_bytes(data)}
        return {self._folded[hit.lower()] for each in looked_at for hit in self._pattern.findall(each)}

    def _add(self, value: str, label: str) -> None:
        self._label_of[value] = label
        self._pattern = None


def _forms(value: str) -> Iterator[bytes]:
    data = value.encode()
    yield data
    yield data.hex().encode()
    for offset in range(3):
        whole = base64.b64encode(b"\0" * offset + data)
        yield whole[4 if offset else 0 : -4]  # the characters at both ends depend on the neighbouring bytes


def strings_of(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield all strings of a JSON value, each with the key of its value."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        each: JsonObject = dict(value)
        for name, inner in each.items():
            yield from strings_of(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_of(inner, key)
