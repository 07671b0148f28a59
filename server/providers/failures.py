"""Why a model call failed: one closed table of causes, each with its PROV-7 code and its sentence for people.

Every adapter ends here, so that the same trouble reads the same whoever serves the model. The sentences are fixed: what
a provider says about the trouble is `detail`, which goes to the server's log and never to a client. This file knows no
vendor and no HTTP library; `openai/errors.py` and its like map foreign exceptions to the causes below.
"""

import json
from typing import Literal, TypeAlias

import msgspec

from protocol.bodies import NESTING_MAX, is_too_deep
from protocol.errors import ModelFailed
from protocol.mending import mend_text
from server.providers.sse_split import EventTooLarge

__all__ = ["DETAIL_MAX_CHARS", "UNREADABLE", "Cause", "checked", "model_failed"]

UNREADABLE = (msgspec.DecodeError, UnicodeError, json.JSONDecodeError, RecursionError, EventTooLarge)
"""What is raised for a stream that cannot be read, not even with repairs. Their sentences name a place and a type."""

Cause: TypeAlias = Literal[
    "auth_failed",
    "broken",
    "connection",
    "context_overflow",
    "empty",
    "malformed",
    "rate_limited",
    "refused",
    "server_error",
    "silent",
    "timeout",
    "unknown_model",
]

DETAIL_MAX_CHARS = 2_000
"""Enough for a provider's whole error object; an HTML page of a proxy is cut."""

_CAUSES: dict[Cause, tuple[str, str, bool]] = {
    "auth_failed": ("auth_failed", "The model's provider refused the server's credentials.", False),
    "broken": ("stream_error", "The model's answer broke off before it was finished.", True),
    "connection": ("connection", "The model's provider could not be reached.", True),
    "context_overflow": ("context_overflow", "The conversation is too long for this model.", False),
    "empty": ("llm_error", "The model's provider answered with nothing that is an answer.", True),
    "malformed": ("stream_error", "The model's provider sent something that could not be read.", True),
    "rate_limited": ("rate_limited", "The model's provider accepts no more requests for now.", True),
    "refused": ("llm_error", "The model's provider refused the request.", False),
    "server_error": ("llm_error", "The model's provider failed.", True),
    "silent": ("stream_error", "The model went silent in the middle of its answer.", True),
    "timeout": ("timeout", "The model did not answer in time.", True),
    "unknown_model": ("llm_error", "The model's provider does not know this model.", False),
}
"""Cause to code, sentence, and whether the same call may succeed later."""


def model_failed(cause: Cause, detail: str = "") -> ModelFailed:
    """The error to raise for `cause`; `detail` is cut to `DETAIL_MAX_CHARS`."""
    code, sentence, retryable = _CAUSES[cause]
    return ModelFailed(code, sentence, detail=mend_text(detail[:DETAIL_MAX_CHARS]), retryable=retryable)


def checked(data: bytes) -> bytes:
    """The data of an event, when what it holds can go into a log: parts of it are passed on as they are.

    Raises:
        ModelFailed: nested too deep.
    """
    if is_too_deep(data):
        raise model_failed("malformed", f"more than {NESTING_MAX} lists and objects inside each other")
    return data
