"""The closed table of causes of failed model calls, each with its PROV-7 code and its sentence for users.

All adapters use these errors, so that the same failure has the same sentence for every provider. The provider's own
message becomes `detail`, for the server's log, and `reason`, which is cleaned before it is shown
(`agent_loop/reasons.py`). The modules `causes.py` and `errors.py` of each provider map errors and exceptions to
these causes.
"""

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from threadcast.base.redaction import seen
from threadcast.providers.sse_split import EventTooLarge
from threadcast_protocol.wire.bodies import NESTING_MAX, is_too_deep
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.mending import mend_text

__all__ = [
    "DETAIL_MAX_CHARS",
    "RETRY_AFTER_MAX_SECONDS",
    "UNREADABLE",
    "Cause",
    "CauseTable",
    "checked",
    "model_failed",
    "retry_after",
]

UNREADABLE = (msgspec.DecodeError, UnicodeError, json.JSONDecodeError, RecursionError, EventTooLarge)
"""The exceptions for a stream that cannot be decoded even with repairs. Their messages contain a path and a type."""

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
"""Maximum characters of `detail`: enough for a provider's whole error object; an HTML page of a proxy is cut."""

SAID_MAX_CHARS = 20_000
"""Maximum characters of the message in an error's body: more than `agent_loop/reasons.py` shows, so that it notices a
cut."""

RETRY_AFTER_MAX_SECONDS = 86_400
"""Maximum seconds to wait: one day. A longer wait is useless to a user, and may be a mistake or an attack."""

_CAUSES: dict[Cause, tuple[str, str, bool]] = {
    "auth_failed": ("auth_failed", "The model's provider refused the server's credentials.", False),
    "broken": ("stream_error", "The model's answer broke off before it was finished.", True),
    "connection": ("connection", "The model's provider could not be reached.", True),
    "context_overflow": ("context_overflow", "The conversation is too long for this model.", False),
    "empty": ("llm_error", "The model's provider sent an empty answer.", True),
    "malformed": ("stream_error", "The model's provider sent data that could not be read.", True),
    "rate_limited": ("rate_limited", "The model's provider accepts no more requests for now.", True),
    "refused": ("llm_error", "The model's provider refused the request.", False),
    "server_error": ("llm_error", "The model's provider failed.", True),
    "silent": ("stream_error", "The model went silent in the middle of its answer.", True),
    "timeout": ("timeout", "The model did not answer in time.", True),
    "unknown_model": ("llm_error", "The model's provider does not know this model.", False),
}
"""For each cause, its code, its sentence, and whether the same call may succeed later."""


class CauseTable(NamedTuple):
    """The errors of one API. `by_word` maps the `type` or `code` of an error object. If the status of an error is in
    `overflow_statuses` and its message matches `overflow`, the prompt is too long for the model."""

    by_status: Mapping[int, Cause]
    by_word: Mapping[str, Cause]
    overflow: re.Pattern[str]
    overflow_statuses: tuple[int, ...]

    def cause(self, status: int, message: str | None, *words: object) -> Cause:
        """Return the cause of an error. The first known error code among `words` determines the cause, else the
        message, else the status."""
        for word in words:
            if isinstance(word, str) and word in self.by_word:
                return self.by_word[word]
        if status in self.overflow_statuses and message and self.overflow.search(message):
            return "context_overflow"
        return self.by_status.get(status) or ("server_error" if status >= 500 else "refused")


def model_failed(
    cause: Cause,
    detail: str = "",
    *,
    body: object = None,
    status: int | None = None,
    retry_after_seconds: float | None = None,
) -> ModelFailed:
    """Return the error to raise for `cause`. `detail` is cut to `DETAIL_MAX_CHARS` and loses its invisible characters,
    since a secret that contains such a character would not be masked. `body` is the provider's decoded response;
    `status` and `retry_after_seconds` are as in ModelFailed."""
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
    """Return the message in the body of an error, cut to `SAID_MAX_CHARS`. The message is in the field `message` at
    OpenAI, Anthropic and Google, in `detail` with FastAPI, and in `error` with Ollama. Returns '' for a page of HTML,
    which comes from a proxy and gives no reason."""
    for _ in range(3):
        if isinstance(body, str):
            said = body[:SAID_MAX_CHARS]
            return "" if said.lstrip().startswith("<") else said
        if not isinstance(body, Mapping):
            break
        body = next((body[name] for name in ("message", "detail", "error") if body.get(name)), None)
    return ""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until the provider may be called again, according to `Retry-After` (RFC 9110 §10.2.3: seconds
    or a date) or the `retry-after-ms` of OpenAI; None if both are missing, or ask for more than a day."""
    milliseconds, said = headers.get("retry-after-ms"), headers.get("retry-after")
    seconds: float | None = None
    try:
        if milliseconds is not None:
            seconds = float(milliseconds) / 1000
        elif said is not None:
            seconds = float(said) if said.strip()[:1].isdigit() else parsedate_to_datetime(said).timestamp() - time()
    except (ValueError, OverflowError):  # OverflowError: a year or an offset out of range
        return None
    return seconds if seconds is not None and 0 <= seconds <= RETRY_AFTER_MAX_SECONDS else None


def checked(data: bytes) -> bytes:
    """Return the data of an event after checking its depth, because parts of it are stored unchanged.

    Raises:
        ModelFailed: the data is nested too deep.
    """
    if is_too_deep(data):
        raise model_failed("malformed", f"more than {NESTING_MAX} lists and objects inside each other")
    return data
