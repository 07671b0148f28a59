"""One live chat: its folded state, its events, and its commands.

`Chats` passes the events of the stream to the chat and runs the chat's sender. The chat folds the events with the
protocol's own reducer, so `state` equals the state of the server and of every other client. The outbox holds a sent
command until the stream has shown the command (by an `ack`, or in the acks, messages or queue of a snapshot) or the
server has refused it.
"""

from collections.abc import Callable, Mapping
from weakref import WeakValueDictionary

from msgspec.structs import replace

from threadcast_client.answer import Answer
from threadcast_client.changed import Changed
from threadcast_client.commands import ChatCommands
from threadcast_client.connection import Connection
from threadcast_client.errors import (
    Cancelled,
    ChatLeft,
    NotFound,
    Refused,
    ThreadcastError,
    Unreachable,
    refusal,
)
from threadcast_client.ids import new_request_id
from threadcast_client.listeners import Events, Listeners
from threadcast_client.outbox import WITHDRAWN, Held, Outbox
from threadcast_client.reading import Arrival, Beat, RawEvent, acks_of, event_of, folded, position_of
from threadcast_client.sender import OutboxSender, Withdrawal, held_of
from threadcast_client.sent import Sent
from threadcast_client.stream import Heard, Lost, Opened, Quiet
from threadcast_client.tool_calls import Handler, ToolCalls
from threadcast_client.wire import Wire, path_of
from threadcast_protocol.fold.snapshot import active_path, snapshot_of, state_from_snapshot
from threadcast_protocol.fold.state import ChatState, empty_state
from threadcast_protocol.wire.commands import Command, UserMessage
from threadcast_protocol.wire.events import Ack, Snapshot
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.transient import Transient

__all__ = ["Chat"]

OnState = Callable[[Connection], None]


