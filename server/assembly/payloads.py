"""The payload types that profiles can name: the operator's table and those of the file of tools.

Checked here, when the server starts: a type that could never be recognised, or that another one would be taken for,
stops the start with a sentence that names it.
"""

from collections.abc import Sequence

from server.agent.place.payload_types import PayloadType, check_type
from server.settings import Settings

__all__ = ["payload_types_of"]


def payload_types_of(settings: Settings, own: Sequence[PayloadType] = ()) -> dict[str, PayloadType]:
    """By name; `own` are those of the operator's file, over which the table has the last word.

    Raises:
        ValueError: a marker, schema or summary that cannot be, or two types with one marker or name.
    """
    types: dict[str, PayloadType] = {}
    for kind in own:
        if types.setdefault(kind.name, kind) is not kind:
            raise ValueError(f"two payload types are called {kind.name!r}; give each a name of its own")
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
        if kind.marker and (other := markers.setdefault(kind.marker, name)) != name:
            raise ValueError(f"payloads.{name}.marker: payloads.{other} has the marker {kind.marker} too")
    return types
