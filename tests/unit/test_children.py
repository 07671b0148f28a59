"""Chats that a tool runs, with real actors over a store that can be made to fail: each child begins once, its answer
comes back once, whoever dies in between, and nothing below outlives the call it was for."""

import json

import anyio
import pytest

from protocol.commands import UserMessage
from protocol.events import BackgroundAgentUpdated, Event, RuntimeUpdated, SubchatUpdate
from protocol.messages import JsonObject
from protocol.state import ChatState
from server.agent.place.profile import Profile
from server.store.port import Posted, PostOutcome, PostRequest
from server.tools.python import PythonTool
from tests.unit.actor_house import CHAT, FAST, GatedTool, House, abort, say, turns
from tests.unit.delegating import ALL, children_of, delegate, facts_in
from tests.unit.faulty_store import DEADLINE_SECONDS, Trouble

pytestmark = pytest.mark.anyio

TOOLS = "demo/tools?rate=0"


@pytest.fixture
def gated() -> GatedTool:
    return GatedTool(retry="safe")


@pytest.fixture
def house(gated: GatedTool) -> House:
    return House(gated, *ALL, model=TOOLS)


def calling(tool: str, arguments: JsonObject, request_id: str = "ask") -> UserMessage:
    return say(f"call {tool} {json.dumps(arguments)}", request_id)


