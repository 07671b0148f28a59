"""Asks a model to write the chat's title, once, when the chat first comes to rest (TREE-5).

The call runs beside the actor's loop. If the call fails, the first line remains the title, an `error` event with
`details.task` "title" has the reason, and the model is not asked again before the chat has another message.
"""

from collections.abc import Callable

import structlog

from threadcast.actor.run_slots import RunSlot
from threadcast.actor.worker_context import WorkerContext
from threadcast.actor.writer import Writer
from threadcast.agent_loop.titles import INSTRUCTION, make_title, wants_title
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import Progressed
from threadcast.chat.owner_state import OwnerState
from threadcast.store.ports import Fenced
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.events import ErrorHappened, Event, ThreadUpdated
from threadcast_protocol.wire.failures import details_of

__all__ = ["Titling"]

_log = structlog.get_logger()

NO_TITLE = "The model for titles failed, so the chat keeps its title."


class Titling:
    """Makes the title of one actor's chat. `on_end` is called after each attempt, with True if another worker owns the
    log. `goes_on` is True while the model writes the title."""

    def __init__(self, context: WorkerContext, on_end: Callable[[bool], None]) -> None:
        self._context = context
        self._on_end = on_end
        self.goes_on = False

    def begins(self, state: OwnerState, slot: RunSlot) -> bool:
        """Return whether `run` must be started now. If so, sets `goes_on` to True and takes `slot`, because the title
        needs a model call. If no slot is free, the chat gets its title after its next run."""
        is_wanted = bool(self._context.title_model) and state.is_at_rest and wants_title(state)
        self.goes_on = is_wanted and slot.take(state)
        return self.goes_on

    async def run(self, writer: Writer) -> None:
        """Ask the model for a title and commit the title, or the failure."""
        event: Event
        is_fenced = False
        try:
            try:
                title = await make_title(self._context.models, self._context.title_model, writer.state)
                event = ThreadUpdated(title=title, is_title_generated=True)
            except ModelFailed as failed:
                _log.warning("title.failed", model=self._context.title_model, code=failed.code, detail=failed.detail)
                event = self._report(failed, writer.now_ms())

            def write(builder: EntryBuilder) -> None:
                leaf = builder.state.leaf
                if leaf is not None and wants_title(builder.state):
                    builder.say(event)
                    if isinstance(event, ErrorHappened):
                        builder.note(Progressed(untitled_at=leaf.message_id))

            await writer.commit(write)
        except Fenced:
            is_fenced = True
        finally:
            self.goes_on = False
        self._on_end(is_fenced)

    def _report(self, failed: ModelFailed, now_ms: int) -> ErrorHappened:
        reasons = self._context.reasons
        failed.reason = reasons.cleaned(failed.reason, INSTRUCTION)
        failure = reasons.failure(failed, self._context.title_model, now_ms)
        details = {"task": "title", **(details_of(failure) or {})}
        return ErrorHappened(code=failure.code, message=NO_TITLE, fatal=False, details=details)
