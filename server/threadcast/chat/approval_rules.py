"""Defines the operator's rules about approvals. The rules apply to all chats of the server (PROTOCOL §11)."""

import msgspec

from threadcast_protocol.wire.tool_names import covers, mcp_server_of

__all__ = ["ApprovalRules"]


class ApprovalRules(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's rules about approvals. With `requires_input_hash`, a decision that accepts a call or a preview
    must contain the hash of the arguments that the user was shown. `untrusted` has the names of the tools whose content
    is untrusted. In `untrusted`, `mcp__NAME__*` means an MCP server with its tools, resources and prompts."""

    requires_input_hash: bool = False
    untrusted: frozenset[str] = frozenset()

    def is_untrusted(self, tool_name: str) -> bool:
        """Return whether the results of a tool are untrusted content."""
        return covers(self.untrusted, tool_name)

    @property
    def untrusted_servers(self) -> dict[str, str]:
        """The wildcards in `untrusted`, by the name of their MCP server."""
        wildcards = sorted(name for name in self.untrusted if name.endswith("__*"))
        return {server: name for name in wildcards if (server := mcp_server_of(name)) is not None}
