"""A delete takes the chats that a chat's tools began with it (PROTOCOL §1), with real actors: also one whose beginning
was still on its way, whoever held it up, and also when the chat lives again under its old id before it comes."""

import json

import anyio
import pytest

from protocol.codec import encode
from protocol.commands import ImportChat, encode_command
from protocol.events import SubchatUpdate
from protocol.messages import Message
from protocol.principal import LOCAL
from protocol.relations import Mail
from protocol.thread import ThreadChanges
from server.actor.actor import End
from server.actor.mail import post_of
from server.store.family import delete_family
from server.store.port import PostOutcome, PostRequest
from tests.unit.actor_house import CHAT, GatedTool, House, say
from tests.unit.delegating import ALL
from tests.unit.faulty_store import DEADLINE_SECONDS

pytestmark = pytest.mark.anyio

LONG = "call gated {}"
"""What keeps a child until the tool is let go."""


@pytest.fixture
def gated() -> GatedTool:
    return GatedTool(retry="safe")


@pytest.fixture
def house(gated: GatedTool) -> House:
    return House(gated, *ALL, model="demo/tools?rate=0")


async def delegate(house: House, prompt: str = LONG, request_id: str = "ask") -> None:
    await house.post(say(f"call delegate {json.dumps({'prompts': [prompt]})}", request_id))


async def opened(house: House, *, is_sent: bool) -> Mail:
    """The letter with which a child begins. Its parent's owner died before, or after, the child's inbox had it."""
    await delegate(house)
    held = house.store.hold("post", reply_only=is_sent)
    async with house.owning(await house.actor("w1")):
        await held.entered()
    (mail,) = (await house.state()).private.relations.outbox
    return mail


async def delete(house: House) -> None:
    assert await delete_family(house.store, CHAT, LOCAL.id)


async def break_off_a_delete(house: House) -> None:
    """The chat is gone, and who deleted it looked after nobody else."""
    assert await house.store.delete(CHAT, LOCAL.id, "n")


async def live_again(house: House) -> None:
    """The deleted chat is imported by its owner."""
    message = Message(role="user", content="again", message_id="m_again")
    command = ImportChat(client_request_id="import", thread=ThreadChanges(), messages=[message])
    request = PostRequest(
        chat_id=CHAT, owner=LOCAL.id, principal=encode(LOCAL), request_id="import", digest="d", nonce="import",
        body=encode_command(command), kind="import",
    )  # fmt: skip
    assert (await house.store.post(request)).outcome is PostOutcome.ACCEPTED


async def is_deleted(house: House, chat_id: str) -> bool:
    meta = await house.store.meta(chat_id)
    return meta is not None and meta.deleted


async def until_deleted(house: House, *chat_ids: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        for chat_id in chat_ids:
            while not await is_deleted(house, chat_id):
                await anyio.sleep(0.005)


async def child_of(house: House, chat_id: str = CHAT) -> str:
    (child,) = [event.subchat_id for event in await house.events(chat_id) if isinstance(event, SubchatUpdate)]
    return child


@pytest.mark.parametrize("is_sent", [False, True], ids=["delivered later", "in the inbox"])
async def test_a_child_that_nobody_has_taken_up_goes_with_its_parent(
    house: House, gated: GatedTool, *, is_sent: bool
) -> None:
    mail = await opened(house, is_sent=is_sent)
    await delete(house)
    assert (await house.store.post(post_of(mail, LOCAL.id))).outcome is PostOutcome.ACCEPTED
    assert await house.own("w2", mail.chat_id) is End.LOST
    assert await is_deleted(house, mail.chat_id)
    assert gated.began == 0


@pytest.mark.parametrize("is_kept", [False, True], ids=["before it is kept", "after it is kept"])
async def test_a_child_whose_first_entry_meets_the_delete_goes(
    house: House, gated: GatedTool, *, is_kept: bool
) -> None:
    child = (await opened(house, is_sent=True)).chat_id
    first = house.store.hold("append", reply_only=is_kept)
    async with house.owning(await house.actor("w2", child)) as ownership:
        await first.entered()
        await delete(house)
        assert await is_deleted(house, child) is is_kept
        first.let_go()
        assert await ownership.over() is End.LOST
    assert await is_deleted(house, child)
    assert gated.began == 0


async def test_a_child_that_begins_after_the_delete_looked_for_children_goes(house: House, gated: GatedTool) -> None:
    child = (await opened(house, is_sent=True)).chat_id
    last_step = house.store.hold("delete")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(delete, house)
        await last_step.entered()
        async with house.owning(await house.actor("w2", child)):
            await gated.entered()
            last_step.let_go()
            await until_deleted(house, child)


async def test_a_child_whose_owner_died_before_it_looked_goes_when_it_is_taken_up(
    house: House, gated: GatedTool
) -> None:
    child = (await opened(house, is_sent=True)).chat_id
    look = house.store.hold("meta")
    async with house.owning(await house.actor("w2", child)):
        await look.entered()
    await break_off_a_delete(house)
    assert await house.own("w3", child) is End.LOST
    assert await is_deleted(house, child)
    assert gated.began == 0


async def test_a_child_whose_last_word_finds_no_parent_goes_and_takes_its_own_children(
    house: House, gated: GatedTool
) -> None:
    async with house.hosting("w1"):
        await delegate(house, f"call delegate {json.dumps({'prompts': [LONG]})}")
        await gated.entered()
        child = await child_of(house)
        grandchild = await child_of(house, child)
        await break_off_a_delete(house)
        assert [await is_deleted(house, each) for each in (child, grandchild)] == [False, False]
        gated.go_on.set()
        await until_deleted(house, child, grandchild)


async def test_a_child_of_an_earlier_life_does_not_begin_in_a_later_one(house: House, gated: GatedTool) -> None:
    mail = await opened(house, is_sent=False)
    await delete(house)
    await live_again(house)
    assert await house.own("w2") is End.RELEASED
    await house.store.post(post_of(mail, LOCAL.id))
    assert await house.own("w2", mail.chat_id) is End.LOST
    assert await is_deleted(house, mail.chat_id)
    assert not await is_deleted(house, CHAT)
    assert gated.began == 0


async def test_a_chat_that_lives_again_has_children_as_any_other(house: House, gated: GatedTool) -> None:
    await opened(house, is_sent=False)
    await delete(house)
    await live_again(house)
    async with house.hosting("w2"):
        await delegate(house, request_id="again")
        await gated.entered()
        gated.go_on.set()
        with anyio.fail_after(DEADLINE_SECONDS):
            while [text for role, text in await house.texts() if role == "tool"] == []:
                await anyio.sleep(0.005)
        assert not await is_deleted(house, await child_of(house))
