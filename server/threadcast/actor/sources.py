"""Reads the chat that a `branch_from_chat` command copies, and copies its blobs, before the command is decided.

A chat that the caller may not see, or that cannot be read, counts as missing.
"""

from typing import Protocol

import structlog

from threadcast.actor.retry_policy import RetryPolicy
from threadcast.chat.internal_commands import InternalCommand
from threadcast.chat.owner_state import OwnerState
from threadcast.store.blob_copy import copy_way
from threadcast.store.load import NewerVersion, load_folded
from threadcast.store.ports import Blobs, Index, Log
from threadcast_protocol.fold.reducer import Gap
from threadcast_protocol.wire.commands import BranchFromChat, Command
from threadcast_protocol.wire.principal import Principal

__all__ = ["source_of"]

_log = structlog.get_logger()


class SourceStore(Blobs, Index, Log, Protocol):
    """The parts of the store that reading a source and copying its blobs need."""


async def source_of(
    store: SourceStore,
    retry_policy: RetryPolicy,
    chat_id: str,
    command: Command | InternalCommand | None,
    by: Principal,
) -> OwnerState | None:
    """Return the state of the chat that `command` copies; None for other commands, and if the principal has no access
    to the chat. Raises Lost."""
    if not isinstance(command, BranchFromChat):
        return None
    source_id = command.source_chat_id
    meta = await retry_policy.until_answered(lambda: store.meta(source_id))
    if meta is None or meta.deleted or meta.owner != by.id:
        return None
    try:
        source, _ = await retry_policy.until_answered(lambda: load_folded(store, source_id, with_facts=True))
    except (Gap, NewerVersion) as trouble:
        _log.error("chat.unfoldable", chat_id=source_id, error=str(trouble))
        return None
    await retry_policy.until_answered(lambda: copy_way(store, source, command.up_to_message_id, chat_id, by.id))
    return source
