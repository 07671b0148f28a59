"""What assistants can show besides text: the types of payloads."""

from typing import Annotated, Any

from msgspec import Meta

from server.settings.values import Section

__all__ = ["Payload"]


class Payload(Section, frozen=True):
    """A type of payload. Profiles and scopes name the ones that hold there in their `payloads`."""

    description: str = ""
    """For the model: what it is, and when to show it."""

    schema: dict[str, Any] = {}  # Any: JSON Schema, checked when the server starts
    """JSON Schema (2020-12) of its data, an object; of a preview: of its `object`. Unset: anything goes."""

    marker: Annotated[str, Meta(pattern=r"^([A-Z][A-Z0-9_]{0,63})?$")] = ""
    """The word before it in a model's text, such as CHART; empty: only tools make it."""

    summary: str = ""
    """A line about one, over the fields of its data: "{title}: {count} rows"."""

    def __post_init__(self) -> None:
        if self.marker in ("SUGGESTED_VALUES", "SUGGESTED_ACTIONS"):
            raise ValueError(f"marker: {self.marker} has a meaning of its own; choose another word")
