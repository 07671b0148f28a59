"""Sub-chats that a tool runs, with real actors over a store that can be made to fail. Each sub-chat begins once and its
answer arrives once, even if workers die in between; no sub-chat outlives its call."""

import json

import anyio
import pytest

from tests.unit.actor_harness import CHAT, FAST, GatedTool, Harness, abort, say, turns
from tests.unit.delegating import ALL, children_of, delegate, facts_in
from tests.unit.faulty_store import DEADLINE_SECONDS, Trouble
from threadcast.profiles.profile import Profile
from threadcast.store.ports import Posted, PostOutcome, PostRequest
from threadcast.tools.python import PythonTool
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.commands import UserMessage
from threadcast_protocol.wire.events import BackgroundAgentUpdated, Event, SubchatUpdate
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

TOOLS = "demo/tools?rate=0"


@pytest.fixture
def gated() -> GatedTool:
    return GatedTool(retry="safe")


@pytest.fixture
def harness(gated: GatedTool) -> Harness:
    return Harness(gated, *ALL, model=TOOLS)


def calling(tool: str, arguments: JsonObject, request_id: str = "ask") -> UserMessage:
    return say(f"call {tool} {json.dumps(arguments)}", request_id)


async def until_sent(harness: Harness, *chat_ids: str) -> None:
    """Wait until the outbox is empty."""
    with anyio.fail_after(DEADLINE_SECONDS):
        for chat_id in chat_ids:
            while (await harness.state(chat_id)).private.relations.outbox:
                await anyio.sleep(0.005)


def subchats(events: list[Event]) -> list[str]:
    return [event.subchat_id for event in events if isinstance(event, SubchatUpdate)]


@pytest.mark.parametrize(
    ("allowed", "mode", "told"),
    [
        ([], "agent", "A sub-chat of this chat cannot have the mode 'agent'. No mode is allowed."),
        (["reviewer"], "AGENT", "cannot have the mode 'agent'. Allowed modes: reviewer."),
        (None, "nobody", "There is no mode 'nobody'; the modes are: agent."),
        (
            ["agent"],
            "reviewer",
            "A sub-chat of this chat cannot have the mode 'reviewer'. Allowed modes: agent.",
        ),
        (["agent"], "AGENT", "complete: You said: hello"),
    ],
)
async def test_a_mode_among_the_parameters_needs_the_operators_word_too(
    allowed: list[str] | None, mode: str, told: str
) -> None:
    harness = Harness(*ALL, model=TOOLS, profile=Profile(name="agent", delegate_to=allowed))
    params = {"mode": mode, "model": "demo/echo?rate=0"}
    async with harness.hosting("w1"):
        await harness.post(calling("delegate", {"prompts": ["hello"], "params": params}))
        await harness.until_rest()
    (result,) = [text for role, text in await harness.texts() if role == "tool"]
    assert told in result
    for child in subchats(await harness.events()):
        assert (await harness.state(child)).thread.mode == "agent"


async def test_a_tool_runs_a_chat_and_its_answer_is_the_result(harness: Harness) -> None:
    async with harness.hosting("w1"):
        await harness.post(calling("delegate", {"prompts": ["hello"], "params": {"model": "demo/echo?rate=0"}}))
        await harness.until_rest()
    (child,) = subchats(await harness.events())
    assert [text for role, text in await harness.texts() if role == "tool"] == ["complete: You said: hello"]
    assert await harness.texts(child) == [("user", "hello"), ("assistant", "You said: hello")]
    thread = (await harness.state(child)).thread
    assert (thread.parent_id, thread.root_chat_id, thread.link_type) == (CHAT, CHAT, "subchat")
    assert (await harness.state()).private.relations.children == ()
    assert (await harness.state(child)).private.relations.outbox == ()


async def test_several_children_of_one_call_run_at_once_and_keep_their_places(harness: Harness) -> None:
    async with harness.hosting("w1"), harness.hosting("w2"):
        prompts = [f"number {number}" for number in range(5)]
        await harness.post(calling("delegate", {"prompts": prompts, "params": {"model": "demo/echo?rate=0"}}))
        await harness.until_rest()
    (result,) = [text for role, text in await harness.texts() if role == "tool"]
    assert result.splitlines() == [f"complete: You said: number {number}" for number in range(5)]
    assert len(set(subchats(await harness.events()))) == 5


