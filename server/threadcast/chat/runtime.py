"""Reports the state of a run, and the used part of the model's context window, by the event `runtime_updated` (EVT-13).

An event that would change nothing is left out.
"""

from msgspec.structs import asdict

from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.owner_state import OwnerState
from threadcast_protocol.wire.events import ContextUse, RuntimeUpdated

__all__ = ["context_use", "say_runtime"]

RECENT_MESSAGES = 256
"""The number of recent messages that are searched for token counts, which covers two rounds with the maximum number of
calls. Older counts do not show what the path uses now. Some model servers never send token counts. Without this limit,
each event of a run would then search the whole path."""


def say_runtime(
    builder: EntryBuilder,
    state: str,
    *,
    round: int | None = None,
    status_text: str | None = None,
    active_tool: str | None = None,
    is_compressing: bool = False,
    waits_for: str | None = None,
) -> None:
    """Add a `runtime_updated` event for the open run, unless it would change nothing."""
    run = builder.state.private.run
    now = builder.state.runtime
    event = RuntimeUpdated(
        state=state,
        run_id=run.run_id if run else None,
        round=round if round is not None else now.round,
        status_text=status_text,
        active_tool=active_tool,
        context=context_use(builder.state),
        is_compressing=is_compressing,
        waits_for=waits_for,
    )
    if any(getattr(now, name) != value for name, value in asdict(event).items()):
        builder.say(event)


def context_use(state: OwnerState) -> ContextUse | None:
    """Return the tokens of the context window that the path uses, from the last answer with token counts. Returns None
    if no recent answer has token counts (HIST-7)."""
    run, before = state.private.run, state.runtime.context
    total = run.window_tokens if run is not None else (before.total if before is not None else None)
    for key in reversed(state.path[-RECENT_MESSAGES:]):
        usage = state.nodes[key].usage
        if usage is not None:
            return ContextUse(usage.total_tokens, total)
    return None
