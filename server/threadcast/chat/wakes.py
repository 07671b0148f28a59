"""Reports the end of background work to the chat's model, by a message and, if requested, by a new run.

Background agents and processes use this module. A wake (the report of such an end to the model) starts a run if no run
is open. If a run is open, the model reads the message in the next round of the run. If the run has no next round, a new
run follows. After an abort no run follows, because the user wants the chat to stop. All functions are pure.
"""

from msgspec.structs import replace

from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import RunStarted, SetAside
from threadcast.chat.owner_state import Aside, Run
from threadcast.chat.relations import Wake, WakeNoted, WakeSettled
from threadcast.chat.runtime import say_runtime
from threadcast_protocol.wire.messages import Message
from threadcast_protocol.wire.principal import Principal

__all__ = ["WAKES_MAX", "tell_model", "wake", "wake_after"]

WAKES_MAX = 16
"""The maximum number of consecutive runs without a command of a user. The maximum number of running children is the
same. Without this limit, a model that starts background work again and again would cost money without end. Beyond the
limit, the model reads the messages after the next command of a user."""

_GO_ON = frozenset({"complete", "limit", "interrupted"})
"""Outcomes after which a wake may start a run. After an error, a new run would probably fail in the same way."""


def tell_model(builder: EntryBuilder, text: str, after: str | None = None) -> None:
    """Show `text` to the model only, after the message `after`, or after the present last message of the path."""
    path = builder.state.path
    message = Message(
        role="user", content=text, message_id=builder.new_id("aside"), hidden=True, created_at=builder.now_ms
    )
    builder.note(SetAside(aside=Aside(message, after or (path[-1] if path else None))))


def wake(builder: EntryBuilder, principal: Principal, cause: str) -> None:
    """Start a run in which the model reads the messages that `tell_model` has added. If a run is open, the new run
    starts after the open run, and only if the open run ends without reading the messages."""
    run = builder.state.private.run
    if run is not None:
        builder.note(WakeNoted(wake=Wake(run_id=run.run_id, round=run.round, principal=principal, cause=cause)))
    elif builder.state.is_at_rest and not builder.state.private.queue:
        _begin_run(builder, principal)


def wake_after(builder: EntryBuilder, ended: Run, outcome: str) -> None:
    """Start a run for a wake that the run `ended` has not read. Call this function after `start_next`."""
    owed = builder.state.private.relations.wake
    if owed is None:
        return
    builder.note(WakeSettled())
    is_unread = owed.run_id == ended.run_id and ended.round <= owed.round
    if not is_unread or outcome not in _GO_ON:
        return
    follows = builder.state.private.run
    if follows is None:
        _begin_run(builder, owed.principal)
    elif follows.commit is not None:  # this run calls no model, so the message is still unread
        builder.note(WakeNoted(wake=replace(owed, run_id=follows.run_id, round=follows.round)))


def _begin_run(builder: EntryBuilder, principal: Principal) -> None:
    """Open a run without a command of a user, at the end of the path. After WAKES_MAX such runs in a row, the function
    does nothing."""
    if builder.state.private.wakes_count >= WAKES_MAX:
        return
    builder.note(
        RunStarted(
            run_id=builder.new_id("run"),
            principal=principal,
            request_ids=[],
            at_ms=builder.now_ms,
            first_index=len(builder.state.path),
        )
    )
    say_runtime(builder, "generating", round=0)
