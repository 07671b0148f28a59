"""Determines which samplers a chat-completions server accepts besides OpenAI's, and the server's names for them. Pure.

OpenAI's API takes `seed` and `stop` and answers 400 to keys that it does not know, as the APIs of Groq and Mistral do.
Other samplers are therefore sent only when the operator (`samplers`, `program`) or the server's list of models names
them.

Sources: llama.cpp, tools/server/README.md (`top_k`, `min_p`, `repeat_penalty`, `return_progress`). vLLM,
"OpenAI-Compatible Server", extra parameters of the Chat API (`top_k`, `min_p`, `repetition_penalty`); SGLang, "Sampling
Parameters", the same names. Ollama, docs/api/openai-compatibility (`seed`, `stop`; others are silently ignored).
OpenRouter, "Parameters", and `supported_parameters` in its list of models.
"""

from collections.abc import Collection

from threadcast.chat.params import SAMPLERS
from threadcast.providers.base import ModelParams
from threadcast.providers.listed import Offer
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["PROGRAMS", "sampling", "takes_samplers"]

_OF_ALL = frozenset({"seed", "stop"})
_LOCAL = frozenset({"top_k", "min_p", "repetition_penalty"})

PROGRAMS: dict[str, frozenset[str]] = {
    "llama.cpp": _OF_ALL | _LOCAL,
    "vllm": _OF_ALL | _LOCAL,
    "sglang": _OF_ALL | _LOCAL,
    "ollama": _OF_ALL,
}
"""The samplers that each known server program accepts."""


def takes_samplers(model: str, offer: Offer, *, program: str, said: Collection[str] | None) -> frozenset[str]:
    """Return the samplers that are sent to `model`: the operator's samplers `said`, else the samplers in the provider's
    list of models, else the samplers of the program, else `seed` and `stop`."""
    if said is not None:
        return frozenset(said)
    if (told := offer.parameters.get(model)) is not None:
        return told & frozenset(SAMPLERS)
    return PROGRAMS.get(program, _OF_ALL)


def sampling(params: ModelParams, samplers: frozenset[str], program: str) -> JsonObject:
    """Return the samplers of a request, under the server's names."""
    chosen: JsonObject = {
        "top_k": params.top_k,
        "min_p": params.min_p,
        "repetition_penalty": params.repetition_penalty,
        "seed": params.seed,
        "stop": params.stop or None,
    }
    body = {name: value for name, value in chosen.items() if value is not None and name in samplers}
    if program == "llama.cpp" and "repetition_penalty" in body:
        body["repeat_penalty"] = body.pop("repetition_penalty")
    return body
