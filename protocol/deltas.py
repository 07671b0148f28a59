"""The operations of a `stream_delta` (PROTOCOL §6): how a message grows while a model speaks.

Text is never reordered and never repeated: the sum of the appends is the final raw text, byte for byte.
"""

from typing import TypeAlias

import msgspec

from protocol.messages import JsonObject, ToolCall, Usage

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
"""The most that one event may carry (PROTOCOL §6)."""


class _Op(msgspec.Struct, frozen=True, tag_field="op", omit_defaults=True):
    pass


class AppendContent(_Op, frozen=True, tag="append_content"):
    text: str


class AppendReasoning(_Op, frozen=True, tag="append_reasoning"):
    text: str


class SetReasoning(_Op, frozen=True, tag="set_reasoning"):
    text: str


class SetToolCalls(_Op, frozen=True, tag="set_tool_calls"):
    """Always the full merged list of the message's calls so far."""

    tool_calls: list[ToolCall]


class SetThinkingBlocks(_Op, frozen=True, tag="set_thinking_blocks"):
    blocks: list[JsonObject]


class AddCitation(_Op, frozen=True, tag="add_citation"):
    citation: JsonObject


class AddServerContentBlock(_Op, frozen=True, tag="add_server_content_block"):
    block: JsonObject


class SetUsage(_Op, frozen=True, tag="set_usage"):
    usage: Usage


class MergeExtra(_Op, frozen=True, tag="merge_extra"):
    """Shallow merge into the message's `extra`."""

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
