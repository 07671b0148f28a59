"""What else is said of a tool: where it is offered and to whom, what clients see of its result, how its arguments are
completed. Data only; the rooms that act on a trait are named beside it.

A tool's author may say it (`@tool(traits=Traits(...))`), the operator's table overrides it field by field. Neither a
model nor an MCP server has a word in this.
"""

import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from protocol.messages import JsonObject

if TYPE_CHECKING:
    from server.tools.base import ToolContext

__all__ = [
    "NO_TRAITS",
    "SCOPE_MAX_DEPTH",
    "SCOPE_NAME_MAX_CHARACTERS",
    "Binding",
    "Resolver",
    "Scope",
    "Summarizer",
    "Traits",
    "Visibility",
    "schema_of",
    "scope_at",
]

Scope: TypeAlias = tuple[str, ...]
"""A place inside a profile: 0 to 3 names, from the outside in."""

SCOPE_MAX_DEPTH = 3
"""A page, a tab and a part of it (PROTOCOL §16)."""

SCOPE_NAME_MAX_CHARACTERS = 64

Visibility: TypeAlias = Literal["full", "summary", "hidden"]
"""What clients see of a result; the model reads it in full, or what `summarize` leaves (EVT-10)."""

Summarizer: TypeAlias = Callable[[str], str] | tuple[str, ...] | Literal["first_sentence"]
"""A function of the text, the names of JSON fields to keep, or the first sentence (TOOL-8)."""

Resolver: TypeAlias = "Callable[[str, ToolContext], Awaitable[str]]"
"""From a name that a model wrote to the id that the tool takes (TOOL-9). Raises ToolFailed: there is none."""


class Binding(msgspec.Struct, frozen=True):
    """Fill `arg` from the request context's key `from_context` when it is missing, empty or does not match `format`, a
    regular expression for the whole value or 'uuid' (LOOP-11)."""

    arg: str
    from_context: str
    format: str = ""


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """`scopes` empty: offered everywhere. `required_role` '': to everybody. `payload_type` is what a preview is
    published as; `commit_tool` runs when it is accepted (GATE-5). A tool that is run as a commit tool may say in
    `preview_type` and `preview_schema` (JSON Schema of an object, see `schema_of`) what the previews show that lead to
    it; their tools then need no `payload_type`. A preview's own tool may say the schema as well. `forward_auth`: it may
    ask for the caller's `Authorization` value (TOOL-7)."""

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


NO_TRAITS = Traits()


def schema_of(model: type[msgspec.Struct]) -> JsonObject:
    """Return the JSON Schema (2020-12) of a struct, with the object itself at the top."""
    schema = msgspec.json.schema(model)
    definitions: JsonObject = schema.get("$defs", {})
    top: JsonObject = definitions[schema["$ref"].rpartition("/")[2]]
    return {**top, "$defs": definitions}


def scope_at(path: str) -> Scope:
    """Return the scope that a page or an operator calls `path`: names with / between, such as "/Drug search/Results".

    Empty names are left out. In each name white space and characters that cannot be printed become one _, and what is
    beyond `SCOPE_NAME_MAX_CHARACTERS` is cut, so that both sides mean the same place by the same words. More than
    `SCOPE_MAX_DEPTH` names are cut, too.
    """
    names = (_place_name(part) for part in path.split("/"))
    return tuple(name for name in names if name)[:SCOPE_MAX_DEPTH]


def _place_name(text: str) -> str:
    words = "".join(letter if letter.isprintable() else " " for letter in unicodedata.normalize("NFC", text)).split()
    return "_".join(words)[:SCOPE_NAME_MAX_CHARACTERS]
