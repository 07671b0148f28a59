"""Deleting a chat also deletes the sub-chats that its tools began (PROTOCOL §1), with real actors. The delete includes
a sub-chat whose first command was still under way, even if the deleted chat was created again under its old id before
that command arrived."""

import json

import anyio
import pytest

from tests.unit.actor_harness import CHAT, GatedTool, Harness, say
from tests.unit.delegating import ALL
from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.actor.end import End
from threadcast.actor.outbox_sender import post_of
from threadcast.chat.internal_commands import ImportChat
from threadcast.chat.relations import OutboundMessage
from threadcast.store.families import delete_family
from threadcast.store.ports import PostOutcome, PostRequest
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.commands import encode_command
from threadcast_protocol.wire.events import SubchatUpdate
from threadcast_protocol.wire.messages import Message
from threadcast_protocol.wire.principal import LOCAL
from threadcast_protocol.wire.thread import ThreadChanges

pytestmark = pytest.mark.anyio

LONG = "call gated {}"
"""Text that keeps a child running until the test releases the tool."""


@pytest.fixture
def gated() -> GatedTool:
    return GatedTool(retry="safe")


@pytest.fixture
def harness(gated: GatedTool) -> Harness:
    return Harness(gated, *ALL, model="demo/tools?rate=0")


async def delegate(harness: Harness, prompt: str = LONG, request_id: str = "ask") -> None:
    await harness.post(say(f"call delegate {json.dumps({'prompts': [prompt]})}", request_id))


async def opened(harness: Harness, *, is_sent: bool) -> OutboundMessage:
    """Return the outbound message with which a sub-chat begins. The owner of the sub-chat's parent died before, or
    after, the sub-chat's inbox received the message."""
    await delegate(harness)
    held = harness.store.hold("post", reply_only=is_sent)
    async with harness.owning("w1"):
        await held.entered()
    (message,) = (await harness.state()).private.relations.outbox
    return message


async def delete(harness: Harness) -> None:
    assert await delete_family(harness.store, CHAT, LOCAL.id)


async def break_off_a_delete(harness: Harness) -> None:
    """Delete the chat, but interrupt the deletion before it deletes a sub-chat."""
    assert await harness.store.delete(CHAT, LOCAL.id, "n")


async def live_again(harness: Harness) -> None:
    """Let the owner import the deleted chat."""
    message = Message(role="user", content="again", message_id="m_again")
    command = ImportChat(client_request_id="import", thread=ThreadChanges(), messages=[message])
    request = PostRequest(
        chat_id=CHAT, owner=LOCAL.id, principal=encode(LOCAL), request_id="import", digest="d", nonce="import",
        body=encode_command(command), kind="import",
    )  # fmt: skip
    assert (await harness.store.post(request)).outcome is PostOutcome.ACCEPTED


async def is_deleted(harness: Harness, chat_id: str) -> bool:
    meta = await harness.store.meta(chat_id)
    return meta is not None and meta.deleted


async def until_deleted(harness: Harness, *chat_ids: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        for chat_id in chat_ids:
            while not await is_deleted(harness, chat_id):
                await anyio.sleep(0.005)


async def child_of(harness: Harness, chat_id: str = CHAT) -> str:
    (child,) = [event.subchat_id for event in await harness.events(chat_id) if isinstance(event, SubchatUpdate)]
    return child


@pytest.mark.parametrize("is_sent", [False, True], ids=["delivered later", "in the inbox"])
async def test_a_child_that_nobody_has_taken_up_goes_with_its_parent(
    harness: Harness, gated: GatedTool, *, is_sent: bool
) -> None:
    message = await opened(harness, is_sent=is_sent)
    await delete(harness)
    assert (await harness.store.post(post_of(message, LOCAL.id))).outcome is PostOutcome.ACCEPTED
    assert await harness.own("w2", chat_id=message.chat_id) is End.LOST
    assert await is_deleted(harness, message.chat_id)
    assert gated.began == 0


@pytest.mark.parametrize("is_kept", [False, True], ids=["before it is kept", "after it is kept"])
async def test_a_child_whose_first_entry_meets_the_delete_goes(
    harness: Harness, gated: GatedTool, *, is_kept: bool
) -> None:
    child = (await opened(harness, is_sent=True)).chat_id
    first = harness.store.hold("append", reply_only=is_kept)
    async with harness.owning("w2", child) as ownership:
        await first.entered()
        await delete(harness)
        assert await is_deleted(harness, child) is is_kept
        first.let_go()
        assert await ownership.over() is End.LOST
    assert await is_deleted(harness, child)
    assert gated.began == 0


async def test_a_child_that_begins_after_the_delete_looked_for_children_goes(
    harness: Harness, gated: GatedTool
) -> None:
    child = (await opened(harness, is_sent=True)).chat_id
    last_step = harness.store.hold("delete")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(delete, harness)
        await last_step.entered()
        async with harness.owning("w2", child):
            await gated.entered()
            last_step.let_go()
            await until_deleted(harness, child)


async def test_a_child_whose_owner_died_before_it_looked_goes_when_it_is_taken_up(
    harness: Harness, gated: GatedTool
) -> None:
    child = (await opened(harness, is_sent=True)).chat_id
    look = harness.store.hold("meta")
    async with harness.owning("w2", child):
        await look.entered()
    await break_off_a_delete(harness)
    assert await harness.own("w3", chat_id=child) is End.LOST
    assert await is_deleted(harness, child)
    assert gated.began == 0


async def test_a_child_whose_last_word_finds_no_parent_goes_and_takes_its_own_children(
    harness: Harness, gated: GatedTool
) -> None:
    async with harness.hosting("w1"):
        await delegate(harness, f"call delegate {json.dumps({'prompts': [LONG]})}")
        await gated.entered()
        child = await child_of(harness)
        grandchild = await child_of(harness, child)
        await break_off_a_delete(harness)
        assert [await is_deleted(harness, each) for each in (child, grandchild)] == [False, False]
        gated.go_on.set()
        await until_deleted(harness, child, grandchild)


async def test_a_child_of_an_earlier_life_does_not_begin_in_a_later_one(harness: Harness, gated: GatedTool) -> None:
    message = await opened(harness, is_sent=False)
    await delete(harness)
    await live_again(harness)
    assert await harness.own("w2") is End.RELEASED
    await harness.store.post(post_of(message, LOCAL.id))
    assert await harness.own("w2", chat_id=message.chat_id) is End.LOST
    assert await is_deleted(harness, message.chat_id)
    assert not await is_deleted(harness, CHAT)
    assert gated.began == 0


async def test_a_chat_that_lives_again_has_children_as_any_other(harness: Harness, gated: GatedTool) -> None:
    await opened(harness, is_sent=False)
    await delete(harness)
    await live_again(harness)
    async with harness.hosting("w2"):
        await delegate(harness, request_id="again")
        await gated.entered()
        gated.go_on.set()
        with anyio.fail_after(DEADLINE_SECONDS):
            while [text for role, text in await harness.texts() if role == "tool"] == []:
                await anyio.sleep(0.005)
        assert not await is_deleted(harness, await child_of(harness))
