"""Records the operations of a durable agent, and shows the operations that take time to clients as steps. All functions
are pure."""

from msgspec.structs import replace

from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import Progressed
from threadcast.chat.journal import Operation, OperationRecorded
from threadcast.chat.outbound import close_children
from threadcast.chat.owner_state import OwnerState, Run
from threadcast.chat.relations import Child
from threadcast_protocol.wire.events import AgentStep

__all__ = ["NAME_MAX_CHARACTERS", "cancel", "child_of", "record", "step_id_of"]

STEP_KINDS = frozenset({"step", "chat", "ask", "sleep"})
"""The kinds of operations that clients see as steps. Clients see calls and answers as messages, and all other
operations take no time."""

NAME_MAX_CHARACTERS = 200
"""The longest name of a step that clients see."""


def child_of(state: OwnerState, ref: str) -> Child | None:
    """Return the sub-chat of the operation with this `ref`."""
    return next((child for child in state.private.relations.children if child.tool_call_id == ref), None)


def record(builder: EntryBuilder, key: str, operation: Operation) -> None:
    """Record that an operation has begun or ended, and show it to clients if it is a step. The end of an operation
    counts as progress. Without this progress, a long run would be taken for the cause of its workers' crashes."""
    run = builder.state.private.run
    before = run.agent.journal.get(key) if run is not None and run.agent is not None else None
    builder.note(OperationRecorded(key=key, operation=operation))
    if operation.status != "begun":
        builder.note(Progressed())
    if operation.kind in STEP_KINDS and run is not None:
        builder.say(_step(builder, run, key, operation, before))


def cancel(builder: EntryBuilder, run: Run) -> None:
    """Stop the sub-chats of a run that ends, and show the unfinished steps of the run to clients as cancelled."""
    journal = run.agent.journal if run.agent is not None else {}
    for key, operation in journal.items():
        if operation.status == "begun" and operation.kind in STEP_KINDS:
            builder.say(_step(builder, run, key, replace(operation, status="cancelled"), operation))
        if operation.status == "begun" and operation.kind == "chat":
            close_children(builder, operation.ref)


def step_id_of(restarts: int, key: str) -> str:
    """Return an id for the operation `key` that is unique in its run, even if the agent was restarted."""
    return f"{restarts}:{key}" if restarts else key


def _step(builder: EntryBuilder, run: Run, key: str, operation: Operation, before: Operation | None) -> AgentStep:
    has_ended = operation.status != "begun"
    waits = operation.kind in ("ask", "sleep")
    child = child_of(builder.state, operation.ref) if operation.kind == "chat" else None
    restarts = run.agent.restarts if run.agent is not None else 0
    started_at = before.at_ms if before is not None else operation.at_ms
    return AgentStep(
        run_id=run.run_id,
        step_id=step_id_of(restarts, key),
        kind=operation.kind,
        name=operation.name[:NAME_MAX_CHARACTERS],
        status=operation.status if has_ended else ("waiting" if waits else "running"),
        started_at=started_at,
        elapsed_ms=max(0, builder.now_ms - started_at) if has_ended else None,
        until=operation.until_ms,
        subchat_id=child.chat_id if child is not None else None,
        error=operation.error.kind if operation.error is not None else None,
    )
