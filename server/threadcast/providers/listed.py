"""Parses the list of models that a provider offers. Pure: no socket and no SDK; `lists.py` fetches the bytes.

A list is untrusted: it may be huge, nested, or contain any values. Unreadable entries are left out one by one, and at
most `MODELS_MAX` entries are kept, in the provider's order.

The shapes, as of 2026: OpenAI's `{"data": [{"id", "owned_by"}]}`, which vLLM and SGLang extend by `max_model_len`,
llama.cpp by `meta.n_ctx`, OpenRouter by `context_length`, `architecture.input_modalities` and `supported_parameters`;
Anthropic's `{"data": [{"id", "max_input_tokens", "max_tokens"}]}`; Google's `{"models": [{"name": "models/ID",
"inputTokenLimit", "outputTokenLimit", "supportedGenerationMethods"}]}`.
"""

import re

import msgspec

from threadcast.providers.base import ModelInfo
from threadcast.settings.models import CONTEXT_TOKENS
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["MODELS_MAX", "Offer", "read_list"]

MODELS_MAX = 500
"""Maximum models of one list: more than any gateway lists today (OpenRouter has some 400). The answer of `/v1/caps`
with this many models has about 200 kB."""

ENTRIES_MAX = 20_000
"""Maximum entries that are read; the rest of a list is ignored."""

ENTRY_MAX_BYTES = 64 * 1024
"""Maximum bytes of an entry: ten times the longest entry that we know, which is OpenRouter's. A larger entry is left
out."""

COMMAS_MAX = 500_000
"""Maximum commas in a list. Even the largest list that is fetched (8 MiB) has fewer commas unless it is malicious."""

NAME_MAX_CHARACTERS = 200
"""Maximum characters of a model's name. With the provider's name before it (64 at most), the name must fit into the 256
characters of `model` (PROTOCOL §16)."""

_WINDOWS = ("max_model_len", "context_length", "max_input_tokens", "inputTokenLimit")
_LONGEST = ("outputTokenLimit", "max_tokens")

WINDOW_MIN_TOKENS, WINDOW_MAX_TOKENS = 1_000, 1_000_000_000

_NO_CHAT = re.compile(
    r"embed|rerank|whisper|moderation|transcri|dall-e|gpt-image|realtime"
    r"|(^|[/:._-])(tts|asr|ocr|sora|veo|imagen|aqa|davinci-002|babbage-002)([/:._-]|$)",
    re.IGNORECASE,
)
"""Name patterns of models that no chat can use. The lists do not mark such models."""

_PROGRAMS = {"llamacpp": "llama.cpp", "vllm": "vllm", "sglang": "sglang", "library": "ollama"}
"""Programs by the value of `owned_by`, for servers that put their own name into this field (Ollama puts the name of its
public library there)."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a provider's list of models.

    `windows`: the size of a model's context in tokens, by the name of the model, for models whose size the list gives.
    `parameters`: the names of a model's parameters, by the name of the model, if the list gives them (OpenRouter).
    `program`: the software that serves the models (`llama.cpp`, `vllm`, `sglang`, `ollama`), '' when unknown.
    """

    models: list[ModelInfo] = []
    windows: dict[str, int] = {}
    parameters: dict[str, frozenset[str]] = {}
    program: str = ""


class _List(msgspec.Struct):
    data: list[msgspec.Raw] = []
    models: list[msgspec.Raw] = []


def read_list(data: bytes, *, takes: frozenset[str] = frozenset()) -> Offer:
    """Return the models in the body of an answer. `takes` are the kinds of attachments that all models of this provider
    accept (`image`, `audio`, `file`).

    For large lists, call this function in a thread. Its longest step that blocks other threads splits the list into at
    most `COMMAS_MAX` entries.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError, ValueError: the body is not a list of models.
    """
    if data.count(b",") > COMMAS_MAX:
        raise ValueError("the list has too many values")
    try:
        body = msgspec.json.decode(data, type=_List)
    except RecursionError:
        raise ValueError("the list is nested too deep") from None
    models: dict[str, ModelInfo] = {}
    windows: dict[str, int] = {}
    parameters: dict[str, frozenset[str]] = {}
    program = ""
    for raw in (body.data or body.models)[:ENTRIES_MAX]:
        if len(models) == MODELS_MAX:
            break
        entry = _read(raw)
        name = _text(entry.get("id")) or _text(entry.get("name")).removeprefix("models/")
        if name in models or not _is_chat_model(name, _texts(entry.get("supportedGenerationMethods"))):
            continue
        program = program or _PROGRAMS.get(_text(entry.get("owned_by")), "")
        told = (_part(entry, "meta").get("n_ctx"), *(entry.get(key) for key in _WINDOWS))
        window = next((n for n in told if type(n) is int and WINDOW_MIN_TOKENS <= n <= WINDOW_MAX_TOKENS), None)
        if window is not None:
            windows[name] = window
        taken = _texts(entry.get("supported_parameters"))
        if taken is not None:
            parameters[name] = taken
        inputs = takes | (_texts(_part(entry, "architecture").get("input_modalities")) or frozenset())
        most = next((n for key in _LONGEST if type(n := entry.get(key)) is int), None)
        models[name] = ModelInfo(
            name=name,
            context_tokens=window or CONTEXT_TOKENS,
            supports_tools=taken is None or "tools" in taken,
            supports_images="image" in inputs,
            supports_audio="audio" in inputs,
            supports_files="file" in inputs,
            max_output_tokens=most if most is not None and most > 0 else None,
        )
    return Offer(models=list(models.values()), windows=windows, parameters=parameters, program=program)


def _read(raw: msgspec.Raw) -> JsonObject:
    """Decode an entry; returns an empty object for a non-object or an entry that is too large."""
    view = memoryview(raw)
    if not 2 < len(view) <= ENTRY_MAX_BYTES or view[0] != ord("{"):
        return {}
    try:
        entry: JsonObject = msgspec.json.decode(view)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return entry


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> frozenset[str] | None:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        return None
    return frozenset(value)


def _part(entry: JsonObject, key: str) -> JsonObject:
    value = entry.get(key)
    return value if isinstance(value, dict) else {}


def _is_chat_model(name: str, methods: frozenset[str] | None) -> bool:
    if not name or len(name) > NAME_MAX_CHARACTERS or not name.isprintable() or _NO_CHAT.search(name):
        return False
    return methods is None or "generateContent" in methods
