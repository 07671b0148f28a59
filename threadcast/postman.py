"""Posts what one chat's outbox holds, in order, until the server has each, and all of it again when asked to.

It knows no stream: `Chat` says when a connection came (`repost`) and what has been seen (`settle`). The rules: one
command at a time, so that they arrive in the order in which they were sent; only what overtakes the server's queue also
overtakes one here that was asked to wait; whatever is refused for good is never posted again.
"""

from typing import Protocol

import anyio
import msgspec

from protocol.errors import Unauthorized
from protocol.messages import JsonObject
from threadcast.backoff import Backoff
from threadcast.errors import Refused, ThreadcastError, Unreachable
from threadcast.outbox import Held, Outbox
from threadcast.wire import Busy, Wire, path_of

__all__ = ["Postman", "Recipient", "held_of"]

DUPLICATE_SECONDS = 30.0
"""The server has had this command before, and no ack of it came in this time on a live stream: it was done so long ago
that no snapshot shows it any more (64 acks). Only after a restart with a file of old commands."""


class Recipient(Protocol):
    """Whom the postman tells."""

    def accepted(self, request_id: str, body: JsonObject) -> None:
        """The server keeps it, or has had it."""

    def refused(self, request_id: str, wrong: Refused) -> None:
        """It has left the outbox."""

    def long_done(self, request_id: str) -> None:
        """The server had it before; it has left the outbox."""

    def delayed(self, reason: str, seconds: float) -> None:
        """The server asked to wait, or was not reached."""

    def fail(self, wrong: ThreadcastError) -> None:
        """Nothing can be posted with this token."""


class Postman:
    """One chat's. `run` it in a task of its own."""

    def __init__(self, wire: Wire, chat_id: str, outbox: Outbox, recipient: Recipient) -> None:
        self._wire = wire
        self._chat_id = chat_id
        self._outbox = outbox
        self._recipient = recipient
        self._backoff = Backoff(wire.patience)
        self._posted: set[str] = set()
        self._duplicates: dict[str, float] = {}
        self._generation = 0
        self._slow_until: float | None = None
        self._changed = anyio.Event()

    @property
    def is_done(self) -> bool:
        """All that is held was posted on this connection."""
        return all(held.request_id in self._posted for held in self._outbox.held(self._chat_id))

    def put(self, held: Held) -> None:
        """Keep it and post it. Raises OutboxFull."""
        self._outbox.add(held)
        self._wake()

    def repost(self) -> None:
        """A new connection: the server behind it may have lost what an older one took (PROTOCOL §15)."""
        self._generation += 1
        self._posted.clear()
        self._duplicates.clear()
        self._backoff.reset()
        self._wake()

    def settle(self, request_id: str) -> None:
        """It was seen, or is not wanted any more."""
        self._outbox.remove(self._chat_id, request_id)
        self._posted.discard(request_id)
        self._duplicates.pop(request_id, None)

    async def run(self) -> None:
        """For ever; a refused token ends it."""
        while True:
            self._drop_duplicates()
            held = self._next()
            if held is None:
                await self._until_changed()
                continue
            try:
                await self._post(held)
            except Unauthorized as wrong:  # the command is good; it waits for a program with a better token
                self._recipient.fail(wrong)
                return

    def _next(self) -> Held | None:
        if self._slow_until is not None and anyio.current_time() >= self._slow_until:
            self._slow_until = None
        for held in self._outbox.held(self._chat_id):
            if held.request_id not in self._posted and (held.is_exempt or self._slow_until is None):
                return held
        return None

    async def _post(self, held: Held) -> None:
        generation = self._generation
        try:
            reply = await self._wire.ask("POST", path_of("chats", self._chat_id, "commands"), bytes(held.body))
        except Unauthorized:
            raise
        except Refused as wrong:
            self.settle(held.request_id)
            self._recipient.refused(held.request_id, wrong)
        except Busy as wrong:
            pause = self._backoff.pause(wrong.retry_seconds)
            self._recipient.delayed(str(wrong), pause)
            if held.is_exempt:
                await self._pause(pause)
            else:
                self._slow_until = anyio.current_time() + pause
        except Unreachable as wrong:
            pause = self._backoff.pause()
            self._recipient.delayed(wrong.message, pause)
            await self._pause(pause)
        else:
            self._backoff.reset()
            # Else it was seen before this answer came, or accepted before the connection that asked for it again.
            if generation == self._generation and self._is_held(held.request_id):
                self._posted.add(held.request_id)
                if reply.body.get("status") == "duplicate":
                    self._duplicates[held.request_id] = anyio.current_time() + DUPLICATE_SECONDS
            self._recipient.accepted(held.request_id, reply.body)

    def _is_held(self, request_id: str) -> bool:
        return any(held.request_id == request_id for held in self._outbox.held(self._chat_id))

    async def _pause(self, seconds: float) -> None:
        """A new connection ends it early: the server is there again."""
        generation = self._generation
        with anyio.move_on_after(seconds):
            while generation == self._generation:
                await self._changed.wait()

    def _drop_duplicates(self) -> None:
        now = anyio.current_time()
        held = {held.request_id for held in self._outbox.held(self._chat_id)}
        for request_id, until in list(self._duplicates.items()):
            if request_id not in held:
                del self._duplicates[request_id]
            elif now >= until:
                self.settle(request_id)
                self._recipient.long_done(request_id)

    async def _until_changed(self) -> None:
        times = list(self._duplicates.values())
        if self._slow_until is not None:  # also when it passed a moment ago: then `run` looks again at once
            times.append(self._slow_until)
        seconds = max(0.0, min(times) - anyio.current_time()) if times else None
        with anyio.move_on_after(seconds):
            await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


def held_of(chat_id: str, command: msgspec.Struct | JsonObject) -> Held:
    """A command as it will go out. A dict is one that this version may have no struct for."""
    body = msgspec.json.encode(command)
    head = _heads.decode(body)
    return Held(chat_id=chat_id, request_id=head.client_request_id, type=head.type, body=msgspec.Raw(body))


class _Head(msgspec.Struct, frozen=True):
    client_request_id: str
    type: str


_heads = msgspec.json.Decoder(_Head)
