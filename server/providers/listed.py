"""Parses a provider's own list of models. Pure: no socket and no SDK; `lists.py` fetches the bytes.

A list is foreign: it may be huge, nested, or hold anything under the keys that we read. What cannot be read is left
out, entry by entry, and no more than `MODELS_MAX` entries are kept, in the order of the provider.

The shapes, as of 2026: OpenAI's `{"data": [{"id", "owned_by"}]}`, which vLLM and SGLang extend by `max_model_len`,
llama.cpp by `meta.n_ctx`, OpenRouter by `context_length`, `architecture.input_modalities` and `supported_parameters`;
Anthropic's `{"data": [{"id", "max_input_tokens", "max_tokens"}]}`; Google's `{"models": [{"name": "models/ID",
"inputTokenLimit", "outputTokenLimit", "supportedGenerationMethods"}]}`.
"""

import re

import msgspec

from protocol.messages import JsonObject
from server.providers.base import ModelInfo

__all__ = ["MODELS_MAX", "Offer", "read_list"]

MODELS_MAX = 500
"""More than any gateway lists today (OpenRouter has some 400); `/v1/caps` with so many is about 200 kB."""

ENTRIES_MAX = 20_000
"""Entries that are looked at; the rest of a list is left out."""

ENTRY_MAX_BYTES = 64 * 1024
"""Ten times the longest entry that we know, one of OpenRouter's; a larger one is left out."""

COMMAS_MAX = 500_000
"""In a whole list. The largest list that is fetched, 8 MiB, has fewer unless its values are made to be many."""

NAME_MAX_CHARACTERS = 200
"""With the provider's name before it (64 at most) it must still fit into `model`, 256 characters (PROTOCOL §16)."""

WINDOW_TOKENS = 128_000
"""The context that is shown for a model of which the list does not tell it: the default of a model in the settings."""

_WINDOWS = ("max_model_len", "context_length", "max_input_tokens", "inputTokenLimit")
_LONGEST = ("outputTokenLimit", "max_tokens")

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


def read_list(data: bytes, *, takes: frozenset[str] = frozenset()) -> Offer:
    """Return the models in the body of an answer. `takes` are the kinds of attachments that all models of this provider
    take (`image`, `audio`, `file`).

    Large lists belong into a thread. The longest step that holds up other threads is the one that splits the list: at
    most `COMMAS_MAX` entries.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError, ValueError: it is no list of models at all.
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
            context_tokens=window or WINDOW_TOKENS,
            supports_tools=taken is None or "tools" in taken,
            supports_images="image" in inputs,
            supports_audio="audio" in inputs,
            supports_files="file" in inputs,
            max_output_tokens=most if most is not None and most > 0 else None,
        )
    return Offer(models=list(models.values()), windows=windows, parameters=parameters, program=program)


def _read(raw: msgspec.Raw) -> JsonObject:
    """Decode an entry; what is no object, or too large for one model, gives an empty one."""
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
