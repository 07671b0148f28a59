"""Two chats without any I/O, one the other's parent, and the letters between them."""

from protocol.commands import (
    Command,
    InternalCommand,
    decode_inbox_body,
)
from protocol.deltas import SetToolCalls
from protocol.principal import LOCAL, Principal
from protocol.relations import Child, MailSent
from protocol.subchats import (
    Wanted,
    open_child,
)
from server.agent.steps import RunTool
from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table

__all__ = [
    "TOOLS",
    "begun",
    "calling",
    "deliver",
    "letters",
    "opened",
]

TOOLS = {"delegate": FakeTool(name="delegate"), "mail": FakeTool(name="mail", policy="ask")}


def calling(by: Principal = LOCAL, parent: PureChat | None = None) -> PureChat:
    """A chat in the middle of its call c0."""
    chat = parent or PureChat(table(TOOLS))
    chat.command(say("ask"), by)
    chat.stream(SetToolCalls([call("c0", "delegate")]))
    chat.finish()
    assert isinstance(chat.step, RunTool)
    return chat


def opened(chat: PureChat, **more: object) -> Child:
    found: list[Child] = []
    wanted = Wanted("c0", **{"prompt": "do it", **more})  # type: ignore[arg-type]  # keywords of a test
    chat.write(lambda ledger: found.append(open_child(ledger, wanted)))
    return found[0]


def letters(chat: PureChat) -> list[Command | InternalCommand]:
    return [decode_inbox_body(mail.body.encode()) for mail in chat.state.private.relations.outbox]


def deliver(chat: PureChat) -> list[Command | InternalCommand]:
    """What an owner does with its outbox."""
    found = letters(chat)
    chat.write(
        lambda ledger: ledger.note(MailSent(mail_ids=[mail.mail_id for mail in ledger.state.private.relations.outbox]))
    )
    assert chat.state.private.relations.outbox == ()
    return found


def begun(chat: PureChat) -> PureChat:
    """The child that `chat` owes its beginning."""
    (mail,) = chat.state.private.relations.outbox
    child = PureChat(table(TOOLS), chat_id=mail.chat_id)
    (letter,) = deliver(chat)
    child.command(letter)
    return child
