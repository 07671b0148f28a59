"""What became of one command: the handle that every command of a chat returns.

It knows nothing of how the command travels; `Postman` tells it of HTTP answers, `Chat` of acks. The one rule: a
refusal is raised wherever somebody waits, and one that comes after a first yes is not lost either.
"""

from collections.abc import Callable, Generator
from typing import Any

import anyio

from protocol.events import Ack
from threadcast.errors import ThreadcastError, Unreachable

__all__ = ["Sent"]


class Sent:
    """`await sent` waits for the ack. The command is on its way, whether anybody waits or not."""

    def __init__(self, request_id: str, forget: Callable[[str], None]) -> None:
        self.request_id = request_id
        self.ack: Ack | None = None
        """The last ack so far."""
        self.refused: ThreadcastError | None = None
        """Why it has no effect: it was refused, or the chat has ended. After an ack that says `queued` a refusal may
        still come, when its turn has come (PROTOCOL §3)."""
        self._forget = forget
        self._is_accepted = False
        self._changed = anyio.Event()

    def __await__(self) -> Generator[Any, Any, Ack]:  # Any: what the event loop passes to and fro
        return self.acked().__await__()

    def __repr__(self) -> str:
        said = "refused" if self.refused else "acked" if self.ack else "accepted" if self._is_accepted else "on its way"
        return f"<Sent {self.request_id} {said}>"

    async def accepted(self, seconds: float | None = None) -> None:
        """Wait until the server has promised to keep it (202): it then survives any crash there, and takes effect or
        is refused by an ack.

        Raises:
            Refused: the server does not want it.
            Unreachable: not within `seconds`; it stays in the outbox and goes out later.
        """
        await self._until(lambda: self._is_accepted or self.ack is not None, seconds)

    async def acked(self, seconds: float | None = None) -> Ack:
        """Wait until the stream says what became of it. `abort`, `set_params` and decisions have had their effect
        then; what starts a run is in the queue (`result` is `{"queued": True}`).

        Raises:
            Refused: it has no effect.
            Unreachable: not within `seconds`; it stays in the outbox and goes out later.
        """
        await self._until(lambda: self.ack is not None, seconds)
        assert self.ack is not None  # what was waited for
        return self.ack

    def forget(self) -> None:
        """Do not post it (again). What the server has already stays there."""
        self._forget(self.request_id)

    # What others tell it.

    def take_accepted(self) -> None:
        self._is_accepted = True
        self._tell()

    def take_ack(self, ack: Ack) -> None:
        self.ack = ack
        self._tell()

    def take_refusal(self, wrong: ThreadcastError) -> None:
        self.refused = wrong
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def _until(self, is_so: Callable[[], bool], seconds: float | None) -> None:
        with anyio.move_on_after(seconds):
            while self.refused is None and not is_so():
                await self._changed.wait()
        if self.refused is not None:
            raise self.refused
        if not is_so():
            raise Unreachable(f"no answer within {seconds:g} s; it stays in the outbox and goes out later")
