"""What people are told of a failed model call: the fixed sentence, and the provider's own reason made fit to be shown.

A provider's words are a stranger's. They may repeat a key, name an account, quote the system prompt, or hold control
characters that turn the line around. What is left of them is one line of bounded length without any of that.
"""

from protocol.errors import ModelFailed
from protocol.failures import Failure
from protocol.mending import mend_text
from server.redaction import Redactor, seen

__all__ = ["REASON_MAX_CHARACTERS", "Reasons"]

REASON_MAX_CHARACTERS = 300
"""Three lines on a wide page. The reasons that we know of (OpenAI, Anthropic, Google, vLLM, llama.cpp) have 40 to 250;
the whole stands in the run's trace."""

READ_MAX_CHARACTERS = 4_000
"""What is masked: enough for a key in it to be seen whole before the text is cut."""

RAW_MAX_CHARACTERS = 16_000
"""What is looked at, with the marks that nobody sees. The adapters keep more, so a cut is noticed here
(`providers/failures.py`)."""

SECRET_MAX_CHARACTERS = 1_000
"""Of a text that is cut, at most so much goes at its end, where half a secret may stand. A long JSON Web Token."""

QUOTED_CHARACTERS = 32
"""So much of the system prompt in a row is a quotation of it: seven words do not stand in an error by chance."""


class Reasons:
    """Makes failures for the log. `is_shown` False leaves the provider's own words and status out of them."""

    def __init__(self, redactor: Redactor | None = None, *, is_shown: bool = True) -> None:
        self._redactor = redactor or Redactor()
        self._is_shown = is_shown

    def failure(self, failed: ModelFailed, model: str, now_ms: int) -> Failure:
        """`failed` as it stands in the log. Its `reason` has been through `cleaned`."""
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
        """One line of at most `REASON_MAX_CHARACTERS`; '' when nothing fit to be shown is left. `system` is the system
        prompt, which the text must not quote."""
        if not self._is_shown:
            return ""
        text = self._masked(said)
        if len(text) > REASON_MAX_CHARACTERS:
            text = text[: REASON_MAX_CHARACTERS - 1].rstrip() + "…"
        return "" if _quotes(text, system) else text

    def _masked(self, said: str) -> str:
        """One line of at most `READ_MAX_CHARACTERS` without marks that nobody sees and without secrets. Known ones
        are masked as they came, too: a mark may be part of one. Of a longer text the last word goes,
        which may be half a secret."""
        raw = self._redactor.text(mend_text(said[:RAW_MAX_CHARACTERS]))
        text = seen(" ".join(seen(raw).split()))
        if len(said) > RAW_MAX_CHARACTERS or len(text) > READ_MAX_CHARACTERS:
            text = text[:READ_MAX_CHARACTERS]
            text = text[: max(text.rfind(" "), len(text) - SECRET_MAX_CHARACTERS, 0)]
        return self._redactor.foreign(text)


def _quotes(text: str, system: str) -> bool:
    """Whether `QUOTED_CHARACTERS` of `text` stand in `system` in a row, upper and lower case alike, however blanks are
    set. Takes some 20 ms for a prompt of 1 MB: wherever a quotation of 32 begins, a place that is a multiple of 17
    has 16 characters of it, so only these places are looked at closely."""
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
