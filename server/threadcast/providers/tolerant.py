"""Decodes the chunks of a model's stream. Valid chunks are decoded strictly and fast. From faulty chunks, a slower
decoder reads the valid parts.

`Decoder` decodes with msgspec. Only a chunk that msgspec refuses is repaired and read field by field: errors in unused
fields are ignored, and only the invalid parts of used fields are left out. `Mender` then joins halves of characters
that came with different chunks. The adapters call this module. Pure.
"""

from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Generic, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import replace

from threadcast.providers.base import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.mending import MENDED, mend, mend_text, read_mended

__all__ = ["Count", "Decoder", "Mender"]

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A count of tokens: not negative, and small enough for exact representation in every JSON reader (RFC 8259 §6)."""

_T = TypeVar("_T")


def _fitting(value: Any, kind: Any) -> Any:  # Any: JSON, and any type hint
    """Convert `value` to the type `kind`, without the fields and items that have another type. Numbers may be written
    as text.

    Raises:
        msgspec.ValidationError: no part of the value fits.
    """
    try:
        return msgspec.convert(value, kind, strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError) as wrong:
        refused = wrong
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        for one in arguments:
            try:
                return _fitting(value, one)
            except msgspec.ValidationError:
                continue
    elif origin is list and isinstance(value, list):
        return [each for item in value if (each := _or_nothing(item, arguments[0])) is not None]
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, dict):
        fields = msgspec.structs.fields(kind)
        fits = {each.name: _or_nothing(value.get(each.encode_name), each.type) for each in fields}
        if all(not field.required or fits.get(field.name) is not None for field in fields):
            return kind(**{name: inner for name, inner in fits.items() if inner is not None})
    raise msgspec.ValidationError(str(refused)) from None


def _or_nothing(value: Any, kind: Any) -> Any:  # Any: as above
    try:
        return _fitting(value, kind)
    except msgspec.ValidationError:
        return None


class Mender:
    """Joins the halves of characters that a stream split between two texts of one answer. The first half waits for the
    next piece of its text, its reasoning or its call's arguments. `is_needed` is True after the first chunk with
    faults; before that, deltas pass unchanged."""

    def __init__(self) -> None:
        self.is_needed = False
        self._held: dict[tuple[type, int], str] = {}

    def mend(self, deltas: list[Delta]) -> list[Delta]:
        """Return the next deltas."""
        if not self.is_needed:
            return deltas
        mended: list[Delta] = []
        for delta in deltas:
            match delta:
                case TextDelta() | ReasoningDelta():
                    if text := self._joined(type(delta), 0, delta.text):
                        mended.append(replace(delta, text=text))
                case ToolCallDelta():
                    arguments = self._joined(ToolCallDelta, delta.index, delta.arguments)
                    id, name = (word and mend_text(word) for word in (delta.id, delta.name))
                    mended.append(ToolCallDelta(delta.index, id, name, arguments))
                case _:
                    mended.append(msgspec.convert(mend(msgspec.to_builtins(delta)), type(delta)))
        return mended

    def end(self) -> list[Delta]:
        """Return the replacements for halves that still wait at the end of the stream."""
        held, self._held = self._held, {}
        return [
            ToolCallDelta(index, arguments=MENDED) if kind is ToolCallDelta else kind(MENDED) for kind, index in held
        ]

    def _joined(self, kind: type, index: int, text: str) -> str:
        if not text:
            return ""
        text = self._held.pop((kind, index), "") + text
        if "\ud800" <= text[-1] <= "\udbff":
            self._held[kind, index] = text[-1]
            text = text[:-1]
        return mend_text(text)


class Decoder(Generic[_T]):
    """Decodes one kind of chunk."""

    def __init__(self, kind: type[_T]) -> None:
        self._kind = kind
        self._decode: Callable[[bytes], _T] = decoder(kind).decode

    def decode(self, data: bytes, mender: Mender) -> _T:
        """Decode a chunk. Faults are reported to `mender`, which then repairs the deltas. The caller has checked the
        depth of `data` (`failures.checked`).

        Raises:
            ValueError: even without its invalid parts, `data` is not a chunk of this kind.
        """
        try:
            return self._decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            mender.is_needed = True
            found: _T = _fitting(read_mended(data), self._kind)
            return found
