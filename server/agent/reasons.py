"""What people are told of a failed model call: the fixed sentence, and the provider's own reason made fit to be shown.

A provider's words are a stranger's. They may repeat a key, name an account, quote the system prompt, or hold control
characters that turn the line around. What is left of them is one line of bounded length without any of that.
"""

import unicodedata

from protocol.errors import ModelFailed
from protocol.failures import Failure
from protocol.mending import mend_text
from server.redaction import Redactor

__all__ = ["REASON_MAX_CHARACTERS", "Reasons"]

REASON_MAX_CHARACTERS = 300
"""Three lines on a wide page. The reasons that we know of (OpenAI, Anthropic, Google, vLLM, llama.cpp) have 40 to 250;
the whole stands in the run's trace."""

READ_MAX_CHARACTERS = 4_000
"""What is looked at: enough for a key in it to be seen whole before the text is cut."""

QUOTED_CHARACTERS = 32
"""So much of the system prompt in a row is a quotation of it: seven words do not stand in an error by chance."""

_JOINERS = "\u200c\u200d"
"""Format characters that Persian words and emoji are written with; they move nothing else."""


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
        text = self._redactor.foreign(mend_text(said[:READ_MAX_CHARACTERS]))
        text = " ".join("".join(_plain(sign) for sign in text).split())
        if _quotes(text, " ".join(system.split())):
            return ""
        return text if len(text) <= REASON_MAX_CHARACTERS else text[: REASON_MAX_CHARACTERS - 1].rstrip() + "…"


def _plain(sign: str) -> str:
    """`sign`, or what stands for it: a blank for controls and line ends, nothing for marks that nobody sees."""
    kind = unicodedata.category(sign)
    if kind in ("Cc", "Zl", "Zp"):
        return " "
    return "" if kind in ("Cf", "Co", "Cn", "Cs") and sign not in _JOINERS else sign


def _quotes(text: str, system: str) -> bool:
    ends = range(QUOTED_CHARACTERS, len(text) + 1)
    return any(text[end - QUOTED_CHARACTERS : end] in system for end in ends)