class Chat(ChatCommands):
    """A live chat, opened by `client.chat(…)`.

    `state` is the present state of the chat (`threadcast_protocol.fold.state.ChatState`), `connection` the status of
    the connection. Both attributes change while the program awaits.
    """

    def __init__(
        self, wire: Wire, chat_id: str, outbox: Outbox, *, name: str, on_state: OnState | None, cut: Callable[[], None]
    ) -> None:
        """Create a chat; `Client` calls this. `cut` makes the stream open a new connection."""
        self.id = chat_id
        self.state: ChatState = empty_state(chat_id)
        self.connection = Connection("offline")
        self.failure: ThreadcastError | None = None
        """The reason why the stream has ended for good; None while the stream continues."""
        self.sender = OutboxSender(wire, chat_id, outbox, self)
        self.tool_calls = ToolCalls(self, name, wire.retry_policy)
        self._wire = wire
        self._outbox = outbox
        self._on_state = on_state
        self._cut = cut
        self._withdrawals: dict[str, list[Withdrawal]] = {}
        """Maps the id of each command that is being withdrawn to a list, to which the result will be added."""
        self._has_snapshot = False
        self._is_told = False  # this connection has sent all missed events
        self._listeners = Listeners(lambda: snapshot_of(self.state))
        self._sent: WeakValueDictionary[str, Sent] = WeakValueDictionary()
        self._changed = Changed()

    # Reading.

    @property
    def messages(self) -> list[Message]:
        """The messages of the active path, root first. The last one may be an unfinished answer."""
        return active_path(self.state)

    @property
    def held_count(self) -> int:
        """The number of sent commands that the stream has not shown yet, without withdrawn commands."""
        return sum(held.type != WITHDRAWN for held in self._kept)

    @property
    def _kept(self) -> list[Held]:
        return self._outbox.held(self.id)

    def events(self) -> Events:
        """Return a new reader of the chat's events.

        The reader yields a `Snapshot` first, then every event as a struct of `threadcast_protocol.wire.events`, a
        `RawEvent` for an event that this version does not know, and a `Connection` for each new status. A reader that
        is 1,000 events behind gets a `Snapshot` instead of them. `state` may be ahead of a slow reader.
        """
        events = self._listeners.new()
        if self._has_snapshot:
            events.put(snapshot_of(self.state))
        events.put(self.connection)
        if self.failure is not None:
            events.end(self.failure)
        return events

    async def until(self, is_so: Callable[[ChatState], object], seconds: float | None = None) -> ChatState:
        """Wait until `is_so(state)` is true; `is_so` is called after every event. Returns the state.

        Raises:
            Unreachable: the condition was not true within `seconds`.
            ThreadcastError: the stream has ended for good.
        """

        def holds() -> bool:
            return self._has_snapshot and bool(is_so(self.state))

        came = await self._changed.until(lambda: holds() or self.failure is not None, seconds)
        if self.failure is not None and not holds():
            raise self.failure
        if not came:
            raise Unreachable(f"chat {self.id!r} did not reach that state in {seconds:g} s; it is {self.connection}")
        return self.state

    async def at_rest(self, seconds: float | None = None) -> ChatState:
        """Wait until no run is open, the queue is empty, and no command is held. Raises the errors of `until`."""
        return await self.until(
            lambda state: state.is_at_rest and not state.runtime.queue_size and not self._kept, seconds
        )

    async def settled(self, seconds: float | None = None) -> None:
        """Wait until no command is held. Raises the errors of `until`."""
        await self.until(lambda _: not self._kept, seconds)

    # Sending. The following methods return at once. Await the returned handle to learn whether the command took effect.

    def send(self, what: str | list[JsonObject] | Command | JsonObject, **fields: object) -> Sent:
        """Send a message, or any command of `threadcast_protocol.wire.commands`.

        `fields` are fields of `user_message` (PROTOCOL §2), such as `priority=True`, `interrupt=True`,
        `params={"model": …}` or `attachments=[…]`.

        Raises:
            OutboxFull: 100 commands wait already.
            ChatLeft: the chat's block has ended.
            ThreadcastError: the stream has ended for good.
        """
        if self.failure is not None:
            raise self.failure
        command: Command | JsonObject
        if isinstance(what, str | list):
            command = {"client_request_id": new_request_id(), "type": "user_message", "content": what, **fields}
        elif fields:
            raise TypeError("fields can only be added to a text; a command has its own fields")
        else:
            command = what
        held = held_of(self.id, command)
        sent = self._sent.get(held.request_id)
        if sent is None or sent.ack is not None or sent.refused is not None:  # else the command is sent again
            sent = Sent(held.request_id, self._forget)
        self.sender.put(held)
        self._sent[held.request_id] = sent
        self._say()
        return sent

    def ask(self, what: str | list[JsonObject] | UserMessage, **fields: object) -> Answer:
        """Send a message. Await the answer for its text, or iterate over its pieces. Raises the errors of `send`."""
        events = self.events()
        return Answer(self.send(what, **fields), events)

    async def cancel(self, sent: Sent) -> bool:
        """Remove a command from the server's queue. Returns False if the command is not in the queue.

        Raises:
            Refused: the server has refused the request.
            Unreachable: the server did not answer.
        """
        try:
            await self._wire.ask("DELETE", path_of("chats", self.id, "queue", sent.request_id))
        except NotFound:
            return False
        self._forget(sent.request_id)
        return True

    async def withdraw(self, sent: Sent) -> Withdrawal:
        """Withdraw a command that the stream has not shown. Returns "gone" if the command will have no effect, and
        "sent" if it has taken effect already. After "gone", `await sent` raises `Cancelled`. A command that was never
        posted is withdrawn at once. Otherwise the server is asked as soon as it can be reached. Meanwhile the command
        is not posted again, not even by a later program with the same outbox.

        Raises:
            ThreadcastError: the chat has ended.
        """
        held = next((each for each in self._kept if each.request_id == sent.request_id), None)
        if held is None:
            return "sent"
        if held.type != WITHDRAWN and self.sender.withdraw(held):
            self.withdrawn(sent.request_id, is_gone=True)
            return "gone"
        self._say()
        results = self._withdrawals.setdefault(sent.request_id, [])
        await self._changed.until(lambda: results or self.failure is not None)
        if not results and self.failure is not None:
            raise self.failure
        return results[0]

    def on_tool_call(self, name: str, handler: Handler) -> None:
        """Run the calls of a client tool (PROTOCOL §12). Each call is claimed first, so that only one client runs it.

        `handler(**args)` returns a text or a `ToolAnswer`. If it raises an error, the call has failed, and the model
        reads the error. A coroutine is cancelled when the call is no longer wanted. A plain function runs in a thread.
        """
        self.tool_calls.add(name, handler)

    # `Chats` and the sender call the following methods.

    def take(self, item: Opened | Lost | Quiet | Heard | Arrival | Beat) -> None:
        """Take the next item of the stream. Raises Missed if the chat must begin again with a snapshot."""
        match item:
            case Opened():
                self._is_told = False
                self._connect(Connection("catching_up"))
                self.sender.repost()
            case Lost(reason, seconds, is_out):
                self._connect(Connection("offline", reason=reason, retry_in_seconds=seconds, is_signed_out=is_out))
            case Quiet():
                self._connect(replace(self.connection, silent_seconds=item.seconds))
            case Heard():
                self._connect(replace(self.connection, silent_seconds=0.0))
            case Beat():
                self._is_told = self._has_snapshot
                self._catch_up()
            case Arrival():
                self._fold(item)

    def accepted(self, request_id: str, body: Mapping[str, object]) -> None:
        if (sent := self._sent.get(request_id)) is not None:
            sent.take_accepted()
        if body.get("status") == "aborted" and self._has_snapshot and self.state.position == 0:
            # The chat does not exist, so no ack of the abort will come (PROTOCOL §1).
            self._settle(Ack(request_id, True, {"aborted": True, "noop": True}))
        if self.connection.silent_seconds:
            self._cut()  # the server answers requests, so the silent connection is dead
        elif self.connection.state == "live" and self.connection.reason and self.sender.is_done:
            self._connect(Connection("live"))
        self._say()

    def refused(self, request_id: str, wrong: Refused) -> None:
        if (sent := self._sent.get(request_id)) is not None:
            sent.take_refusal(wrong)
        self._say()

    def long_done(self, request_id: str) -> None:
        self._settle(Ack(request_id, True, {"duplicate": True}))
        self._say()

    def withdrawn(self, request_id: str, *, is_gone: bool) -> None:
        if (sent := self._sent.get(request_id)) is not None:
            if is_gone:
                sent.take_refusal(Cancelled("the command was withdrawn before it ran"))
            else:
                sent.take_ack(Ack(request_id, True, {"duplicate": True}))
        self._withdrawals.pop(request_id, []).append("gone" if is_gone else "sent")
        self._say()

    def delayed(self, reason: str, seconds: float, *, is_signed_out: bool = False) -> None:
        if is_signed_out:
            self._connect(replace(self.connection, reason=reason, retry_in_seconds=seconds, is_signed_out=True))
        elif self.connection.state != "offline":  # an offline connection has its own reason
            self._connect(Connection(self.connection.state, reason=reason, retry_in_seconds=seconds))

    def fail(self, wrong: ThreadcastError) -> None:
        """End the chat for good with an error. Held commands stay in the outbox."""
        if self.failure is not None:
            return
        self.failure = wrong
        if not isinstance(wrong, ChatLeft):
            self._connect(Connection("offline", reason=wrong.message))
        self._listeners.end(wrong)
        for sent in list(self._sent.values()):
            if sent.ack is None:
                sent.take_refusal(wrong)
        self._changed.tell()

    # Folding.

    def _fold(self, arrival: Arrival) -> None:
        event = event_of(arrival)
        match event:
            case Snapshot():
                position = position_of(arrival.event_id, self.id)
                self.state = state_from_snapshot(self.id, event, position or 0)
                self._has_snapshot = self._is_told = True
                self._settle_shown(event)
            case Transient():
                pass
            case RawEvent():
                if arrival.seq is not None:
                    self.state = replace(self.state, position=self.state.position + 1)
            case _:
                self.state = folded(self.state, event)
                if isinstance(event, Ack):
                    self._settle(event)
        self._listeners.put(event)
        self.tool_calls.look()
        self._say()

    def _settle(self, ack: Ack) -> None:
        if any(held.request_id == ack.client_request_id and held.type == WITHDRAWN for held in self._kept):
            return  # the answer to the withdrawal will settle the command
        self.sender.settle(ack.client_request_id)
        if (sent := self._sent.get(ack.client_request_id)) is not None:
            if ack.accepted:
                sent.take_ack(ack)
            else:
                sent.take_refusal(refusal(str(ack.result.get("code", "")), str(ack.result.get("error", "refused"))))

    def _settle_shown(self, snapshot: Snapshot) -> None:
        """Settle the commands that a snapshot shows, because a snapshot may replace their acks (PROTOCOL §5)."""
        last = acks_of(snapshot)
        for request_id in last.keys() & ({held.request_id for held in self._kept} | set(self._sent)):
            sent = self._sent.get(request_id)
            if sent is None or sent.ack != last[request_id]:
                self._settle(last[request_id])

    def _forget(self, request_id: str) -> None:
        self.sender.settle(request_id)
        self._say()

    # The connection.

    def _catch_up(self) -> None:
        """Become `live` when the connection has sent the missed events and all held commands were posted again."""
        if self.connection.state == "catching_up" and self._is_told and self.sender.is_done:
            self._connect(Connection("live"))

    def _say(self) -> None:
        self._connect(self.connection)
        self._catch_up()
        self._changed.tell()

    def _connect(self, connection: Connection) -> None:
        now = replace(connection, held_count=self.held_count)
        if now == self.connection:
            return
        self.connection = now
        self._listeners.put(now)
        if self._on_state is not None:
            self._on_state(now)
        self._changed.tell()
