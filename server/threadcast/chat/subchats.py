"""Starts and stops sub-chats, which are chats that a tool of another chat starts (PROTOCOL §12).

The parent opens a child (`open_child`), the child begins (`begin_subchat`), and the parent records the child's end
(`child_ended`). Parent and child communicate by outbound messages (`outbound.py`). The parent's log records each child
under its tool call and name before the child exists, so a call that is repeated after a crash finds its child again. A
child that its call waits for is stopped when the call ends. A child in the background runs until it ends by itself or
is stopped. All functions are pure.
"""

from msgspec import Struct, convert
from msgspec.structs import asdict

from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.internal_commands import BeginSubchat, SubchatFinished
from threadcast.chat.outbound import OPENING_MAX_OUTBOUND, owe, stop, tell_parent
from threadcast.chat.owner_state import OwnerState, Run
from threadcast.chat.params import APPROVES_WHOLESALE
from threadcast.chat.queue import enqueue
from threadcast.chat.relations import Child, ChildEnded, ChildOpened, Parent, ParentBound
from threadcast.chat.runs import call_name
from threadcast.chat.starts import first_line, start_next
from threadcast.chat.taint import note_untrusted
from threadcast.chat.wakes import tell_model, wake
from threadcast_protocol.wire.commands import UserMessage
from threadcast_protocol.wire.content import read_content
from threadcast_protocol.wire.errors import Conflict, Forbidden, NotFound
from threadcast_protocol.wire.events import BackgroundAgentUpdated, SubchatUpdate, ThreadUpdated
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.thread import ThreadChanges, read_patch

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
"""The maximum depth of nested chats. Models at a greater depth no longer work on the original question."""

RUNNING_MAX = 16
"""The maximum number of children of one chat that run at once. More children are most likely the result of an endless
loop, and each child costs model calls."""

CHILDREN_KEPT_MAX = 64
"""The maximum number of children that are kept with their answers, because open calls may still request the answers.
These answers have at most 4 MB of text."""

AGENT_SUMMARY_MAX_CHARACTERS = 4_000
"""The maximum length of a background agent's answer in its event, because every snapshot contains the event. The
agent's own chat has the whole answer."""

TITLE_MAX_CHARACTERS = 200
"""The maximum length of a thread's title (PROTOCOL §16)."""

_INHERITED = (
    "tools_disabled",
    "mcp_servers",
    "autonomous_no_confirm",
    "auto_approve_editing_tools",
    "auto_approve_dangerous_commands",
    "temporary",
)
"""Parameters that every child inherits. A child can therefore not evade the permissions and prohibitions of the user,
and does not outlive a temporary parent."""

_OF_THE_MODE = ("mode", "scope")
"""Parameters that a child with the same mode inherits. Such a child also inherits the model."""

_STATUS = {"complete": "completed", "limit": "completed", "error": "error"}
"""The status of a background agent by the outcome of its run. All other outcomes mean `aborted`."""


class Wanted(Struct, frozen=True):
    """A tool's request for a child. `prompt` is the child's first message. An empty `mode` means the parent's mode. If
    `context` is None, the child gets the context of the run. `name` distinguishes the children of one call.
    `is_untrusted` means that the prompt is untrusted content, because the tool's results are untrusted."""

    tool_call_id: str
    prompt: str
    name: str = "0"
    mode: str = ""
    params: JsonObject = {}
    context: JsonObject | None = None
    title: str = ""
    is_background: bool = False
    wakes: bool = False
    is_untrusted: bool = False


def find_child(state: OwnerState, tool_call_id: str, name: str) -> Child | None:
    """Return the child of this call and name, or None."""
    return next((c for c in state.private.relations.children if (c.tool_call_id, c.name) == (tool_call_id, name)), None)


def open_child(builder: EntryBuilder, wanted: Wanted) -> Child:
    """Return the child of this call and name. If there is no such child yet, the child is recorded, announced by an
    event and started by an outbound message.

    Raises:
        Conflict: the child would be nested too deep, there are too many children or undelivered messages, or no run is
            open. In this case no event or fact is added.
        Forbidden: the run's principal may not disable approvals.
        BadRequest, InvalidContent, TooLarge: the prompt or the parameters are invalid.
    """
    state = builder.state
    found = find_child(state, wanted.tool_call_id, wanted.name)
    if found is not None:
        return found
    run = state.private.run
    if run is None:
        raise Conflict("no run is open, so no chat can be opened")
    depth = _check_room(state)
    changes = _changes(builder, run, wanted)
    context = run.context if wanted.context is None else wanted.context
    chat_id = builder.new_id("sub")
    message = UserMessage(client_request_id=f"prompt-{chat_id}"[:128], content=wanted.prompt, context=context)
    read_content(message.content, [])
    child = Child(
        chat_id=chat_id,
        tool_call_id=wanted.tool_call_id,
        name=wanted.name,
        title=wanted.title[:TITLE_MAX_CHARACTERS]
        or first_line(Message(role="user", content=wanted.prompt, message_id="")),
        principal=run.principal,
        started_at_ms=builder.now_ms,
        is_background=wanted.is_background,
        wakes=wanted.wakes,
    )
    builder.note(ChildOpened(child=child))
    builder.say(SubchatUpdate(tool_call_id=wanted.tool_call_id, subchat_id=chat_id))
    if child.is_background:
        builder.say(BackgroundAgentUpdated(_agent(child, "running")))
    begin = BeginSubchat(
        client_request_id=f"begin:{chat_id}",
        parent=Parent(chat_id=state.chat_id, depth=depth, epoch=state.epoch, tainted_by=_sources_of(state, wanted)),
        principal=run.principal,
        thread=changes,
        message=message,
    )
    owe(builder, chat_id, begin, creates=True)
    return child


