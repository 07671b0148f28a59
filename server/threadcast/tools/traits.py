"""Defines the traits of a tool: its scopes and roles, the visibility of its results, and the completion of its
arguments.

A tool's author sets traits (`@tool(traits=Traits(...))`), and the operator's settings override them field by field.
Models and MCP servers cannot set traits.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from threadcast.chat.scopes import Scope
from threadcast.settings.agent import Binding
from threadcast.tools.context import ToolContext
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "NO_TRAITS",
    "Binding",
    "Resolver",
    "Summarizer",
    "Traits",
    "Visibility",
    "schema_of",
]

Visibility: TypeAlias = Literal["full", "summary", "hidden"]
"""The visibility of a result to clients. The model reads the whole result, or the shorter text that `summarize` makes
(EVT-10)."""

Summarizer: TypeAlias = Callable[[str], str] | tuple[str, ...] | Literal["first_sentence"]
"""How results are shortened for the model: a function shortens the text, or the named JSON fields or the first sentence
are kept (TOOL-8)."""

Resolver: TypeAlias = Callable[[str, ToolContext], Awaitable[str]]
"""Resolves a name written by a model to the id that the tool needs (TOOL-9). Raises ToolFailed for an unknown name."""


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """Empty `scopes` offer the tool everywhere, and an empty `required_role` offers it to all callers. `payload_type`
    is the type of the tool's previews; `commit_tool` runs when a preview is accepted (GATE-5). A commit tool may
    declare the type and the schema of its previews in `preview_type` and `preview_schema` (JSON Schema of an object,
    see `schema_of`); the tools of these previews then need no `payload_type`. The tool of a preview may declare the
    schema as well. `forward_auth`: the tool may read the caller's `Authorization` value (TOOL-7). `untrusted`: the
    results may contain words of strangers, such as web pages. `sensitive`: once content of an untrusted tool is in the
    chat, each call needs a person's approval (PROTOCOL §11). `approver`: with `another`, the caller who accepts a call
    must not be the caller who requested it."""

    scopes: tuple[Scope, ...] = ()
    required_role: str = ""
    payload_type: str = ""
    commit_tool: str = ""
    preview_type: str = ""
    preview_schema: JsonObject = {}
    visibility: Visibility = "full"
    summarize: Summarizer | None = None
    bindings: tuple[Binding, ...] = ()
    resolvers: Mapping[str, Resolver] = MappingProxyType({})
    forward_auth: bool = False
    untrusted: bool = False
    sensitive: bool = False
    approver: Literal["any", "another"] = "any"


NO_TRAITS = Traits()


def schema_of(model: type[msgspec.Struct]) -> JsonObject:
    """Return the JSON Schema (2020-12) of a struct, with the object itself at the top."""
    schema = msgspec.json.schema(model)
    definitions: JsonObject = schema.get("$defs", {})
    top: JsonObject = definitions[schema["$ref"].rpartition("/")[2]]
    return {**top, "$defs": definitions}