async def until_rest(house: House, chat_id: str = CHAT, runs: int = 1) -> None:
    """Wait until so many runs have ended and none is open."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while len(await runs_of(house, chat_id)) < runs or not (await house.state(chat_id)).is_at_rest:
            await anyio.sleep(0.01)


async def until_sent(house: House, *chat_ids: str) -> None:
    """Wait until nothing is owed."""
    with anyio.fail_after(DEADLINE_SECONDS):
        for chat_id in chat_ids:
            while (await house.state(chat_id)).private.relations.outbox:
                await anyio.sleep(0.005)


def subchats(events: list[Event]) -> list[str]:
    return [event.subchat_id for event in events if isinstance(event, SubchatUpdate)]


async def runs_of(house: House, chat_id: str) -> list[str | None]:
    return [
        event.outcome for event in await house.events(chat_id) if isinstance(event, RuntimeUpdated) and event.outcome
    ]


@pytest.mark.parametrize(
    ("allowed", "mode", "told"),
    [
        ([], "agent", "A chat below this one cannot have the mode 'agent'. None may."),
        (["reviewer"], "AGENT", "cannot have the mode 'agent'. Say one of these as mode: reviewer."),
        (None, "nobody", "There is no mode 'nobody'; there are agent."),
        (
            ["agent"],
            "reviewer",
            "A chat below this one cannot have the mode 'reviewer'. Say one of these as mode: agent.",
        ),
        (["agent"], "AGENT", "complete: You said: hello"),
    ],
)
async def test_a_mode_among_the_parameters_needs_the_operators_word_too(
    allowed: list[str] | None, mode: str, told: str
) -> None:
    house = House(*ALL, model=TOOLS, profile=Profile(name="agent", delegate_to=allowed))
    params = {"mode": mode, "model": "demo/echo?rate=0"}
    async with house.hosting("w1"):
        await house.post(calling("delegate", {"prompts": ["hello"], "params": params}))
        await until_rest(house)
    (result,) = [text for role, text in await house.texts() if role == "tool"]
    assert told in result
    for child in subchats(await house.events()):
        assert (await house.state(child)).thread.mode == "agent"


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


async def test_several_children_of_one_call_run_at_once_and_keep_their_places(house: House) -> None:
    async with house.hosting("w1"), house.hosting("w2"):
        prompts = [f"number {number}" for number in range(5)]
        await house.post(calling("delegate", {"prompts": prompts, "params": {"model": "demo/echo?rate=0"}}))
        await until_rest(house)
    (result,) = [text for role, text in await house.texts() if role == "tool"]
    assert result.splitlines() == [f"complete: You said: number {number}" for number in range(5)]
    assert len(set(subchats(await house.events()))) == 5


@pytest.mark.parametrize(
    "faults", [["lost reply"], ["refused", "lost reply"], ["lost reply", "lost reply"]], ids="-".join
)
@pytest.mark.parametrize("call", ["post", "append"])
async def test_mail_whose_delivery_is_not_answered_is_delivered_once(
    house: House, call: str, faults: list[Trouble]
) -> None:
    await house.post(calling("delegate", {"prompts": ["hello"], "params": {"model": "demo/echo?rate=0"}}))
    house.store.fail(call, *faults)
    async with house.hosting("w1"):
        await until_rest(house)
        (child,) = subchats(await house.events())
        await until_sent(house, CHAT, child)
    assert await house.texts(child) == [("user", "hello"), ("assistant", "You said: hello")]
    assert await runs_of(house, child) == ["complete"]
    facts = await facts_in(house.store, CHAT) + await facts_in(house.store, child)
    assert [facts.count(name) for name in ("mail_owed", "mail_sent", "parent_bound", "child_ended")] == [2, 2, 1, 1]


@pytest.mark.row("SES-4")
@pytest.mark.parametrize("reply_only", [False, True], ids=["before", "after"])
async def test_an_owner_that_dies_over_a_delivery_leaves_it_to_the_next_who_delivers_it_once(
    house: House, reply_only: bool
) -> None:
    await house.post(calling("delegate", {"prompts": ["hello"], "params": {"model": "demo/echo?rate=0"}}))
    held = house.store.hold("post", reply_only=reply_only)
    async with house.hosting("w1"):
        await held.entered()
    house.store.clock.now_ms += 2 * FAST.lease_ms
    async with house.hosting("w2"):
        await until_rest(house)
    (child,) = subchats(await house.events())
    assert await runs_of(house, child) == ["complete"]
    assert [text for role, text in await house.texts() if role == "tool"] == ["complete: You said: hello"]


async def test_a_chat_that_owes_a_letter_is_not_given_back(house: House) -> None:
    await house.post(calling("delegate", {"prompts": ["hello"], "params": {"model": "demo/echo?rate=0"}}))
    begin, end = house.store.hold("post", reply_only=True), house.store.hold("post")
    async with house.hosting("w1"):
        await begin.entered()
        begin.let_go()
        await end.entered()
        (child,) = subchats(await house.events())
        assert await runs_of(house, child) == ["complete"]
        await turns(200)
        assert house.store.calls["release"] == 0
        end.let_go()
        await until_rest(house)


async def test_a_letter_for_a_full_inbox_is_delivered_when_there_is_room(house: House) -> None:
    await house.post(calling("delegate", {"prompts": ["hello"], "params": {"model": "demo/echo?rate=0"}}))
    posts: list[str] = []
    post = house.store.post

    async def full_at_first(request: PostRequest) -> Posted:
        posts.append(request.request_id)
        return Posted(PostOutcome.FULL) if len(posts) == 1 else await post(request)

    house.store.post = full_at_first  # type: ignore[method-assign]  # this once
    async with house.hosting("w1"):
        await until_rest(house)
    assert posts[0] == posts[1] and posts[0].startswith("begin:")
    assert [text for role, text in await house.texts() if role == "tool"] == ["complete: You said: hello"]


async def test_a_child_that_fails_inside_the_server_is_not_waited_for(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("protocol.decider.begin_subchat", crash)
    async with house.hosting("w1"):
        await house.post(calling("delegate", {"prompts": ["hello"]}))
        await until_rest(house)
    assert [text for role, text in await house.texts() if role == "tool"] == [
        "error: The chat could not begin: its server failed."
    ]


@pytest.mark.row("SES-4")
async def test_after_a_takeover_a_call_finds_the_child_it_had(house: House, gated: GatedTool) -> None:
    async with house.hosting("w1"):
        await house.post(calling("delegate", {"prompts": ["call gated {}"]}))
        await gated.entered()
    house.store.clock.now_ms += 2 * FAST.lease_ms
    async with house.hosting("w2"):
        await gated.entered(2)
        gated.go_on.set()
        await until_rest(house)
    (child,) = subchats(await house.events())
    assert await runs_of(house, child) == ["complete"]
    assert await runs_of(house, CHAT) == ["complete"]
    assert [role for role, _ in await house.texts(child)] == ["user", "assistant", "tool", "assistant"]


async def test_a_child_that_ended_while_nobody_owned_its_parent_is_not_run_again(house: House) -> None:
    await house.post(calling("delegate", {"prompts": ["hello"], "params": {"model": "demo/echo?rate=0"}}))
    begin, end = house.store.hold("post", reply_only=True), house.store.hold("post", reply_only=True)
    async with house.hosting("w1"):
        await begin.entered()
        begin.let_go()
        house.store.loses_mail = True
        await end.entered()
    assert [entry.request_id.partition(":")[0] for entry in await house.store.read_inbox(CHAT, 9)] == ["finished"]
    house.store.loses_mail = False
    house.store.clock.now_ms += 2 * FAST.lease_ms
    async with house.hosting("w2"):
        await until_rest(house)
    (child,) = subchats(await house.events())
    assert (await runs_of(house, child), await runs_of(house, CHAT)) == (["complete"], ["complete"])
    assert [text for role, text in await house.texts() if role == "tool"] == ["complete: You said: hello"]


async def test_a_parent_that_is_handed_over_while_it_waits_goes_on_elsewhere(house: House, gated: GatedTool) -> None:
    async with house.hosting("w1") as host:
        await house.post(calling("delegate", {"prompts": ["call gated {}"]}))
        await gated.entered()
        assert await host.drain() == 0
    gated.go_on.set()
    async with house.hosting("w2"):
        await until_rest(house)
    (child,) = subchats(await house.events())
    assert (await runs_of(house, child), await runs_of(house, CHAT)) == (["complete"], ["complete"])
    assert (await house.state()).private.attempts == 0, "nobody died"


async def test_a_call_that_must_not_run_twice_gives_its_child_up(house: House, gated: GatedTool) -> None:
    async with house.hosting("w1"):
        await house.post(calling("delegate_once", {"prompts": ["call gated {}"]}))
        await gated.entered()
    house.store.clock.now_ms += 2 * FAST.lease_ms
    async with house.hosting("w2"):
        await until_rest(house)
        (child,) = subchats(await house.events())
        await until_rest(house, child)
    assert (await house.tool_statuses())[-1] == "outcome_unknown"
    assert await runs_of(house, child) == ["aborted"]


# abort goes down the tree


@pytest.mark.row("CMD-3")
async def test_an_abort_ends_the_tool_of_a_childs_child_within_a_second(house: House, gated: GatedTool) -> None:
    inner = 'call delegate {"prompts": ["call gated {}"]}'
    async with house.hosting("w1"), house.hosting("w2"):
        await house.post(calling("delegate", {"prompts": [inner]}))
        await gated.entered()
        (child,) = subchats(await house.events())
        (grandchild,) = subchats(await house.events(child))
        await house.post(abort())
        with anyio.fail_after(1.0):
            while not gated.cancelled:
                await anyio.lowlevel.checkpoint()
        for chat_id in (CHAT, child, grandchild):
            await until_rest(house, chat_id)
            assert await runs_of(house, chat_id) == ["aborted"]
            assert (await house.state(chat_id)).private.relations.children == ()


@pytest.mark.row("CMD-3")
async def test_an_abort_that_a_new_owner_finds_goes_down_too(house: House, gated: GatedTool) -> None:
    async with house.hosting("w1"):
        await house.post(calling("delegate", {"prompts": ["call gated {}"]}))
        await gated.entered()
    await house.post(abort())
    house.store.clock.now_ms += 2 * FAST.lease_ms
    async with house.hosting("w2"):
        (child,) = subchats(await house.events())
        await until_rest(house)
        await until_rest(house, child)
    assert await runs_of(house, child) == ["aborted"]
    assert await runs_of(house, CHAT) == ["aborted"]


async def test_a_call_that_takes_too_long_stops_its_child(gated: GatedTool) -> None:
    hasty = PythonTool(delegate.function, name="hasty", timeout_seconds=0.5)
    house = House(gated, hasty, model=TOOLS)
    async with house.hosting("w1"):
        await house.post(calling("hasty", {"prompts": ["call gated {}"]}))
        await until_rest(house)
        (child,) = subchats(await house.events())
        await until_rest(house, child)
    assert await runs_of(house, child) == ["aborted"]
    assert await runs_of(house, CHAT) == ["complete"], "the model is told and goes on"


# in the background


def statuses(events: list[Event]) -> list[str]:
    return [event.agent["status"] for event in events if isinstance(event, BackgroundAgentUpdated)]


async def test_an_agent_in_the_background_outlives_its_run_and_an_abort_and_its_end_is_an_event(
    house: House, gated: GatedTool
) -> None:
    async with house.hosting("w1"):
        await house.post(calling("start_agent", {"prompt": "call gated {}"}))
        await until_rest(house)
        await gated.entered()
        await house.post(abort())
        gated.go_on.set()
        async with house.watching() as watcher:
            await watcher.until(lambda w: statuses_in(w.state) == ["completed"])
    assert statuses(await house.events()) == ["running", "completed"]
    (agent,) = (await house.state()).background_agents
    assert agent["outcome"] == "complete" and "gated: result 1" in agent["summary"]
    (aside,) = (await house.state()).private.asides
    assert "completed" in str(aside.message.content)
    assert await runs_of(house, CHAT) == ["complete"], "nobody asked to be woken"
    assert children_of(await house.state()) == []


def statuses_in(state: ChatState | None) -> list[str]:
    return [] if state is None else [agent["status"] for agent in state.background_agents]


async def test_the_end_of_an_agent_may_wake_the_chat_whose_model_then_knows_of_it(house: House) -> None:
    async with house.hosting("w1"):
        arguments = {"prompt": "hello", "wake": True}
        await house.post(calling("start_agent", arguments))
        await until_rest(house, runs=2)
    assert await runs_of(house, CHAT) == ["complete", "complete"]
    assert [role for role, _ in await house.texts()] == ["user", "assistant", "tool", "assistant", "assistant"]
    assert children_of(await house.state()) == []


async def test_an_agent_that_is_told_to_stop_does(house: House, gated: GatedTool) -> None:
    async with house.hosting("w1"):
        await house.post(calling("start_agent", {"prompt": "call gated {}"}))
        await gated.entered()
        await until_rest(house)
        (agent,) = (await house.state()).background_agents
        await house.post(calling("stop_agent", {"agent_id": agent["id"]}, "stop"))
        async with house.watching() as watcher:
            await watcher.until(lambda w: statuses_in(w.state) == ["aborted"])
        await until_rest(house, agent["chat_id"])
    assert gated.cancelled == 1


async def test_an_agent_started_twice_by_one_call_is_one_agent(house: House, gated: GatedTool) -> None:
    """The call had started it, and its worker died before the result stood in the log."""
    async with house.hosting("w1"):
        await house.post(calling("start_agent", {"prompt": "call gated {}"}))
        held = house.store.hold("post")
        await held.entered()
    house.store.clock.now_ms += 2 * FAST.lease_ms
    gated.go_on.set()
    async with house.hosting("w2"):
        await until_rest(house)
    assert statuses(await house.events())[0] == "running"
    assert statuses(await house.events()).count("running") == 1
    assert len(set(subchats(await house.events()))) == 1
