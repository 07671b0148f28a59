"""The settings of payload types: structured data that assistants can show besides text."""

from typing import Annotated, Any

from msgspec import Meta

from threadcast.settings.values import Section

__all__ = ["Payload"]


class Payload(Section, frozen=True):
    """A type of payload. Profiles and scopes list the types that they can show in `payloads`."""

    description: str = ""
    """The description for the model: what the data is, and when to show it."""

    schema: dict[str, Any] = {}  # Any: JSON Schema, checked when the server starts
    """The JSON Schema (2020-12) of the data, which must be an object; for a preview, the schema of the preview's
    `object`. Unset: all data is valid."""

    marker: Annotated[str, Meta(pattern=r"^([A-Z][A-Z0-9_]{0,63})?$")] = ""
    """The word before the data in a model's text, such as CHART. Empty: only tools can make this type."""

    summary: str = ""
    """A template of the summary line, with the fields of the data: "{title}: {count} rows"."""

    def __post_init__(self) -> None:
        if self.marker in ("SUGGESTED_VALUES", "SUGGESTED_ACTIONS"):
            raise ValueError(f"marker: {self.marker} is the server's own; choose another word")
