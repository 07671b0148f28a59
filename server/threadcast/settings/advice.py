"""Turns the errors of msgspec about settings into sentences that say what to write. Pure."""

import re

__all__ = ["advice_on"]

_NOUNS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text in quotes",
    "array": "a list",
    "object": "a table",
}
_BOUNDS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}
_PATTERNS = {
    "^[A-Za-z0-9_-]{1,64}$(?!\\\\n)": "use 1 to 64 letters from a to z, digits, _ and -",
    "^[0-9a-f]{64}$": "write the 64 hexadecimal digits that `threadcast token` prints",
}
_TYPE = r"Expected `([a-z]+)(?: \| null)?`"
_BOUND = re.compile(rf"{_TYPE} (>=|<=|>|<) (\S+)")
_OTHER_TYPE = re.compile(rf"{_TYPE}, got `([a-z]+)`")
_PATTERN = re.compile(rf"{_TYPE} matching regex '(.+)'")


def advice_on(text: str) -> str:
    """Return advice on what to write in place of a value that msgspec has refused with the message `text`. Returns
    other messages, such as those of a `__post_init__`, unchanged."""
    if (found := _BOUND.fullmatch(text)) and found[1] in _NOUNS:
        return f"write {_NOUNS[found[1]]} {_BOUNDS[found[2]]} {found[3]}"
    if (found := _OTHER_TYPE.fullmatch(text)) and found[1] in _NOUNS:
        return f"write {_NOUNS[found[1]]}, not {_NOUNS.get(found[2], found[2])}"
    if found := _PATTERN.fullmatch(text):
        return _PATTERNS.get(found[2], text)
    return text
