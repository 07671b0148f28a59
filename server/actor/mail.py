"""The postman of one owned chat: delivers what the chat owes to others, and notes that it did (decision 0012).

It reads the outbox that `protocol/outbox.py` fills, knows no letter's meaning, and runs beside everything else that the
actor does. A letter's request id is its own for ever, so a delivery whose answer was lost is a duplicate at the
receiver and nothing else. The rule: a letter leaves the outbox only after the store has taken it, or has said that
nobody can get it.
"""

from collections.abc import Callable

import anyio
import structlog

from protocol.codec import encode
from protocol.commands import body_digest
from protocol.ledger import Ledger
from protocol.principal import SYSTEM
from protocol.relations import Mail, MailSent
from server.actor.append import RETRY_FIRST_SECONDS, RETRY_MAX_SECONDS
from server.actor.orphans import end_orphan
from server.actor.patience import Patience
from server.actor.writer import Writer
from server.store.port import PostOutcome, PostRequest, Store

__all__ = ["Postman", "post_of"]

_log = structlog.get_logger()


def post_of(mail: Mail, owner: str) -> PostRequest:
    """The very same request each time, whoever delivers."""
    body = mail.body.encode()
    return PostRequest(
        chat_id=mail.chat_id,
        owner=owner,
        principal=encode(SYSTEM),
        request_id=mail.mail_id,
        digest=body_digest(body),
        nonce=mail.mail_id,
        body=body,
        kind="exempt",
        creates=mail.creates,
    )


class Postman:
    """`on_delivered` is told whenever the outbox has become empty."""

    def __init__(self, store: Store, patience: Patience, writer: Writer, on_delivered: Callable[[], None]) -> None:
        self._store = store
        self._patience = patience
        self._writer = writer
        self._on_delivered = on_delivered

    @property
    def is_busy(self) -> bool:
        """Something is owed; the chat must not be given back."""
        return bool(self._writer.state.private.relations.outbox)

    async def deliver_forever(self) -> None:
        """Until cancelled. To each chat in the order in which it was owed: it must be begun before it is stopped.

        Raises:
            Fenced: the log is somebody else's, who delivers the rest.
            Lost: the store stayed away for a minute; or the parent is gone, and this chat with it.
        """
        pause = RETRY_FIRST_SECONDS
        while True:
            outbox = self._writer.state.private.relations.outbox
            if not outbox:
                await self._writer.changed()
                continue
            sent: list[str] = []
            full: set[str] = set()
            for mail in outbox:
                if mail.chat_id in full or not await self._deliver(mail):
                    full.add(mail.chat_id)
                else:
                    sent.append(mail.mail_id)
            if sent:
                pause = RETRY_FIRST_SECONDS
                await self._writer.commit(_noting(sent))
            if len(sent) < len(outbox):
                await anyio.sleep(pause)  # a receiver's inbox is full
                pause = min(2 * pause, RETRY_MAX_SECONDS)
            if not self.is_busy:
                self._on_delivered()

    async def _deliver(self, mail: Mail) -> bool:
        """False: not now."""
        request = post_of(mail, self._writer.owner)
        posted = await self._patience.until_answered(lambda: self._store.post(request))
        if posted.outcome is PostOutcome.FULL:
            return False
        if posted.outcome not in (PostOutcome.ACCEPTED, PostOutcome.DUPLICATE):  # deleted meanwhile
            _log.info("mail.undeliverable", mail_id=mail.mail_id, to=mail.chat_id, outcome=posted.outcome.value)
            parent = self._writer.state.private.relations.parent
            if posted.outcome is PostOutcome.GONE and parent is not None and parent.chat_id == mail.chat_id:
                await end_orphan(self._store, self._patience, self._writer)
        return True


def _noting(mail_ids: list[str]) -> Callable[[Ledger], None]:
    return lambda ledger: ledger.note(MailSent(mail_ids=mail_ids))
