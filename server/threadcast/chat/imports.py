"""Imports an exported chat by adding events for its whole tree, so that every reader folds the same chat.

`decider.py` calls `import_chat` for the internal command `ImportChat`, after `import_files.py` has checked the lines.
The import keeps all ids. An import is refused if the chat already has messages, so that no import mixes two histories.
All functions are pure.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import ImportGoesOn
from threadcast.chat.internal_commands import ImportChat
from threadcast.chat.owner_state import Importing
from threadcast_protocol.wire.errors import Conflict
from threadcast_protocol.wire.events import (
    BackgroundAgentUpdated,
    BranchSelected,
    MessageAdded,
    MessagesTruncated,
    ThreadUpdated,
)
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.thread import Thread, ThreadChanges, ThreadPatch, apply_changes, differences

__all__ = ["import_chat"]


def import_chat(builder: EntryBuilder, command: ImportChat) -> None:
    """Import one part: first the thread, then messages branch by branch, payloads and agents. The last part also sets
    the active path.

    Raises:
        Conflict: the chat has messages, a run or a queue, or expects another part. In this case no event is added.
    """
    state = builder.state
    going = state.private.importing
    if command.part == 0:
        if state.nodes or going is not None or state.private.run is not None or state.private.queue:
            raise Conflict("the chat has messages already; delete it first, or import under another id")
        changes = _changes(state.thread, command.thread)
        if changes:
            builder.say(ThreadUpdated(**changes))
    elif going != Importing(command.import_id, command.part):
        raise Conflict("an earlier part of this import did not take effect; delete the chat and import it again")
    _add_all(builder, command.messages)
    is_last = command.part + 1 == command.parts
    if command.parts > 1:
        builder.note(ImportGoesOn(import_id=command.import_id, next_part=0 if is_last else command.part + 1))
    path = builder.state.path
    if is_last and command.leaf_id is None and path:
        builder.say(MessagesTruncated(0))
    elif is_last and command.leaf_id is not None and path[-1:] != (command.leaf_id,):
        builder.say(BranchSelected(command.leaf_id))
    builder.say_payloads(command.payloads)
    for agent in command.agents:
        is_running = agent.get("status") == "running"  # no report of the agent's end will reach this chat
        builder.say(BackgroundAgentUpdated({**agent, "status": "aborted"} if is_running else agent))
    builder.settle(command.client_request_id, accepted=True)


def _changes(now: Thread, wanted: ThreadChanges) -> JsonObject:
    """Return the changes that turn `now` into the wanted thread. Parameters that the import does not set get their
    defaults; an imported chat is never temporary."""
    new = Thread(id=now.id)
    reset = replace(now, **{name: getattr(new, name) for name in ThreadPatch.__struct_fields__})
    return differences(replace(apply_changes(reset, wanted), temporary=None), now)


def _add_all(builder: EntryBuilder, messages: Iterable[Message]) -> None:
    """Add each message after its parent. If the path does not end at the parent, it is first cut to end there."""
    path = list(builder.state.path)
    added: list[MessageAdded | MessagesTruncated] = []
    for message in messages:
        if path and path[-1] != message.parent_id:
            length = 0 if message.parent_id is None else path.index(message.parent_id) + 1
            added.append(MessagesTruncated(length))
            del path[length:]
        added.append(MessageAdded(message, len(path)))
        path.append(message.message_id)
    builder.say_added(added)
