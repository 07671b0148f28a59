"""What is said about a run while it goes on: `runtime_updated`, and how much of the model's window is used (EVT-13).

Two small functions over a ledger that runs, queue and plan share. Nothing is said twice: an event that would change
nothing is left out.
"""

from protocol.events import ContextUse, RuntimeUpdated
from protocol.ledger import Ledger
from protocol.state import ChatState

__all__ = ["context_use", "say_runtime"]


def say_runtime(
    ledger: Ledger,
    state: str,
    *,
    round: int | None = None,
    status_text: str | None = None,
    active_tool: str | None = None,
    is_compressing: bool = False,
) -> None:
    """`runtime_updated` of the open run, unless nothing would change."""
    run = ledger.state.private.run
    now = ledger.state.runtime
    event = RuntimeUpdated(
        state=state,
        run_id=run.run_id if run else None,
        round=round if round is not None else now.round,
        status_text=status_text,
        active_tool=active_tool,
        context=context_use(ledger.state),
        is_compressing=is_compressing,
    )
    shown = (now.state, now.error, now.run_id, now.round, now.status_text, now.active_tool, now.outcome, now.context)
    told = (state, None, event.run_id, event.round, status_text, active_tool, None, event.context)
    if (now.is_compressing, *shown) != (is_compressing, *told):
        ledger.say(event)


def context_use(state: ChatState) -> ContextUse | None:
    """Tokens of the window that the path takes, by the last answer that came with a usage; None when none did
    (HIST-7)."""
    run, before = state.private.run, state.runtime.context
    total = run.window_tokens if run is not None else (before.total if before is not None else None)
    for key in reversed(state.path):
        usage = state.nodes[key].usage
        if usage is not None:
            return ContextUse(usage.total_tokens, total)
    return None
