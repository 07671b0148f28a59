"""How something that ended beside a run reaches the chat's model: a message set aside for it, and perhaps a run.

Used by background agents and processes. Pure. A wake begins a run when the chat rests; while one is open, that run's
next round reads the message, and only if there is none a run follows. After an abort none does: a person said stop.
"""

from msgspec.structs import replace

from protocol.facts import RunStarted, SetAside
from protocol.ledger import Ledger
from protocol.messages import Message
from protocol.principal import Principal
from protocol.relations import Wake, WakeNoted, WakeSettled
from protocol.runtime import say_runtime
from protocol.state import Aside, Run

__all__ = ["WAKES_MAX", "tell_model", "wake", "wake_after"]

WAKES_MAX = 16
"""Runs one after the other that nobody asked for: as many as children may run at once. A model that wakes itself again
and again costs money that no quota counts; what comes later it reads when a person next asks something."""

_GO_ON = frozenset({"complete", "limit", "interrupted"})
"""Outcomes after which a run may follow unasked: not an abort, and not an error, which it would only meet again."""


def tell_model(ledger: Ledger, text: str) -> None:
    """Let the model, and nobody else, read `text` behind what now is the last message."""
    path = ledger.state.path
    message = Message(
        role="user", content=text, message_id=ledger.new_id("aside"), hidden=True, created_at=ledger.now_ms
    )
    ledger.note(SetAside(aside=Aside(message, path[-1] if path else None)))


def wake(ledger: Ledger, principal: Principal, cause: str) -> None:
    """The model is to act on what was set aside: now, or when the open run has ended without reading it."""
    run = ledger.state.private.run
    if run is not None:
        ledger.note(WakeNoted(wake=Wake(run_id=run.run_id, round=run.round, principal=principal, cause=cause)))
    elif ledger.state.is_at_rest and not ledger.state.private.queue:
        _begin_run(ledger, principal)


def wake_after(ledger: Ledger, ended: Run, outcome: str) -> None:
    """`ended` is over, and what waited in the queue has been taken up."""
    owed = ledger.state.private.relations.wake
    if owed is None:
        return
    ledger.note(WakeSettled())
    is_unread = owed.run_id == ended.run_id and ended.round <= owed.round
    if not is_unread or outcome not in _GO_ON:
        return
    follows = ledger.state.private.run
    if follows is None:
        _begin_run(ledger, owed.principal)
    elif follows.commit is not None:  # it asks no model, so nobody has read it after that either
        ledger.note(WakeNoted(wake=replace(owed, run_id=follows.run_id, round=follows.round)))


def _begin_run(ledger: Ledger, principal: Principal) -> None:
    """A run that no command of a person began; it answers below what the path ends in. None after WAKES_MAX of them."""
    if ledger.state.private.wakes_count >= WAKES_MAX:
        return
    ledger.note(
        RunStarted(
            run_id=ledger.new_id("run"),
            principal=principal,
            request_ids=[],
            at_ms=ledger.now_ms,
            first_index=len(ledger.state.path),
        )
    )
    say_runtime(ledger, "generating", round=0)
