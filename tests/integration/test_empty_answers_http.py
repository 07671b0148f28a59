"""Answers of nothing from a real server of models: asked for once more, then said in a sentence."""

from collections.abc import Iterator

import pytest

from protocol.events import ErrorHappened
from protocol.messages import JsonObject
from server.agent.answer import empty
from server.providers.openai.chat import OpenAIChat
from tests.integration.fake_openai import DONE, STOP, FakeOpenAI, Reply, Step, chunk, serve_fake_openai, text
from tests.unit.actor_house import House, say

pytestmark = pytest.mark.anyio

CALL: JsonObject = {"index": 0, "id": "c", "function": {"arguments": '{"a":1}'}}
NOTHINGS: dict[str, list[Step]] = {
    "no word": [STOP, DONE],
    "white space": [text("\n"), STOP, DONE],
    "reasoning alone": [chunk(delta={"reasoning_content": "hm"}), STOP, DONE],
    "a call without a name": [chunk(delta={"tool_calls": [CALL]}), chunk(finish_reason="tool_calls"), DONE],
    "a call with an empty name": [
        chunk(delta={"tool_calls": [{**CALL, "function": {"name": "", "arguments": "{}"}}]}),
        chunk(finish_reason="tool_calls"),
        DONE,
    ],
}


@pytest.fixture
def fake() -> Iterator[FakeOpenAI]:
    with serve_fake_openai() as server:
        yield server


async def asked(fake: FakeOpenAI, *replies: list[Step]) -> House:
    provider = OpenAIChat("p", base_url=fake.base_url, max_retries=0)
    house = House(providers=[provider], model="p/tiny")
    fake.replies = [Reply(steps) for steps in replies]
    await house.post(say("hello"))
    try:
        await provider.warm_up()  # importing an SDK takes seconds on a busy machine
        await house.own("w1")
    finally:
        await provider.aclose()
    return house


@pytest.mark.row("ERR-2", "LOOP-14")
@pytest.mark.parametrize("nothing", list(NOTHINGS))
async def test_a_model_that_says_nothing_is_asked_once_more(fake: FakeOpenAI, nothing: str) -> None:
    house = await asked(fake, NOTHINGS[nothing], [text("Here I am."), STOP, DONE])
    assert (await house.texts())[-1] == ("assistant", "Here I am.")
    assert (await house.state()).runtime.outcome == "complete"
    told = fake.asked[1].body["messages"][-1]
    assert told == {"role": "user", "content": empty.NAMELESS if "call" in nothing else empty.NOTHING}


@pytest.mark.parametrize("nothing", list(NOTHINGS))
async def test_twice_nothing_is_said_in_a_sentence(fake: FakeOpenAI, nothing: str) -> None:
    house = await asked(fake, NOTHINGS[nothing], NOTHINGS[nothing])
    (error,) = [event for event in await house.events() if isinstance(event, ErrorHappened)]
    assert (error.code, error.fatal, error.message) == ("empty_answer", True, "The model answered with nothing.")
    assert len(fake.asked) == 2
    state = await house.state()
    assert (state.runtime.state, state.runtime.outcome) == ("error", "error")
    assert all(state.nodes[key].reasoning_content for key in state.path[1:]), "thoughts stay, and nothing else is there"
