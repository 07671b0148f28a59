"""Waits for the outcome of a command that was posted (PROTOCOL §3).

The outcome is read from the entries of the chat's log, which list the acks that they carry (DESIGN §4.10), so no relay
is opened and no state is folded. Call `following` before you post. A stored command stays stored, even if the wait for
its outcome fails.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import structlog

from threadcast.api.edge import Edge
from threadcast.chat.entries import RawEntry
from threadcast.chat.entry_codec import decode_acks
from threadcast.store.ports import Log, LogMessage, absent_id_of
from threadcast_protocol.framing.codec import decode_event, split_array
from threadcast_protocol.wire.errors import Failed, Unavailable
from threadcast_protocol.wire.events import Ack
from threadcast_protocol.wire.ids import Head
from threadcast_protocol.wire.principal import Principal

__all__ = ["following", "outcome_of", "outcome_within"]

_log = structlog.get_logger()


@asynccontextmanager
async def following(edge: Edge, chat_id: str, principal: Principal) -> AsyncIterator[AsyncIterator[LogMessage] | None]:
    """Yield the messages about the chat's log from now on. This also works before the chat exists: another request may
    create the chat, and then the post of this request is accepted. Yields None for another principal's chat, after the
    same work of the store as for an unknown chat. Also yields None while the store refuses subscriptions, because the
    post is possible without a subscription."""
    async with AsyncExitStack() as stack:
        log_messages: AsyncIterator[LogMessage] | None = None
        try:
            meta = await edge.store.meta(chat_id)
            if meta is None or meta.owner == principal.id:
                log_messages = await stack.enter_async_context(edge.store.follow(chat_id))
            else:
                await stack.enter_async_context(edge.store.follow(absent_id_of(chat_id)))
        except Unavailable as trouble:
            _log.warning("outcome.not_followed", error=trouble.message)
        yield log_messages


async def outcome_within(
    store: Log, log_messages: AsyncIterator[LogMessage] | None, request_id: str, seconds: float
) -> Ack | None:
    """Return the outcome of a command, or None if it does not become known within `seconds`. Errors of the store are
    logged, not raised, because the command is stored in any case."""
    if log_messages is None:
        return None
    try:
        with anyio.move_on_after(seconds):
            async for log_message in log_messages:
                ack = await outcome_of(store, log_message, request_id)
                if ack is not None:
                    return ack
    except Failed as trouble:
        _log.warning("outcome.not_followed", error=trouble.message)
    return None


async def outcome_of(store: Log, log_message: LogMessage, request_id: str) -> Ack | None:
    """Return the final outcome of a command, or None if the message's entry does not contain the outcome. After a
    reconnected channel the newest page of the log is read, because the entry may have been published in between. Raises
    Unavailable."""
    entries: list[RawEntry | None] = [log_message.entry]
    if log_message.kind == "large":
        entries = [await store.read_entry(log_message.chat_id, Head.parse(log_message.head).entry_id)]
    elif log_message.kind == "reconnected":
        entries = [*await store.read_log(log_message.chat_id, newest=True)]
    for entry in filter(None, entries):
        for word in decode_acks(entry.acks):
            if word.request_id == request_id and word.final:
                return _ack_event(entry, request_id) or Ack(request_id, word.accepted, {"queued": True})
    return None


def _ack_event(entry: RawEntry, request_id: str) -> Ack | None:
    acks = [decode_event(raw) for raw in split_array(entry.events) if bytes(raw).startswith(b'{"type":"ack"')]
    own = [ack for ack in acks if isinstance(ack, Ack) and ack.client_request_id == request_id]
    return own[-1] if own else None
