"""Finds a response in its chat's log, and follows it from there.

A response is projected again from the beginning of its run, so that its frames have the same numbers at every process
and after a takeover. The log holds at least the newest 2,000 events. If it no longer holds the beginning of a response,
the response is reconstructed from its messages: with the same text, calls and end, in fewer frames.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.types import Receive, Scope, Send

from threadcast.api.edge import Edge
from threadcast.api.errors import STATUS_OF_CODE, answer
from threadcast.api.run_watch import RunWatch, join_chat
from threadcast.chat.entries import FORMAT_VERSION
from threadcast.chat.owner_state import OwnerState
from threadcast.compat.base import RunSlice
from threadcast.compat.responses.response_ids import ResponseId
from threadcast.compat.responses.response_stream import ECHO, ResponseStream, error_object
from threadcast.compat.run_answer import RunAnswer
from threadcast.store.load import load_folded
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.framing.codec import decode_events
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning
from threadcast_protocol.wire.errors import NotFound, Unavailable
from threadcast_protocol.wire.events import (
    Ack,
    Event,
    IdeToolRequired,
    MessageAdded,
    RuntimeUpdated,
    StreamDelta,
    StreamFinished,
    StreamStarted,
    ToolStatus,
)
from threadcast_protocol.wire.messages import JsonObject, Message, text_of
from threadcast_protocol.wire.principal import Principal

__all__ = ["Found", "ResponseAnswer", "ResponseSlice", "echo_of", "find_response", "messages_as_events"]


INBOX_READ_MAX = 200
"""The maximum number of commands of the inbox that are read to find the unprocessed command of a response. An inbox
holds about 100 commands (PROTOCOL §18)."""


class ResponseSlice(RunSlice):
    """Finds the events of a response: the events of the run that its message began, or the events after the command
    that continues a waiting run. `client_calls` are the run's calls of client tools before that command, and `message`
    is the message that began the run. `continues` is true if the command continues a waiting run; the id of a stored
    response also contains this information."""

    continues = False

    def __init__(self, own_id: ResponseId, run_id: str | None = None) -> None:
        super().__init__(own_id.request_id, run_id)
        self.client_calls: set[str] = set()
        self.message: Message | None = None
        self._own_id = own_id

    def _look_for_run(self, event: Event) -> None:
        super()._look_for_run(event)
        match event:
            case IdeToolRequired():
                self.client_calls.add(event.tool_call_id)
            case MessageAdded(message=message) if message.client_request_id == self._own_id.request_id:
                self.message = message
            case Ack(client_request_id=request_id, accepted=True) if request_id == self._own_id.request_id:
                if self.continues or self._own_id.kind == "n":
                    self.run_id = self._open_run_id
            case _:
                pass


class Found:
    """A response that was found: its projection up to now, and the state of its chat. `trimmed` is the message that
    began the response if the log no longer holds the response's beginning."""

    def __init__(
        self, stream: ResponseStream, run: ResponseSlice, state: OwnerState, trimmed: Message | None = None
    ) -> None:
        self.stream = stream
        self.run = run
        self.state = state
        self.trimmed = trimmed

    def stream_after(self, own_id: ResponseId, after: int) -> ResponseStream:
        """Return a projection that sends the events after the number `after`. If the response was reconstructed, its
        events have other numbers. Its last event contains the whole response, so this event is sent in any case."""
        if self.trimmed is not None:
            after = min(after, self.stream.last_number - 1 if self.stream.is_done else self.stream.last_number)
        calls = set(self.run.client_calls)
        return ResponseStream(own_id, self.stream.echo, starting_after=after, client_calls=calls)


def echo_of(message: Message | None) -> JsonObject:
    """Return the fields of the request that began the response with this message."""
    echo = message.context.get(ECHO) if message is not None else None
    return echo if isinstance(echo, dict) else {}