def _sources_of(state: OwnerState, wanted: Wanted) -> list[str]:
    """Return the untrusted sources whose content the prompt may repeat."""
    name = call_name(state, wanted.tool_call_id)
    own = [name] if wanted.is_untrusted and name not in state.private.tainted_by else []
    return [*state.private.tainted_by, *own]


def _check_room(state: OwnerState) -> int:
    """Return the depth of a new child. Raises Conflict if no child may be opened."""
    relations = state.private.relations
    depth = 1 if relations.parent is None else relations.parent.depth + 1
    if depth > DEPTH_MAX:
        raise Conflict(f"chats may be nested {DEPTH_MAX} deep; do this work in this chat")
    if len(relations.running) >= RUNNING_MAX:
        raise Conflict(f"{RUNNING_MAX} chats of this chat are running already; wait until one of them has ended")
    if len(relations.children) >= CHILDREN_KEPT_MAX:
        raise Conflict(f"this chat keeps {CHILDREN_KEPT_MAX} chats of its open calls already; finish a call first")
    if len(relations.outbox) >= OPENING_MAX_OUTBOUND:
        raise Conflict("too many messages of this chat to other chats are not delivered yet; try again later")
    return depth


def _changes(builder: EntryBuilder, run: Run, wanted: Wanted) -> ThreadChanges:
    state = builder.state
    given = read_patch(wanted.params)
    approvals = [key for key in given if key in APPROVES_WHOLESALE and given[key]]
    if approvals and "approve" not in run.principal.permissions:
        raise Forbidden("the run's principal may not approve tool calls, so its chats may not switch approvals off")
    keys = _INHERITED if wanted.mode else _INHERITED + _OF_THE_MODE
    inherited: JsonObject = {key: value for key in keys if (value := getattr(state.thread, key))}
    if not wanted.mode and (model := builder.param("model")):
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
    """Combine inherited and given restrictions. A call may add restrictions for its child, but cannot remove
    restrictions of the parent."""
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


def begin_subchat(builder: EntryBuilder, command: BeginSubchat) -> None:
    """In the child, record the parent and queue the first message."""
    state = builder.state
    if state.nodes or state.private.relations.parent is not None:
        builder.settle(command.client_request_id, accepted=False)  # cannot happen: the id was generated for this child
        return
    builder.note(ParentBound(parent=command.parent))
    note_untrusted(builder, command.parent.tainted_by)
    builder.say(ThreadUpdated(**asdict(command.thread)))
    enqueue(builder, command.message, command.principal)
    builder.settle(command.client_request_id, accepted=True)
    start_next(builder)
    if builder.state.private.run is None:
        tell_parent(builder, "error", "The chat could not begin.")


def begin_failed(builder: EntryBuilder, command: BeginSubchat, sentence: str) -> None:
    """In the child, report to the parent that the child cannot begin because of an error in the server."""
    if builder.state.private.relations.parent is None:
        builder.note(ParentBound(parent=command.parent))
    tell_parent(builder, "error", sentence)


def child_ended(builder: EntryBuilder, command: SubchatFinished) -> None:
    """In the parent, record the end of the child, for the tool call that waits for the child. The end of a background
    agent is also reported by an event and to the model."""
    child = builder.state.private.relations.child(command.subchat_id)
    if child is not None and child.outcome is None:
        builder.note(
            ChildEnded(chat_id=child.chat_id, outcome=command.outcome, text=command.text, message_id=command.message_id)
        )
        note_untrusted(builder, command.tainted_by)
        if child.is_background:
            _agent_ended(builder, child, command)
    builder.settle(command.client_request_id, accepted=child is not None)


def _agent_ended(builder: EntryBuilder, child: Child, end: SubchatFinished) -> None:
    status = _STATUS.get(end.outcome, "aborted")
    summary = end.text[:AGENT_SUMMARY_MAX_CHARACTERS]
    agent = _agent(child, status)
    agent |= {"outcome": end.outcome, "summary": summary, "finished_at": builder.now_ms}
    builder.say(BackgroundAgentUpdated(agent))
    tell_model(builder, f"[background agent {child.chat_id} ({child.title}): {status}]\n{summary}".rstrip())
    if child.wakes:
        wake(builder, child.principal, end.client_request_id)


def _agent(child: Child, status: str) -> JsonObject:
    """Return an agent in the form of `background_agent_updated`. Times are Unix milliseconds."""
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


def stop_agent(builder: EntryBuilder, agent_id: str) -> None:
    """Ask a background agent to stop. The end of the agent is then reported in the usual way.

    Raises:
        NotFound: this chat has no running agent with this id.
    """
    child = builder.state.private.relations.child(agent_id)
    if child is None or not child.is_background or child.outcome is not None:
        raise NotFound("no such background agent is running in this chat")
    owe(builder, child.chat_id, stop(child))
