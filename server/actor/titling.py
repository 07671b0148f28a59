"""A chat's title by a model, made once, beside whatever the chat does when it first rests (TREE-5).

The actor asks it and goes on; the first line stays the title when the model has nothing better.
"""

from collections.abc import Callable
from enum import Enum

from protocol.events import ThreadUpdated
from protocol.ledger import Ledger
from protocol.state import ChatState
from server.actor.workplace import Workplace
from server.actor.writer import Writer
from server.agent.titles import make_title, wants_title
from server.store.port import Fenced

__all__ = ["Titling"]


class _Progress(Enum):
    NOT_BEGUN = "not_begun"
    GOING_ON = "going_on"
    DONE = "done"


class Titling:
    """Of one actor. `on_end` is told when it is through; its argument says whether the log is somebody else's."""

    def __init__(self, place: Workplace, on_end: Callable[[bool], None]) -> None:
        self._place = place
        self._on_end = on_end
        self._progress = _Progress.NOT_BEGUN

    @property
    def goes_on(self) -> bool:
        return self._progress is _Progress.GOING_ON

    def begins(self, state: ChatState) -> bool:
        """Whether `run` is to be started now; if so it counts as started."""
        is_wanted = (
            self._progress is _Progress.NOT_BEGUN
            and bool(self._place.title_model)
            and state.is_at_rest
            and wants_title(state)
        )
        if is_wanted:
            self._progress = _Progress.GOING_ON
        return is_wanted

    async def run(self, writer: Writer) -> None:
        title = await make_title(self._place.models, self._place.title_model, writer.state)

        def write(ledger: Ledger) -> None:
            if title and wants_title(ledger.state):
                ledger.say(ThreadUpdated(title=title, is_title_generated=True))

        is_fenced = False
        try:
            await writer.commit(write)
            self._progress = _Progress.DONE
        except Fenced:
            is_fenced = True
        self._on_end(is_fenced)
