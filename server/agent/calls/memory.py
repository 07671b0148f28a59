"""What tools remember in a chat, from one call to the next: small JSON values by key, some for a time only. Pure.

It is private: no client, no other chat and no export sees it. A value is written in the entry that tells of the call's
result, so a call that is run again after a crash finds what it found before. Times are the log's, not a tool's.
"""

import msgspec
from msgspec.structs import replace

from protocol.facts import MemorySet
from protocol.ledger import Ledger
from protocol.messages import JsonObject
from protocol.state import ChatState
from server.tools.base import MEMORY_MAX_BYTES, ToolResult

__all__ = ["recall", "remember"]


def recall(state: ChatState, now_ms: int) -> JsonObject:
    """What is remembered and not over at `now_ms`."""
    items = state.private.memory.items()
    return {key: item.value for key, item in items if item.expires_at_ms is None or item.expires_at_ms > now_ms}


def remember(ledger: Ledger, result: ToolResult) -> ToolResult:
    """Note what `result` wants kept, and forget what is over. When the chat would remember too much, nothing of it is
    kept and the result says so: the call has had its effect, so it is no failure."""
    if not result.memory_patch:
        return result
    now = recall(ledger.state, ledger.now_ms)
    after = {key: value for key, value in {**now, **result.memory_patch}.items() if value is not None}
    if len(msgspec.json.encode(after)) > MEMORY_MAX_BYTES:
        sentence = f"[Nothing was remembered: this chat's tools may remember {MEMORY_MAX_BYTES} bytes in all.]"
        return replace(result, content=f"{result.content}\n{sentence}".lstrip())
    for key in ledger.state.private.memory.keys() - now.keys() - after.keys():
        ledger.note(MemorySet(key=key))
    ttl_seconds = result.memory_ttl_seconds
    expires_at_ms = None if ttl_seconds is None else ledger.now_ms + int(ttl_seconds * 1000)
    for key, value in result.memory_patch.items():
        ledger.note(MemorySet(key=key, value=value, expires_at_ms=None if value is None else expires_at_ms))
    return result
