"""Builds the payload types that profiles can name, from the settings and from the file of tools.

The types are checked when the server starts. If a type can never be recognised, or has the same marker as another type,
the start fails with an error that names the type.
"""

from collections.abc import Sequence

from msgspec.structs import asdict

from threadcast.profiles.payload_types import PayloadType, check_type
from threadcast.settings import Settings

__all__ = ["payload_types_of"]


def payload_types_of(settings: Settings, own: Sequence[PayloadType] = ()) -> dict[str, PayloadType]:
    """Return the payload types by name. `own` are the types of the operator's file; settings of the same name override
    them.

    Raises:
        ValueError: a marker, schema or summary is wrong, or two types have the same marker or name.
    """
    types: dict[str, PayloadType] = {}
    for kind in own:
        if types.setdefault(kind.name, kind) is not kind:
            raise ValueError(f"two payload types are called {kind.name!r}; give each a name of its own")
    for name, said in settings.payloads.items():
        types[name] = PayloadType(name=name, **asdict(said))
    markers: dict[str, str] = {}
    for name, kind in types.items():
        try:
            check_type(kind)
        except ValueError as wrong:
            raise ValueError(f"payloads.{name}.{wrong}") from None
        if kind.marker and (other := markers.setdefault(kind.marker, name)) != name:
            raise ValueError(f"payloads.{name}.marker: payloads.{other} has the marker {kind.marker} too")
    return types
