"""Every decoder of values that a caller, a model or a tool may choose reads numbers in bounded time
(`threadcast_protocol/wire/decoders.py`)."""

import importlib
import pkgutil
from collections.abc import Iterator

import msgspec

import threadcast
import threadcast_protocol


def decoders() -> Iterator[tuple[str, "msgspec.json.Decoder[object]"]]:
    for package in (threadcast, threadcast_protocol):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if ".profiles.frameworks" in found.name or found.name.endswith("__main__"):
                continue
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                if isinstance(value, msgspec.json.Decoder):
                    yield f"{found.name}.{name}", value


def holds_any(kind: object) -> bool:
    """Return whether values of the type may have a part of any type."""
    seen: set[int] = set()

    def look(info: object) -> bool:
        if isinstance(info, msgspec.inspect.AnyType):
            return True
        if id(info) in seen or not isinstance(info, (msgspec.inspect.Type, msgspec.inspect.Field, tuple)):
            return False
        seen.add(id(info))
        parts = info if isinstance(info, tuple) else [getattr(info, name) for name in info.__struct_fields__]
        return any(look(part) for part in parts)

    return look(msgspec.inspect.type_info(kind))


def test_every_decoder_of_values_of_any_type_reads_numbers_in_bounded_time() -> None:
    slow = [name for name, each in decoders() if each.float_hook is None and holds_any(each.type)]
    assert slow == []
