"""Completes the arguments of tool calls from the request context (LOOP-11), so that models need not write ids of the
page.

Pure. `arguments_of` returns the completed arguments of a call; the approval, the hashes of gate and effect,
`tool_status` and the execution all use them. A valid value that the model has given is kept. If the context has no
value, or an invalid one, the argument stays as the model wrote it.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from threadcast.agent_loop.calls.hiding import written_arguments
from threadcast.chat.owner_state import OwnerState
from threadcast.profiles.context import context_of
from threadcast.tools.base import Tool, read_arguments
from threadcast.tools.traits import Binding
from threadcast_protocol.wire.messages import JsonObject, ToolCall

__all__ = ["arguments_of", "arguments_text", "bound"]

UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
"""The format 'uuid'."""

PATTERNS_KEPT = 256
"""The maximum number of compiled formats that are kept; a configuration has fewer formats."""


def arguments_of(state: OwnerState, call: ToolCall, tool: Tool | None, defaults: JsonObject) -> JsonObject | None:
    """Return the arguments of `call`, completed by the tool's bindings; None when they are not a JSON object (LOOP-7).
    `defaults` are the parameters of the chat's profile."""
    written = read_arguments(written_arguments(state, call))
    if written is None or tool is None or not tool.traits.bindings:
        return written
    return bound(written, tool.traits.bindings, context_of(state, defaults))


def arguments_text(state: OwnerState, call: ToolCall, tool: Tool | None, defaults: JsonObject) -> str:
    """Return the completed arguments as JSON text; the model's own text if the tool has no bindings."""
    if tool is None or not tool.traits.bindings:
        return written_arguments(state, call)
    completed = arguments_of(state, call, tool, defaults)
    return written_arguments(state, call) if completed is None else msgspec.json.encode(completed).decode()


def bound(arguments: JsonObject, bindings: Iterable[Binding], context: JsonObject) -> JsonObject:
    """Return `arguments` with each binding applied."""
    completed = dict(arguments)
    for binding in bindings:
        if not _fits(completed.get(binding.arg), binding.format):
            value = _at(context, binding.from_context)
            if _fits(value, binding.format):
                completed[binding.arg] = value
    return completed


def _fits(value: object, format: str) -> bool:
    """Return whether there is a value of this format. False and 0 are values."""
    if value is None or value in ("", [], {}):
        return False
    return not format or (isinstance(value, str | int | float) and _pattern(format).fullmatch(str(value)) is not None)


@lru_cache(PATTERNS_KEPT)
def _pattern(format: str) -> re.Pattern[str]:
    return re.compile(UUID if format == "uuid" else format)


def _at(context: JsonObject, path: str) -> object:
    """Return the value at a dotted path, or None."""
    value: object = context
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
