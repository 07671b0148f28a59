"""Posts the commands in one chat's outbox, in order, until the server has accepted each of them.

`Chat` calls `repost` after a new connection, which posts all commands again, and `settle` for commands that the stream
has shown. Commands are posted one at a time, so that they arrive in order. Only commands that overtake the server's
queue also overtake a waiting command here. A command that was refused for good is never posted again.
"""

from typing import Literal, Protocol, TypeAlias

import anyio
import msgspec
from msgspec.structs import replace

from threadcast_client.backoff import Backoff
from threadcast_client.changed import Changed
from threadcast_client.errors import Refused, ThreadcastError, Unreachable
from threadcast_client.outbox import WITHDRAWN, Held, Outbox
from threadcast_client.wire import Busy, Reply, Wire, path_of
from threadcast_protocol.wire.errors import NotFound, Unauthorized
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["OutboxSender", "Recipient", "Withdrawal", "held_of"]

DUPLICATE_SECONDS = 30.0
"""The longest wait for the ack of a command that the server reports as a duplicate. If no ack arrives in this time on a
live stream, the command took effect so long ago that snapshots no longer show its ack (a snapshot holds 64 acks). This
case occurs only after a restart with a file of old commands."""


Withdrawal: TypeAlias = Literal["gone", "sent"]
"""The result of a withdrawal: "gone" if the command will never have an effect, "sent" if it has taken effect
already."""


class Recipient(Protocol):
    """The methods that the sender calls to report events."""

    def accepted(self, request_id: str, body: JsonObject) -> None:
        """The server has accepted the command, now or at an earlier post. `body` is the server's answer."""

    def refused(self, request_id: str, wrong: Refused) -> None:
        """The server has refused the command, which was removed from the outbox."""

    def long_done(self, request_id: str) -> None:
        """The server accepted the command long ago, so no ack will arrive. The command was removed from the outbox."""

    def withdrawn(self, request_id: str, *, is_gone: bool) -> None:
        """The withdrawal of a command has ended, and the command was removed from the outbox. `is_gone`: the command
        will have no effect; otherwise it has taken effect already."""

    def delayed(self, reason: str, seconds: float, *, is_signed_out: bool = False) -> None:
        """The next attempt follows after a pause. `is_signed_out`: whether the reason is a refused token."""

    def fail(self, wrong: ThreadcastError) -> None:
        """The server has refused the token, and the sender has stopped."""


