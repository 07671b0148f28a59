"""One entry in the making: what is said, noted and answered, folded as it is written down.

Pure functions that decide (`decider.py`, `runs.py`, the agent's plan) take a ledger and add to it; each sees the state
that the lines before made. The actor turns a finished ledger into one append. A ledger knows no store and no clock:
time and ids come with it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from protocol.codec import EntryAck
from protocol.entries import FORMAT_VERSION
from protocol.events import Ack, Event, MessageAdded, MessagesTruncated, PayloadAdded, Relayed
from protocol.fact_fold import fold_fact
from protocol.facts import Fact
from protocol.ids import NewId
from protocol.messages import JsonObject, Message
from protocol.params import effective
from protocol.principal import LOCAL, SYSTEM, Principal
from protocol.reducer import reduce_added, reduce_event, reduce_payloads
from protocol.state import ChatState
from protocol.tree import placed

__all__ = ["Ledger", "shown_name"]


class Ledger:
    """`state` is the state after all that was said so far; `now_ms` is Unix milliseconds. `profile_params` are the
    defaults of the chat's profile; `before_end` has the last word on a run, whatever ends it."""

    def __init__(
        self,
        state: ChatState,
        now_ms: int,
        new_id: NewId,
        profile_params: "JsonObject | Callable[[ChatState], JsonObject] | None" = None,
        before_end: "Callable[[Ledger], None] | None" = None,
    ) -> None:
        self.state = state
        self.now_ms = now_ms
        self.new_id = new_id
        self._profile_params = profile_params or {}
        self.before_end = before_end
        self.events: list[Event | Relayed] = []
        self.facts: list[Fact] = []
        self.acks: list[EntryAck] = []

    @property
    def profile_params(self) -> JsonObject:
        """As they are now: a command that begins a run may have chosen another profile for it."""
        return self._profile_params(self.state) if callable(self._profile_params) else self._profile_params

    def param(self, key: str) -> Any:  # Any: each key has the type of its field in ThreadPatch
        """The value that holds now, from the layer that decides it (SET-1)."""
        return effective(self.state, key, self.profile_params).value

    @property
    def is_empty(self) -> bool:
        return not (self.events or self.facts or self.acks)

    def say(self, event: Event | Relayed) -> None:
        """Make a public event happen."""
        self.events.append(event)
        if not isinstance(event, Relayed):
            self.state = reduce_event(self.state, event)

    def note(self, fact: Fact) -> None:
        """Remember a private fact."""
        self.facts.append(fact)
        self.state = replace(self.state, private=fold_fact(self.state.private, fact))

    def accept(self, request_id: str, result: JsonObject, *, by: Principal, final: bool) -> None:
        """The positive ack of a client's command. Not `final`: it waits, its effect comes later."""
        self.say(Ack(request_id, True, result, shown_name(by)))
        self.acks.append(EntryAck(request_id, True, final))

    def refuse(self, request_id: str, code: str, error: str, *, by: Principal) -> None:
        """The negative, final ack of a client's command (PROTOCOL §3)."""
        self.say(Ack(request_id, False, {"error": error, "code": code}, shown_name(by)))
        self.acks.append(EntryAck(request_id, False, True))

    def settle(self, request_id: str, accepted: bool) -> None:
        """A command has had its effect and needs no further ack event; who waits for it may go on."""
        self.acks.append(EntryAck(request_id, accepted, True))

    def add_message(self, message: Message) -> None:
        """Append `message` to the active path, or say the final word on one that is there (TREE-2)."""
        path = self.state.path
        index = path.index(message.message_id) if message.message_id in path else len(path)
        parent_id = path[index - 1] if index else None
        self.say(MessageAdded(placed(self.state.nodes, message, parent_id), index))

    def begin_with(self, messages: Sequence[Message]) -> None:
        """The first messages of a chat that has none, each below the one before; at the cost of their number."""
        added: list[MessageAdded | MessagesTruncated] = []
        parent_id = None
        for index, message in enumerate(messages):
            key = message.message_id
            placed_here = replace(message, parent_id=parent_id, sibling_ids=[key], sibling_index=0)
            added.append(MessageAdded(placed_here, index))
            parent_id = key
        self.say_added(added)

    def say_added(self, added: Sequence[MessageAdded | MessagesTruncated]) -> None:
        """Says many messages at once, placed already, and the cuts of the path between them; a cut only while no answer
        is being written."""
        if added:
            self.events.extend(added)
            self.state = reduce_added(self.state, added)

    def say_payloads(self, added: Sequence[PayloadAdded]) -> None:
        """Says many new payloads at once."""
        if added:
            self.events.extend(added)
            self.state = reduce_payloads(self.state, added)

    def as_committed(self, head: str, epoch: int) -> ChatState:
        """The state once this entry stands in the log under `head`: what folding the entry gives."""
        return replace(
            self.state,
            head=head,
            version=max(self.state.version, FORMAT_VERSION),
            epoch=epoch,
            position=self.state.position + len(self.events),
        )


def shown_name(principal: Principal) -> str | None:
    """Who acted, as events show it: nobody by name while auth is off (PROTOCOL §1)."""
    return None if principal in (LOCAL, SYSTEM) else principal.id
