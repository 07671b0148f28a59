"""What an assistant says before the first message: a greeting, and starters, which are messages to begin a chat with.

An operator writes them in `threadcast.toml` (`greeting`, `starters` of a profile or of a scope), or in the file of
`server.app`:

    from server.authoring import Starter, Welcome

    desk = Welcome(
        profile="desk",
        greeting="What are you looking for?",
        starters=[Starter(title="Opening hours", text="When is the desk open?")],
    )

`GET /v1/chat-modes` shows them. They are part of no prompt.
"""

import msgspec

from protocol.errors import BadRequest
from protocol.messages import JsonObject
from protocol.thread import read_patch
from server.tools.traits import Scope, scope_at

__all__ = ["Starter", "Welcome", "check_greeting", "check_starters"]

GREETING_MAX_CHARACTERS = 500
"""A few sentences: the greeting stands above the place where people write, on phones too."""

STARTERS_MAX_COUNT = 12
"""Twelve fill a window of 1,280 x 800 pixels; beyond that people search instead of choosing."""

TITLE_MAX_CHARACTERS = 80
"""One line of a starter."""

TEXT_MAX_CHARACTERS = 4_000
"""A message that is sent as it stands: a page of text."""


class Starter(msgspec.Struct, frozen=True, kw_only=True):
    """A message to begin a chat with. `title` is the name of its button (1 to 80 characters), `text` the message (1 to
    4,000 characters), `model` the model that answers this message ('': the chat's), `context` the chat's parameter
    `context`, which is set before the message is sent ({}: none)."""

    title: str
    text: str
    model: str = ""
    context: JsonObject = {}


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The greeting and the starters of a profile, or of a scope in it, from the operator's Python file. What
    `threadcast.toml` says of the same takes precedence. None: what holds around it.

    Raises:
        ValueError: a text or a list that is empty or too long, or a scope that is no place.
    """

    profile: str = "agent"
    scope: str = ""
    greeting: str | None = None
    starters: list[Starter] | None = None

    def __post_init__(self) -> None:
        where = f"Welcome({self.profile!r})"
        if len(self.place) != len([part for part in self.scope.split("/") if part]):
            raise ValueError(f"{where}: the scope {self.scope!r} is no place; write one to three names with / between")
        check_greeting(self.greeting, f"{where}.greeting")
        check_starters(self.starters, f"{where}.starters")

    @property
    def place(self) -> Scope:
        return scope_at(self.scope)


def check_greeting(greeting: str | None, path: str) -> None:
    """Raises ValueError: it is too long, and `path` says where it stands."""
    if greeting is not None and len(greeting) > GREETING_MAX_CHARACTERS:
        raise ValueError(f"{path}: it has {len(greeting)} characters; at most {GREETING_MAX_CHARACTERS} are shown")


def check_starters(starters: list[Starter] | None, path: str) -> None:
    """Raises ValueError: too many, two of one title, or a text or context that no message may have."""
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


def _check_text(text: str, longest: int, path: str) -> None:
    if not text.strip() or len(text) > longest:
        raise ValueError(f"{path}: it has {len(text.strip())} characters; write 1 to {longest}")
