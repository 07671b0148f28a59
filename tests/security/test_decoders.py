"""Every decoder of values that a caller, a model or a tool may choose reads numbers in bounded time
(`threadcast_protocol/wire/decoders.py`)."""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

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


DECODED_WHOLE = {
    "actor/intake.py": "a principal of our own",
    "agents/acp/children.py": "a file of our own",
    "agents/langgraph/saver.py": "values that LangGraph's serializer has written",
    "api/inlining.py": "one field of an event",
    "compat/mcp/asking.py": "a state of our own, whose numbers have types",
    "providers/listed.py": "a list of models, whose entries are bounded, in a thread",
    "settings/shape.py": "a variable of the operator's environment",
}
"""The files of the server that may call `msgspec.json.decode`, which reads every number by msgspec's own way, and what
they decode. The console decodes in the user's own process."""


def test_texts_of_strangers_are_not_decoded_past_these_decoders() -> None:
    rooms = Path(threadcast.__file__).parent
    found = {
        str(path.relative_to(rooms))
        for path in rooms.rglob("*.py")
        if "msgspec.json.decode(" in path.read_text("utf-8") and "console" not in path.parts
    }
    assert found == DECODED_WHOLE.keys()
