"""Chats that a tool runs, with real actors over a store that can be made to fail: each child begins once, its answer
comes back once, whoever dies in between, and nothing below outlives the call it was for."""

import json

import anyio
import pytest

from protocol.events import BackgroundAgentUpdated, Event, RuntimeUpdated, SubchatUpdate
from protocol.subchats import DEPTH_MAX, RUNNING_MAX
from server.actor.mail import post_of
from server.store.port import PostOutcome
from tests.unit.actor_house import CHAT, FAST, GatedTool, House, abort, say
from tests.unit.delegating import ALL, children_of, facts_in
from tests.unit.faulty_store import DEADLINE_SECONDS

pytestmark = pytest.mark.anyio

TOOLS = "demo/tools?rate=0"


@pytest.fixture
def gated() -> GatedTool:
    return GatedTool(retry="safe")


@pytest.fixture
def house(gated: GatedTool) -> House:
    return House(gated, *ALL, model=TOOLS)


def calling(tool: str, arguments: object, request_id: str = "ask") -> object:
    return say(f"call {tool} {json.dumps(arguments)}", request_id)


async def until_rest(house: House, chat_id: str = CHAT, runs: int = 1) -> None:
    async with house.watching(chat_id) as watcher:
        await watcher.at_rest(runs, DEADLINE_SECONDS)


def subchats(events: list[Event]) -> list[str]:
    return [event.subchat_id for event in events if isinstance(event, SubchatUpdate)]


async def runs_of(house: House, chat_id: str) -> list[str | None]:
    return [event.outcome for event in await house.events(chat_id) if isinstance(event, RuntimeUpdated) and event.outcome]


async def test_a_tool_runs_a_chat_and_its_answer_is_the_result(house: House) -> None:
    async with house.hosting("w1"):
        await house.post(calling("delegate", {"prompts": ["hello"], "params": {"model": "demo/echo?rate=0"}}))
        await until_rest(house)
    (child,) = subchats(await house.events())
    assert [text for role, text in await house.texts() if role == "tool"] == ["complete: You said: hello"]
    assert await house.texts(child) == [("user", "hello"), ("assistant", "You said: hello")]
    thread = (await house.state(child)).thread
    assert (thread.parent_id, thread.root_chat_id, thread.link_type) == (CHAT, CHAT, "subchat")
    assert (await house.state()).private.relations.children == ()
    assert (await house.state(child)).private.relations.outbox == ()
