"""Why a model call failed: one closed table of causes, each with its PROV-7 code and its sentence for people.

All adapters use these errors, so that the same failure reads the same for every provider. The sentences are fixed. The
provider's own words are `detail`, for the server's log, and `reason`, which is cleaned before it is shown
(`server/agent/reasons.py`). This file knows no
vendor and no HTTP library; `openai/errors.py` and its like map foreign exceptions to the causes below.
"""

import json
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Literal, TypeAlias

import msgspec

from protocol.bodies import NESTING_MAX, is_too_deep
from protocol.errors import ModelFailed
from protocol.mending import mend_text
from server.providers.sse_split import EventTooLarge
from server.redaction import seen

__all__ = [
    "DETAIL_MAX_CHARS",
    "RETRY_AFTER_MAX_SECONDS",
    "UNREADABLE",
    "Cause",
    "checked",
    "model_failed",
    "retry_after",
]

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

SAID_MAX_CHARS = 20_000
"""Of the sentence in an error's body. More than `server/agent/reasons.py` looks at: it must see that there is more."""

RETRY_AFTER_MAX_SECONDS = 86_400
"""A day. Nobody waits longer in front of a failure, and a longer time may be a mistake or an attack."""

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


def model_failed(
    cause: Cause,
    detail: str = "",
    *,
    body: object = None,
    status: int | None = None,
    retry_after_seconds: float | None = None,
) -> ModelFailed:
    """Return the error to raise for `cause`; `detail` is cut to `DETAIL_MAX_CHARS`, without invisible characters, since
    a secret with one inside would not be masked. `body` is the provider's decoded response; `status` and
    `retry_after_seconds` are as in ModelFailed."""
    code, sentence, retryable = _CAUSES[cause]
    return ModelFailed(
        code,
        sentence,
        detail=seen(mend_text(detail[:DETAIL_MAX_CHARS])),
        retryable=retryable,
        reason=_said_in(body),
        status=status,
        retry_after_seconds=retry_after_seconds,
    )


def _said_in(body: object) -> str:
    """Return the message in an error's body: OpenAI's, Anthropic's and Google's `message`, FastAPI's `detail`, Ollama's
    bare `error`, of at most `SAID_MAX_CHARS`. '' for a page of HTML, which comes from a proxy and gives no reason."""
    for _ in range(3):
        if isinstance(body, str):
            said = body[:SAID_MAX_CHARS]
            return "" if said.lstrip().startswith("<") else said
        if not isinstance(body, Mapping):
            break
        body = next((body[name] for name in ("message", "detail", "error") if body.get(name)), None)
    return ""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until the provider may be called again, by `Retry-After` (RFC 9110 §10.2.3: seconds or a date)
    or the `retry-after-ms` of OpenAI; None if both are missing, or ask for more than a day."""
    milliseconds, said = headers.get("retry-after-ms"), headers.get("retry-after")
    seconds: float | None = None
    try:
        if milliseconds is not None:
            seconds = float(milliseconds) / 1000
        elif said is not None:
            seconds = float(said) if said.strip()[:1].isdigit() else parsedate_to_datetime(said).timestamp() - time()
    except (ValueError, OverflowError):  # OverflowError: a year or an offset that no calendar has
        return None
    return seconds if seconds is not None and 0 <= seconds <= RETRY_AFTER_MAX_SECONDS else None


def checked(data: bytes) -> bytes:
    """The data of an event, when what it holds can go into a log: parts of it are passed on as they are.

    Raises:
        ModelFailed: nested too deep.
    """
    if is_too_deep(data):
        raise model_failed("malformed", f"more than {NESTING_MAX} lists and objects inside each other")
    return data
