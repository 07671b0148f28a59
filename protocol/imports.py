"""What an import does to a chat: the exported tree is told as events, so that every reader folds the same chat.

Pure. `decider.py` calls it for the internal command `ImportChat`; `import_files.py` has read and checked the lines. Ids
are kept. An import is refused where the chat has messages already, so that no import mixes two histories.
"""

from collections.abc import Iterable

from msgspec import UNSET

from protocol.commands import ImportChat
from protocol.errors import Conflict
from protocol.events import (
    BackgroundAgentUpdated,
    BranchSelected,
    MessageAdded,
    MessagesTruncated,
    ThreadUpdated,
)
from protocol.facts import ImportGoesOn
from protocol.ledger import Ledger
from protocol.messages import JsonObject, Message
from protocol.state import Importing
from protocol.thread import Thread, ThreadChanges, ThreadPatch

__all__ = ["import_chat"]


def import_chat(ledger: Ledger, command: ImportChat) -> None:
    """Import one part: first the thread, then the tree branch by branch, payloads and agents, and last the end of the
    active path.

    Raises:
        Conflict: the chat has messages, a run or a queue, or another part is the next one; nothing was written.
    """
    state = ledger.state
    going = state.private.importing
    if command.part == 0:
        if state.nodes or going is not None or state.private.run is not None or state.private.queue:
            raise Conflict("the chat has messages already; delete it first, or import under another id")
        changes = _changes(state.thread, command.thread)
        if changes:
            ledger.say(ThreadUpdated(**changes))
    elif going != Importing(command.import_id, command.part):
        raise Conflict("an earlier part of this import did not take effect; delete the chat and import it again")
    _add_all(ledger, command.messages)
    is_last = command.part + 1 == command.parts
    if command.parts > 1:
        ledger.note(ImportGoesOn(import_id=command.import_id, next_part=0 if is_last else command.part + 1))
    path = ledger.state.path
    if is_last and command.leaf_id is None and path:
        ledger.say(MessagesTruncated(0))
    elif is_last and command.leaf_id is not None and path[-1:] != (command.leaf_id,):
        ledger.say(BranchSelected(command.leaf_id))
    ledger.say_payloads(command.payloads)
    for agent in command.agents:
        is_running = agent.get("status") == "running"  # it was; nobody tells this chat of its end
        ledger.say(BackgroundAgentUpdated({**agent, "status": "aborted"} if is_running else agent))
    ledger.settle(command.client_request_id, accepted=True)


def _changes(now: Thread, wanted: ThreadChanges) -> JsonObject:
    """What makes `now` the wanted thread; what the import does not set is set back, where it can be."""
    new = Thread(id=now.id)
    changes: JsonObject = {}
    for name in ThreadChanges.__struct_fields__:
        value = getattr(wanted, name)
        if value is UNSET and name in ThreadPatch.__struct_fields__:
            value = getattr(new, name)
        if value is not UNSET and value != getattr(now, name):
            changes[name] = value
    return changes


def _add_all(ledger: Ledger, messages: Iterable[Message]) -> None:
    """Adds each message behind its parent, to which the path is cut back first."""
    path = list(ledger.state.path)
    added: list[MessageAdded | MessagesTruncated] = []
    for message in messages:
        if path and path[-1] != message.parent_id:
            length = 0 if message.parent_id is None else path.index(message.parent_id) + 1
            added.append(MessagesTruncated(length))
            del path[length:]
        added.append(MessageAdded(message, len(path)))
        path.append(message.message_id)
    ledger.say_added(added)
