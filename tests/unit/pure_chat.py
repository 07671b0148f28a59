"""A chat without any I/O: commands, a scripted model and scripted tools drive the pure core, entry by entry.

It plays what the actor and the agent loop play, in the smallest form: each step makes a ledger, which becomes one
entry with head, digest and bytes as in the log. Tests draw random steps and then hold the result to the law.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from protocol.codec import decode_events, encode
from protocol.commands import Command, InternalCommand, UserMessage
from protocol.decider import decide
from protocol.deltas import AppendContent, DeltaOp
from protocol.entries import Fence, RawEntry
from protocol.events import Ack, Event, StreamDelta
from protocol.failures import Failure
from protocol.ids import EntryId, Head
from protocol.ledger import Ledger
from protocol.messages import FunctionCall, JsonObject, ToolCall, Usage
from protocol.principal import LOCAL, Principal
from protocol.reducer import fold_entry
from protocol.state import ChatState, empty_state
from server.agent.answer.final import say_final_word
from server.agent.outcomes import Answer, break_off, finish, summarized, tool_done
from server.agent.place.payload_types import Action, PayloadType
from server.agent.place.profile import ChatTools, Profile
from server.agent.plan import advance, carry_out, is_worked_on, stops
from server.agent.recovery import recover
from server.agent.steps import CallModel, RunTool, Step, Summarize, Wait
from server.tools.base import Tool, ToolResult

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
    """`entries` is the log so far, `final_acks` what it says finally of commands; `step` is what a worker would now be
    doing outside."""

    def __init__(self, tools: ChatTools | None = None, first_id: int = 1, chat_id: str = "c1") -> None:
        self.tools = tools or table()
        self.chat_id = chat_id
        self.state: ChatState = empty_state(chat_id)
        self.states: list[ChatState] = [self.state]
        self.entries: list[RawEntry] = []
        self.events: list[Event] = []
        self.final_acks: list[tuple[str, bool]] = []
        self.step: Step = Wait()
        self.source: ChatState | None = None
        self.now_ms = 1_000
        self._ids = itertools.count(first_id)
        self._epoch = 0
        self.fence("wake")

    @property
    def is_waiting(self) -> bool:
        """Nothing is to be done until the next command."""
        return isinstance(self.step, Wait)

    def new_id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._ids)}"

    def fence(self, why: str) -> None:
        """A new owner takes the chat."""
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
        """What an actor does with one command, the stopping of a turn by an abort included."""
        is_stopped = stops(command, self.state)
        is_held = is_worked_on(self.state) and not is_stopped
        ledger = self._ledger()
        step = carry_out(
            ledger, self.tools, lambda it: decide(it, command, by, source=self.source), is_stopped=is_stopped
        )
        self.step = self.step if is_held else step
        return self._commit(ledger)

    def wake(self, now_ms: int) -> list[Event]:
        """The chat's timer is due: somebody takes it and looks."""
        self.now_ms = now_ms
        self.fence("wake")
        ledger = self._ledger()
        recover(ledger, self.tools, can_continue=False)
        self.step = advance(ledger, self.tools)
        return self._commit(ledger)

    def stream(self, *ops: DeltaOp) -> list[Event]:
        """The model says something."""
        ledger = self._ledger()
        if ledger.state.draft is not None:
            ledger.say(StreamDelta(ledger.state.draft.message.message_id, list(ops)))
        return self._commit(ledger)

    def finish(
        self, reason: str = "stop", usage: Usage | None = None, *, words: str = "Yes.", has_nameless_calls: bool = False
    ) -> list[Event]:
        """The model's answer is whole. It ends with `words` when it said nothing yet."""
        assert isinstance(self.step, CallModel)
        ledger = self._ledger()
        draft = ledger.state.draft
        assert draft is not None
        if words and not draft.content and not draft.message.tool_calls:
            ledger.say(StreamDelta(draft.message.message_id, [AppendContent(words)]))
        answer = Answer(
            calls=draft.message.tool_calls, finish_reason=reason, usage=usage, has_nameless_calls=has_nameless_calls
        )
        self.step = finish(ledger, self.step, answer, self.tools)
        return self._commit(ledger)

    def break_off(self, code: str = "stream_error") -> list[Event]:
        """The model's answer breaks."""
        assert isinstance(self.step, CallModel)
        ledger = self._ledger()
        self.step = break_off(ledger, self.step, Answer(), Failure(code=code, message="The model failed."), self.tools)
        return self._commit(ledger)

    def tool_answers(
        self, content: str = "ok", *, failed: bool = False, **more: Any
    ) -> list[Event]:  # Any: of a result
        """The tool that runs gives this result."""
        assert isinstance(self.step, RunTool)
        ledger = self._ledger()
        result = ToolResult(content=content, failed=failed, **more)
        self.step = tool_done(ledger, self.step.call, result, 1, self.tools, rest=self.step.beside)
        return self._commit(ledger)

    def summarizer_answers(self, text: str = "in short", usage: Usage | None = None) -> list[Event]:
        """The model that sums up says this; '' when it fails."""
        assert isinstance(self.step, Summarize)
        ledger = self._ledger()
        self.step = summarized(ledger, self.step, text, 1, self.tools, usage)
        return self._commit(ledger)

    def crash(self, *, can_continue: bool = False) -> list[Event]:
        """The owner dies; another takes over and goes on from the log alone."""
        self.state = self._folded()
        self.fence("takeover")
        ledger = self._ledger()
        recover(ledger, self.tools, can_continue=can_continue)
        self.step = advance(ledger, self.tools)
        return self._commit(ledger)

    def write(self, write: Callable[[Ledger], object]) -> list[Event]:
        """One entry of whatever `write` says and notes."""
        ledger = self._ledger()
        write(ledger)
        return self._commit(ledger)

    def types(self, since: int = 0) -> list[str]:
        """The wire's names of the events from `since` on."""
        return [str(type(event).__struct_config__.tag) for event in self.events[since:]]

    def _ledger(self) -> Ledger:
        self.now_ms += 1
        tools = self.tools
        return Ledger(self.state, self.now_ms, self.new_id, tools.profile.params, lambda it: say_final_word(it, tools))

    def _commit(self, ledger: Ledger) -> list[Event]:
        if ledger.is_empty:
            return []
        here = Head.parse(self.state.head)
        entry_id = EntryId(here.entry_id.epoch, here.entry_id.n + 1)
        position = self.state.position + len(ledger.events)
        head = str(Head(entry_id, f"d{entry_id.n}", position))
        after = ledger.as_committed(head, entry_id.epoch)
        self.final_acks += [(ack.request_id, ack.accepted) for ack in ledger.acks if ack.final]
        self._append(
            RawEntry(
                entry_id=entry_id,
                head=head,
                before=self.state.head,
                position=position,
                time_ms=0,
                version=1,
                events=encode(ledger.events),
                facts=encode(ledger.facts) if ledger.facts else b"",
                acks=encode(ledger.acks) if ledger.acks else b"",
            )
        )
        assert self.state == after, "what the ledger folded and what its bytes fold to differ"
        return decode_events(self.entries[-1].events)

    def _append(self, entry: RawEntry) -> None:
        self.state, events = fold_entry(self.state, entry, with_facts=True)
        self.entries.append(entry)
        self.events.extend(events)
        self.states.append(self.state)

    def _folded(self) -> ChatState:
        state = empty_state(self.chat_id)
        for entry in self.entries:
            state, _ = fold_entry(state, entry, with_facts=True)
        return state


def say(request_id: str, text: str = "hi", *, priority: bool = False, params: JsonObject | None = None) -> UserMessage:
    return UserMessage(client_request_id=request_id, content=text, priority=priority, params=params or {})


def acks(events: list[Event]) -> list[tuple[str, bool, JsonObject]]:
    return [(e.client_request_id, e.accepted, e.result) for e in events if isinstance(e, Ack)]


def call(call_id: str, name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(id=call_id, index=0, function=FunctionCall(name, arguments))