class OutboxSender:
    """The sender of one chat. Call `run` in its own task."""

    def __init__(self, wire: Wire, chat_id: str, outbox: Outbox, recipient: Recipient) -> None:
        self._wire = wire
        self._chat_id = chat_id
        self._outbox = outbox
        self._recipient = recipient
        self._backoff = Backoff(wire.retry_policy)
        self._posted: set[str] = set()
        self._untried: set[str] = set()
        """Commands of this program that were never posted, so that the server cannot have them."""
        self._duplicates: dict[str, float] = {}
        """Maps duplicate commands to the time until which their ack is awaited."""
        self._generation = 0
        self._slow_until: float | None = None
        """The time until which only commands that overtake the queue are posted."""
        self._changed = Changed()

    @property
    def is_done(self) -> bool:
        """Whether every command in the outbox was posted on this connection."""
        return all(held.request_id in self._posted for held in self._outbox.held(self._chat_id))

    def put(self, held: Held) -> None:
        """Add a command to the outbox and post it. Raises OutboxFull."""
        self._outbox.add(held)
        self._untried.add(held.request_id)
        self._changed.tell()

    def withdraw(self, held: Held) -> bool:
        """Stop posting a command. Returns False if the server may have the command; the sender then asks the server to
        withdraw it."""
        is_untried = held.request_id in self._untried
        self.settle(held.request_id)
        if not is_untried:
            self._outbox.add(replace(held, type=WITHDRAWN))
            self._changed.tell()
        return is_untried

    def repost(self) -> None:
        """Post all commands again after a new connection, because the server may have lost them (PROTOCOL §15)."""
        self._generation += 1
        self._posted.clear()
        self._duplicates.clear()
        self._backoff.reset()
        self._changed.tell()

    def settle(self, request_id: str) -> None:
        """Remove a command that the stream has shown or that is no longer wanted."""
        self._outbox.remove(self._chat_id, request_id)
        self._posted.discard(request_id)
        self._untried.discard(request_id)
        self._duplicates.pop(request_id, None)

    async def run(self) -> None:
        """Post commands without end. A refused token ends the sender, unless the client awaits a sign-in."""
        while True:
            self._drop_duplicates()
            held = self._next()
            if held is None:
                await self._until_changed()
                continue
            try:
                await self._post(held)
            except Unauthorized as wrong:  # the command waits for a valid token
                if not self._wire.awaits_sign_in:
                    self._recipient.fail(wrong)
                    return
                pause = self._backoff.pause(self._wire.retry_policy.sign_in_seconds)
                self._recipient.delayed(wrong.message, pause, is_signed_out=True)
                await self._pause(pause)

    def _next(self) -> Held | None:
        if self._slow_until is not None and anyio.current_time() >= self._slow_until:
            self._slow_until = None
        for held in self._outbox.held(self._chat_id):
            if held.request_id not in self._posted and (held.is_exempt or self._slow_until is None):
                return held
        return None

    async def _post(self, held: Held) -> None:
        generation = self._generation
        self._untried.discard(held.request_id)
        try:
            if held.type == WITHDRAWN:
                await self._take_back(held)
                return
            reply = await self._wire.ask(
                "POST", path_of("chats", self._chat_id, "commands"), bytes(held.body), with_credential=True
            )
        except Unauthorized:
            raise
        except Refused as wrong:
            if not self._is_held(held):
                return  # the command was withdrawn meanwhile, and the server does not have it
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
            # Otherwise the stream has shown the command before this answer, or a reconnect has posted the command
            # again.
            if generation == self._generation and self._is_held(held):
                self._posted.add(held.request_id)
                if reply.body.get("status") == "duplicate":
                    self._duplicates[held.request_id] = anyio.current_time() + DUPLICATE_SECONDS
            self._recipient.accepted(held.request_id, reply.body)

    async def _take_back(self, held: Held) -> None:
        """Ask the server to withdraw a command. Raises Refused, Busy, Unreachable."""
        waited = await self._found("DELETE", path_of("chats", self._chat_id, "queue", held.request_id))
        if waited is not None and waited.body.get("status") == "accepted":
            raise Busy("the server does not know yet whether the command could be withdrawn")
        is_sent = False
        if waited is None:
            # A command that is not in the queue has taken effect or never arrived. The chat's tree shows whether the
            # command has taken effect; the stream may lag behind the answer.
            tree = await self._found("GET", path_of("chats", self._chat_id) + "?view=tree")
            messages = msgspec.json.decode(tree.content, type=_Tree).messages if tree is not None else []
            is_sent = any(message.client_request_id == held.request_id for message in messages)
        self._backoff.reset()
        self.settle(held.request_id)
        self._recipient.withdrawn(held.request_id, is_gone=not is_sent)

    async def _found(self, method: str, path: str) -> Reply | None:
        """Send a request. Returns None for status 404. Raises Refused, Busy, Unreachable."""
        try:
            return await self._wire.ask(method, path)
        except NotFound:
            return None

    def _is_held(self, held: Held) -> bool:
        """Return whether the outbox holds the command and the command is not being withdrawn."""
        return held in self._outbox.held(self._chat_id)

    async def _pause(self, seconds: float) -> None:
        """Wait before the next attempt. A new connection ends the wait, because the server is back."""
        generation = self._generation
        await self._changed.until(lambda: generation != self._generation, seconds)

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
        if self._slow_until is not None:  # the wait ends at once if the time has just passed
            times.append(self._slow_until)
        seconds = max(0.0, min(times) - anyio.current_time()) if times else None
        with anyio.move_on_after(seconds):
            await self._changed.wait()


def held_of(chat_id: str, command: msgspec.Struct | JsonObject) -> Held:
    """Encode a command for the outbox. A dict may be a command that this version has no struct for."""
    body = msgspec.json.encode(command)
    head = _heads.decode(body)
    return Held(chat_id=chat_id, request_id=head.client_request_id, type=head.type, body=msgspec.Raw(body))


class _TreeMessage(msgspec.Struct, frozen=True):
    client_request_id: str | None = None


class _Tree(msgspec.Struct, frozen=True):
    """The fields of the answer to `GET /v1/chats/{id}?view=tree` that this module reads."""

    messages: list[_TreeMessage]


class _Head(msgspec.Struct, frozen=True):
    client_request_id: str
    type: str


_heads = msgspec.json.Decoder(_Head)
