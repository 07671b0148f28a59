"""Chats that a tool of another chat runs: how one is opened, how it begins, what its end means to its parent
(PROTOCOL §12).

Pure; three small decisions in two chats' ledgers, with letters between them (`outbox.py`). The parent's log knows a
child by call and name before anybody hears of it, so a call that is run again after a crash finds the child it had. The
rule: a child never outlives the call that waits for it; one in the background ends by itself or when it is stopped.
"""

from msgspec import UNSET, Struct, convert

from protocol.commands import BeginSubchat, SubchatFinished, UserMessage
from protocol.content import read_content
from protocol.errors import Conflict, Forbidden, NotFound
from protocol.events import BackgroundAgentUpdated, SubchatUpdate, ThreadUpdated
from protocol.ledger import Ledger
from protocol.messages import JsonObject, Message
from protocol.outbox import OPENING_MAX_MAIL, owe, stop, tell_parent
from protocol.queue import enqueue
from protocol.relations import Child, ChildEnded, ChildOpened, Parent, ParentBound
from protocol.starts import first_line, start_next
from protocol.state import ChatState, Run
from protocol.thread import ThreadChanges, read_patch
from protocol.wakes import tell_model, wake

__all__ = [
    "AGENT_SUMMARY_MAX_CHARACTERS",
    "CHILDREN_KEPT_MAX",
    "DEPTH_MAX",
    "RUNNING_MAX",
    "Wanted",
    "begin_failed",
    "begin_subchat",
    "child_ended",
    "find_child",
    "open_child",
    "stop_agent",
]

DEPTH_MAX = 4
"""A model that delegates to a model that delegates: deeper ones have lost the question."""

RUNNING_MAX = 16
"""Children of one chat that run at once: a wide fan-out; more is a loop gone wild, each with a model's price."""

CHILDREN_KEPT_MAX = 64
"""Children that open calls may still ask for, with their answers: 4 MB of text at the most."""

AGENT_SUMMARY_MAX_CHARACTERS = 4_000
"""Of a background agent's answer in its event, which stands in every snapshot; its own chat has all of it."""

TITLE_MAX_CHARACTERS = 200
"""As of a thread (PROTOCOL §16)."""

_INHERITED = (
    "tools_disabled",
    "mcp_servers",
    "autonomous_no_confirm",
    "auto_approve_editing_tools",
    "auto_approve_dangerous_commands",
)
"""What a person allowed or took away holds below, too; a child must be no way round it."""

_OF_THE_MODE = ("mode", "scope")
"""Passed on to a child of the same mode, its model too."""

_STATUS = {"complete": "completed", "limit": "completed", "error": "error"}
"""Of a background agent by its outcome; all others were aborted."""


class Wanted(Struct, frozen=True):
    """What a tool asks for: `prompt` is the child's first message. `mode` '': the parent's. `context` None: the run's.
    `name` tells the children of one call apart."""

    tool_call_id: str
    prompt: str
    name: str = "0"
    mode: str = ""
    params: JsonObject = {}
    context: JsonObject | None = None
    title: str = ""
    is_background: bool = False
    wakes: bool = False


def find_child(state: ChatState, tool_call_id: str, name: str) -> Child | None:
    return next((c for c in state.private.relations.children if (c.tool_call_id, c.name) == (tool_call_id, name)), None)


def open_child(ledger: Ledger, wanted: Wanted) -> Child:
    """The child of this call and name: the one that is there, or a new one, announced and owed its beginning.

    Raises:
        Conflict: too deep, too many, too much undelivered, or no run is open; nothing was written.
        Forbidden: the run's principal may not switch approvals off.
        BadRequest, InvalidContent, TooLarge: the prompt or the parameters.
    """
    state = ledger.state
    found = find_child(state, wanted.tool_call_id, wanted.name)
    if found is not None:
        return found
    run = state.private.run
    if run is None:
        raise Conflict("no run is open, so there is nobody who could ask for a chat")
    depth = _check_room(state)
    changes = _changes(ledger, run, wanted)
    context = run.context if wanted.context is None else wanted.context
    chat_id = ledger.new_id("sub")
    message = UserMessage(client_request_id=f"prompt-{chat_id}"[:128], content=wanted.prompt, context=context)
    read_content(message.content, [])
    child = Child(
        chat_id=chat_id,
        tool_call_id=wanted.tool_call_id,
        name=wanted.name,
        title=wanted.title[:TITLE_MAX_CHARACTERS]
        or first_line(Message(role="user", content=wanted.prompt, message_id="")),
        principal=run.principal,
        started_at_ms=ledger.now_ms,
        is_background=wanted.is_background,
        wakes=wanted.wakes,
    )
    ledger.note(ChildOpened(child=child))
    ledger.say(SubchatUpdate(tool_call_id=wanted.tool_call_id, subchat_id=chat_id))
    if child.is_background:
        ledger.say(BackgroundAgentUpdated(_agent(child, "running")))
    begin = BeginSubchat(
        client_request_id=f"begin:{chat_id}",
        parent=Parent(chat_id=state.chat_id, depth=depth, epoch=state.epoch),
        principal=run.principal,
        thread=changes,
        message=message,
    )
    owe(ledger, chat_id, begin, creates=True)
    return child


