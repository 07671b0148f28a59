"""Makes the public reason of a failed model call: a fixed sentence, and the provider's message after cleaning.

A provider's message is untrusted. It may repeat a key, name an account, quote the system prompt, or contain control
characters that reverse the line. The cleaned message is one line of bounded length, without keys, account names,
quotations of the prompt or control characters.
"""

from threadcast.base.redaction import Redactor, seen
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.failures import Failure
from threadcast_protocol.wire.mending import mend_text

__all__ = ["REASON_MAX_CHARACTERS", "Reasons", "is_down"]

REASON_MAX_CHARACTERS = 300
"""The maximum length of a reason: three lines on a wide page. The known reasons of OpenAI, Anthropic, Google, vLLM and
llama.cpp have 40 to 250 characters. The run's trace has the whole message."""

READ_MAX_CHARACTERS = 4_000
"""The number of characters of a message that are searched for secrets before the message is cut. This is long enough to
contain a whole key."""

RAW_MAX_CHARACTERS = 16_000
"""The number of raw characters, including invisible characters, that are read of a message. The adapters keep more
characters (`providers/failures.py`), so that this module notices a longer message."""

SECRET_MAX_CHARACTERS = 1_000
"""The maximum number of characters that are removed at the end of a cut text. The last word of the text may be half of
a secret, such as a long JSON Web Token."""

QUOTED_CHARACTERS = 32
"""A text that repeats this many successive characters of the system prompt counts as a quotation. An error message does
not repeat so many characters, about seven words, by chance."""


class Reasons:
    """Makes the failures that the log stores. If `is_shown` is False, the failures contain neither the provider's
    message nor its status."""

    def __init__(self, redactor: Redactor | None = None, *, is_shown: bool = True) -> None:
        self._redactor = redactor or Redactor()
        self._is_shown = is_shown

    def failure(self, failed: ModelFailed, model: str, now_ms: int) -> Failure:
        """Return `failed` as the log stores it. Its `reason` must have been cleaned by `cleaned`."""
        wait = failed.retry_after_seconds
        return Failure(
            code=failed.code,
            message=failed.message,
            reason=failed.reason if self._is_shown else "",
            status=failed.status if self._is_shown else None,
            retry_at=None if wait is None else now_ms + round(wait * 1000),
            model=model,
        )

    def cleaned(self, said: str, system: str) -> str:
        """Return the provider's message `said` as one clean line of at most `REASON_MAX_CHARACTERS`, or '' if the
        message must not be shown. `system` is the system prompt, which the line must not quote."""
        if not self._is_shown:
            return ""
        text = self._masked(said)
        if len(text) > REASON_MAX_CHARACTERS:
            text = text[: REASON_MAX_CHARACTERS - 1].rstrip() + "…"
        return "" if _quotes(text, system) else text

    def _masked(self, said: str) -> str:
        """Return `said` as one line of at most `READ_MAX_CHARACTERS`, without invisible characters and without secrets.
        Known secrets are masked in the raw text, too, because an invisible character may be part of a secret. The last
        word of a cut text is removed, because this word may be half of a secret."""
        raw = self._redactor.text(mend_text(said[:RAW_MAX_CHARACTERS]))
        text = seen(" ".join(seen(raw).split()))
        if len(said) > RAW_MAX_CHARACTERS or len(text) > READ_MAX_CHARACTERS:
            text = text[:READ_MAX_CHARACTERS]
            text = text[: max(text.rfind(" "), len(text) - SECRET_MAX_CHARACTERS, 0)]
        return self._redactor.foreign(text)


def is_down(failure: ModelFailed) -> bool:
    """Return whether another model may succeed after this failure. Return False for a refused request, because other
    models would refuse the request, too. Return True for an invalid key: another model answers, and the server's log
    reports the key."""
    return failure.retryable or failure.code == "auth_failed"


def _quotes(text: str, system: str) -> bool:
    """Return whether `system` contains `QUOTED_CHARACTERS` successive characters of `text`, without regard to case and
    white space. Takes about 20 ms for a prompt of 1 MB, because only every 17th index of the prompt is compared. This
    finds all quotations of 32 characters, because each quotation contains such an index, followed by 16 quoted
    characters."""
    text, system = text.lower(), " ".join(system.lower().split())
    half = QUOTED_CHARACTERS // 2
    halves = {text[at : at + half] for at in range(len(text) - half + 1)}
    wholes = {text[at : at + QUOTED_CHARACTERS] for at in range(len(text) - QUOTED_CHARACTERS + 1)}
    if not wholes:
        return False
    for at in range(0, len(system), half + 1):
        if system[at : at + half] in halves:
            around = range(max(0, at - half), at + 1)
            if any(system[start : start + QUOTED_CHARACTERS] in wholes for start in around):
                return True
    return False
