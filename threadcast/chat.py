"""One live chat: its folded state, its events, and the commands that go to it.

`Chats` feeds it what the stream brings and runs its postman. It folds with the protocol's own reducer, so `state` is
what the server and every other client have. It knows no HTTP and no reconnecting. The one rule: what was sent is held
until the stream shows it (`ack`, a snapshot's acks, messages or queue) or it is refused.
"""

from collections.abc import Callable, Mapping
from typing import Literal
from urllib.parse import quote
from weakref import WeakValueDictionary

import anyio
from msgspec.structs import replace

from protocol.commands import Abort, Command, Regenerate, SetParams, ToolDecision, UserMessage
from protocol.events import Ack, Event, PauseReason, Snapshot
from protocol.messages import JsonObject, Message
from protocol.reducer import Gap, reduce
from protocol.snapshot import active_path, snapshot_of, state_from_snapshot
from protocol.state import ChatState, empty_state
from protocol.transient import Transient
from threadcast.answer import Answer
from threadcast.connection import Connection
from threadcast.errors import ChatLeft, NotFound, Refused, ThreadcastError, Unreachable, refusal
from threadcast.ids import new_request_id
from threadcast.listeners import Events, Listeners
from threadcast.outbox import Outbox
from threadcast.postman import Postman, held_of
from threadcast.reading import Arrival, Beat, Missed, RawEvent, event_of, position_of
from threadcast.sent import Sent
from threadcast.stream import Lost, Opened
from threadcast.tool_calls import Handler, ToolCalls
from threadcast.wire import Wire

__all__ = ["Chat"]

OnState = Callable[[Connection], None]


