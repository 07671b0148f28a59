"""The reply guard: is an answer in a script that the operator does not want (LOOP-10)? Pure.

Some models slip into another language. A profile may forbid scripts; an answer that is written in one of them is asked
for again by the plan, which counts how often. Decided by letters alone: no model is asked and no language is guessed.
Code is exempt, since it may well hold foreign strings; quotations are not, but a few letters are forgiven.
"""

import re
import unicodedata
from functools import lru_cache

import msgspec

__all__ = ["INSTRUCTION", "RETRY_STATUS", "RETRY_TEXT", "SCRIPTS", "ReplyGuard", "script_of"]

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
"""How the Unicode names of their letters begin."""

LEAST_LETTERS = 4
"""A name of a person or a city in its own script is shorter, and welcome."""

LEAST_SHARE = 0.05
"""Of all letters: below it the script is quoted, not written in."""

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)

INSTRUCTION = (
    "Your last answer was not in the language of this conversation. Answer the user's last message again, in the "
    "user's language and script."
)

RETRY_STATUS = "answering again: wrong language"
"""The status text of a round that asks again; projections find that round by it."""

RETRY_TEXT = "[Retrying in English...]"
"""What the origin of `POST /v1/agent/chat` writes into its stream before it answers again."""


class ReplyGuard(msgspec.Struct, frozen=True, kw_only=True):
    """`forbid_scripts`: names out of SCRIPTS. `instruction` is what the model is told of a refused answer,
    `max_retries` how often it is asked again in one run. `retry_text` stands between the two answers on one-shot wires
    that have no other way to say it; '' says nothing."""

    forbid_scripts: list[str]
    instruction: str = INSTRUCTION
    max_retries: int = 1
    retry_text: str = RETRY_TEXT

    def refuses(self, text: str) -> bool:
        """Is so much of `text`, apart from code, in a forbidden script that it cannot be a quotation?"""
        if text.isascii() and "Latin" not in self.forbid_scripts:
            return False
        letters = [character for character in _CODE.sub("", text) if character.isalpha()]
        forbidden = sum(1 for letter in letters if script_of(letter) in self.forbid_scripts)
        return forbidden >= LEAST_LETTERS and forbidden >= LEAST_SHARE * len(letters)


@lru_cache(maxsize=8_192)  # more letters than any one language uses
def script_of(letter: str) -> str:
    """The name in SCRIPTS; '' for letters of any other script."""
    name = unicodedata.name(letter, "")
    return next((script for script, beginnings in SCRIPTS.items() if name.startswith(beginnings)), "")
