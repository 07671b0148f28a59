"""Empty answers from a real model server: the model is called once more, and then a sentence reports the failure."""

import pytest

from tests.integration.fake_openai import DONE, STOP, FakeOpenAI, Reply, Step, chunk, text
from tests.unit.actor_harness import Harness, say
from threadcast.agent_loop.answer import empty
from threadcast.providers.openai.chat import OpenAIChat
from threadcast.settings import Provider as ProviderSettings
from threadcast_protocol.wire.events import ErrorHappened
from threadcast_protocol.wire.messages import JsonObject

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


async def asked(fake: FakeOpenAI, *replies: list[Step]) -> Harness:
    provider = OpenAIChat("p", ProviderSettings(base_url=fake.base_url), max_retries=0)
    harness = Harness(providers=[provider], model="p/tiny")
    fake.replies = [Reply(steps) for steps in replies]
    await harness.post(say("hello"))
    try:
        await provider.warm_up()  # importing an SDK takes seconds on a busy machine
        await harness.own("w1")
    finally:
        await provider.aclose()
    return harness


@pytest.mark.row("ERR-2", "LOOP-14")
@pytest.mark.parametrize("nothing", list(NOTHINGS))
async def test_a_model_that_says_nothing_is_asked_once_more(fake: FakeOpenAI, nothing: str) -> None:
    harness = await asked(fake, NOTHINGS[nothing], [text("Here I am."), STOP, DONE])
    assert (await harness.texts())[-1] == ("assistant", "Here I am.")
    assert (await harness.state()).runtime.outcome == "complete"
    told = fake.asked[1].body["messages"][-1]
    assert told == {"role": "user", "content": empty.NAMELESS if "call" in nothing else empty.NOTHING}


@pytest.mark.parametrize("nothing", list(NOTHINGS))
async def test_twice_nothing_is_said_in_a_sentence(fake: FakeOpenAI, nothing: str) -> None:
    harness = await asked(fake, NOTHINGS[nothing], NOTHINGS[nothing])
    (error,) = [event for event in await harness.events() if isinstance(event, ErrorHappened)]
    assert (error.code, error.fatal, error.message) == ("empty_answer", True, "The model answered with nothing.")
    assert len(fake.asked) == 2
    state = await harness.state()
    assert (state.runtime.state, state.runtime.outcome) == ("error", "error")
    assert all(state.nodes[key].reasoning_content for key in state.path[1:]), "thoughts stay, and nothing else is there"
