"""Builds an entry of a chat's log: its events, private facts and acks.

The pure functions that decide (`decider.py`, `runs.py`, the agent's plan) add events, facts and acks to an
`EntryBuilder`. The builder folds each event and fact at once, so that the next function sees the new state. The actor
appends the finished entry to the log. The time and the source of ids are arguments, so the builder needs no store and
no clock.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from threadcast.chat.entries import FORMAT_VERSION, EntryAck
from threadcast.chat.fact_fold import fold_fact
from threadcast.chat.facts import Fact
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.params import effective
from threadcast_protocol.fold.reducer import reduce_added, reduce_event, reduce_payloads
from threadcast_protocol.fold.tree import placed
from threadcast_protocol.framing.codec import Relayed
from threadcast_protocol.wire.events import Ack, Event, MessageAdded, MessagesTruncated, PayloadAdded
from threadcast_protocol.wire.ids import NewId
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.principal import LOCAL, SYSTEM, Principal

__all__ = ["EntryBuilder", "shown_name"]


class EntryBuilder:
    """Builds one entry. `state` is the state after all events and facts so far. `now_ms` is the time in Unix
    milliseconds. `profile_params` are the default parameters of the chat's profile, or a function that returns these
    parameters for a state. `before_end` is called before any run ends."""

    def __init__(
        self,
        state: OwnerState,
        now_ms: int,
        new_id: NewId,
        profile_params: "JsonObject | Callable[[OwnerState], JsonObject] | None" = None,
        before_end: "Callable[[EntryBuilder], None] | None" = None,
    ) -> None:
        self.state = state
        self.now_ms = now_ms
        self.new_id = new_id
        self._profile_params = profile_params or {}
        self.before_end = before_end
        self.events: list[Event | Relayed] = []
        self.facts: list[Fact] = []
        self.acks: list[EntryAck] = []
        self.copied_for = ""
        """The request id of the command for which `begin_with` was called. Such an entry may be written in parts."""

    @property
    def profile_params(self) -> JsonObject:
        """The default parameters of the present profile, which an earlier event of this entry may have changed."""
        return self._profile_params(self.state) if callable(self._profile_params) else self._profile_params

    def param(self, key: str) -> Any:  # Any: each key has the type of its field in ThreadPatch
        """Return the effective value of a parameter (SET-1)."""
        return effective(self.state, key, self.profile_params).value

    @property
    def is_empty(self) -> bool:
        """Whether the entry is still empty."""
        return not (self.events or self.facts or self.acks)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Undo everything that the block has added if the block raises an exception, and raise the exception again."""
        state, copied_for = self.state, self.copied_for
        counts = len(self.events), len(self.facts), len(self.acks)
        try:
            yield
        except BaseException:
            self.state, self.copied_for = state, copied_for
            del self.events[counts[0] :], self.facts[counts[1] :], self.acks[counts[2] :]
            raise

    def say(self, event: Event | Relayed) -> None:
        """Add a public event."""
        self.events.append(event)
        if not isinstance(event, Relayed):
            self.state = reduce_event(self.state, event)

    def note(self, fact: Fact) -> None:
        """Add a private fact."""
        self.facts.append(fact)
        self.state = replace(self.state, private=fold_fact(self.state.private, fact))

    def accept(self, request_id: str, result: JsonObject, *, by: Principal, final: bool) -> None:
        """Add the positive ack of a client's command. If `final` is false, the command waits in the queue and takes
        effect later."""
        self.say(Ack(request_id, True, result, shown_name(by)))
        self.acks.append(EntryAck(request_id, True, final))

    def refuse(self, request_id: str, code: str, error: str, *, by: Principal) -> None:
        """Add the negative, final ack of a client's command (PROTOCOL §3)."""
        self.say(Ack(request_id, False, {"error": error, "code": code}, shown_name(by)))
        self.acks.append(EntryAck(request_id, False, True))

    def settle(self, request_id: str, accepted: bool) -> None:
        """Mark a command as finished, without an ack event. HTTP requests that wait for the command then return."""
        self.acks.append(EntryAck(request_id, accepted, True))

    def add_message(self, message: Message) -> None:
        """Append `message` to the active path, or replace the message with the same id on the path (TREE-2)."""
        path, key = self.state.path, message.message_id
        index = len(path)
        if path[-1:] == (key,):
            index -= 1
        elif key in self.state.nodes and key in path:
            index = path.index(key)
        parent_id = path[index - 1] if index else None
        self.say(MessageAdded(placed(self.state.nodes, message, parent_id), index))

    def begin_with(self, messages: Sequence[Message], request_id: str) -> None:
        """Add the first messages of an empty chat for a command, each as the child of the message before, in linear
        time."""
        self.copied_for = request_id
        parents = (None, *(message.message_id for message in messages))
        chained = (
            replace(message, parent_id=parent_id, sibling_ids=[message.message_id], sibling_index=0)
            for message, parent_id in zip(messages, parents, strict=False)
        )
        self.say_added([MessageAdded(message, index) for index, message in enumerate(chained)])

    def say_added(self, added: Sequence[MessageAdded | MessagesTruncated]) -> None:
        """Add many messages that already have their places in the tree, and the cuts of the path between them. The path
        can be cut only while no answer is being written."""
        if added:
            self.events.extend(added)
            self.state = reduce_added(self.state, added)

    def say_payloads(self, added: Sequence[PayloadAdded]) -> None:
        """Add many new payloads at once."""
        if added:
            self.events.extend(added)
            self.state = reduce_payloads(self.state, added)

    def as_committed(self, head: str, epoch: int) -> OwnerState:
        """Return the state after this entry was appended with the head string `head`. A reader that folds the entry
        gets the same state."""
        return replace(
            self.state,
            head=head,
            version=max(self.state.version, FORMAT_VERSION),
            epoch=epoch,
            position=self.state.position + len(self.events),
        )


def shown_name(principal: Principal) -> str | None:
    """Return the name of the principal in events, or None for the server and for callers without a token (PROTOCOL
    §1)."""
    return None if principal in (LOCAL, SYSTEM) else principal.id
