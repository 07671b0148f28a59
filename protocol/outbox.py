"""What a chat must tell other chats, written down in the same entry as what causes it (decision 0012).

Pure: `owe` notes a letter; the owner of the chat delivers it after the commit (`server/actor/mail.py`) and notes that.
A new owner delivers what its predecessor owed. Letters go to chats of the same owner only. The one rule: a chat's
effect and the letters about it are one append, so neither is ever there without the other.
"""

from protocol.commands import InternalCommand, StopSubchat, SubchatFinished, encode_command
from protocol.ledger import Ledger
from protocol.messages import text_of
from protocol.relations import CallClosed, Child, Mail, MailOwed, ParentTold

__all__ = [
    "OPENING_MAX_MAIL",
    "OUTBOX_MAX",
    "REPORT_MAX_CHARACTERS",
    "close_children",
    "deleted",
    "owe",
    "stop",
    "tell_parent",
]

OPENING_MAX_MAIL = 32
"""With so many letters undelivered no further child is opened: another chat or the store does not answer."""

OUTBOX_MAX = 64
"""Letters owed at once. It cannot be more: below OPENING_MAX_MAIL a child is opened, then each of the 16 that run may
cost one letter that stops it, and the chat itself one to its parent."""

REPORT_MAX_CHARACTERS = 64_000
"""Of a child's last answer, as its parent gets it. A long document; the child's own log holds all of it."""


def owe(ledger: Ledger, chat_id: str, command: InternalCommand, *, creates: bool = False) -> None:
    """Note that `command` is to be laid down in another chat; its request id is the letter's."""
    relations = ledger.state.private.relations
    mail_id = command.client_request_id
    if any(mail.mail_id == mail_id for mail in relations.outbox):
        return
    body = encode_command(command).decode()
    ledger.note(MailOwed(mail=Mail(mail_id=mail_id, chat_id=chat_id, body=body, creates=creates)))


def tell_parent(ledger: Ledger, outcome: str, error: str | None = None) -> None:
    """Once a child rests: owe its parent how it ended. Only the first time; what a person asks it later is theirs."""
    state = ledger.state
    parent = state.private.relations.parent
    if parent is None or parent.is_told:
        return
    ledger.note(ParentTold())
    leaf = state.leaf
    answer = leaf if leaf is not None and leaf.role == "assistant" else None
    text = error or (text_of(answer.content) if answer is not None else "")
    owe(ledger, parent.chat_id, _finished(state.chat_id, outcome, text, answer.message_id if answer else None))


def _finished(chat_id: str, outcome: str, text: str, message_id: str | None) -> SubchatFinished:
    if len(text) > REPORT_MAX_CHARACTERS:
        text = f"{text[:REPORT_MAX_CHARACTERS]}\n[cut: {len(text)} characters in all, in chat {chat_id}]"
    return SubchatFinished(
        client_request_id=f"finished:{chat_id}",
        subchat_id=chat_id,
        outcome=outcome,
        text=text,
        message_id=message_id,
    )


def stop(child: Child) -> StopSubchat:
    return StopSubchat(client_request_id=f"stop:{child.chat_id}")


def close_children(ledger: Ledger, tool_call_id: str) -> None:
    """The call has its answer, whatever it is: nobody waits for its children any more, so those that run are stopped.
    Work in the background goes on."""
    mine = [child for child in ledger.state.private.relations.children if child.tool_call_id == tool_call_id]
    for child in mine:
        if child.outcome is None and not child.is_background:
            owe(ledger, child.chat_id, stop(child))
    if mine:
        ledger.note(CallClosed(tool_call_id=tool_call_id))


def deleted(chat_id: str) -> SubchatFinished:
    """For the parent of a chat that is deleted: nothing will come. One that was told of its end already keeps that."""
    return _finished(chat_id, "aborted", "The chat was deleted.", None)