async def find_response(edge: Edge, principal: Principal, own_id: ResponseId, starting_after: int = -1) -> Found:
    """Return a response with its present state. Its `stream` has already made the frames up to now.

    Raises:
        NotFound: the caller has no such response.
        Unavailable: the store does not answer.
    """
    try:
        await edge.own(own_id.chat_id, principal)
    except NotFound:
        raise NotFound("no such response") from None
    # The inbox is read before the log, because a command leaves the inbox when it enters the log.
    inbox = await edge.store.read_inbox(own_id.chat_id, INBOX_READ_MAX)
    waits = any(f'"{own_id.request_id}"'.encode() in entry.body for entry in inbox)
    # The state is read last, so that the state contains all answers that the events mention.
    run, events, _ = await _read(edge, own_id)
    state, _ = await load_folded(edge.store, own_id.chat_id, with_facts=False)
    found = next((each for each in state.nodes.values() if each.client_request_id == own_id.request_id), None)
    waits = waits or _waits(state, own_id)
    if own_id.kind == "s" and found is None and run.refusal is None and not waits:
        raise NotFound("no such response")
    if run.run_id is None and found is None and own_id.kind == "n" and not waits:
        raise NotFound("no such response, or the log of its chat no longer has it")
    trimmed = found if run.run_id is None else None
    if trimmed is not None:
        run, events = messages_as_events(state, own_id, trimmed)
    stream = ResponseStream(own_id, echo_of(run.message or found), client_calls=set(run.client_calls))
    if (message := run.message or found) is not None:
        stream.show_input(message)
    stream.begin()
    if run.run_id is None and run.refusal is None:
        stream.status = "queued"
    for event in events:
        stream.feed(event)
    if run.refusal is not None:
        stream.fail(*run.refusal)
    if stream.answer_ids and not any(each in state.nodes for each in stream.answer_ids):
        raise NotFound("no such response")
    return Found(stream, run, state, trimmed)


def _waits(state: OwnerState, own_id: ResponseId) -> bool:
    return any(item.client_request_id == own_id.request_id for item in state.runtime.queued_items)


async def _read(edge: Edge, own_id: ResponseId) -> tuple[ResponseSlice, list[Event], str]:
    """Return the events of a response that the log holds, and the head after them. Raises Unavailable."""
    run, events, head = ResponseSlice(own_id), list[Event](), ""
    page = await edge.store.read_log(own_id.chat_id)
    while page:
        for entry in page:
            if (head and entry.before != head) or entry.version > FORMAT_VERSION:
                raise Unavailable("the log of this chat changed while it was read; try again")
            events += [event for event in decode_events(entry.events) if run.take(event)]
            head = entry.head
        page = await edge.store.read_log(own_id.chat_id, after=page[-1].entry_id)
    return run, events, head


def messages_as_events(state: ChatState, own_id: ResponseId, first: Message) -> tuple[ResponseSlice, list[Event]]:
    """Return events reconstructed from the messages of the tree, for a response whose events are no longer in the
    log."""
    run = ResponseSlice(own_id, state.runtime.run_id or "ended")
    run.message = first
    events: list[Event] = []
    at = first.message_id
    children = {each.parent_id: each for each in state.nodes.values()}  # the newest answer wins
    path = set(state.path)
    children |= {each.parent_id: each for each in state.nodes.values() if each.message_id in path}
    while (message := children.get(at)) is not None and message.role != "user":
        at = message.message_id
        events += _events_of(message, state)
    is_open = not state.is_at_rest and at == (state.path[-1] if state.path else "")
    if not is_open:
        last = state.nodes[at]
        outcome = {"error": "error", "abort": "aborted"}.get(last.finish_reason or "", "complete")
        events.append(RuntimeUpdated(state="idle", outcome=outcome))
    elif state.runtime.state in ("paused", "waiting_ide"):
        events.append(RuntimeUpdated(state="waiting_ide"))
    run.has_ended = not is_open
    return run, events


