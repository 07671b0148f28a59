"""Completes the arguments of tool calls from the request context (LOOP-11), so that a model need not write ids that the
context contains.

The functions are pure. `arguments_of` returns the completed arguments of a call. The approval, the hashes of gates and
effects, `tool_status` and the execution all use the completed arguments. A valid value that the model wrote is kept. If
the context has no valid value either, the argument stays as the model wrote it.
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
"""The pattern of the binding format `uuid`."""

PATTERNS_KEPT = 256
"""The maximum number of compiled formats in the cache. A configuration has fewer formats."""


def arguments_of(state: OwnerState, call: ToolCall, tool: Tool | None, defaults: JsonObject) -> JsonObject | None:
    """Return the arguments of `call`, completed by the tool's bindings, or None when the arguments are not a JSON
    object (LOOP-7). `defaults` are the parameters of the chat's profile."""
    written = read_arguments(written_arguments(state, call))
    if written is None or tool is None or not tool.traits.bindings:
        return written
    return bound(written, tool.traits.bindings, context_of(state, defaults))


def arguments_text(state: OwnerState, call: ToolCall, tool: Tool | None, defaults: JsonObject) -> str:
    """Return the completed arguments of `call` as JSON text. Returns the model's own text if the tool has no bindings,
    or if the text is not a JSON object."""
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
    """Return whether `value` is present and has this format. False and 0 count as present; None and empty values do
    not."""
    if value is None or value in ("", [], {}):
        return False
    return not format or (isinstance(value, str | int | float) and _pattern(format).fullmatch(str(value)) is not None)


@lru_cache(PATTERNS_KEPT)
def _pattern(format: str) -> re.Pattern[str]:
    return re.compile(UUID if format == "uuid" else format)


def _at(context: JsonObject, path: str) -> object:
    """Return the value of `context` at a dotted path, or None if the path does not exist."""
    value: object = context
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
