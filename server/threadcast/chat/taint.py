"""Finds untrusted content in a chat, so that sensitive tools ask for a new approval (PROTOCOL §11).

The operator names untrusted sources: tools, and MCP servers with their tools, resources and prompts. The list
`Private.tainted_by` names the sources with content that the chat's model may have read. The list only grows, because
content may remain in summaries, answers and memory after its message was removed. Before each model call the path is
searched for the names of untrusted tools and for the labels of attachments. The search therefore finds untrusted
content of every origin: from tools of the server or of a client, from a fork, or from the log of an older version. All
functions are pure.
"""

from collections.abc import Iterable, Sequence

from threadcast.chat.approval_rules import ApprovalRules
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import Progressed
from threadcast.chat.owner_state import OwnerState
from threadcast_protocol.wire.messages import FilePart, Message, TextPart

__all__ = ["IMPORTED", "RESTORED", "note_imported", "note_restored", "note_untrusted", "note_what_is_read"]

IMPORTED = "an imported chat"
RESTORED = "restored tool results"
"""Sources that stand for unknown origins. A file can claim any origin for its messages, so the messages may always have
untrusted content."""


def note_untrusted(builder: EntryBuilder, sources: Iterable[str]) -> None:
    """Record that the chat has content of `sources`. Sources that are already recorded are skipped."""
    known = builder.state.private.tainted_by
    new = [source for source in dict.fromkeys(sources) if source not in known]
    if new:
        builder.note(Progressed(tainted_by=new))


def note_what_is_read(builder: EntryBuilder, rules: ApprovalRules) -> None:
    """Record the untrusted sources on the active path, which the model is about to read. A chat that is tainted already
    is not searched again."""
    if rules.untrusted and not builder.state.private.tainted_by:
        note_untrusted(builder, _sources_on_path(builder.state, rules))


def note_imported(builder: EntryBuilder, rules: ApprovalRules) -> None:
    """Record that the chat comes from a file."""
    if rules.untrusted:
        note_untrusted(builder, [IMPORTED])


def note_restored(builder: EntryBuilder, messages: Sequence[Message], rules: ApprovalRules) -> None:
    """Record that a client has restored `messages`, if results of tools are among them."""
    if rules.untrusted and any(message.role == "tool" or message.tool_calls for message in messages):
        note_untrusted(builder, [RESTORED])


def _sources_on_path(state: OwnerState, rules: ApprovalRules) -> list[str]:
    names: dict[str, str] = {}
    found: list[str] = []
    for key in state.path:
        message = state.nodes[key]
        names |= {call.id: call.function.name for call in message.tool_calls}
        called = names.get(message.tool_call_id or "") if message.role == "tool" else None
        if called is not None and rules.is_untrusted(called):
            found.append(called)
        if message.role == "user":
            found += _attached(message, rules)
    return found


def _attached(message: Message, rules: ApprovalRules) -> list[str]:
    """Return the untrusted MCP servers whose resources or prompts a message contains. Such a resource or prompt has a
    label that `tools/mcp/content.py` has added. A user who writes such a label only makes the user's own chat ask more
    often."""
    if isinstance(message.content, str):
        return []
    labels = [part.name for part in message.content if isinstance(part, FilePart)]
    texts = [part.text for part in message.content if isinstance(part, TextPart)]
    return [
        source
        for server, source in rules.untrusted_servers.items()
        if any(label.startswith(f"{server}: ") for label in labels)
        or any(text.startswith((f"[{server}: ", f"[prompt {server}: ")) for text in texts)
    ]
