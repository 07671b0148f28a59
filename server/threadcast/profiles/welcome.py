"""Defines the texts that clients show before the first message: an assistant's greeting, and starters, which are
messages to begin with.

An operator writes these texts in `threadcast.toml` (`greeting`, `starters` of a profile or of a scope), or in the file
of `server.app`:

    from threadcast import Starter, Welcome

    desk = Welcome(
        profile="desk",
        greeting="What are you looking for?",
        starters=[Starter(title="Opening hours", text="When is the desk open?")],
    )

`GET /v1/chat-modes` lists these texts. They are not part of any prompt.
"""

import msgspec

from threadcast.chat.scopes import Scope, scope_at
from threadcast.settings.agent import Starter
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.thread import read_patch

__all__ = ["Starter", "Welcome", "check_greeting", "check_starters"]

GREETING_MAX_CHARACTERS = 500
"""The maximum length of a greeting: a few sentences, because the greeting is shown above the message box, on phones
too."""

STARTERS_MAX_COUNT = 12
"""The maximum number of starters: twelve fill a window of 1,280 x 800 pixels, and people do not read more."""

TITLE_MAX_CHARACTERS = 80
"""The maximum length of a starter's title, which fits on one line of its button."""

TEXT_MAX_CHARACTERS = 4_000
"""The maximum length of a starter's text, about a page; the text is sent unchanged."""


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The greeting and the starters of a profile, or of one of its scopes, from the operator's Python file. Values in
    `threadcast.toml` take precedence. None: the value of the surrounding scope or profile applies.

    Raises:
        ValueError: a text or a list is empty or too long, or the scope is not valid.
    """

    profile: str = "agent"
    scope: str = ""
    greeting: str | None = None
    starters: list[Starter] | None = None

    def __post_init__(self) -> None:
        where = f"Welcome({self.profile!r})"
        if len(self.parsed_scope) != len([part for part in self.scope.split("/") if part]):
            raise ValueError(f"{where}: the scope {self.scope!r} is not valid; write one to three names with / between")
        check_greeting(self.greeting, f"{where}.greeting")
        check_starters(self.starters, f"{where}.starters")

    @property
    def parsed_scope(self) -> Scope:
        return scope_at(self.scope)


def check_greeting(greeting: str | None, path: str) -> None:
    """Raise ValueError if the greeting is too long. `path` is the place of the greeting in the configuration, for the
    error's message."""
    if greeting is not None and len(greeting) > GREETING_MAX_CHARACTERS:
        raise ValueError(f"{path}: it has {len(greeting)} characters; at most {GREETING_MAX_CHARACTERS} are shown")


def check_starters(starters: list[Starter] | None, path: str) -> list[Starter] | None:
    """Return `starters`. Raises ValueError if there are too many starters, if two have the same title, or if a text or
    context is not allowed in a message."""
    found = starters or []
    if len(found) > STARTERS_MAX_COUNT:
        raise ValueError(f"{path}: there are {len(found)}; at most {STARTERS_MAX_COUNT} are shown")
    for number, each in enumerate(found):
        own = f"{path}[{number}]"
        _check_text(each.title, TITLE_MAX_CHARACTERS, f"{own}.title")
        _check_text(each.text, TEXT_MAX_CHARACTERS, f"{own}.text")
        if any(each.title == other.title for other in found[:number]):
            raise ValueError(f"{own}.title: another starter is called {each.title!r}; give each a title of its own")
        try:
            read_patch({"context": each.context, "model": each.model})
        except BadRequest as wrong:
            raise ValueError(f"{own}: {wrong.message}") from None
    return starters


def _check_text(text: str, longest: int, path: str) -> None:
    if not text.strip() or len(text) > longest:
        raise ValueError(f"{path}: it has {len(text.strip())} characters; write 1 to {longest}")
