"""A call of a coding agent, as the updates of its session describe it (ACP, "Tool Calls"). Pure."""

from typing import Any

import msgspec
from acp.schema import FileEditToolCallContent, ToolCallProgress, ToolCallStart, ToolCallUpdate

from threadcast_protocol.wire.messages import JsonObject

__all__ = ["INPUT_MAX_BYTES", "KINDS", "RESULT_MAX_CHARACTERS", "TITLE_MAX_CHARACTERS", "AgentCall"]

KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
"""The kinds of calls (ACP, `ToolKind`)."""

INPUT_MAX_BYTES = 65_536
"""Maximum bytes of a call's own input that people are shown; every snapshot contains this input."""

RESULT_MAX_CHARACTERS = 64_000
TITLE_MAX_CHARACTERS = 500
LOCATIONS_MAX = 50


class AgentCall:
    """A call of the agent, as updates have described it so far. `id` is the id of the call in the chat, "" until the
    call is shown."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.title = ""
        self.kind = "other"
        self.status = "pending"
        self.input: Any = None  # Any: JSON
        self.output: Any = None  # Any: JSON
        self.locations: list[str] = []
        self.content: list[Any] = []  # Any: the three kinds of content of a call
        self.id = ""
        self.shown: JsonObject = {}
        self.shown_kind = ""
        self.content_bytes = 0
        self.is_begun = False
        self.is_reported = False

    def take(self, update: ToolCallStart | ToolCallProgress | ToolCallUpdate) -> None:
        self.title = update.title[:TITLE_MAX_CHARACTERS] if update.title is not None else self.title
        self.kind = update.kind or self.kind
        self.status = update.status or self.status
        if update.raw_input is not None:
            self.input = _shortened(update.raw_input, INPUT_MAX_BYTES)
        if update.raw_output is not None:
            self.output = _shortened(update.raw_output, RESULT_MAX_CHARACTERS)
        if update.locations is not None:
            self.locations = [_location(each.path, each.line) for each in update.locations[:LOCATIONS_MAX]]
        if update.content is not None:
            self.content = list(update.content)
            self.content_bytes = sum(len(each.model_dump_json()) for each in self.content)

    def forget(self) -> None:
        """Drop the data that is no longer needed once the call's result has been shown."""
        self.input = self.output = None
        self.content, self.content_bytes = [], 0

    @property
    def is_changed(self) -> bool:
        """Whether the call differs from the call that people were shown."""
        return self.shown != self.arguments() or self.shown_kind != self.kind

    @property
    def is_described(self) -> bool:
        """Whether the call's effect can be described to people; many agents begin a call before its input is known."""
        return self.input is not None or self.status != "pending"

    def arguments(self) -> JsonObject:
        found: JsonObject = {"title": self.title}
        if self.locations:
            found["locations"] = self.locations
        if self.input is not None:
            found["input"] = self.input
        return found

    def changes(self) -> list[FileEditToolCallContent]:
        return [each for each in self.content if isinstance(each, FileEditToolCallContent)]


def _shortened(value: Any, max_bytes: int) -> Any:  # Any: JSON of the agent
    """Return a JSON value, or the beginning of its text if the text is longer than `max_bytes`."""
    encoded = msgspec.json.encode(value)
    return value if len(encoded) <= max_bytes else f"{encoded[:max_bytes].decode(errors='ignore')} …"


def _location(path: str, line: int | None) -> str:
    return f"{path[:TITLE_MAX_CHARACTERS]}{'' if line is None else f':{line}'}"
