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
"""The length of the text that is searched for secrets before it is cut: long enough to contain a whole key."""

RAW_MAX_CHARACTERS = 16_000
"""The length of the raw text, including invisible characters, that is read. The adapters keep more, so that a cut is
noticed here (`providers/failures.py`)."""

SECRET_MAX_CHARACTERS = 1_000
"""The maximum number of characters that are removed at the end of a cut text, because its last word may be half of a
secret, such as a long JSON Web Token."""

QUOTED_CHARACTERS = 32
"""A text with this many successive characters of the system prompt quotes it: an error does not contain seven of its
words by chance."""


class Reasons:
    """Makes the failures that the log stores. If `is_shown` is False, they contain neither the provider's message nor
    its status."""

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
        """Return one line of at most `REASON_MAX_CHARACTERS`; '' if nothing of the message may be shown. `system` is
        the system prompt, which the line must not quote."""
        if not self._is_shown:
            return ""
        text = self._masked(said)
        if len(text) > REASON_MAX_CHARACTERS:
            text = text[: REASON_MAX_CHARACTERS - 1].rstrip() + "…"
        return "" if _quotes(text, system) else text

    def _masked(self, said: str) -> str:
        """Return one line of at most `READ_MAX_CHARACTERS` without invisible characters and without secrets. Known
        secrets are masked in the raw text, too, because an invisible character may be part of a secret. The last word
        of a cut text is removed, because it may be half of a secret."""
        raw = self._redactor.text(mend_text(said[:RAW_MAX_CHARACTERS]))
        text = seen(" ".join(seen(raw).split()))
        if len(said) > RAW_MAX_CHARACTERS or len(text) > READ_MAX_CHARACTERS:
            text = text[:READ_MAX_CHARACTERS]
            text = text[: max(text.rfind(" "), len(text) - SECRET_MAX_CHARACTERS, 0)]
        return self._redactor.foreign(text)


def is_down(failure: ModelFailed) -> bool:
    """Return whether another model may succeed after this failure. A refused request would be refused by other models,
    too. A key that is no longer valid is reported in the server's log, and another model answers."""
    return failure.retryable or failure.code == "auth_failed"


def _quotes(text: str, system: str) -> bool:
    """Return whether `system` contains `QUOTED_CHARACTERS` successive characters of `text`, without regard to case and
    white space. Takes some 20 ms for a prompt of 1 MB: only every 17th index of the prompt is compared closely. This
    finds all quotations of 32 characters, because each contains such an index with 16 of its characters after it."""
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
