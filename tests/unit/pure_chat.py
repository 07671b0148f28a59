"""A chat without any I/O: commands, a scripted model and scripted tools drive the pure core, entry by entry.

`PureChat` is a minimal actor and agent loop: each step fills an entry builder, which becomes one entry with head,
digest and bytes as in the log. Tests draw random steps and then compare folds of the log.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from threadcast.actor.intake import carry_out
from threadcast.agent_loop.answer.final import say_final_word
from threadcast.agent_loop.outcomes import Answer, break_off, finish, summarized, tool_done
from threadcast.agent_loop.plan import advance, is_worked_on, stops
from threadcast.agent_loop.recovery import recover
from threadcast.agent_loop.steps import CallModel, RunTool, Step, Summarize, Wait
from threadcast.chat.entries import Fence, RawEntry
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.entry_fold import fold_entry
from threadcast.chat.internal_commands import InternalCommand
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.profiles.payload_types import Action, PayloadType
from threadcast.profiles.profile import ChatTools, Profile
from threadcast.tools.base import Tool, ToolResult
from threadcast_protocol.framing.codec import decode_events, encode
from threadcast_protocol.wire.commands import Command, UserMessage
from threadcast_protocol.wire.deltas import AppendContent, DeltaOp, SetToolCalls
from threadcast_protocol.wire.events import Ack, Event, StreamDelta
from threadcast_protocol.wire.failures import Failure
from threadcast_protocol.wire.ids import EntryId, Head
from threadcast_protocol.wire.messages import FunctionCall, JsonObject, ToolCall, Usage
from threadcast_protocol.wire.principal import LOCAL, Principal

__all__ = ["PureChat", "acks", "call", "say", "table"]


def table(
    tools: Mapping[str, Tool] | None = None,
    max_rounds: int = 20,
    windows: Mapping[str, int] | None = None,
    max_history_messages: int = 0,
    *,
    payload_types: Sequence[PayloadType] = (),
    actions: Mapping[str, Action] | None = None,
    **more: Any,  # Any: fields of a profile
) -> ChatTools:
    profile = Profile(
        name="agent",
        params={"max_rounds": max_rounds, "max_history_messages": max_history_messages},
        payload_types={kind.name: kind for kind in payload_types},
        actions=dict(actions or {}),
        **more,
    )
    return ChatTools(profile, tools or {}, frozenset(), "demo/echo", windows.get if windows else None)


class PureChat:
    """`entries` is the log so far, `final_acks` has its final acks, and `step` is the next step of a worker."""

    def __init__(
        self,
        tools: ChatTools | None = None,
        *commands: Command | InternalCommand,
        first_id: int = 1,
        chat_id: str = "c1",
    ) -> None:
        self.tools = tools or table()
        self.chat_id = chat_id
        self.state: OwnerState = empty_owner_state(chat_id)
        self.states: list[OwnerState] = [self.state]
        self.entries: list[RawEntry] = []
        self.events: list[Event] = []
        self.final_acks: list[tuple[str, bool]] = []
        self.step: Step = Wait()
        self.source: OwnerState | None = None
        self.now_ms = 1_000
        self._ids = itertools.count(first_id)
        self._epoch = 0
        self.fence("wake")
        for command in commands:
            self.command(command)

    @property
    def is_waiting(self) -> bool:
        """Whether the chat rests until the next command."""
        return isinstance(self.step, Wait)

    def new_id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._ids)}"

    def fence(self, why: str) -> None:
        """Append the fence of a new owner that takes the chat."""
        self._epoch += 100
        before = Head.parse(self.state.head) if self.state.head else Head(EntryId(0, 0), "", 0)
        entry_id = EntryId(self._epoch, before.entry_id.n + 1)
        head = str(Head(entry_id, f"f{self._epoch}", self.state.position))
        self._append(
            RawEntry(
                entry_id=entry_id,
                head=head,
                before=self.state.head,
                position=self.state.position,
                time_ms=0,
                version=0,
                fence=Fence("w1", why),
            )
        )

    def command(self, command: Command | InternalCommand, by: Principal = LOCAL) -> list[Event]:
        """Carry out one command as an actor does; an abort also ends the run's task."""
        is_stopped = stops(command, self.state)
        is_held = is_worked_on(self.state) and not is_stopped
        builder = self._builder()
        step = carry_out(
            lambda _: self.tools,
            builder,
            command,
            by,
            request_id=command.client_request_id,
            source=self.source,
            is_stopped=is_stopped,
        )
        self.step = self.step if is_held else step
        return self._commit(builder)

    def wake(self, now_ms: int) -> list[Event]:
        """Let a worker take the chat when its deadline is due."""
        self.now_ms = now_ms
        self.fence("wake")
        builder = self._builder()
        recover(builder, self.tools, can_continue=False)
        self.step = advance(builder, self.tools)
        return self._commit(builder)

    def stream(self, *ops: DeltaOp) -> list[Event]:
        """Add a part of the model's answer."""
        builder = self._builder()
        if builder.state.draft is not None:
            builder.say(StreamDelta(builder.state.draft.message.message_id, list(ops)))
        return self._commit(builder)

    def finish(
        self, reason: str = "stop", usage: Usage | None = None, *, words: str = "Yes.", has_nameless_calls: bool = False
    ) -> list[Event]:
        """End the model's answer. The text is `words` if the model has not written anything yet."""
        assert isinstance(self.step, CallModel)
        builder = self._builder()
        draft = builder.state.draft
        assert draft is not None
        if words and not draft.content and not draft.message.tool_calls:
            builder.say(StreamDelta(draft.message.message_id, [AppendContent(words)]))
        answer = Answer(
            calls=draft.message.tool_calls, finish_reason=reason, usage=usage, has_nameless_calls=has_nameless_calls
        )
        self.step = finish(builder, self.step, answer, self.tools)
        return self._commit(builder)

    def says(
        self, text: str, reason: str = "stop", usage: Usage | None = None, *, has_nameless_calls: bool = False
    ) -> list[Event]:
        """End the model's answer with this text."""
        self.stream(AppendContent(text))
        return self.finish(reason, usage, has_nameless_calls=has_nameless_calls)

    def asks(self, *calls: ToolCall) -> list[Event]:
        """End the model's answer with these calls."""
        self.stream(SetToolCalls(list(calls)))
        return self.finish()

    def break_off(self, code: str = "stream_error") -> list[Event]:
        """Break the model's answer off."""
        assert isinstance(self.step, CallModel)
        builder = self._builder()
        self.step = break_off(builder, self.step, Answer(), Failure(code=code, message="The model failed."), self.tools)
        return self._commit(builder)

    def tool_answers(
        self, content: str = "ok", *, failed: bool = False, **more: Any
    ) -> list[Event]:  # Any: of a result
        """Give this result to the running tool."""
        assert isinstance(self.step, RunTool)
        builder = self._builder()
        result = ToolResult(content=content, failed=failed, **more)
        self.step = tool_done(builder, self.step.call, result, 1, self.tools, rest=self.step.beside)
        return self._commit(builder)

    def summarizer_answers(self, text: str = "in short", usage: Usage | None = None) -> list[Event]:
        """Give this answer to the summarizer; '' lets it fail."""
        assert isinstance(self.step, Summarize)
        builder = self._builder()
        self.step = summarized(builder, self.step, text, 1, self.tools, usage)
        return self._commit(builder)

    def crash(self, *, can_continue: bool = False) -> list[Event]:
        """Let the owner die; another owner takes over and continues from the log alone."""
        self.state = self._folded()
        self.fence("takeover")
        builder = self._builder()
        recover(builder, self.tools, can_continue=can_continue)
        self.step = advance(builder, self.tools)
        return self._commit(builder)

    def write(self, write: Callable[[EntryBuilder], object]) -> list[Event]:
        """Append one entry with the events and facts that `write` adds."""
        builder = self._builder()
        write(builder)
        return self._commit(builder)

    def types(self, since: int = 0) -> list[str]:
        """Return the wire's names of the events from `since` on."""
        return [str(type(event).__struct_config__.tag) for event in self.events[since:]]

    def _builder(self) -> EntryBuilder:
        self.now_ms += 1
        tools = self.tools
        return EntryBuilder(
            self.state, self.now_ms, self.new_id, tools.profile.params, lambda it: say_final_word(it, tools)
        )

    def _commit(self, builder: EntryBuilder) -> list[Event]:
        if builder.is_empty:
            return []
        here = Head.parse(self.state.head)
        entry_id = EntryId(here.entry_id.epoch, here.entry_id.n + 1)
        position = self.state.position + len(builder.events)
        head = str(Head(entry_id, f"d{entry_id.n}", position))
        after = builder.as_committed(head, entry_id.epoch)
        self.final_acks += [(ack.request_id, ack.accepted) for ack in builder.acks if ack.final]
        self._append(
            RawEntry(
                entry_id=entry_id,
                head=head,
                before=self.state.head,
                position=position,
                time_ms=0,
                version=1,
                events=encode(builder.events),
                facts=encode(builder.facts) if builder.facts else b"",
                acks=encode(builder.acks) if builder.acks else b"",
            )
        )
        assert self.state == after, "what the ledger folded and what its bytes fold to differ"
        return decode_events(self.entries[-1].events)

    def _append(self, entry: RawEntry) -> None:
        self.state, events = fold_entry(self.state, entry, with_facts=True)
        self.entries.append(entry)
        self.events.extend(events)
        self.states.append(self.state)

    def _folded(self) -> OwnerState:
        state = empty_owner_state(self.chat_id)
        for entry in self.entries:
            state, _ = fold_entry(state, entry, with_facts=True)
        return state


def say(request_id: str, text: str = "hi", *, priority: bool = False, params: JsonObject | None = None) -> UserMessage:
    return UserMessage(client_request_id=request_id, content=text, priority=priority, params=params or {})


def acks(events: list[Event]) -> list[tuple[str, bool, JsonObject]]:
    return [(e.client_request_id, e.accepted, e.result) for e in events if isinstance(e, Ack)]


def call(call_id: str, name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(id=call_id, index=0, function=FunctionCall(name, arguments))
