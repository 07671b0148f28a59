"""What the owner of a chat remembers of its neighbours: the chat that began it, the chats and processes it began, and
the mail it still owes them.

Structs, private facts and their only fold; leaves of the tree of imports, so that `state.py` and `facts.py` can hold
them. Nothing here leaves the server. The one rule: who is whose parent stands here, never in the thread's `parent_id`,
which clients may set as they like.
"""

from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from protocol.principal import Principal

__all__ = [
    "CallClosed",
    "Child",
    "ChildEnded",
    "ChildOpened",
    "Mail",
    "MailOwed",
    "MailSent",
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


class Mail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command of ours for another chat of the same owner. `mail_id` is its request id there, so that a repeat is a
    duplicate; `body` its JSON. `creates`: that chat may come into being with it."""

    mail_id: str
    chat_id: str
    body: str
    creates: bool = False


class Parent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The chat whose tool began this one. `depth` counts from 1 below a chat that a person began. `is_told`: it knows
    how this one ended. `epoch` is the parent's at that time, so that a later life of it is told from the one it had; 0
    where that was not written down."""

    chat_id: str
    depth: int
    is_told: bool = False
    epoch: int = 0


class Child(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A chat that the tool call `tool_call_id` began; `name` tells several of one call apart. `principal` is the one of
    the run. `outcome`, `text` and `message_id` are how it ended. `is_call_open`: the call may still ask for it."""

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
    """A process of the operating system that runs at `worker`, for as long as that worker owns this chat."""

    process_id: str
    worker: str
    description: str
    principal: Principal
    wakes: bool = False


class Wake(msgspec.Struct, frozen=True, kw_only=True):
    """Something ended while the run `run_id` was in `round`, and its model is to hear of it: by a later round of that
    run, or by a run of its own."""

    run_id: str
    round: int
    principal: Principal
    cause: str


class Relations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    parent: Parent | None = None
    children: tuple[Child, ...] = ()
    processes: tuple[Process, ...] = ()
    outbox: tuple[Mail, ...] = ()
    wake: Wake | None = None

    def child(self, chat_id: str) -> Child | None:
        return next((child for child in self.children if child.chat_id == chat_id), None)

    @property
    def running(self) -> tuple[Child, ...]:
        return tuple(child for child in self.children if child.outcome is None)


class _Fact(msgspec.Struct, frozen=True, tag_field="fact", omit_defaults=True, kw_only=True):
    pass


class MailOwed(_Fact, frozen=True, tag="mail_owed"):
    mail: Mail


class MailSent(_Fact, frozen=True, tag="mail_sent"):
    """Delivered, or known to be undeliverable."""

    mail_ids: list[str]


class ParentBound(_Fact, frozen=True, tag="parent_bound"):
    parent: Parent


class ParentTold(_Fact, frozen=True, tag="parent_told"):
    pass


class ChildOpened(_Fact, frozen=True, tag="child_opened"):
    child: Child


class ChildEnded(_Fact, frozen=True, tag="child_ended"):
    chat_id: str
    outcome: str
    text: str = ""
    message_id: str | None = None


class CallClosed(_Fact, frozen=True, tag="call_closed"):
    """The call was answered: nobody asks for its children any more."""

    tool_call_id: str


class ProcessStarted(_Fact, frozen=True, tag="process_started"):
    process: Process


class ProcessEnded(_Fact, frozen=True, tag="process_ended"):
    process_id: str


class WakeNoted(_Fact, frozen=True, tag="wake_noted"):
    wake: Wake


class WakeSettled(_Fact, frozen=True, tag="wake_settled"):
    pass


RelationFact: TypeAlias = (
    MailOwed
    | MailSent
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
    """The relations after `fact`. Total: a fact about a child or process that is not known changes nothing."""
    match fact:
        case MailOwed():
            return replace(relations, outbox=(*relations.outbox, fact.mail))
        case MailSent():
            left = tuple(mail for mail in relations.outbox if mail.mail_id not in fact.mail_ids)
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
    """What ended stays for as long as its call may ask for it."""
    kept: list[Child] = []
    for child in children:
        if child.chat_id != end.chat_id:
            kept.append(child)
        elif child.is_call_open:
            kept.append(replace(child, outcome=end.outcome, text=end.text, message_id=end.message_id))
    return tuple(kept)


def _after_close(children: tuple[Child, ...], tool_call_id: str) -> tuple[Child, ...]:
    """Of the call's children only background work that goes on is kept."""
    return tuple(
        child if child.tool_call_id != tool_call_id else replace(child, is_call_open=False)
        for child in children
        if child.tool_call_id != tool_call_id or (child.is_background and child.outcome is None)
    )
