"""Keeps the memory of a chat's tools: small JSON values by key, some of which expire.

The functions are pure. The memory is private: clients and other chats cannot read it, and exports do not contain it. A
value is written in the same entry as the call's result, so a call that runs again after a crash finds the same values.
Expiry times use the clock of the log.
"""

import msgspec
from msgspec.structs import replace

from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import MemorySet
from threadcast.chat.owner_state import OwnerState
from threadcast.tools.base import MEMORY_MAX_BYTES, ToolResult
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["recall", "remember"]


def recall(state: OwnerState, now_ms: int) -> JsonObject:
    """Return the values that have not expired at `now_ms`."""
    items = state.private.memory.items()
    return {key: item.value for key, item in items if item.expires_at_ms is None or item.expires_at_ms > now_ms}


def remember(builder: EntryBuilder, result: ToolResult) -> ToolResult:
    """Store the values in the memory patch of `result`, and remove expired values. If the memory would become too
    large, nothing is stored and the returned result says so. The returned result does not count as failed, because the
    call has already had its effect."""
    if not result.memory_patch:
        return result
    now = recall(builder.state, builder.now_ms)
    after = {key: value for key, value in {**now, **result.memory_patch}.items() if value is not None}
    if len(msgspec.json.encode(after)) > MEMORY_MAX_BYTES:
        sentence = f"[Nothing was remembered: this chat's tools may remember {MEMORY_MAX_BYTES} bytes in all.]"
        return replace(result, content=f"{result.content}\n{sentence}".lstrip())
    for key in builder.state.private.memory.keys() - now.keys() - after.keys():
        builder.note(MemorySet(key=key))
    ttl_seconds = result.memory_ttl_seconds
    expires_at_ms = None if ttl_seconds is None else builder.now_ms + int(ttl_seconds * 1000)
    for key, value in result.memory_patch.items():
        builder.note(MemorySet(key=key, value=value, expires_at_ms=None if value is None else expires_at_ms))
    return result
