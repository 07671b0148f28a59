"""Lists of models: valid lists from providers, and malformed lists."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast.providers.listed import ENTRIES_MAX, ENTRY_MAX_BYTES, MODELS_MAX, Offer, read_list
from threadcast.settings.models import CONTEXT_TOKENS


def names(offer: Offer) -> list[str]:
    return [info.name for info in offer.models]


def listed(*entries: object, key: str = "data") -> Offer:
    return read_list(json.dumps({key: entries}).encode())


def test_servers_of_openais_wire_are_read_with_what_they_add() -> None:
    llama = listed({"id": "qwen3", "owned_by": "llamacpp", "meta": {"n_ctx": 4096, "n_ctx_train": 131072}})
    assert (names(llama), llama.windows, llama.program) == (["qwen3"], {"qwen3": 4096}, "llama.cpp")
    vllm = listed({"id": "meta/llama", "owned_by": "vllm", "max_model_len": 32768})
    assert (vllm.windows, vllm.program) == ({"meta/llama": 32768}, "vllm")
    ollama = listed({"id": "llama3.2:latest", "owned_by": "library"}, {"id": "nomic-embed-text", "owned_by": "library"})
    assert (names(ollama), ollama.windows, ollama.program) == (["llama3.2:latest"], {}, "ollama")
    assert ollama.models[0].context_tokens == CONTEXT_TOKENS
    router = listed(
        {
            "id": "a/b",
            "name": "A: B",
            "context_length": 200_000,
            "architecture": {"input_modalities": ["text", "image"]},
            "supported_parameters": ["tools", "top_k"],
        }
    )
    assert (router.models[0].supports_images, router.models[0].supports_audio) == (True, False)
    assert router.parameters == {"a/b": frozenset({"tools", "top_k"})}


def test_anthropics_and_googles_lists_are_read() -> None:
    claude = listed({"type": "model", "id": "claude-x", "max_input_tokens": 200_000, "max_tokens": 64_000})
    assert (claude.windows, claude.models[0].max_output_tokens) == ({"claude-x": 200_000}, 64_000)
    gemini = listed(
        {
            "name": "models/gemini-x",
            "inputTokenLimit": 1_048_576,
            "outputTokenLimit": 65_536,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        },
        {"name": "models/text-x", "supportedGenerationMethods": ["embedContent"]},
        key="models",
    )
    assert (names(gemini), gemini.windows) == (["gemini-x"], {"gemini-x": 1_048_576})
    assert gemini.models[0].max_output_tokens == 65_536


@pytest.mark.parametrize(
    "name", ["text-embedding-3-small", "whisper-1", "tts-1-hd", "omni-moderation", "gpt-4o-realtime"]
)
def test_models_that_no_chat_can_use_are_left_out(name: str) -> None:
    assert names(listed({"id": name}, {"id": "gpt-5"}, {"id": "claude-opus-x"})) == ["gpt-5", "claude-opus-x"]


def test_what_cannot_be_read_is_left_out_entry_by_entry() -> None:
    wrong = ["x", 7, None, [], {}, {"id": 5}, {"id": ""}, {"id": "a\nb"}, {"id": "x" * 201}, {"id": "twice"}]
    offer = listed(
        *wrong,
        {"id": "twice"},
        {"id": "odd", "owned_by": 7, "max_model_len": "many", "meta": []},
        {"id": "small", "context_length": 3},
        {"id": "huge", "context_length": 10**30},
        {"id": "negative", "max_tokens": -5},
    )
    assert names(offer) == ["twice", "odd", "small", "huge", "negative"]
    assert offer.windows == {}
    assert {info.max_output_tokens for info in offer.models} == {None}


def test_no_more_models_are_kept_than_a_page_can_show() -> None:
    offer = listed(*({"id": f"m{number}"} for number in range(MODELS_MAX + 5)))
    assert (len(offer.models), names(offer)[-1]) == (MODELS_MAX, f"m{MODELS_MAX - 1}")


def test_of_a_list_of_numbers_no_more_is_read_than_a_list_of_models_could_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    assert listed(*[1] * (ENTRIES_MAX - 1), {"id": "last"}, {"id": "after"}).models[0].name == "last"
    assert names(listed(*[1] * ENTRIES_MAX, {"id": "after"})) == []
    assert names(listed({"id": "large", "x": "y" * ENTRY_MAX_BYTES}, {"id": "one"})) == ["one"]
    decoded: list[object] = []
    decode = msgspec.json.decode

    def counted(data: bytes, **how: object) -> object:
        decoded.append(data)
        return decode(data, **how)  # type: ignore[call-overload]

    monkeypatch.setattr(msgspec.json, "decode", counted)
    listed(*[1, "x", None, []] * 100, {"id": "one"}, {"id": "two"})
    assert len(decoded) == 3, "the list, and each object once"
    decoded.clear()
    with pytest.raises(ValueError, match="too many values"):
        read_list(b'{"data":[' + b"1," * 4_000_000 + b"1]}")
    assert not decoded, "8 MB of numbers would hold up every chat while they are decoded"


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"data": {}}', b'{"data": ' + b"[" * 5000 + b"]" * 5000 + b"}"]
)
def test_what_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises((ValueError, UnicodeDecodeError)):  # msgspec's errors are ValueErrors
        read_list(body)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "name", "meta", "n_ctx", "owned_by", "supported_parameters"]), inner)
    ),
    max_leaves=12,
)


@given(st.lists(_JSON, max_size=6))
def test_any_entries_give_a_list(entries: list[object]) -> None:
    for info in read_list(json.dumps({"data": entries}).encode()).models:
        assert info.name.isprintable() and info.context_tokens >= 1_000
