"""Encodes the results of operations as JSON text, and decodes them to their original types. Pure."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, get_type_hints
from weakref import WeakKeyDictionary

import msgspec

from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.mending import mended_json

__all__ = ["decoded", "encoded", "return_type"]


def encoded(value: object) -> str:
    """Return a value as JSON text. Objects with a method `model_dump`, such as pydantic's models, are encoded by that
    method.

    Raises:
        TypeError, ValueError: JSON cannot express the value.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_plain).decode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON cannot hold
        return mended_json(msgspec.to_builtins(value, enc_hook=_plain)).decode()


def decoded(text: str, wanted: Any) -> Any:  # Any: a type hint, and a value of that type
    """Return the value of JSON text as the type `wanted`.

    Raises:
        msgspec.ValidationError: the text does not fit the type, for instance after a change of the code.
    """
    return decoder(wanted, dec_hook=_of_type).decode(text)


_return_types: WeakKeyDictionary[Callable[..., Any], Any] = WeakKeyDictionary()
"""The return types of functions with annotations, cached because reading them would be a third of a replay's cost."""


def return_type(function: Callable[..., Any]) -> Any:  # Any: a type hint
    """Return the annotated return type of `function`; Any if `function` has no annotation, or one to which JSON cannot
    be decoded."""
    plain: Callable[..., Any] = inspect.unwrap(getattr(function, "__func__", function))
    if not getattr(plain, "__annotations__", None):
        return Any
    try:
        return _return_types[plain]
    except (KeyError, TypeError):  # a new function, or an object that cannot be a key
        hint = _read_return_type(plain)
    with suppress(TypeError):
        _return_types[plain] = hint
    return hint


def _read_return_type(function: Callable[..., Any]) -> Any:
    try:
        hint = get_type_hints(function).get("return", Any)
    except (NameError, TypeError):
        return Any
    return Any if hint is object else hint


def _plain(value: Any) -> Any:
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    raise TypeError(f"JSON cannot express a {type(value).__name__}")


def _of_type(wanted: type, value: Any) -> Any:
    if callable(validate := getattr(wanted, "model_validate", None)):
        return validate(value)
    raise TypeError(f"a step cannot return {wanted.__name__}: JSON cannot be decoded to it")
