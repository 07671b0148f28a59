"""The handle of one command, which every method of `Chat` that sends a command returns.

`OutboxSender` reports HTTP answers to the handle, and `Chat` reports acks. A refusal is raised in every waiting call,
even if it follows an acceptance.
"""

from collections.abc import Callable, Generator
from typing import Any

from threadcast_client.changed import Changed
from threadcast_client.errors import ThreadcastError, Unreachable
from threadcast_protocol.wire.events import Ack

__all__ = ["Sent"]


class Sent:
    """A sent command. `await sent` waits for the ack; the command is sent even without an `await`."""

    def __init__(self, request_id: str, forget: Callable[[str], None]) -> None:
        self.request_id = request_id
        self.ack: Ack | None = None
        """The last ack, if one has arrived."""
        self.refused: ThreadcastError | None = None
        """The reason why the command has no effect: a refusal, or the end of the chat. A queued command may still be
        refused when the server takes it out of the queue (PROTOCOL §3)."""
        self._forget = forget
        self._is_accepted = False
        self._changed = Changed()

    def __await__(self) -> Generator[Any, Any, Ack]:  # Any: values that only the event loop sends and receives
        return self.acked().__await__()

    def __repr__(self) -> str:
        said = "refused" if self.refused else "acked" if self.ack else "accepted" if self._is_accepted else "on its way"
        return f"<Sent {self.request_id} {said}>"

    async def accepted(self, seconds: float | None = None) -> None:
        """Wait until the server has accepted the command (202). An accepted command survives crashes of the server; an
        ack follows when the command takes effect or is refused.

        Raises:
            Refused: the server has refused the command.
            Unreachable: the server has not accepted the command within `seconds`. The command stays in the outbox and
                will be sent later.
        """
        await self._until(lambda: self._is_accepted or self.ack is not None, seconds)

    async def acked(self, seconds: float | None = None) -> Ack:
        """Wait for the ack on the stream. After the ack, `abort`, `set_params` and decisions have taken effect, and a
        command that starts a run is in the queue (`result` is `{"queued": True}`).

        Raises:
            Refused: the command has no effect.
            Unreachable: no ack has arrived within `seconds`. The command stays in the outbox and will be sent later.
        """
        await self._until(lambda: self.ack is not None, seconds)
        assert self.ack is not None
        return self.ack

    def forget(self) -> None:
        """Stop posting the command. If the server already has the command, the command may still take effect."""
        self._forget(self.request_id)

    # Reports of the sender and the chat.

    def take_accepted(self) -> None:
        self._is_accepted = True
        self._changed.tell()

    def take_ack(self, ack: Ack) -> None:
        self.ack = ack
        self._changed.tell()

    def take_refusal(self, wrong: ThreadcastError) -> None:
        self.refused = wrong
        self._changed.tell()

    async def _until(self, is_so: Callable[[], bool], seconds: float | None) -> None:
        came = await self._changed.until(lambda: self.refused is not None or is_so(), seconds)
        if self.refused is not None:
            raise self.refused
        if not came:
            raise Unreachable(
                f"the server did not answer within {seconds:g} s; the command stays in the outbox and is sent later"
            )
