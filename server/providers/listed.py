"""Parses a provider's own list of models. Pure: no socket and no SDK; `lists.py` fetches the bytes.

A list is foreign: it may be huge, nested, or hold anything under the keys that we read. What cannot be read is left
out, entry by entry, and no more than `MODELS_MAX` entries are kept, in the order of the provider.

The shapes, as of 2026: OpenAI's `{"data": [{"id", "owned_by"}]}`, which vLLM and SGLang extend by `max_model_len`,
llama.cpp by `meta.n_ctx`, OpenRouter by `context_length`, `architecture.input_modalities` and `supported_parameters`;
Anthropic's `{"data": [{"id", "max_input_tokens", "max_tokens"}]}`; Google's `{"models": [{"name": "models/ID",
"inputTokenLimit", "outputTokenLimit", "supportedGenerationMethods"}]}`.
"""

import re
from typing import TypeVar

import msgspec

from protocol.bodies import is_too_deep
from server.providers.base import ModelInfo

__all__ = ["MODELS_MAX", "Offer", "read_list"]

MODELS_MAX = 500
"""More than any gateway lists today (OpenRouter has some 400); `/v1/caps` with so many is about 200 kB."""

NAME_MAX_CHARACTERS = 200
"""With the provider's name before it (64 at most) it must still fit into `model`, 256 characters (PROTOCOL §16)."""

WINDOW_TOKENS = 128_000
"""The context that is shown for a model of which the list does not tell it: the default of a model in the settings."""

WINDOW_MIN_TOKENS, WINDOW_MAX_TOKENS = 1_000, 1_000_000_000

_NO_CHAT = re.compile(
    r"embed|rerank|whisper|moderation|transcri|dall-e|gpt-image|realtime"
    r"|(^|[/:._-])(tts|asr|ocr|sora|veo|imagen|aqa|davinci-002|babbage-002)([/:._-]|$)",
    re.IGNORECASE,
)
"""Models that no chat can use; lists name them without saying so."""

_PROGRAMS = {"llamacpp": "llama.cpp", "vllm": "vllm", "sglang": "sglang", "library": "ollama"}
"""`owned_by` of the servers that write their own name there, or in Ollama's case its word for the public library."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a provider's list of models.

    `windows`: the size of the context in tokens, by the name of the model, where the list tells it. `parameters`: the
    names of the parameters that a model takes, where the list tells them (OpenRouter). `program`: the software that
    serves the models (`llama.cpp`, `vllm`, `sglang`, `ollama`), '' when the list does not tell.
    """

    models: list[ModelInfo] = []
    windows: dict[str, int] = {}
    parameters: dict[str, frozenset[str]] = {}
    program: str = ""


class _List(msgspec.Struct):
    data: list[msgspec.Raw] = []
    models: list[msgspec.Raw] = []


class _Named(msgspec.Struct):
    id: str = ""
    name: str = ""


class _Entry(msgspec.Struct, rename={"inputs": "inputTokenLimit", "outputs": "outputTokenLimit"}):
    owned_by: str | None = None
    max_model_len: int | None = None
    context_length: int | None = None
    max_input_tokens: int | None = None
    inputs: int | None = None
    max_tokens: int | None = None
    outputs: int | None = None


class _Meta(msgspec.Struct):
    n_ctx: int | None = None


class _Architecture(msgspec.Struct):
    input_modalities: list[str] | None = None


class _Nested(msgspec.Struct, rename={"methods": "supportedGenerationMethods"}):
    meta: _Meta | None = None
    architecture: _Architecture | None = None
    supported_parameters: list[str] | None = None
    methods: list[str] | None = None


_T = TypeVar("_T", _Named, _Entry, _Nested)


def read_list(data: bytes, *, takes: frozenset[str] = frozenset()) -> Offer:
    """Return the models in the body of an answer. `takes` are the kinds of attachments that all models of this provider
    take (`image`, `audio`, `file`).

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError, ValueError: it is no list of models at all.
    """
    if is_too_deep(data):
        raise ValueError("the list is nested too deep")
    body = msgspec.json.decode(data, type=_List)
    models: dict[str, ModelInfo] = {}
    windows: dict[str, int] = {}
    parameters: dict[str, frozenset[str]] = {}
    program = ""
    for raw in body.data or body.models:
        named, entry, nested = _read(raw, _Named), _read(raw, _Entry), _read(raw, _Nested)
        name = named.id or named.name.removeprefix("models/")
        if len(models) == MODELS_MAX:
            break
        if not _is_chat_model(name, nested) or name in models:
            continue
        program = program or _PROGRAMS.get(entry.owned_by or "", "")
        meta = nested.meta or _Meta()
        told = (meta.n_ctx, entry.max_model_len, entry.context_length, entry.max_input_tokens, entry.inputs)
        window = next((n for n in told if n is not None and WINDOW_MIN_TOKENS <= n <= WINDOW_MAX_TOKENS), None)
        if window is not None:
            windows[name] = window
        if nested.supported_parameters is not None:
            parameters[name] = frozenset(nested.supported_parameters)
        inputs = takes | frozenset((nested.architecture or _Architecture()).input_modalities or ())
        most = entry.outputs if entry.outputs is not None else entry.max_tokens
        models[name] = ModelInfo(
            name=name,
            context_tokens=window or WINDOW_TOKENS,
            supports_tools=nested.supported_parameters is None or "tools" in nested.supported_parameters,
            supports_images="image" in inputs,
            supports_audio="audio" in inputs,
            supports_files="file" in inputs,
            max_output_tokens=most if most is not None and most > 0 else None,
        )
    return Offer(models=list(models.values()), windows=windows, parameters=parameters, program=program)


def _read(raw: msgspec.Raw, wanted: type[_T]) -> _T:
    """Decode an entry as far as possible; a key with a value of the wrong type gets its default."""
    try:
        return msgspec.json.decode(raw, type=wanted)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return wanted()


def _is_chat_model(name: str, nested: _Nested) -> bool:
    if not name or len(name) > NAME_MAX_CHARACTERS or not name.isprintable() or _NO_CHAT.search(name):
        return False
    return nested.methods is None or "generateContent" in nested.methods
