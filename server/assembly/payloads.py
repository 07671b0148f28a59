"""The payload types that profiles can name: the operator's table and those of the file of tools.

Checked here, when the server starts: a type that could never be recognised, or that another one would be taken for,
stops the start with a sentence that names it.
"""

from types import ModuleType

from server.agent.payload_types import PayloadType, check_type
from server.settings import Settings

__all__ = ["payload_types_of"]


def payload_types_of(settings: Settings, app: ModuleType | None = None) -> dict[str, PayloadType]:
    """By name; the operator's table says the last word on a type that the file has too.

    Raises:
        ValueError: a marker, schema or summary that cannot be, or two types with one marker or name.
    """
    types: dict[str, PayloadType] = {}
    for value in vars(app).values() if app is not None else ():
        if isinstance(value, PayloadType) and types.setdefault(value.name, value) is not value:
            raise ValueError(f"two payload types are called {value.name!r}; give each a name of its own")
    for name, said in settings.payloads.items():
        types[name] = PayloadType(
            name=name, description=said.description, schema=said.schema, marker=said.marker, summary=said.summary
        )
    markers: dict[str, str] = {}
    for name, kind in types.items():
        try:
            check_type(kind)
        except ValueError as wrong:
            raise ValueError(f"payloads.{name}.{wrong}") from None
        other = markers.setdefault(kind.marker, name) if kind.marker else name
        if other != name:
            raise ValueError(f"payloads.{name}.marker: {kind.marker} is the marker of {other} already")
    return types