@pytest.mark.parametrize(
    "faults", [["lost reply"], ["refused", "lost reply"], ["lost reply", "lost reply"]], ids="-".join
)
@pytest.mark.parametrize("call", ["post", "append"])
async def test_an_outbound_message_whose_delivery_is_not_answered_is_delivered_once(
    harness: Harness, call: str, faults: list[Trouble]
) -> None:
    await harness.post(calling("delegate", {"prompts": ["hello"], "params": {"model": "demo/echo?rate=0"}}))
    harness.store.fail(call, *faults)
    async with harness.hosting("w1"):
        await harness.until_rest()
        (child,) = subchats(await harness.events())
        await until_sent(harness, CHAT, child)
    assert await harness.texts(child) == [("user", "hello"), ("assistant", "You said: hello")]
    assert await harness.run_outcomes(child) == ["complete"]
    facts = await facts_in(harness.store, CHAT) + await facts_in(harness.store, child)
    assert [facts.count(name) for name in ("mail_owed", "mail_sent", "parent_bound", "child_ended")] == [2, 2, 1, 1]


@pytest.mark.row("SES-4")
@pytest.mark.parametrize("reply_only", [False, True], ids=["before", "after"])
async def test_an_owner_that_dies_over_a_delivery_leaves_it_to_the_next_who_delivers_it_once(
    harness: Harness, reply_only: bool
) -> None:
    await harness.post(calling("delegate", {"prompts": ["hello"], "params": {"model": "demo/echo?rate=0"}}))
    held = harness.store.hold("post", reply_only=reply_only)
    async with harness.hosting("w1"):
        await held.entered()
    harness.store.clock.now_ms += 2 * FAST.lease_ms
    async with harness.hosting("w2"):
        await harness.until_rest()
    (child,) = subchats(await harness.events())
    assert await harness.run_outcomes(child) == ["complete"]
    assert [text for role, text in await harness.texts() if role == "tool"] == ["complete: You said: hello"]


async def test_a_chat_with_an_outbound_message_is_not_released(harness: Harness) -> None:
    await harness.post(calling("delegate", {"prompts": ["hello"], "params": {"model": "demo/echo?rate=0"}}))
    begin, end = harness.store.hold("post", reply_only=True), harness.store.hold("post")
    async with harness.hosting("w1"):
        await begin.entered()
        begin.let_go()
        await end.entered()
        (child,) = subchats(await harness.events())
        assert await harness.run_outcomes(child) == ["complete"]
        await turns(200)
        assert harness.store.calls["release"] == 0
        end.let_go()
        await harness.until_rest()


async def test_an_outbound_message_for_a_full_inbox_is_delivered_when_there_is_room(harness: Harness) -> None:
    await harness.post(calling("delegate", {"prompts": ["hello"], "params": {"model": "demo/echo?rate=0"}}))
    posts: list[str] = []
    post = harness.store.post

    async def full_at_first(request: PostRequest) -> Posted:
        posts.append(request.request_id)
        return Posted(PostOutcome.FULL) if len(posts) == 1 else await post(request)

    harness.store.post = full_at_first  # type: ignore[method-assign]  # this once
    async with harness.hosting("w1"):
        await harness.until_rest()
    assert posts[0] == posts[1] and posts[0].startswith("begin:")
    assert [text for role, text in await harness.texts() if role == "tool"] == ["complete: You said: hello"]


