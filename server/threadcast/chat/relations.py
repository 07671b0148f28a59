"""Defines a chat's relations: its parent, its children and processes, and its undelivered outbound messages.

The module has structs, private facts and the fold of these facts. The module imports no other module of the chat, so
that `owner_state.py` and `facts.py` can import the structs. Relations never leave the server. The server trusts the
parent recorded here, not the thread's `parent_id`, which clients may set to any value.
"""

from typing import TypeAlias

import msgspec
from msgspec.structs import asdict, replace

from threadcast_protocol.wire.principal import Principal

__all__ = [
    "CallClosed",
    "Child",
    "ChildEnded",
    "ChildOpened",
    "OutboundMessage",
    "OutboundQueued",
    "OutboundSent",
    "Parent",
    "ParentBound",
    "ParentTold",
    "Process",
    "ProcessEnded",
    "ProcessStarted",
    "RelationFact",
    "Relations",
    "Wake",
    "WakeNoted",
    "WakeSettled",
    "fold_relation",
]


class OutboundMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command of the server for another chat of the same principal. `outbound_id` is the request id of the command,
    so that the other chat ignores a repeated delivery as a duplicate. `body` is the JSON of the command. `creates`
    means that the command may create the other chat."""

    outbound_id: str = msgspec.field(name="mail_id")
    chat_id: str
    body: str
    creates: bool = False


class Parent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The chat whose tool started this chat. `depth` is 1 for a child of a chat that a user started. `is_told` means
    that the report of this chat's end was sent. `epoch` is the parent's epoch when this chat was started, which
    distinguishes the parent from a later chat with the same id; 0 means that the epoch was not recorded. `tainted_by`
    are the untrusted sources whose content the first message may repeat."""

    chat_id: str
    depth: int
    is_told: bool = False
    epoch: int = 0
    tainted_by: list[str] = []


class Child(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A chat that the tool call `tool_call_id` started. `name` distinguishes the children of one call. `principal` is
    the principal of the run. `outcome`, `text` and `message_id` are set when the child has ended. `is_call_open` means
    that the call may still use the child's result."""

    chat_id: str
    tool_call_id: str
    name: str
    title: str
    principal: Principal
    started_at_ms: int
    is_background: bool = False
    wakes: bool = False
    outcome: str | None = None
    text: str = ""
    message_id: str | None = None
    is_call_open: bool = True


class Process(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process of the operating system that runs on `worker` while that worker owns this chat."""

    process_id: str
    worker: str
    description: str
    principal: Principal
    wakes: bool = False


class Wake(msgspec.Struct, frozen=True, kw_only=True):
    """Records that background work ended while the run `run_id` was in `round`. The model reads about the end in a
    later round of that run, or in a new run."""

    run_id: str
    round: int
    principal: Principal
    cause: str


class Relations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The relations of a chat. `outbox` has the undelivered messages; `wake` is the wake that is not settled yet."""

    parent: Parent | None = None
    children: tuple[Child, ...] = ()
    processes: tuple[Process, ...] = ()
    outbox: tuple[OutboundMessage, ...] = ()
    wake: Wake | None = None

    def child(self, chat_id: str) -> Child | None:
        """Return the child with this id, or None."""
        return next((child for child in self.children if child.chat_id == chat_id), None)

    @property
    def running(self) -> tuple[Child, ...]:
        """The children that have not ended."""
        return tuple(child for child in self.children if child.outcome is None)


class _Fact(msgspec.Struct, frozen=True, tag_field="fact", omit_defaults=True, kw_only=True):
    """The base of the facts of this module. `fact` is the tag of the JSON."""


class OutboundQueued(_Fact, frozen=True, tag="mail_owed"):
    """A message was added to the outbox."""

    message: OutboundMessage = msgspec.field(name="mail")


class OutboundSent(_Fact, frozen=True, tag="mail_sent"):
    """These messages were delivered, or cannot be delivered."""

    outbound_ids: list[str] = msgspec.field(name="mail_ids")


class ParentBound(_Fact, frozen=True, tag="parent_bound"):
    """The chat has a parent."""

    parent: Parent


class ParentTold(_Fact, frozen=True, tag="parent_told"):
    """The report of this chat's end to its parent is in the outbox."""


class ChildOpened(_Fact, frozen=True, tag="child_opened"):
    """The chat has opened a child."""

    child: Child


class ChildEnded(_Fact, frozen=True, tag="child_ended"):
    """A child has ended."""

    chat_id: str
    outcome: str
    text: str = ""
    message_id: str | None = None


class CallClosed(_Fact, frozen=True, tag="call_closed"):
    """The call was answered, so the results of its children are no longer needed."""

    tool_call_id: str


class ProcessStarted(_Fact, frozen=True, tag="process_started"):
    """A process is about to start."""

    process: Process


class ProcessEnded(_Fact, frozen=True, tag="process_ended"):
    """A process has ended."""

    process_id: str


class WakeNoted(_Fact, frozen=True, tag="wake_noted"):
    """Background work has ended, and the model must read about the end."""

    wake: Wake


class WakeSettled(_Fact, frozen=True, tag="wake_settled"):
    """The noted wake needs no further run."""


RelationFact: TypeAlias = (
    OutboundQueued
    | OutboundSent
    | ParentBound
    | ParentTold
    | ChildOpened
    | ChildEnded
    | CallClosed
    | ProcessStarted
    | ProcessEnded
    | WakeNoted
    | WakeSettled
)


def fold_relation(relations: Relations, fact: RelationFact) -> Relations:
    """Return the relations after `fact`. A fact about an unknown child or process changes nothing."""
    match fact:
        case OutboundQueued():
            return replace(relations, outbox=(*relations.outbox, fact.message))
        case OutboundSent():
            left = tuple(message for message in relations.outbox if message.outbound_id not in fact.outbound_ids)
            return replace(relations, outbox=left)
        case ParentBound():
            return replace(relations, parent=fact.parent)
        case ParentTold():
            parent = relations.parent
            return relations if parent is None else replace(relations, parent=replace(parent, is_told=True))
        case ChildOpened():
            return replace(relations, children=(*relations.children, fact.child))
        case ChildEnded():
            return replace(relations, children=_after_end(relations.children, fact))
        case CallClosed():
            return replace(relations, children=_after_close(relations.children, fact.tool_call_id))
        case ProcessStarted():
            return replace(relations, processes=(*relations.processes, fact.process))
        case ProcessEnded():
            left_running = tuple(each for each in relations.processes if each.process_id != fact.process_id)
            return replace(relations, processes=left_running)
        case WakeNoted():
            return replace(relations, wake=fact.wake)
        case WakeSettled():
            return replace(relations, wake=None)


def _after_end(children: tuple[Child, ...], end: ChildEnded) -> tuple[Child, ...]:
    """Return the children after one of them has ended. The ended child is kept only while its call is open."""
    return tuple(
        child if child.chat_id != end.chat_id else replace(child, **asdict(end))
        for child in children
        if child.chat_id != end.chat_id or child.is_call_open
    )


def _after_close(children: tuple[Child, ...], tool_call_id: str) -> tuple[Child, ...]:
    """Return the children without the children of the ended call. The call's running children in the background are
    kept."""
    return tuple(
        child if child.tool_call_id != tool_call_id else replace(child, is_call_open=False)
        for child in children
        if child.tool_call_id != tool_call_id or (child.is_background and child.outcome is None)
    )
