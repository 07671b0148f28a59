"""Decides which resources and prompts of an MCP server a caller may list and attach (MCP-3, MCP-4, SEC-6).

Resources and prompts are fetched without approval, so the policy of the server's tools does not protect them. The
operator allows resources and prompts for each server. If callers have tokens, none are allowed by default.
"""

import unicodedata
from collections.abc import Collection
from typing import Literal, TypeAlias

from threadcast.settings.mcp import Mcp
from threadcast_protocol.wire.errors import ToolFailed

__all__ = ["Kind", "check_characters", "has_control_characters", "may_list"]

Kind: TypeAlias = Literal["resources", "prompts"]

_CONTROLS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of control characters, of invisible characters that change the order of the text around them, of
surrogates, and of line ends. A server may cut a name at such a character; a page would then show a name other than the
fetched name."""


def may_list(server: Mcp, kind: Kind, roles: Collection[str], *, has_tokens: bool) -> bool:
    """Return whether a caller with these roles may list and attach the server's resources or prompts."""
    if server.attachable(kind, has_tokens=has_tokens) == "off":
        return False
    return not server.attach_role or server.attach_role in roles


def has_control_characters(text: str) -> bool:
    return any(unicodedata.category(character) in _CONTROLS for character in text)


def check_characters(kind: Kind, text: str) -> None:
    """Raise ToolFailed if the URI of a resource or the name of a prompt has control characters."""
    if has_control_characters(text):
        raise ToolFailed(f"the name {text!r} in {kind} has control characters, which no name may have")
