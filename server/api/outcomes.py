"""From a post to what came of it: lay a command in an inbox, and hear its final word in the log (PROTOCOL §3).

It opens no relay and folds nothing: an entry lists the acks that it carries (DESIGN §4.10). Who wants to know the
outcome listens before posting. A command that was kept stays kept, whatever happens to the listening.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import structlog

from protocol.codec import decode_acks, decode_event, split_array
from protocol.entries import RawEntry
from protocol.errors import Failed, Unavailable
from protocol.events import Ack
from protocol.ids import Head
from protocol.principal import Principal
from server.api.edge import Edge
from server.store.port import Notice, Posted, PostRequest, Store

__all__ = ["following", "outcome_of", "outcome_within", "post_until_answered"]

_log = structlog.get_logger()

POST_TRIES = 3
"""Own retries of one request under one nonce while the store does not answer; then 503."""


async def post_until_answered(store: Store, post: PostRequest) -> Posted:
    """The one atomic step, repeated with the same nonce while its answer is lost. Raises Unavailable."""
    for left in reversed(range(POST_TRIES)):
        try:
            return await store.post(post)
        except Unavailable:
            if left == 0:
                raise
    raise Unavailable("the store does not answer")


@asynccontextmanager
async def following(edge: Edge, post: PostRequest, principal: Principal) -> AsyncIterator[AsyncIterator[Notice] | None]:
    """Subscribe to the chat's notices before the post, also when the chat does not exist yet: another request may
    create it before this post arrives, and then the post is accepted. Returns None for another user's chat, and while
    the store refuses subscriptions, which does not prevent the post."""
    async with AsyncExitStack() as stack:
        notices: AsyncIterator[Notice] | None = None
        try:
            meta = await edge.store.meta(post.chat_id)
            if meta is None or meta.owner == principal.id:
                notices = await stack.enter_async_context(edge.store.follow(post.chat_id))
        except Unavailable as trouble:
            _log.warning("outcome.not_followed", error=trouble.message)
        yield notices


async def outcome_within(
    store: Store, notices: AsyncIterator[Notice] | None, request_id: str, seconds: float
) -> Ack | None:
    """What became of a command, if that can be known in this time. Raises nothing: the command is kept in any case."""
    if notices is None:
        return None
    try:
        with anyio.move_on_after(seconds):
            async for notice in notices:
                ack = await outcome_of(store, notice, request_id)
                if ack is not None:
                    return ack
    except Failed as trouble:
        _log.warning("outcome.not_followed", error=trouble.message)
    return None


async def outcome_of(store: Store, notice: Notice, request_id: str) -> Ack | None:
    """Return the final outcome of a command that an entry tells, or None when it tells none. After a rebuilt channel
    the newest page of the log is read, because the entry may have been published in between. Raises Unavailable."""
    entries: list[RawEntry | None] = [notice.entry]
    if notice.kind == "large":
        entries = [await store.read_entry(notice.chat_id, Head.parse(notice.head).entry_id)]
    elif notice.kind == "reconnected":
        entries = [*await store.read_log(notice.chat_id, newest=True)]
    for entry in entries:
        for word in decode_acks(entry.acks) if entry is not None else ():
            if entry is not None and word.request_id == request_id and word.final:
                return _ack_event(entry, request_id) or Ack(request_id, word.accepted, {"queued": True})
    return None


def _ack_event(entry: RawEntry, request_id: str) -> Ack | None:
    found: Ack | None = None
    for raw in split_array(entry.events):
        if bytes(raw).startswith(b'{"type":"ack"'):
            event = decode_event(raw)
            if isinstance(event, Ack) and event.client_request_id == request_id:
                found = event
    return found