def _events_of(message: Message, state: ChatState) -> list[Event]:
    own = message.message_id
    if message.role == "tool":
        return [MessageAdded(message=message, index=0)]
    if message.role != "assistant":
        return []
    events: list[Event] = [StreamStarted(message_id=own, model=message.model)]
    draft = state.draft if state.draft is not None and state.draft.message.message_id == own else None
    if reasoning := message.reasoning_content if draft is None else str(draft.reasoning):
        events.append(StreamDelta(message_id=own, ops=[AppendReasoning(reasoning)]))
    if text := text_of(message.content) if draft is None else str(draft.content):
        events.append(StreamDelta(message_id=own, ops=[AppendContent(text)]))
    if draft is not None:
        return events
    events.append(StreamFinished(message_id=own, finish_reason=message.finish_reason or "stop", usage=message.usage))
    waiting = {call.tool_call_id: call for call in state.runtime.ide_calls}
    for index, call in enumerate(message.tool_calls):
        name = call.function.name
        if (asked := waiting.get(call.id)) is not None:
            events.append(IdeToolRequired(tool_call_id=call.id, tool_name=name, args=asked.args))
        else:
            begun = ToolStatus(tool_call_id=call.id, name=name, message_id=own, index=index, status="running")
            events.append(begun)
    return events


class _Replay:
    """A watch that returns the given events of the log first, and then the events of another watch."""

    def __init__(self, events: Sequence[Event], watch: RunWatch) -> None:
        self._events: Sequence[Event] | None = events
        self._watch = watch

    async def next(self, within_seconds: float) -> Sequence[Event]:
        if self._events is not None:
            events, self._events = self._events, None
            return events
        return await self._watch.next(within_seconds)


class ResponseAnswer(RunAnswer):
    """The answer that follows a response. With `replays`, the answer begins with the events after the number `after` in
    the log, or with events reconstructed from the messages after `trimmed`."""

    replays = False
    trimmed: Message | None = None
    after = -1

    @asynccontextmanager
    async def _following(self) -> AsyncIterator[tuple[ChatState | None, RunWatch]]:
        store = self._edge.store
        async with store.follow(self._chat_id) as log_messages:
            events: list[Event] = []
            head = ""
            page = await store.read_log(self._chat_id)
            while page:
                for entry in page:
                    events += decode_events(entry.events)
                    head = entry.head
                page = await store.read_log(self._chat_id, after=page[-1].entry_id)
            if (first := await self._trimmed_meanwhile(events)) is not None:
                async with self._following_messages(first) as opened:
                    yield opened
                return
            watch = RunWatch(store, self._chat_id, log_messages, head)
            yield None, _Replay(events, watch)  # type: ignore[misc]  # has the one method that is used

    async def _trimmed_meanwhile(self, events: Sequence[Event]) -> Message | None:
        """Return the message that began the response if the response is no longer among `events`, the events of the
        log. The log may be trimmed after the response was found, and the answer would then wait for ever for the
        response's end."""
        stream = self._projection
        assert isinstance(stream, ResponseStream)
        run = ResponseSlice(stream.own_id)
        for event in events:
            run.take(event)
        if run.run_id is not None or run.refusal is not None:
            return None
        found = await find_response(self._edge, self._principal, stream.own_id)
        if found.trimmed is not None:
            self._projection = found.stream_after(stream.own_id, self.after)
        return found.trimmed

    @asynccontextmanager
    async def _following_messages(self, first: Message) -> AsyncIterator[tuple[ChatState | None, RunWatch]]:
        stream = self._projection
        assert isinstance(stream, ResponseStream)
        async with join_chat(self._edge.store, self._chat_id) as (state, watch):
            self._run, events = messages_as_events(state, stream.own_id, first)
            self._run.has_ended = False  # the response ends with the last of these events
            yield None, _Replay(events, watch)  # type: ignore[misc]  # as above

    def _opened(self):  # type: ignore[no-untyped-def]  # as RunAnswer._opened
        if self.replays and self.trimmed is not None:
            return self._following_messages(self.trimmed)
        return self._following() if self.replays else super()._opened()

    async def _tell_once(
        self, scope: Scope, receive: Receive, send: Send, state: ChatState | None, watch: RunWatch
    ) -> None:
        projection = self._projection
        async for _ in self._frames(state, watch):
            pass
        headers = {**self._more, "x-should-retry": "false"}
        if (refusal := self._run.refusal) is not None:
            status = STATUS_OF_CODE.get(refusal.code, 409)
            told = error_object(refusal.code, refusal.message, None)
            await answer(status, told, headers)(scope, receive, send)
            return
        await answer(200, projection.body(), self._more)(scope, receive, send)
