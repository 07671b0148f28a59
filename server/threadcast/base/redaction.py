"""Masks secrets in log lines, traces and texts that are shown to people.

Secrets of the settings are found by their exact text, and bearer tokens by the word `Bearer` before them. Untrusted
text that is shown to people (`foreign`) is also searched for anything that looks like a secret;
`telemetry.mask_secrets` masks fields by name. A secret that a provider or a tool sends back to us must reach neither a
log line nor a trace.
"""

import json
import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import quote

__all__ = ["MASK", "SECRET_MIN_CHARACTERS", "Redactor", "is_invisible", "seen"]

MASK = "***"

SECRET_MIN_CHARACTERS = 8
"""Minimum length of a masked secret: shorter secrets can be guessed, and masking a placeholder such as "ollama" would
garble words."""

_BEARER = r"(?i:bearer)(?:\s|%20|\\u0020)+[A-Za-z0-9._~+/=-]{8,}"
"""The pattern of a bearer token (RFC 6750 §2.1). The pattern also finds callers' tokens, of which the server knows only
hashes."""


_LOOKS_SECRET = re.compile(
    r"""
    (?<![A-Za-z0-9])(?i:sk|pk|rk|gsk|xai|hf|r8|pplx|nvapi|csk|tgp|ghp|glpat)[-_][\w*.…-]{5,}[\w*]  # keys, starred too
    | (?<![A-Za-z0-9])(?:org|proj|acct)[-_][A-Za-z0-9]{8,}   # accounts of OpenAI and Stripe
    | (?<![A-Za-z0-9])AIza[\w*-]{10,}                        # Google
    | (?<![A-Za-z0-9])eyJ[\w-]{6,}\.[\w-]+(?:\.[\w-]*)?      # a JSON Web Token (RFC 7519)
    | (?<=://)[^/\s:@]+:[^/\s@]+(?=@)                        # user and password of an address
    | (?<![A-Za-z0-9])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{24,}(?![A-Za-z0-9])  # 24 letters and digits: no word
    """,
    re.VERBOSE,
)
_NAMED_SECRET = re.compile(
    r"((?i:api[-_ ]?key|access[-_ ]?token|secret|password|signature)\"?(?: provided)?\s*[:=]\s*\"?)"
    r"[^\s\"',;&]{3,}[^\s\"',;&.]"
)

_JOINERS = "\u200c\u200d"
"""Format characters that Persian words and emoji need; they do not reorder text."""

_UNSEEN = re.compile(
    r"(?<=[!-~])[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200c\u200d\u2800\u3164\ufe00-\ufe0f\uffa0"
    r"\U000e0100-\U000e01ef]+(?=[!-~])"
)
"""Joiners, fillers and variation selectors between two ASCII characters. Some scripts need them, but between ASCII
characters they only hide text (Default_Ignorable_Code_Point of Unicode, UAX #44; U+2800 is the empty Braille
pattern)."""


class Redactor:
    """Masks `secrets`, including their escaped forms in JSON strings and URLs."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if len(secret) >= SECRET_MIN_CHARACTERS for form in _forms(secret)}
        # The longest form comes first, because a secret may be the beginning of another secret.
        self._forms = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join([*map(re.escape, self._forms), _BEARER]))
        self._folded_forms = [form.lower() for form in self._forms]
        self._any_case = re.compile("|".join(map(re.escape, self._forms)), re.IGNORECASE)

    def text(self, text: str) -> str:
        """Return `text` with every secret masked.

        Plain searches run first, because nearly all texts contain no secret. The pattern takes 30 ms for a trace of 1
        MB, and in this time no other thread runs.
        """
        if "bearer" not in text.lower() and not any(form in text for form in self._forms):
            return text
        return self._pattern.sub(MASK, text)

    def foreign(self, text: str) -> str:
        """Return untrusted `text`, such as a provider's error, in masked form. Masks replace known secrets, in upper or
        lower case, and everything that looks like a key, a password or an account. Use this method for short texts:
        4,000 characters take a millisecond."""
        known = self.text(text)
        folded = known.lower()
        if any(form in folded for form in self._folded_forms):
            known = self._any_case.sub(MASK, known)
        return _LOOKS_SECRET.sub(MASK, _NAMED_SECRET.sub(rf"\1{MASK}", known))


def seen(text: str) -> str:
    """Return `text` without invisible characters, so that a secret interrupted by such characters is found. White space
    and line ends become blanks. Use this function for short texts, since it checks each character."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub("", "".join(map(_plain, text)))


def _plain(sign: str) -> str:
    if sign.isspace():
        return " "
    return "" if is_invisible(sign) else sign


def is_invisible(sign: str) -> bool:
    """Return whether a character is a control character, or another invisible character, such as a mark that changes
    the direction of text. Returns False for joiners, which some scripts and emoji need."""
    return unicodedata.category(sign) in ("Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp") and sign not in _JOINERS


def _forms(secret: str) -> set[str]:
    return {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret, safe="")}
