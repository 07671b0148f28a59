"""Compares tools with the permissions that people gave for them (PROTOCOL §11).

A permission keeps a digest of the name, description and input schema of each tool that it covers. A tool whose digest
has changed, or a tool that was added later, needs a new decision. The question to a person then shows the difference.
The functions are pure.
"""

import msgspec

from threadcast.chat.digests import digest
from threadcast.chat.owner_state import KeptDefinition, OwnerState
from threadcast.profiles.profile import ChatTools
from threadcast.tools.base import Tool
from threadcast_protocol.wire.events import ToolChange, ToolDefinition
from threadcast_protocol.wire.tool_names import all_of_server, mcp_server_of

__all__ = ["digest_of", "permission_of", "rule_of", "shown_with"]

DEFINITION_MAX_BYTES = 16_384
"""The maximum size, as JSON, of a tool definition that a chat keeps and a question shows. Most definitions have less
than 2 kB. Only the digest of a longer definition is kept."""

DEFINITIONS_MAX_BYTES = 65_536
"""The maximum total size of the definitions that a permission keeps. The size is limited because every checkpoint of
the chat contains these definitions. Shorter definitions are kept first, so that a long definition does not displace
shorter definitions."""

_RULES = {
    "changed": "the tool has changed since it was always allowed",
    "new": "the tool appeared after all tools of its server were allowed",
    "unrecorded": "the tool was always allowed by an earlier version, which did not record its definition",
}

_canonical = msgspec.json.Encoder(order="sorted")


def permission_of(state: OwnerState, tool: Tool) -> tuple[bool, ToolChange | None]:
    """Return whether a permission covers the present definition of `tool`, and a `ToolChange`. The change says why an
    existing permission does not cover `tool`. It is None if `tool` is covered or if there is no permission.

    A permission that was given to an older version has no definitions. Such a permission covers the operator's own
    tools. It does not cover tools of an MCP server, because the operator does not write the definitions of these tools.
    """
    private = state.private
    change: ToolChange | None = None
    for name in dict.fromkeys((tool.name, all_of_server(tool.name))):
        if name not in private.allowed_tools:
            continue
        kept = private.allowed_definitions.get(name)
        before = None if kept is None else kept.get(tool.name)
        if before is not None and before.digest == digest_of(tool):
            return True, None
        if kept is None and mcp_server_of(tool.name) is None:
            return True, None
        kind = "unrecorded" if kept is None else "new" if before is None else "changed"
        if change is None or kind == "changed":
            change = ToolChange(
                kind=kind, before=None if before is None else before.definition, now=_kept(tool).definition
            )
    return False, change


def rule_of(change: ToolChange | None) -> str:
    """Return the text for the field `rule` of a question."""
    return "policy: ask" if change is None else _RULES[change.kind]


def shown_with(state: OwnerState, name: str, table: ChatTools) -> tuple[str, dict[str, KeptDefinition]] | None:
    """Return the widest name that a permission for the tool `name` may have, and the tool definitions that this
    permission covers. For a tool of an MCP server, these are the definitions of all tools of the same server. For any
    other tool, it is the tool's own definition. Returns None if the state already has the same definitions."""
    widest = all_of_server(name)
    kept = {tool.name: _kept(tool) for tool in table.all if all_of_server(tool.name) == widest}
    left = DEFINITIONS_MAX_BYTES
    for other, each in sorted(kept.items(), key=lambda item: (item[0] != name, len(_canonical.encode(item[1])))):
        left -= len(_canonical.encode(each))
        if left < 0:
            kept[other] = KeptDefinition(each.digest)
    return None if state.private.shown_definitions.get(widest) == kept else (widest, kept)


def digest_of(tool: Tool) -> str:
    """Return the digest of a tool's name, description and input schema."""
    return digest([tool.name, tool.description, tool.input_schema])


def _kept(tool: Tool) -> KeptDefinition:
    definition = ToolDefinition(description=tool.description, input_schema=tool.input_schema)
    is_short = len(_canonical.encode(definition)) <= DEFINITION_MAX_BYTES
    return KeptDefinition(digest_of(tool), definition if is_short else None)
