"""The events that belong to the answer of a request, for the requests that do not begin with a message."""

from collections.abc import Collection

from threadcast.compat.base import RunSlice
from threadcast_protocol.wire.events import Ack, Event, QueueUpdated, RuntimeUpdated

__all__ = ["ContinuedRun", "RegeneratedRun"]


class ContinuedRun(RunSlice):
    """Finds the events of an open run, and the acknowledgements of the commands with which the request continues it."""

    def __init__(self, run_id: str | None, request_ids: Collection[str] = ()) -> None:
        super().__init__("", run_id)
        self._request_ids = frozenset(request_ids)

    def take(self, event: Event) -> bool:
        if isinstance(event, Ack):
            return event.client_request_id in self._request_ids
        return super().take(event)


class RegeneratedRun(RunSlice):
    """Finds the run of a `regenerate` command, which adds no message of the user. This run becomes the open run when
    the command has been accepted and has left the queue."""

    def __init__(self, request_id: str) -> None:
        super().__init__(request_id)
        self._newest: str | None = None
        self._is_accepted = False

    def _look_for_run(self, event: Event) -> None:
        super()._look_for_run(event)
        if isinstance(event, RuntimeUpdated):
            self._newest = event.run_id
        elif isinstance(event, Ack) and event.client_request_id == self._request_id:
            self._is_accepted = event.accepted
        elif isinstance(event, QueueUpdated) and self._is_accepted:
            waits = any(item.client_request_id == self._request_id for item in event.queued_items)
            self.run_id = None if waits else self._newest
