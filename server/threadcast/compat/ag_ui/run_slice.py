"""Finds the events that belong to an AG-UI request: the events of an open run, of the run of the request's new message,
or of the open run and then the message's run."""

from collections.abc import Collection

from threadcast.compat.base import RunSlice
from threadcast_protocol.wire.events import (
    Ack,
    Event,
    MessageAdded,
    MessageRemoved,
    MessagesTruncated,
    MessageUpdated,
    RuntimeUpdated,
)

__all__ = ["TurnSlice"]

_CHANGES_PATH = (MessageAdded, MessageRemoved, MessagesTruncated, MessageUpdated)


class TurnSlice(RunSlice):
    """Finds the run of the message `request_id`, if the request has a message. With `open_run_id`, the rest of the open
    run comes first.

    Before the message's own run begins, only changes of the path are passed on, so that a snapshot can be complete. The
    answers to the commands `awaited` are always passed on.
    """

    def __init__(self, request_id: str = "", open_run_id: str | None = None, awaited: Collection[str] = ()) -> None:
        super().__init__(request_id, open_run_id)
        self._awaited = frozenset(awaited)
        self._follows = bool(request_id) and open_run_id is not None

    def join(self, run_id: str | None) -> None:
        """Take the events of this open run, because the message is already in the chat."""
        self.run_id = run_id
        self._follows = False

    def release(self) -> None:
        """Wait for the message at once, because the open run ended before the chat was joined."""
        self.join(None)

    def take(self, event: Event) -> bool:
        if isinstance(event, Ack) and event.client_request_id in self._awaited:
            return True
        if self.run_id is None:
            super().take(event)
            return isinstance(event, _CHANGES_PATH)
        if self._follows:
            if isinstance(event, RuntimeUpdated) and event.outcome is not None:
                self.run_id = None
                self._follows = False
                return False
            if isinstance(event, Ack) and event.client_request_id == self._request_id and not event.accepted:
                self._follows = False
        return super().take(event)
