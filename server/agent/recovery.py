"""What a new owner does about the work that the last one left in the middle (DESIGN §7).

The unit of recovery is one model call: finished rounds and tool results are never redone, text that was shown is never
shown twice. Pure, as the plan is; the actor calls it before it goes on, after a takeover as after an abort that left
something open.
"""

from protocol.events import MessageRemoved
from protocol.facts import OutcomeUnknown, RoundStarted
from protocol.failures import Failure
from protocol.ledger import Ledger
from protocol.messages import ToolCall
from protocol.runs import answer_call, fail_run, open_calls
from protocol.state import Gate, Run
from server.agent.calls.bindings import arguments_of
from server.agent.calls.gates import ToolTable, effect_hash
from server.agent.calls.previews import recover_commit

__all__ = ["recover"]


def recover(ledger: Ledger, table: ToolTable, *, can_continue: bool) -> None:
    """Settle what is broken, by the chat's `on_owner_loss`.

    A broken answer is continued where the provider can be given its beginning (`can_continue`), where the run was asked
    to continue it, or where the chat wishes so; else it is taken back and asked for again. A tool that was started and
    not answered runs again only if it is declared safe or idempotent.
    """
    run = ledger.state.private.run
    if run is None:
        return
    if run.commit is not None:
        recover_commit(ledger, run, run.commit, table)
        return
    wish = ledger.param("on_owner_loss")
    draft = ledger.state.draft
    if draft is not None and wish == "stop":
        failure = Failure(code="interrupted", message="The answer was interrupted when its server stopped.")
        fail_run(ledger, failure, outcome="interrupted")
        return
    if draft is not None and run.continues is None:
        is_wanted = wish == "continue" or (wish == "auto" and can_continue)
        # Calls and reasoning cannot be sent back as the beginning of an answer: the model would repeat them.
        goes_on = is_wanted and not draft.message.tool_calls and bool(draft.content or not draft.reasoning)
        if not goes_on:
            ledger.say(MessageRemoved(draft.message.message_id))
            ledger.note(RoundStarted(round=run.round - 1, summarizing=run.summarizing))
    at_clients = {call.tool_call_id for call in ledger.state.runtime.ide_calls}  # they outlive every worker
    for call in open_calls(ledger.state):
        gate = run.gates.get(call.id)
        if gate is not None and gate.status == "started" and call.id not in at_clients:
            _settle_started(ledger, run, call, gate, table)


def _settle_started(ledger: Ledger, run: Run, call: ToolCall, gate: Gate, table: ToolTable) -> None:
    tool = table.get(call.function.name)
    if tool is None or tool.retry in ("safe", "idempotent"):
        return
    arguments = gate.edited_input or arguments_of(ledger.state, call, tool, table.params)
    if arguments is not None:
        ledger.note(OutcomeUnknown(input_hash=effect_hash(call.function.name, arguments)))
    text = (
        "The outcome of this call is unknown: the server stopped while it ran, and it may or may not have had its "
        "effect. Calling it again with the same arguments needs a person's approval."
    )
    answer_call(ledger, call, text, status="outcome_unknown")
