"""Arguments that the caller's context completes (LOOP-11): the page's ids go into a call without the model naming them.

Pure. `arguments_of` is what a call means before anything looks at it, so the question to a person, the hashes of gate
and effect, `tool_status` and the execution all speak of the same input. The one rule: a value of the model's that fits
is kept; what the context does not say, or says in the wrong form, is left as the model wrote it.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from protocol.messages import JsonObject, ToolCall
from protocol.state import ChatState
from server.agent.calls.hiding import written_arguments
from server.agent.place.context import context_of
from server.tools.base import Tool, read_arguments
from server.tools.traits import Binding

__all__ = ["arguments_of", "arguments_text", "bound"]

UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
"""The format 'uuid'."""

PATTERNS_KEPT = 256
"""Compiled formats; there are as many as the configuration has."""


def arguments_of(state: ChatState, call: ToolCall, tool: Tool | None, defaults: JsonObject) -> JsonObject | None:
    """The arguments of `call`, completed by the tool's bindings; None when they are not a JSON object (LOOP-7).
    `defaults` are the parameters of the chat's profile."""
    written = read_arguments(written_arguments(state, call))
    if written is None or tool is None or not tool.traits.bindings:
        return written
    return bound(written, tool.traits.bindings, context_of(state, defaults))


def arguments_text(state: ChatState, call: ToolCall, tool: Tool | None, defaults: JsonObject) -> str:
    """The same as JSON text; what the model wrote, to the letter, when nothing is to be completed."""
    if tool is None or not tool.traits.bindings:
        return written_arguments(state, call)
    completed = arguments_of(state, call, tool, defaults)
    return written_arguments(state, call) if completed is None else msgspec.json.encode(completed).decode()


def bound(arguments: JsonObject, bindings: Iterable[Binding], context: JsonObject) -> JsonObject:
    """`arguments` with each binding applied."""
    completed = dict(arguments)
    for binding in bindings:
        if not _fits(completed.get(binding.arg), binding.format):
            value = _at(context, binding.from_context)
            if _fits(value, binding.format):
                completed[binding.arg] = value
    return completed


def _fits(value: object, format: str) -> bool:
    """Is there a value, and does it have the form that is asked for? False and 0 are values."""
    if value is None or value in ("", [], {}):
        return False
    return not format or (isinstance(value, str | int | float) and _pattern(format).fullmatch(str(value)) is not None)


@lru_cache(PATTERNS_KEPT)
def _pattern(format: str) -> re.Pattern[str]:
    return re.compile(UUID if format == "uuid" else format)


def _at(context: JsonObject, path: str) -> object:
    """What stands at a dotted path, or None."""
    value: object = context
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
