"""The operations of a `stream_delta` (PROTOCOL §6): how a message grows while a model writes it.

Text is never reordered or repeated: all appended texts, joined in their order, are the final raw text.
"""

from typing import TypeAlias

import msgspec

from threadcast_protocol.wire.messages import JsonObject, ToolCall, Usage

__all__ = [
    "OPS_MAX_COUNT",
    "OPS_MAX_TEXT_BYTES",
    "AddCitation",
    "AddServerContentBlock",
    "AppendContent",
    "AppendReasoning",
    "DeltaOp",
    "MergeExtra",
    "SetReasoning",
    "SetThinkingBlocks",
    "SetToolCalls",
    "SetUsage",
]

OPS_MAX_COUNT = 128
OPS_MAX_TEXT_BYTES = 65_536
"""The maximum operations of one event, and the maximum UTF-8 bytes of their text (PROTOCOL §6)."""


class _Op(msgspec.Struct, frozen=True, tag_field="op", omit_defaults=True):
    """One change of the message that a model is writing."""


class AppendContent(_Op, frozen=True, tag="append_content"):
    """Appends `text` to the content."""

    text: str


class AppendReasoning(_Op, frozen=True, tag="append_reasoning"):
    """Appends `text` to the reasoning."""

    text: str


class SetReasoning(_Op, frozen=True, tag="set_reasoning"):
    """Replaces the reasoning by `text`."""

    text: str


class SetToolCalls(_Op, frozen=True, tag="set_tool_calls"):
    """Replaces the message's tool calls by the complete list of its calls so far."""

    tool_calls: list[ToolCall]


class SetThinkingBlocks(_Op, frozen=True, tag="set_thinking_blocks"):
    """Replaces the thinking blocks."""

    blocks: list[JsonObject]


class AddCitation(_Op, frozen=True, tag="add_citation"):
    """Appends a citation."""

    citation: JsonObject


class AddServerContentBlock(_Op, frozen=True, tag="add_server_content_block"):
    """Appends a block of content that the provider made itself."""

    block: JsonObject


class SetUsage(_Op, frozen=True, tag="set_usage"):
    """Replaces the token counts."""

    usage: Usage


class MergeExtra(_Op, frozen=True, tag="merge_extra"):
    """Merges `extra` into the message's `extra`: each top-level key replaces the old one."""

    extra: JsonObject


DeltaOp: TypeAlias = (
    AppendContent
    | AppendReasoning
    | SetReasoning
    | SetToolCalls
    | SetThinkingBlocks
    | AddCitation
    | AddServerContentBlock
    | SetUsage
    | MergeExtra
)
