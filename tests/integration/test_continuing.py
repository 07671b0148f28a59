"""Continuing an answer with every kind of provider: the model receives the shown text, and the answer does not repeat
it.

Each test restores a chat whose answer broke off, sends `continue_message`, and looks at the request and at the answer.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.integration.fake_openai import (
    CUT,
    DONE,
    STOP,
    FakeOpenAI,
    Reply,
    Step,
    chunk,
    text,
)
from tests.integration.test_native_adapters import anthropic_stop, anthropic_text, google_chunk
from tests.integration.test_openai_responses import last, words
from tests.unit.actor_harness import Harness
from threadcast.agent_loop.answer.continuation import INSTRUCTION
from threadcast.providers.anthropic.messages import Anthropic
from threadcast.providers.base import Provider
from threadcast.providers.demo.script import Script
from threadcast.providers.google.gemini import Google
from threadcast.providers.openai.chat import OpenAIChat
from threadcast.providers.openai.responses import OpenAIResponses
from threadcast.providers.sdk import SdkProvider
from threadcast.settings import Provider as ProviderSettings
from threadcast.settings import Secret
from threadcast_protocol.wire.commands import ContinueMessage, RestoreMessages
from threadcast_protocol.wire.events import MessageRemoved
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

HALF = "The harbour wakes early. Boats leave at dawn, "
REST = "and the town counts them."
QUESTION = "Tell me of the harbour."


async def continued(provider: Provider, model: str = "fake", half: str = HALF) -> tuple[str, Harness]:
    """Return the text of the answer after it was continued."""
    harness = Harness(providers=[provider], model=f"{provider.name}/{model}")
    messages: list[JsonObject] = [
        {"role": "user", "content": QUESTION, "message_id": "q"},
        {"role": "assistant", "content": half, "message_id": "a", "finish_reason": "error"},
    ]
    await harness.post(RestoreMessages(client_request_id="r", messages=messages))
    await harness.post(ContinueMessage(client_request_id="c", message_id="a"))
    try:
        if isinstance(provider, SdkProvider):
            await provider.warm_up()  # importing an SDK takes seconds on a busy machine
        await harness.own("w1")
    finally:
        await provider.aclose()
    state = await harness.state()
    assert list(state.path) == ["q", "a"]
    assert not [event for event in await harness.events() if isinstance(event, MessageRemoved)]
    return str(state.nodes["a"].content), harness


def openai_chat(fake: FakeOpenAI, **how: object) -> OpenAIChat:
    settings = ProviderSettings(base_url=fake.base_url, **how)  # type: ignore[arg-type]  # the test's words
    return OpenAIChat("p", settings, max_retries=0)


def replies(*said: str) -> list[Reply]:
    return [Reply([*(text(each) for each in said), STOP, DONE])]


KINDS: dict[str, tuple[Callable[[str], Provider], Callable[[Sequence[str]], list[Step]]]] = {
    "openai_chat": (
        lambda url: OpenAIChat("p", ProviderSettings(base_url=url), max_retries=0),
        lambda said: [*(text(each) for each in said), STOP, DONE],
    ),
    "openai_responses": (
        lambda url: OpenAIResponses("p", ProviderSettings(base_url=url), max_retries=0),
        lambda said: [*(words(each) for each in said), last()],
    ),
    "anthropic": (
        lambda url: Anthropic(
            "p", ProviderSettings(kind="anthropic", base_url=url, api_key=Secret("k")), max_retries=0
        ),
        lambda said: [*(anthropic_text(each) for each in said), anthropic_stop("end_turn")],
    ),
    "google": (
        lambda url: Google(
            "p", ProviderSettings(kind="google", base_url=url.removesuffix("/v1"), api_key=Secret("k")), max_retries=0
        ),
        lambda said: [*(google_chunk(each) for each in said), google_chunk("", finishReason="STOP")],
    ),
}


@pytest.mark.row("OLD-11", "CMD-6", "LOOP-9")
@pytest.mark.parametrize("kind", list(KINDS))
async def test_a_model_without_prefill_is_shown_its_half_answer_and_what_it_repeats_is_left_out(
    fake: FakeOpenAI, kind: str
) -> None:
    make, wire = KINDS[kind]
    fake.replies = [Reply(wire([HALF[:30], HALF[30:] + REST[:4], REST[4:]]))]
    answer, _ = await continued(make(fake.base_url))
    assert answer == HALF + REST
    (asked,) = fake.asked
    turns = asked.body.get("messages") or asked.body.get("input") or asked.body["contents"]
    assert [turn["role"] for turn in turns[-3:]] in (["user", "assistant", "user"], ["user", "model", "user"])
    shown = [str(turn) for turn in turns[-3:]]
    assert QUESTION in shown[0] and HALF in shown[1] and INSTRUCTION in shown[2]


@pytest.mark.row("OLD-11")
async def test_one_two_goes_on_with_three(fake: FakeOpenAI) -> None:
    """The server does not remove a repetition of less than 20 characters, which may be intended, so the model itself
    must see the shown text."""
    fake.replies = replies(" three", " four")
    answer, _ = await continued(openai_chat(fake), half="one two")
    assert answer == "one two three four"
    assert {"role": "assistant", "content": "one two"} in fake.asked[0].body["messages"]
    fake.replies = replies(" ha", " ha")
    assert (await continued(openai_chat(fake), half="ha ha"))[0] == "ha ha ha ha"


async def test_what_was_held_back_is_said_when_the_stream_breaks(fake: FakeOpenAI) -> None:
    fake.replies = [Reply([text("Boats leave at"), CUT])]
    answer, harness = await continued(openai_chat(fake))
    assert answer == HALF + "Boats leave at"
    assert (await harness.state()).runtime.outcome == "error"


@pytest.mark.row("OLD-11")
@pytest.mark.parametrize(
    ("prefill", "message", "beside"),
    [
        ("trailing", {}, {"chat_template_kwargs": {"enable_thinking": False}}),
        ("prefix", {"prefix": True}, {}),
        (
            "continue_final_message",
            {},
            {
                "continue_final_message": True,
                "add_generation_prompt": False,
                "chat_template_kwargs": {"enable_thinking": False},
            },
        ),
    ],
)
async def test_a_server_that_prefills_is_given_the_beginning_and_its_word_is_final(
    fake: FakeOpenAI, prefill: str, message: JsonObject, beside: JsonObject
) -> None:
    fake.replies = replies(" ", HALF, REST)  # the model repeated the white space, and then continued
    answer, _ = await continued(openai_chat(fake, prefill=prefill))
    assert answer == HALF + HALF + REST
    body = fake.asked[0].body
    beginning = {"role": "assistant", "content": HALF.rstrip(), **message}
    assert body["messages"][-2:] == [{"role": "user", "content": QUESTION}, beginning]
    extra = {key: value for key, value in body.items() if key not in ("model", "messages", "stream", "stream_options")}
    assert {**extra, "user": None} == {**beside, "user": None}


async def test_a_setting_of_the_template_stays_beside_ours(fake: FakeOpenAI) -> None:
    from threadcast.providers.base import ModelInfo

    info = ModelInfo(name="fake", context_tokens=4_000, extra_body={"chat_template_kwargs": {"tone": "dry"}})
    fake.replies = replies(REST)
    await continued(openai_chat(fake, prefill="trailing", models=[info]))
    assert fake.asked[0].body["chat_template_kwargs"] == {"tone": "dry", "enable_thinking": False}


# the SDK's warning about old models
@pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")
@pytest.mark.parametrize(("model", "prefills"), [("claude-sonnet-4-5", True), ("claude-opus-4-6", False)])
async def test_claude_is_prefilled_up_to_4_5_and_asked_from_4_6_on(
    fake: FakeOpenAI, model: str, prefills: bool
) -> None:
    fake.replies = [Reply([anthropic_text(f" {REST}"), anthropic_stop("end_turn")])]
    provider = Anthropic(
        "p", ProviderSettings(kind="anthropic", base_url=fake.base_url, api_key=Secret("k")), max_retries=0
    )
    answer, _ = await continued(provider, model)
    assert answer == (HALF + REST if prefills else f"{HALF} {REST}")
    roles = [turn["role"] for turn in fake.asked[0].body["messages"]]
    assert roles == (["user", "assistant"] if prefills else ["user", "assistant", "user"])


@pytest.mark.parametrize(
    ("base_url", "prefills"),
    [
        ("https://api.deepseek.com/beta", True),
        ("https://api.deepseek.com/v1", False),
        ("https://api.mistral.ai/v1", True),
        ("https://openrouter.ai/api/v1", False),
        ("https://api.openai.com/v1", False),
        ("http://127.0.0.1:11434/v1", False),
    ],
)
async def test_an_address_tells_only_what_is_certain(base_url: str, prefills: bool) -> None:
    assert OpenAIChat("p", ProviderSettings(base_url=base_url)).prefills("m") == prefills
    assert not OpenAIChat("p", ProviderSettings(base_url=base_url, prefill="none")).prefills("m")


async def test_a_script_goes_on_where_it_was_cut_and_adds_nothing_to_what_a_person_wrote(tmp_path: Path) -> None:
    file = tmp_path / "scenes.toml"
    file.write_text(
        'rate = 0\n[[scene]]\nwhen = "harbour"\n[[scene.round]]\nreasoning = "Hm."\ntext = "' + HALF + REST + '"\n'
    )
    answer, harness = await continued(Script("p", str(file)), "script")
    assert answer == HALF + REST
    assert (await harness.state()).nodes["a"].reasoning_content is None
    assert (await continued(Script("p", str(file)), "script", half="Quite another text. "))[0] == "Quite another text. "


async def test_an_answer_that_was_cut_before_any_word_is_simply_asked_for(fake: FakeOpenAI) -> None:
    fake.replies = [Reply([chunk(delta={"content": REST}), STOP, DONE])]
    answer, _ = await continued(openai_chat(fake, prefill="trailing"), half=" \n")
    assert answer == " \n" + REST
    assert [message["role"] for message in fake.asked[0].body["messages"]] == ["system", "user"]
