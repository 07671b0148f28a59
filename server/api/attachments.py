"""Attachments that stand elsewhere, fetched before their command is kept: MCP resources and prompts (ATT-3).

`{type: "mcp_resource", server, uri}` and `{type: "mcp_prompt", server, name, args}` are replaced by what they hold, so
that the inbox, the log and every reader have the content itself and never ask again. What came is checked as if a
client had sent it. The one rule: all of them are there, or the command is refused with the reason.
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from protocol.commands import Command, EditQueued, RetryFromIndex, UpdateMessage, UserMessage
from protocol.errors import InvalidContent, ToolFailed, explain
from protocol.messages import JsonObject
from server.tools.mcp.hub import McpHub

__all__ = ["FETCHED_MAX_COUNT", "NotFetched", "resolved"]

FETCHED_MAX_COUNT = 10
"""Of one message: each is a question to a foreign server that somebody waits for."""

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]


class NotFetched(InvalidContent):
    """A server did not give what the attachment names; the sentence says why."""


class _Resource(msgspec.Struct, frozen=True, tag_field="type", tag="mcp_resource"):
    server: Name
    uri: Annotated[str, Meta(min_length=1, max_length=2_048)]


class _Prompt(msgspec.Struct, frozen=True, tag_field="type", tag="mcp_prompt"):
    server: Name
    name: Name
    args: dict[str, str] = {}


async def resolved(command: Command, mcp: McpHub) -> Command:
    """`command` with the content of its attachments in their place.

    Raises:
        InvalidContent: malformed, or too many.
        NotFetched: a server did not give it.
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
        attachments += await _content(item, f"/attachments/{index}", mcp) if item in foreign else [item]
    return msgspec.structs.replace(command, attachments=attachments)


async def _content(item: JsonObject, path: str, mcp: McpHub) -> list[JsonObject]:
    try:
        wanted: _Resource | _Prompt = msgspec.convert(item, _Resource | _Prompt)
    except msgspec.ValidationError as wrong:
        text, place = explain(wrong)
        raise InvalidContent(text, path=f"{path}{place or ''}") from None
    try:
        match wanted:
            case _Resource():
                return await mcp.read_resource(wanted.server, wanted.uri)
            case _Prompt():
                return await mcp.get_prompt(wanted.server, wanted.name, wanted.args)
    except ToolFailed as failure:
        raise NotFetched(f"the attachment could not be fetched: {failure.message}", path=path) from failure
