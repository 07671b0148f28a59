"""Known secrets are masked before anything of ours is written down for people to read: log lines and traces.

Secrets of the settings are found by their exact text, and tokens after `Bearer` by their place. Text from outside that
is shown to people (`foreign`) is also searched for anything that looks like a secret; `telemetry.mask_secrets` masks
fields by name. A secret that a provider or a tool sends back to us must reach neither a log line nor a trace.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, unquote, unquote_plus

import msgspec

from server.settings.values import Secret

__all__ = ["MASK", "SECRET_MIN_CHARACTERS", "Redactor", "secrets_of", "seen"]

MASK = "***"

SECRET_MIN_CHARACTERS = 8
"""Shorter ones are no secrets to anybody who guesses, and masking a placeholder such as "ollama" would garble words."""

_BEARER = r"(?i:bearer)(?:\s|%20|\\u0020)+[A-Za-z0-9._~+/=-]{8,}"
"""RFC 6750 §2.1: also a caller's token, of which we know the hash alone."""


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
"""Format characters that Persian words and emoji are written with; they move nothing else."""

_UNSEEN = re.compile(
    r"(?<=[!-~])[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200c\u200d\u2800\u3164\ufe00-\ufe0f\uffa0"
    r"\U000e0100-\U000e01ef]+(?=[!-~])"
)
"""Joiners, fillers and variation selectors, which some scripts need, between ASCII signs, where they only hide what is
written (Default_Ignorable_Code_Point of Unicode, UAX #44; U+2800 is the empty pattern of Braille)."""


class Redactor:
    """Masks `secrets`, also as JSON writes them inside a string and as URLs quote them."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if len(secret) >= SECRET_MIN_CHARACTERS for form in _forms(secret)}
        # Longest first: of two secrets, one may be the beginning of the other.
        self._forms = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join([*map(re.escape, self._forms), _BEARER]))
        self._folded_forms = [form.lower() for form in self._forms]
        self._any_case = re.compile("|".join(map(re.escape, self._forms)), re.IGNORECASE)

    def text(self, text: str) -> str:
        """`text` with every secret in it masked.

        Looked through with plain searches first: the pattern takes 30 ms for a trace of 1 MB, in which no other thread
        of the process runs, and next to nothing of what is written holds a secret.
        """
        if "bearer" not in text.lower() and not any(form in text for form in self._forms):
            return text
        return self._pattern.sub(MASK, text)

    def foreign(self, text: str) -> str:
        """Return untrusted `text`, such as a provider's error, with masks in place of known secrets, in upper or lower
        case, and of everything that looks like a key, a password or an account. For short texts: 4,000 characters take
        a millisecond."""
        known = self.text(text)
        folded = known.lower()
        if any(form in folded for form in self._folded_forms):
            known = self._any_case.sub(MASK, known)
        return _LOOKS_SECRET.sub(MASK, _NAMED_SECRET.sub(rf"\1{MASK}", known))


def secrets_of(settings: object) -> Iterator[str]:
    """Every secret in a tree of settings; of a URL its passwords too, of `Bearer X` the X."""
    if isinstance(settings, Secret):
        value = settings.reveal()
        yield value
        scheme, space, rest = value.partition(" ")
        if space and scheme.isalpha():
            yield rest.strip()
        if "://" in value:
            yield from _passwords_in(value)
    elif isinstance(settings, msgspec.Struct):
        for name in settings.__struct_fields__:
            yield from secrets_of(getattr(settings, name))
    elif isinstance(settings, Mapping):
        for value in settings.values():
            yield from secrets_of(value)
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from secrets_of(value)


def seen(text: str) -> str:
    """`text` without the marks that nobody sees, so that a secret with one inside is found; every blank and line end
    as a blank. For short texts: each character is looked at."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub("", "".join(map(_plain, text)))


def _plain(sign: str) -> str:
    if sign.isspace():
        return " "
    kind = unicodedata.category(sign)
    return "" if kind in ("Cc", "Cf", "Co", "Cn", "Cs") and sign not in _JOINERS else sign


def _passwords_in(url: str) -> Iterator[str]:
    """As they stand there and as they are meant: before the host (of several hosts, the first), and among the options.

    Not by urlsplit: some versions of it refuse a list of bracketed hosts.
    """
    place, _, options = url.partition("://")[2].partition("?")
    authority = place.partition("/")[0]
    password = authority.rpartition("@")[0].partition(":")[2]
    if password:
        yield password
        yield unquote(password)
    for option in options.split("&"):
        name, _, password = option.partition("=")
        if password and "password" in name:
            yield password
            yield unquote_plus(password)


def _forms(secret: str) -> set[str]:
    return {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret, safe="")}
