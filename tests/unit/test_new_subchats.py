"""A sub-chat that is deleted before its first append is still known as a child of its parent, which must receive a
report."""

import pytest

from threadcast.actor.outbox_sender import post_of
from threadcast.api.chats import parent_of_new
from threadcast.chat.internal_commands import BeginSubchat
from threadcast.chat.relations import OutboundMessage, Parent
from threadcast.store.memory.store import MemoryStore
from threadcast_protocol.wire.commands import UserMessage, encode_command
from threadcast_protocol.wire.principal import LOCAL
from threadcast_protocol.wire.thread import ThreadChanges

pytestmark = pytest.mark.anyio


async def test_the_parent_is_read_from_the_command_that_begins_the_chat() -> None:
    store = MemoryStore()
    begin = BeginSubchat(
        client_request_id="begin:sub",
        parent=Parent(chat_id="parent", depth=1),
        principal=LOCAL,
        thread=ThreadChanges(),
        message=UserMessage(client_request_id="prompt", content="hello"),
    )
    body = encode_command(begin).decode()
    message = OutboundMessage(outbound_id="begin:sub", chat_id="sub", body=body, creates=True)
    await store.post(post_of(message, "local"))
    assert await parent_of_new(store, "sub") == "parent"
    assert await parent_of_new(store, "parent") == ""
