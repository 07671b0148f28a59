"""The types of payloads, as configured."""

from server.agent.payload_types import PayloadType
from server.settings import Settings

__all__ = ["payload_types_of"]


def payload_types_of(settings: Settings) -> dict[str, PayloadType]:
    """By name. Raises ValueError: two of them have the same marker."""
    by_marker: dict[str, str] = {}
    for name, wanted in settings.payloads.items():
        if wanted.marker and (other := by_marker.setdefault(wanted.marker, name)) != name:
            raise ValueError(f"payloads.{name}.marker: payloads.{other} has the marker {wanted.marker} too")
    return {
        name: PayloadType(
            name=name,
            description=wanted.description,
            schema=wanted.schema,
            marker=wanted.marker,
            summary=wanted.summary,
        )
        for name, wanted in settings.payloads.items()
    }
