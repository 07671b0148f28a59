"""The other chat that a command speaks of: read whole, with what it refers to carried over, before the command acts.

Only `branch_from_chat` has one. What the caller may not see, or what cannot be read, is as if it were not there.
"""

import structlog

from protocol.commands import BranchFromChat, Command, InternalCommand
from protocol.principal import Principal
from protocol.reducer import Gap
from protocol.state import ChatState
from server.actor.patience import Patience
from server.store.blob_copy import copy_way
from server.store.load import NewerVersion, load_folded
from server.store.port import Store

__all__ = ["source_of"]

_log = structlog.get_logger()


async def source_of(
    store: Store, patience: Patience, chat_id: str, command: Command | InternalCommand | None, by: Principal
) -> ChatState | None:
    """The chat that a branch is taken from; None when there is none that this principal may see. Raises Lost."""
    if not isinstance(command, BranchFromChat):
        return None
    source_id = command.source_chat_id
    meta = await patience.until_answered(lambda: store.meta(source_id))
    if meta is None or meta.deleted or meta.owner != by.id:
        return None
    try:
        source, _ = await patience.until_answered(lambda: load_folded(store, source_id, with_facts=True))
    except (Gap, NewerVersion) as trouble:
        _log.error("chat.unfoldable", chat_id=source_id, error=str(trouble))
        return None
    await patience.until_answered(lambda: copy_way(store, source, command.up_to_message_id, chat_id, by.id))
    return source
