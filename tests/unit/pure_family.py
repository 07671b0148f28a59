"""A parent chat and its sub-chat without any I/O, and the outbound messages between them."""

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from threadcast.agent_loop.steps import RunTool
from threadcast.chat.internal_commands import InternalCommand, decode_inbox_body
from threadcast.chat.relations import Child, OutboundSent
from threadcast.chat.subchats import Wanted, open_child
from threadcast_protocol.wire.commands import Command
from threadcast_protocol.wire.principal import LOCAL, Principal

__all__ = [
    "TOOLS",
    "begun",
    "calling",
    "deliver",
    "opened",
    "outbound_of",
]

TOOLS = {"delegate": FakeTool(name="delegate"), "mail": FakeTool(name="mail", policy="ask")}


def calling(by: Principal = LOCAL, parent: PureChat | None = None) -> PureChat:
    """Return a chat in the middle of its call c0."""
    chat = parent or PureChat(table(TOOLS))
    chat.command(say("ask"), by)
    chat.asks(call("c0", "delegate"))
    assert isinstance(chat.step, RunTool)
    return chat


def opened(chat: PureChat, **more: object) -> Child:
    found: list[Child] = []
    wanted = Wanted("c0", **{"prompt": "do it", **more})  # type: ignore[arg-type]  # keywords of a test
    chat.write(lambda builder: found.append(open_child(builder, wanted)))
    return found[0]


def outbound_of(chat: PureChat) -> list[Command | InternalCommand]:
    return [decode_inbox_body(message.body.encode()) for message in chat.state.private.relations.outbox]


def deliver(chat: PureChat) -> list[Command | InternalCommand]:
    """Deliver the messages of an outbox, as an owner does."""
    found = outbound_of(chat)
    chat.write(
        lambda builder: builder.note(
            OutboundSent(outbound_ids=[message.outbound_id for message in builder.state.private.relations.outbox])
        )
    )
    assert chat.state.private.relations.outbox == ()
    return found


def begun(chat: PureChat) -> PureChat:
    """Begin the child whose first command is in the outbox of `chat`."""
    (message,) = chat.state.private.relations.outbox
    child = PureChat(table(TOOLS), chat_id=message.chat_id)
    (command,) = deliver(chat)
    child.command(command)
    return child
