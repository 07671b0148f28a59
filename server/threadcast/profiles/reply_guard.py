"""The reply guard: finds answers in a script that the operator does not want (LOOP-10). Pure.

Some models slip into another language. A profile may forbid scripts; if an answer is written in one of them, the plan
asks the model again, a limited number of times. Only letters are counted; no model is asked, and no language is
guessed. Letters in code are not counted, because code may contain foreign strings. Quotations are checked, too, but a
few letters of a forbidden script are allowed.
"""

import re
import unicodedata
from functools import lru_cache

from threadcast.settings.agent import ReplyGuard

__all__ = ["INSTRUCTION", "RETRY_STATUS", "SCRIPTS", "ReplyGuard", "refuses", "script_of"]

SCRIPTS: dict[str, tuple[str, ...]] = {
    "Arabic": ("ARABIC ",),
    "Cyrillic": ("CYRILLIC ",),
    "Devanagari": ("DEVANAGARI ",),
    "Greek": ("GREEK ",),
    "Han": ("CJK ",),
    "Hangul": ("HANGUL ",),
    "Hebrew": ("HEBREW ",),
    "Japanese": ("HIRAGANA ", "KATAKANA "),
    "Latin": ("LATIN ",),
    "Thai": ("THAI ",),
}
"""Maps each script to the beginnings of the Unicode names of its letters."""

LEAST_LETTERS = 4
"""Number of letters of a forbidden script from which an answer may be refused. Fewer letters are allowed, such as the
name of a person or a city."""

LEAST_SHARE = 0.05
"""If a script has less than this share of all letters, its letters count as a quotation."""

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)

INSTRUCTION = (
    "Your last answer was not in the language of this conversation. Answer the user's last message again, in the "
    "user's language and script."
)
"""The default instruction to the model, used if the operator has set no instruction."""

RETRY_STATUS = "answering again: wrong language"
"""The status text of a round that asks the model again; projections recognise such a round by this text."""


def refuses(guard: ReplyGuard, text: str) -> bool:
    """Return whether the part of `text` in a forbidden script, apart from code, is too large to be a quotation."""
    if not guard.forbid_scripts or (text.isascii() and "Latin" not in guard.forbid_scripts):
        return False
    letters = [character for character in _CODE.sub("", text) if character.isalpha()]
    forbidden = sum(1 for letter in letters if script_of(letter) in guard.forbid_scripts)
    return forbidden >= LEAST_LETTERS and forbidden >= LEAST_SHARE * len(letters)


@lru_cache(maxsize=8_192)  # more letters than any single language uses
def script_of(letter: str) -> str:
    """Return the name that SCRIPTS gives to the script of a letter; '' for other scripts."""
    name = unicodedata.name(letter, "")
    return next((script for script, beginnings in SCRIPTS.items() if name.startswith(beginnings)), "")