def _check_room(state: ChatState) -> int:
    """The depth of a new child. Raises Conflict."""
    relations = state.private.relations
    depth = 1 if relations.parent is None else relations.parent.depth + 1
    if depth > DEPTH_MAX:
        raise Conflict(f"chats may be nested {DEPTH_MAX} deep; do this work here")
    if len(relations.running) >= RUNNING_MAX:
        raise Conflict(f"{RUNNING_MAX} chats of this one are running already; wait until one has ended")
    if len(relations.children) >= CHILDREN_KEPT_MAX:
        raise Conflict(f"this chat keeps {CHILDREN_KEPT_MAX} chats of its open calls already; finish a call first")
    if len(relations.outbox) >= OPENING_MAX_MAIL:
        raise Conflict("too much of what this chat told others is not delivered yet; try again in a while")
    return depth


def _changes(ledger: Ledger, run: Run, wanted: Wanted) -> ThreadChanges:
    state = ledger.state
    given = read_patch(wanted.params)
    approvals = [key for key in given if key in _INHERITED[2:] and given[key]]
    if approvals and "approve" not in run.principal.permissions:
        raise Forbidden("the run's principal may not approve tool calls, so its chats may not switch approvals off")
    inherited: JsonObject = {}
    for key in (*_INHERITED, *(() if wanted.mode else _OF_THE_MODE)):
        value = getattr(state.thread, key)
        if value:
            inherited[key] = value
    if not wanted.mode and (model := ledger.param("model")):
        inherited["model"] = model
    changes = {
        **inherited,
        **({"mode": wanted.mode} if wanted.mode else {}),
        **({"title": wanted.title[:TITLE_MAX_CHARACTERS]} if wanted.title else {}),
        **given,
        **_narrowed(inherited, given),
        "parent_id": state.chat_id,
        "root_chat_id": state.thread.root_chat_id or state.chat_id,
        "link_type": "subchat",
    }
    return convert({key: value for key, value in changes.items() if value is not None}, ThreadChanges)


def _narrowed(inherited: JsonObject, given: JsonObject) -> JsonObject:
    """A call may take more away from its chat than a person took from ours, and give nothing back."""
    taken: JsonObject = {}
    if "tools_disabled" in inherited:
        own = given.get("tools_disabled") or []
        taken["tools_disabled"] = [
            *inherited["tools_disabled"],
            *(n for n in own if n not in inherited["tools_disabled"]),
        ]
    if "mcp_servers" in inherited and given.get("mcp_servers") is not None:
        taken["mcp_servers"] = [name for name in given["mcp_servers"] if name in inherited["mcp_servers"]]
    return taken


def begin_subchat(ledger: Ledger, command: BeginSubchat) -> None:
    """In the child: know the parent, then answer the message as any other."""
    state = ledger.state
    if state.nodes or state.private.relations.parent is not None:
        ledger.settle(command.client_request_id, accepted=False)  # cannot be: the id was drawn for this child
        return
    ledger.note(ParentBound(parent=command.parent))
    fields = {name: getattr(command.thread, name) for name in ThreadChanges.__struct_fields__}
    ledger.say(ThreadUpdated(**{name: value for name, value in fields.items() if value is not UNSET}))
    enqueue(ledger, command.message, command.principal)
    ledger.settle(command.client_request_id, accepted=True)
    start_next(ledger)
    if ledger.state.private.run is None:
        tell_parent(ledger, "error", "The chat could not begin.")


def begin_failed(ledger: Ledger, command: BeginSubchat, sentence: str) -> None:
    """In the child: it will never begin, by a mistake of ours. Its parent must not wait for it."""
    if ledger.state.private.relations.parent is None:
        ledger.note(ParentBound(parent=command.parent))
    tell_parent(ledger, "error", sentence)


def child_ended(ledger: Ledger, command: SubchatFinished) -> None:
    """In the parent: whoever waits for the child finds its end in the state. The end of an agent is an event, and its
    model is told."""
    child = ledger.state.private.relations.child(command.subchat_id)
    if child is not None and child.outcome is None:
        ledger.note(
            ChildEnded(chat_id=child.chat_id, outcome=command.outcome, text=command.text, message_id=command.message_id)
        )
        if child.is_background:
            _agent_ended(ledger, child, command)
    ledger.settle(command.client_request_id, accepted=child is not None)


def _agent_ended(ledger: Ledger, child: Child, end: SubchatFinished) -> None:
    status = _STATUS.get(end.outcome, "aborted")
    summary = end.text[:AGENT_SUMMARY_MAX_CHARACTERS]
    agent = _agent(child, status)
    agent |= {"outcome": end.outcome, "summary": summary, "finished_at": ledger.now_ms}
    ledger.say(BackgroundAgentUpdated(agent))
    tell_model(ledger, f"[background agent {child.chat_id} ({child.title}): {status}]\n{summary}".rstrip())
    if child.wakes:
        wake(ledger, child.principal, end.client_request_id)


def _agent(child: Child, status: str) -> JsonObject:
    """As `background_agent_updated` shows it. Times are Unix milliseconds."""
    return {
        "id": child.chat_id,
        "chat_id": child.chat_id,
        "title": child.title,
        "status": status,
        "outcome": None,
        "summary": "",
        "started_at": child.started_at_ms,
        "finished_at": None,
    }


def stop_agent(ledger: Ledger, agent_id: str) -> None:
    """Ask a background agent to end; that it has is told as any other end.

    Raises:
        NotFound: no such agent runs here.
    """
    child = ledger.state.private.relations.child(agent_id)
    if child is None or not child.is_background or child.outcome is not None:
        raise NotFound("no such background agent is running in this chat")
    owe(ledger, child.chat_id, stop(child))