async def test_a_child_that_fails_inside_the_server_is_not_waited_for(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("threadcast.chat.decider.begin_subchat", crash)
    async with harness.hosting("w1"):
        await harness.post(calling("delegate", {"prompts": ["hello"]}))
        await harness.until_rest()
    assert [text for role, text in await harness.texts() if role == "tool"] == [
        "error: The chat could not begin: its server failed."
    ]


@pytest.mark.row("SES-4")
async def test_after_a_takeover_a_call_finds_the_child_it_had(harness: Harness, gated: GatedTool) -> None:
    async with harness.hosting("w1"):
        await harness.post(calling("delegate", {"prompts": ["call gated {}"]}))
        await gated.entered()
    harness.store.clock.now_ms += 2 * FAST.lease_ms
    async with harness.hosting("w2"):
        await gated.entered(2)
        gated.go_on.set()
        await harness.until_rest()
    (child,) = subchats(await harness.events())
    assert await harness.run_outcomes(child) == ["complete"]
    assert await harness.run_outcomes(CHAT) == ["complete"]
    assert [role for role, _ in await harness.texts(child)] == ["user", "assistant", "tool", "assistant"]


async def test_a_child_that_ended_while_nobody_owned_its_parent_is_not_run_again(harness: Harness) -> None:
    await harness.post(calling("delegate", {"prompts": ["hello"], "params": {"model": "demo/echo?rate=0"}}))
    begin, end = harness.store.hold("post", reply_only=True), harness.store.hold("post", reply_only=True)
    async with harness.hosting("w1"):
        await begin.entered()
        begin.let_go()
        harness.store.loses_inbox_signals = True
        await end.entered()
    assert [entry.request_id.partition(":")[0] for entry in await harness.store.read_inbox(CHAT, 9)] == ["finished"]
    harness.store.loses_inbox_signals = False
    harness.store.clock.now_ms += 2 * FAST.lease_ms
    async with harness.hosting("w2"):
        await harness.until_rest()
    (child,) = subchats(await harness.events())
    assert (await harness.run_outcomes(child), await harness.run_outcomes(CHAT)) == (["complete"], ["complete"])
    assert [text for role, text in await harness.texts() if role == "tool"] == ["complete: You said: hello"]


async def test_a_parent_that_is_handed_over_while_it_waits_goes_on_elsewhere(
    harness: Harness, gated: GatedTool
) -> None:
    async with harness.hosting("w1") as host:
        await harness.post(calling("delegate", {"prompts": ["call gated {}"]}))
        await gated.entered()
        assert await host.drain() == 0
    gated.go_on.set()
    async with harness.hosting("w2"):
        await harness.until_rest()
    (child,) = subchats(await harness.events())
    assert (await harness.run_outcomes(child), await harness.run_outcomes(CHAT)) == (["complete"], ["complete"])
    assert (await harness.state()).private.attempts == 0, "nobody died"


async def test_a_call_that_must_not_run_twice_gives_its_child_up(harness: Harness, gated: GatedTool) -> None:
    async with harness.hosting("w1"):
        await harness.post(calling("delegate_once", {"prompts": ["call gated {}"]}))
        await gated.entered()
    harness.store.clock.now_ms += 2 * FAST.lease_ms
    async with harness.hosting("w2"):
        await harness.until_rest()
        (child,) = subchats(await harness.events())
        await harness.until_rest(child)
    assert (await harness.tool_statuses())[-1] == "outcome_unknown"
    assert await harness.run_outcomes(child) == ["aborted"]


# an abort also ends the sub-chats


@pytest.mark.row("CMD-3")
async def test_an_abort_ends_the_tool_of_a_childs_child_within_a_second(harness: Harness, gated: GatedTool) -> None:
    inner = 'call delegate {"prompts": ["call gated {}"]}'
    async with harness.hosting("w1"), harness.hosting("w2"):
        await harness.post(calling("delegate", {"prompts": [inner]}))
        await gated.entered()
        (child,) = subchats(await harness.events())
        (grandchild,) = subchats(await harness.events(child))
        await harness.post(abort())
        with anyio.fail_after(1.0):
            while not gated.cancelled:
                await anyio.lowlevel.checkpoint()
        for chat_id in (CHAT, child, grandchild):
            await harness.until_rest(chat_id)
            assert await harness.run_outcomes(chat_id) == ["aborted"]
            assert (await harness.state(chat_id)).private.relations.children == ()


@pytest.mark.row("CMD-3")
async def test_an_abort_that_a_new_owner_finds_goes_down_too(harness: Harness, gated: GatedTool) -> None:
    async with harness.hosting("w1"):
        await harness.post(calling("delegate", {"prompts": ["call gated {}"]}))
        await gated.entered()
    await harness.post(abort())
    harness.store.clock.now_ms += 2 * FAST.lease_ms
    async with harness.hosting("w2"):
        (child,) = subchats(await harness.events())
        await harness.until_rest()
        await harness.until_rest(child)
    assert await harness.run_outcomes(child) == ["aborted"]
    assert await harness.run_outcomes(CHAT) == ["aborted"]


async def test_a_call_that_takes_too_long_stops_its_child(gated: GatedTool) -> None:
    hasty = PythonTool(delegate.function, name="hasty", timeout_seconds=0.5)
    harness = Harness(gated, hasty, model=TOOLS)
    async with harness.hosting("w1"):
        await harness.post(calling("hasty", {"prompts": ["call gated {}"]}))
        await harness.until_rest()
        (child,) = subchats(await harness.events())
        await harness.until_rest(child)
    assert await harness.run_outcomes(child) == ["aborted"]
    assert await harness.run_outcomes(CHAT) == ["complete"], "the model is told and goes on"


# in the background


def statuses(events: list[Event]) -> list[str]:
    return [event.agent["status"] for event in events if isinstance(event, BackgroundAgentUpdated)]


async def test_an_agent_in_the_background_outlives_its_run_and_an_abort_and_its_end_is_an_event(
    harness: Harness, gated: GatedTool
) -> None:
    async with harness.hosting("w1"):
        await harness.post(calling("start_agent", {"prompt": "call gated {}"}))
        await harness.until_rest()
        await gated.entered()
        await harness.post(abort())
        gated.go_on.set()
        async with harness.watching() as watcher:
            await watcher.until(lambda w: statuses_in(w.state) == ["completed"])
    assert statuses(await harness.events()) == ["running", "completed"]
    (agent,) = (await harness.state()).background_agents
    assert agent["outcome"] == "complete" and "gated: result 1" in agent["summary"]
    (aside,) = (await harness.state()).private.asides
    assert "completed" in str(aside.message.content)
    assert await harness.run_outcomes(CHAT) == ["complete"], "nobody asked to be woken"
    assert children_of(await harness.state()) == []


def statuses_in(state: ChatState | None) -> list[str]:
    return [] if state is None else [agent["status"] for agent in state.background_agents]


async def test_the_end_of_an_agent_may_wake_the_chat_whose_model_then_knows_of_it(harness: Harness) -> None:
    async with harness.hosting("w1"):
        arguments = {"prompt": "hello", "wake": True}
        await harness.post(calling("start_agent", arguments))
        await harness.until_rest(runs=2)
    assert await harness.run_outcomes(CHAT) == ["complete", "complete"]
    assert [role for role, _ in await harness.texts()] == ["user", "assistant", "tool", "assistant", "assistant"]
    assert children_of(await harness.state()) == []


async def test_an_agent_that_is_told_to_stop_does(harness: Harness, gated: GatedTool) -> None:
    async with harness.hosting("w1"):
        await harness.post(calling("start_agent", {"prompt": "call gated {}"}))
        await gated.entered()
        await harness.until_rest()
        (agent,) = (await harness.state()).background_agents
        await harness.post(calling("stop_agent", {"agent_id": agent["id"]}, "stop"))
        async with harness.watching() as watcher:
            await watcher.until(lambda w: statuses_in(w.state) == ["aborted"])
        await harness.until_rest(agent["chat_id"])
    assert gated.cancelled == 1


async def test_an_agent_started_twice_by_one_call_is_one_agent(harness: Harness, gated: GatedTool) -> None:
    """The worker of the call had started the agent, and died before the result was in the log."""
    async with harness.hosting("w1"):
        await harness.post(calling("start_agent", {"prompt": "call gated {}"}))
        held = harness.store.hold("post")
        await held.entered()
    harness.store.clock.now_ms += 2 * FAST.lease_ms
    gated.go_on.set()
    async with harness.hosting("w2"):
        await harness.until_rest()
    assert statuses(await harness.events())[0] == "running"
    assert statuses(await harness.events()).count("running") == 1
    assert len(set(subchats(await harness.events()))) == 1
