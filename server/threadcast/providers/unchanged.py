"""The beginning of a request that a chat's later requests share, and the results that were computed from it.

In a long chat, a request differs from the preceding request only at its end. The agent loop says how many of the first
messages are unchanged (`agent_loop/history/kept_view.py`), and each step on the way to the model keeps its own result
for these messages: the references of the trace, the search for attachments, the JSON of a provider.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import msgspec

from threadcast_protocol.wire.messages import Message

__all__ = ["Encoded", "Unchanged"]

PIECES_MAX_COUNT = 64
"""Maximum pieces of encoded messages; at this number all pieces are joined. Joining copies all of them, which takes 0.5
ms for 4 MB, so the pieces are not joined in each turn."""

_T = TypeVar("_T")


class Encoded(msgspec.Struct, frozen=True):
    """Messages as a provider sends them: pieces of JSON, each of one or several messages with commas between them."""

    pieces: tuple[bytes, ...] = ()

    def plus(self, piece: bytes) -> "Encoded":
        """Return these messages followed by the messages of `piece`, which may be empty."""
        pieces = (*self.pieces, piece) if piece else self.pieces
        return Encoded(pieces if len(pieces) < PIECES_MAX_COUNT else (b",".join(pieces),))


class Unchanged:
    """The first `count` messages of a request. `made` maps the name of a result to the number of messages from which
    the result was computed, and the result."""

    def __init__(self, count: int, made: dict[str, tuple[int, Any]]) -> None:  # Any: each result has its own type
        self.count = count
        self.made = made

    @property
    def size_bytes(self) -> int:
        """The size of the encoded messages among the results."""
        results = [result for _, result in self.made.values()]
        return sum(len(piece) for result in results if isinstance(result, Encoded) for piece in result.pieces)

    def fold(self, name: str, messages: Sequence[Message], begin: _T, add: Callable[[_T, Sequence[Message]], _T]) -> _T:
        """Return `add(begin, unchanged)`, where `unchanged` are the first `count` of the request's `messages`. `add` is
        called only with messages that the result `name` does not contain yet, and must not change the result that it
        receives."""
        known, result = self.made.get(name, (0, begin))
        if known > self.count:  # an older request than the last one
            known, result = 0, begin
        if known < self.count:
            result = add(result, messages[known : self.count])
            self.made[name] = self.count, result
        return cast("_T", result)  # each name has one type of result
