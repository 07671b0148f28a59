"""Reads the descriptions of a tool and of its parameters from a docstring, with the library griffe."""

import re

__all__ = ["read_docstring"]

_LISTS = {
    "sphinx": re.compile(r"^\s*:param\b", re.MULTILINE),
    "numpy": re.compile(r"^\s*Parameters\n\s*---", re.MULTILINE),
    "google": re.compile(r"^\s*(Args|Arguments|Params|Parameters):\s*$", re.MULTILINE),
}
"""The beginning of the list of parameters in each style."""


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the description of the tool, and the description of each parameter that the docstring lists.

    The tool's description consists of the text outside the list and the description of the result. A docstring without
    a list is used unchanged.
    """
    style = next((style for style, begins in _LISTS.items() if begins.search(text)), None)
    if style is None:
        return text, {}
    # The import of griffe takes 0.1 s, so it happens only for tools that list parameters.
    from griffe import Docstring, DocstringSectionParameters, DocstringSectionReturns, DocstringSectionText, Parser

    told: list[str] = []
    words: dict[str, str] = {}
    for section in Docstring(text).parse(Parser(style), warnings=False):  # about types
        match section:
            case DocstringSectionText():
                told.append(section.value)
            case DocstringSectionParameters():
                words |= {each.name: " ".join(each.description.split()) for each in section.value}
            case DocstringSectionReturns():
                told += [f"Returns: {each.description}" for each in section.value]
    return "\n\n".join(told), words
