"""Fetches attachments that name an MCP resource or prompt, before their command is stored (ATT-3).

`{type: "mcp_resource", server, uri}` and `{type: "mcp_prompt", server, name, args}` are replaced by their content, so
that the inbox, the log and every reader have the content itself and never fetch it again. Fetched content is checked as
if a client had sent it. If one attachment cannot be fetched, the command is refused with the reason.
"""

from collections.abc import Collection
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from threadcast.api.ports import McpContents
from threadcast_protocol.wire.commands import Command, EditQueued, RetryFromIndex, UpdateMessage, UserMessage
from threadcast_protocol.wire.errors import InvalidContent, ToolFailed, explain
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["FETCHED_MAX_COUNT", "McpPromptAttachment", "McpResourceAttachment", "NotFetched", "resolved"]

FETCHED_MAX_COUNT = 10
"""Maximum number of fetched attachments of one message: for each of them the caller waits for a request to a foreign
server."""

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]


class NotFetched(InvalidContent):
    """An MCP server did not return the content of an attachment; the message says why."""


class McpResourceAttachment(msgspec.Struct, frozen=True, tag_field="type", tag="mcp_resource"):
    """A resource of an MCP server, attached by its URI."""

    server: Name
    uri: Annotated[str, Meta(min_length=1, max_length=2_048)]


class McpPromptAttachment(msgspec.Struct, frozen=True, tag_field="type", tag="mcp_prompt"):
    """A prompt of an MCP server, attached with its arguments."""

    server: Name
    name: Name
    args: dict[str, str] = {}


async def resolved(command: Command, mcp: McpContents, roles: Collection[str]) -> Command:
    """Return `command`, whose caller has `roles`, with its MCP attachments replaced by their content.

    Raises:
        InvalidContent: an attachment is malformed, or there are too many.
        NotFetched: the caller may not attach the content, or an MCP server did not return it.
    """
    if not isinstance(command, UserMessage | RetryFromIndex | UpdateMessage | EditQueued) or not command.attachments:
        return command
    foreign = [item for item in command.attachments if item.get("type") in ("mcp_resource", "mcp_prompt")]
    if not foreign:
        return command
    if len(foreign) > FETCHED_MAX_COUNT:
        raise InvalidContent(f"at most {FETCHED_MAX_COUNT} attachments from MCP servers are taken", path="/attachments")
    attachments: list[JsonObject] = []
    for index, item in enumerate(command.attachments):
        attachments += await _content(item, f"/attachments/{index}", mcp, roles) if item in foreign else [item]
    return msgspec.structs.replace(command, attachments=attachments)


async def _content(item: JsonObject, path: str, mcp: McpContents, roles: Collection[str]) -> list[JsonObject]:
    try:
        wanted: McpResourceAttachment | McpPromptAttachment = msgspec.convert(
            item, McpResourceAttachment | McpPromptAttachment
        )
    except msgspec.ValidationError as wrong:
        text, pointer = explain(wrong)
        raise InvalidContent(text, path=f"{path}{pointer or ''}") from None
    try:
        match wanted:
            case McpResourceAttachment():
                return await mcp.read_resource(wanted.server, wanted.uri, roles)
            case McpPromptAttachment():
                return await mcp.get_prompt(wanted.server, wanted.name, wanted.args, roles)
    except ToolFailed as failure:
        raise NotFetched(f"the attachment could not be fetched: {failure.message}", path=path) from failure