class Chat:
    """Made by `client.chat(…)`. `state` is what the chat is now (`protocol.state.ChatState`), `connection` how we stand
    to the server; both change while the program awaits."""

    def __init__(self, wire: Wire, chat_id: str, outbox: Outbox, *, name: str, on_state: OnState | None) -> None:
        self.id = chat_id
        self.state: ChatState = empty_state(chat_id)
        self.connection = Connection("offline")
        self.failure: ThreadcastError | None = None
        """Why the stream has ended for good; None while it goes on."""
        self._wire = wire
        self._outbox = outbox
        self._on_state = on_state
        self._has_snapshot = False
        self._is_told = False  # all that this connection had to tell first has come
        self._listeners = Listeners(lambda: snapshot_of(self.state))
        self._sent: WeakValueDictionary[str, Sent] = WeakValueDictionary()
        self._postman = Postman(wire, chat_id, outbox, self)
        self._tool_calls = ToolCalls(self, name, wire.patience)
        self._changed = anyio.Event()

    # Reading.

    @property
    def messages(self) -> list[Message]:
        """The active path, root first, with the unfinished answer as it stands."""
        return active_path(self.state)

    @property
    def questions(self) -> list[PauseReason]:
        """What a person must decide before the run goes on (`decide`)."""
        return self.state.runtime.pause_reasons if self.state.runtime.paused else []

    @property
    def held_count(self) -> int:
        """Commands sent and not yet shown by the stream."""
        return len(self._outbox.held(self.id))

    def events(self) -> Events:
        """A reader of its own: a `Snapshot` first, then every event as a struct of `protocol.events`, a `RawEvent` for
        what this version does not know, and `Connection` whenever that changes. A reader that falls 1,000 events
        behind gets a `Snapshot` in their place. `state` may be ahead of what a slow reader is given."""
        events = self._listeners.new()
        if self._has_snapshot:
            events.put(snapshot_of(self.state))
        events.put(self.connection)
        if self.failure is not None:
            events.end(self.failure)
        return events

    async def until(self, is_so: Callable[[ChatState], object], seconds: float | None = None) -> ChatState:
        """Wait for a state; it is asked after every event.

        Raises:
            Unreachable: not within `seconds`.
            ThreadcastError: the stream has ended for good.
        """
        with anyio.move_on_after(seconds):
            while not (self._has_snapshot and is_so(self.state)):
                if self.failure is not None:
                    raise self.failure
                await self._changed.wait()
            return self.state
        raise Unreachable(f"chat {self.id!r} did not come to that within {seconds:g} s; it is {self.connection}")

    async def at_rest(self, seconds: float | None = None) -> ChatState:
        """Wait until no run is open, nothing is queued, and all that was sent here has been seen. Raises as `until`."""
        return await self.until(
            lambda state: state.is_at_rest and not state.runtime.queue_size and not self.held_count, seconds
        )

    async def settled(self, seconds: float | None = None) -> None:
        """Wait until all that was sent here has been seen by the server. Raises as `until`."""
        await self.until(lambda _: not self.held_count, seconds)

    # Sending. Each returns at once; `await` what it returns to know what became of it.

    def send(self, what: str | list[JsonObject] | Command | JsonObject, **fields: object) -> Sent:
        """Send a message, or any command of `protocol.commands`. `fields` are those of `user_message` (PROTOCOL §2),
        such as `priority=True`, `interrupt=True`, `params={"model": …}` or `attachments=[…]`.

        Raises:
            OutboxFull: 100 commands wait already.
            ChatLeft: the chat's block is over.
            ThreadcastError: the stream has ended for good.
        """
        if self.failure is not None:
            raise self.failure
        command: Command | JsonObject
        if isinstance(what, str | list):
            command = {"client_request_id": new_request_id(), "type": "user_message", "content": what, **fields}
        elif fields:
            raise TypeError("fields go with a text; a command has its own")
        else:
            command = what
        held = held_of(self.id, command)
        sent = self._sent.get(held.request_id)
        if sent is None or sent.ack is not None or sent.refused is not None:  # else: the same command, sent once more
            sent = Sent(held.request_id, self._forget)
        self._postman.put(held)
        self._sent[held.request_id] = sent
        self._say()
        return sent

    def ask(self, what: str | list[JsonObject] | UserMessage, **fields: object) -> Answer:
        """Send a message; `await` its answer's text, or `async for` over the pieces. Raises as `send`."""
        events = self.events()
        return Answer(self.send(what, **fields), events)

    def abort(self, *, run_id: str | None = None, clear_queue: bool = False) -> Sent:
        """End the open run. Raises as `send`."""
        return self.send(Abort(client_request_id=new_request_id(), run_id=run_id, clear_queue=clear_queue))

    def decide(
        self,
        call_id: str,
        *,
        accepted: bool,
        remember: Literal["call", "tool", "server"] | None = None,
        edited_input: JsonObject | None = None,
        note: str | None = None,
    ) -> Sent:
        """Decide a paused call (PROTOCOL §11), bound to the arguments that this client was shown. One decision wins;
        waiting for a later one raises `NoPendingDecision`. Raises as `send`."""
        shown = next((reason.input_hash for reason in self.questions if reason.tool_call_id == call_id), "")
        return self.send(
            ToolDecision(
                client_request_id=new_request_id(),
                tool_call_id=call_id,
                accepted=accepted,
                remember=remember,
                edited_input=edited_input,
                input_hash=shown or None,
                note=note,
            )
        )

    def decide_preview(self, payload_id: str, *, accepted: bool, note: str | None = None) -> Sent:
        """Decide a preview (PROTOCOL §11), bound to the data that this client was shown. Raises as `send`."""
        shown = next((payload.input_hash for payload in self.state.payloads if payload.payload_id == payload_id), None)
        return self.send(
            ToolDecision(
                client_request_id=new_request_id(),
                payload_id=payload_id,
                accepted=accepted,
                input_hash=shown,
                note=note,
            )
        )

    def set_params(self, **patch: object) -> Sent:
        """Change parameters of the thread (PROTOCOL §16); None clears one. Raises as `send`."""
        return self.send(SetParams(client_request_id=new_request_id(), patch=patch))

    def regenerate(self, message_id: str | None = None, *, model: str | None = None) -> Sent:
        """Have the last answer written again. Raises as `send`."""
        return self.send(Regenerate(client_request_id=new_request_id(), message_id=message_id, model=model))

    async def cancel(self, sent: Sent) -> bool:
        """Take a waiting command back; False when it does not wait any more.

        Raises:
            Refused, Unreachable: the server does not let us, or is not there.
        """
        path = f"/v1/chats/{quote(self.id, safe='')}/queue/{quote(sent.request_id, safe='')}"
        try:
            await self._wire.ask("DELETE", path)
        except NotFound:
            return False
        self._forget(sent.request_id)
        return True

    def on_tool_call(self, name: str, handler: Handler) -> None:
        """Carry out the calls of a client tool (PROTOCOL §12), each behind a claim, so that only one client does it.
        `handler(**args)` returns a text or a `ToolAnswer`; what it raises is a failed result, and the model reads it.
        A coroutine is cancelled when the call is not wanted any more; a plain function runs in a thread."""
        self._tool_calls.add(name, handler)

    # What the stream and the postman tell.

    @property
    def postman(self) -> Postman:
        return self._postman

    @property
    def tool_calls(self) -> ToolCalls:
        return self._tool_calls

    def take(self, item: Opened | Lost | Arrival | Beat) -> None:
        """Something came. Raises Missed: only a snapshot helps."""
        match item:
            case Opened():
                self._is_told = False
                self._connect(Connection("catching_up"))
                self._postman.repost()
            case Lost():
                reason, seconds = item.reason, item.retry_in_seconds
                self._connect(Connection("offline", reason=reason, retry_in_seconds=seconds))
            case Beat():
                self._is_told = self._has_snapshot
                self._catch_up()
            case Arrival():
                self._fold(item)

    def accepted(self, request_id: str, body: Mapping[str, object]) -> None:
        if (sent := self._sent.get(request_id)) is not None:
            sent.take_accepted()
        if body.get("status") == "aborted" and self._has_snapshot and self.state.position == 0:
            # There is no such chat, so there is nothing to abort and nobody who would say so (PROTOCOL §1).
            self._settle(Ack(request_id, True, {"aborted": True, "noop": True}))
        if self.connection.state == "live" and self.connection.reason and self._postman.is_done:
            self._connect(Connection("live"))
        self._say()

    def refused(self, request_id: str, wrong: Refused) -> None:
        if (sent := self._sent.get(request_id)) is not None:
            sent.take_refusal(wrong)
        self._say()

    def long_done(self, request_id: str) -> None:
        self._settle(Ack(request_id, True, {"duplicate": True}))
        self._say()

    def delayed(self, reason: str, seconds: float) -> None:
        if self.connection.state != "offline":  # which has a reason of its own
            self._connect(Connection(self.connection.state, reason=reason, retry_in_seconds=seconds))

    def fail(self, wrong: ThreadcastError) -> None:
        """The stream has ended for good. What is held stays in the outbox."""
        if self.failure is not None:
            return
        self.failure = wrong
        if not isinstance(wrong, ChatLeft):
            self._connect(Connection("offline", reason=wrong.message))
        self._listeners.end(wrong)
        for sent in list(self._sent.values()):
            if sent.ack is None:
                sent.take_refusal(wrong)
        self._tell()

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
                self.state = _reduced(self.state, event)
                if isinstance(event, Ack):
                    self._settle(event)
        self._listeners.put(event)
        self._tool_calls.look()
        self._say()

    def _settle(self, ack: Ack) -> None:
        self._postman.settle(ack.client_request_id)
        if (sent := self._sent.get(ack.client_request_id)) is not None:
            if ack.accepted:
                sent.take_ack(ack)
            else:
                sent.take_refusal(refusal(str(ack.result.get("code", "")), str(ack.result.get("error", "refused"))))

    def _settle_shown(self, snapshot: Snapshot) -> None:
        """A snapshot may come in place of the ack (PROTOCOL §5)."""
        last: dict[str, Ack] = {ack.client_request_id: ack for ack in snapshot.recent_acks}
        shown = [message.client_request_id for message in snapshot.messages]
        shown += [item.client_request_id for item in snapshot.runtime.queued_items]
        for request_id in shown:
            if request_id:
                last.setdefault(request_id, Ack(request_id, True, {"queued": True}))
        own = {held.request_id for held in self._outbox.held(self.id)} | set(self._sent)
        for request_id in own & last.keys():
            sent = self._sent.get(request_id)
            if sent is None or sent.ack != last[request_id]:
                self._settle(last[request_id])

    def _forget(self, request_id: str) -> None:
        self._postman.settle(request_id)
        self._say()

    # The connection.

    def _catch_up(self) -> None:
        """After the first word of a connection, and once all that is held was posted again."""
        if self.connection.state == "catching_up" and self._is_told and self._postman.is_done:
            self._connect(Connection("live"))

    def _say(self) -> None:
        """The number of held commands has changed, perhaps."""
        self._connect(self.connection)
        self._catch_up()
        self._tell()

    def _connect(self, connection: Connection) -> None:
        now = Connection(connection.state, self.held_count, connection.reason, connection.retry_in_seconds)
        if now == self.connection:
            return
        self.connection = now
        self._listeners.put(now)
        if self._on_state is not None:
            self._on_state(now)
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


def _reduced(state: ChatState, event: Event) -> ChatState:
    """Raises Missed: the fold cannot take it, which no right server makes it do."""
    try:
        return reduce(state, state.position + 1, event)
    except (Gap, KeyError, IndexError) as wrong:
        raise Missed(f"an event that does not fit: {wrong}") from None
