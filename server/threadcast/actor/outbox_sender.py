"""Delivers the outbound messages of one owned chat to other chats, and records each delivery (decision 0012).

The sender reads the outbox that `chat/outbound.py` fills, and runs beside the actor's other tasks. An outbound message
keeps its request id, so a delivery whose answer was lost is only a duplicate at the receiver. A message leaves the
outbox after the store has accepted it, or has reported that its receiver does not exist.
"""

from collections.abc import Callable
from typing import Protocol

import anyio
import structlog

from threadcast.actor.append import RETRY_FIRST_SECONDS, RETRY_MAX_SECONDS
from threadcast.actor.orphans import end_orphan
from threadcast.actor.retry_policy import RetryPolicy
from threadcast.actor.writer import Writer
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.relations import OutboundMessage, OutboundSent
from threadcast.store.ports import Inbox, Index, PostOutcome, PostRequest
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.commands import body_digest
from threadcast_protocol.wire.principal import SYSTEM

__all__ = ["OutboxSender", "post_of"]

_log = structlog.get_logger()


class OutboxStore(Inbox, Index, Protocol):
    """The parts of the store by which messages are posted and orphans deleted."""


def post_of(message: OutboundMessage, owner: str) -> PostRequest:
    """Return the request that posts `message`. The request is the same at each attempt, by any worker."""
    body = message.body.encode()
    return PostRequest(
        chat_id=message.chat_id,
        owner=owner,
        principal=encode(SYSTEM),
        request_id=message.outbound_id,
        digest=body_digest(body),
        nonce=message.outbound_id,
        body=body,
        kind="exempt",
        creates=message.creates,
    )


class OutboxSender:
    """Delivers one chat's messages. `on_delivered` is called whenever the outbox has become empty."""

    def __init__(
        self, store: OutboxStore, retry_policy: RetryPolicy, writer: Writer, on_delivered: Callable[[], None]
    ) -> None:
        self._store = store
        self._retry_policy = retry_policy
        self._writer = writer
        self._on_delivered = on_delivered

    @property
    def is_busy(self) -> bool:
        """Whether messages wait, so that the chat must not be released."""
        return bool(self._writer.state.private.relations.outbox)

    async def deliver_forever(self) -> None:
        """Deliver messages until cancelled. Each receiver gets its messages in order, because a chat must be begun
        before it is stopped.

        Raises: Fenced: another worker owns the log and delivers the remaining messages.
            Lost: the store did not answer for a minute, or this chat was deleted because its parent was deleted.
        """
        pause = RETRY_FIRST_SECONDS
        while True:
            outbox = self._writer.state.private.relations.outbox
            if not outbox:
                await self._writer.changed()
                continue
            sent: list[str] = []
            full: set[str] = set()
            for message in outbox:
                if message.chat_id in full or not await self._deliver(message):
                    full.add(message.chat_id)
                else:
                    sent.append(message.outbound_id)
            if sent:
                pause = RETRY_FIRST_SECONDS
                await self._writer.commit(_noting(sent))
            if len(sent) < len(outbox):
                await anyio.sleep(pause)  # a receiver's inbox is full
                pause = min(2 * pause, RETRY_MAX_SECONDS)
            if not self.is_busy:
                self._on_delivered()

    async def _deliver(self, message: OutboundMessage) -> bool:
        """Post one message. Returns False if the receiver's inbox is full."""
        request = post_of(message, self._writer.owner)
        posted = await self._retry_policy.until_answered(lambda: self._store.post(request))
        if posted.outcome is PostOutcome.FULL:
            return False
        if posted.outcome not in (PostOutcome.ACCEPTED, PostOutcome.DUPLICATE):  # deleted meanwhile
            _log.info(
                "outbound.undeliverable",
                request_id=message.outbound_id,
                to=message.chat_id,
                outcome=posted.outcome.value,
            )
            parent = self._writer.state.private.relations.parent
            if posted.outcome is PostOutcome.GONE and parent is not None and parent.chat_id == message.chat_id:
                await end_orphan(self._store, self._retry_policy, self._writer)
        return True


def _noting(outbound_ids: list[str]) -> Callable[[EntryBuilder], None]:
    return lambda builder: builder.note(OutboundSent(outbound_ids=outbound_ids))
