"""Checks which samplers each provider's adapter sends, and their names: some providers answer an unknown sampler with
400."""

import pytest

from threadcast.agent_loop.answer.assembler import Assembler
from threadcast.chat.params import SAMPLERS
from threadcast.providers.anthropic.request import request_body as anthropic_body
from threadcast.providers.base import Delta, ModelNamed, ModelParams, PromptProgress, Request, TextDelta
from threadcast.providers.google.request import contents_and_config
from threadcast.providers.listed import Offer
from threadcast.providers.openai.chat import ChunkReader, OpenAIChat
from threadcast.providers.openai.samplers import PROGRAMS, takes_samplers
from threadcast.settings import Provider as ProviderSettings
from threadcast_protocol.wire.messages import JsonObject, Message

ALL = ModelParams(top_k=40, min_p=0.1, repetition_penalty=1.1, seed=7, stop=["END"])
NAMES = {*SAMPLERS, "repeat_penalty", "stop_sequences", "return_progress"}


def asked(params: ModelParams, *, stream: bool = True) -> Request:
    return Request(
        model="m", messages=[Message(role="user", content="Hi", message_id="u")], params=params, stream=stream
    )


def samplers_of(body: JsonObject) -> JsonObject:
    return {name: value for name, value in body.items() if name in NAMES}


@pytest.mark.row("OLD-9")
@pytest.mark.parametrize(
    ("provider", "sent"),
    [
        (OpenAIChat("o", ProviderSettings()), {"seed": 7, "stop": ["END"]}),
        (OpenAIChat("o", ProviderSettings(base_url="http://127.0.0.1:9/v1")), {"seed": 7, "stop": ["END"]}),
        (
            OpenAIChat("o", ProviderSettings(program="llama.cpp")),
            {"top_k": 40, "min_p": 0.1, "repeat_penalty": 1.1, "seed": 7, "stop": ["END"], "return_progress": True},
        ),
        (
            OpenAIChat("o", ProviderSettings(program="vllm")),
            {"top_k": 40, "min_p": 0.1, "repetition_penalty": 1.1, "seed": 7, "stop": ["END"]},
        ),
        (OpenAIChat("o", ProviderSettings(program="ollama")), {"seed": 7, "stop": ["END"]}),
        (OpenAIChat("o", ProviderSettings(program="vllm", samplers=["top_k"])), {"top_k": 40}),
        (OpenAIChat("o", ProviderSettings(samplers=[])), {}),
    ],
)
def test_a_server_of_chat_completions_is_sent_what_it_takes_under_its_own_names(
    provider: OpenAIChat, sent: JsonObject
) -> None:
    assert samplers_of(provider._body(asked(ALL))) == sent
    assert samplers_of(provider._body(asked(ModelParams(stop=[])))) == (
        {"return_progress": True} if "return_progress" in sent else {}
    )
    assert "return_progress" not in provider._body(asked(ALL, stream=False)), "there is no stream to tell it in"


def test_what_a_list_tells_of_a_model_holds_for_it_alone() -> None:
    offer = Offer(parameters={"a": frozenset({"top_k", "tools", "seed"})}, program="")
    assert takes_samplers("a", offer, program="", said=None) == {"top_k", "seed"}
    assert takes_samplers("b", offer, program="", said=None) == {"seed", "stop"}
    assert takes_samplers("b", offer, program="vllm", said=None) == PROGRAMS["vllm"]
    assert takes_samplers("a", offer, program="vllm", said=frozenset({"min_p"})) == {"min_p"}


@pytest.mark.row("OLD-9")
def test_anthropic_is_sent_top_k_and_stop_and_while_it_thinks_stop_alone() -> None:
    assert samplers_of(anthropic_body(asked(ALL))) == {"top_k": 40, "stop_sequences": ["END"]}
    thinking = ModelParams(top_k=40, stop=["END"], thinking_budget=2_000)
    assert samplers_of(anthropic_body(asked(thinking))) == {"stop_sequences": ["END"]}
    assert samplers_of(anthropic_body(asked(ModelParams(top_k=0, stop=[])))) == {}


@pytest.mark.row("OLD-9")
def test_gemini_is_sent_top_k_seed_and_stop() -> None:
    assert samplers_of(contents_and_config(asked(ALL))[1]) == {"top_k": 40, "seed": 7, "stop_sequences": ["END"]}
    assert samplers_of(contents_and_config(asked(ModelParams(top_k=0, stop=[])))[1]) == {}


# The share of the prompt that the model has read.


def read(*chunks: str) -> list[Delta]:
    reader = ChunkReader()
    return [delta for chunk in chunks for delta in reader.feed(chunk.encode())]


def test_a_model_that_reads_its_prompt_has_not_begun_to_answer() -> None:
    head = '"model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": null}}]'
    told = f'{{{head}, "prompt_progress": {{"total": 100, "cache": 20, "processed": 60, "time_ms": 1234}}}}'
    assert read(told) == [PromptProgress(100, 20, 60, 1234)]
    wrong = f'{{{head}, "prompt_progress": {{"total": "many"}}}}'
    assert read(wrong) == [ModelNamed("m")], "what cannot be read costs nothing else"


def test_progress_is_told_for_each_twentieth_and_only_before_the_answer() -> None:
    assembler = Assembler(set(), lambda: "call_1")
    ops = [assembler.feed(PromptProgress(1_000, 0, done, done)) for done in range(1, 1_001)]
    told = [op for op in ops if op is not None]
    assert (len(told), assembler.prompt_read, assembler.has_started) == (21, 100, False)
    for nonsense in (PromptProgress(0, 0, 0, 0), PromptProgress(-5, 0, 3, 0), PromptProgress(10, 0, 11, 0)):
        assert Assembler(set(), lambda: "call_1").feed(nonsense) is None
    assembler = Assembler(set(), lambda: "call_1")
    assembler.feed(TextDelta("Hello"))
    assert assembler.feed(PromptProgress(100, 0, 50, 1)) is None
