"""Recovers the unfinished work of a chat's previous owner (DESIGN §7).

The unit of recovery is one model call: finished rounds and tool results are never repeated, and text that was shown is
never shown twice. The actor calls `recover` after a takeover, and after an abort that left unfinished work. Pure.
"""

from threadcast.agent_loop.calls.bindings import arguments_of
from threadcast.agent_loop.calls.gates import effect_hash
from threadcast.agent_loop.calls.previews import has_begun_commit, recover_commit
from threadcast.agent_loop.durable.plan import recover_agent, steps_begun_once
from threadcast.agent_loop.ports import ModelTable
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import OutcomeUnknown, RoundStarted
from threadcast.chat.owner_state import Gate, OwnerState, Run
from threadcast.chat.questions import withdraw_questions
from threadcast.chat.runs import answer_call, fail_run, open_calls
from threadcast.profiles.profile import ChatTools
from threadcast.tools.base import Tool
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.events import MessageRemoved
from threadcast_protocol.wire.failures import Failure
from threadcast_protocol.wire.messages import ToolCall

__all__ = ["can_continue", "has_single_effect", "recover"]


def can_continue(models: ModelTable, model: str) -> bool:
    """Return whether the provider of `model` accepts the beginning of an answer and continues the answer."""
    try:
        provider, name = models.resolve(model)
    except ModelFailed:
        return False
    return provider.prefills(name)


def recover(builder: EntryBuilder, table: ChatTools, *, can_continue: bool) -> None:
    """Settle the interrupted step as the chat's `on_owner_loss` requires.

    A broken answer is continued if the provider accepts the beginning of an answer (`can_continue`), if the run's
    command was to continue the answer, or if the chat's settings require continuing. Otherwise the answer is removed
    and the model is asked again. A tool or a durable agent's step that was started and not answered runs again only if
    it is declared safe or idempotent. A durable agent writes its broken answer again, and the shown text stays visible
    as long as the new text is the same.
    """
    run = builder.state.private.run
    if run is None:
        return
    asked = [reason.tool_call_id for reason in builder.state.runtime.pause_reasons if reason.tool_name]
    withdraw_questions(builder, asked)  # the questions of interrupted tools; an agent's question has no tool name
    if run.commit is not None:
        recover_commit(builder, run, run.commit, table)
        return
    wish = builder.param("on_owner_loss")
    draft = builder.state.draft
    if draft is not None and wish == "stop":
        failure = Failure(code="interrupted", message="The answer was interrupted when its server stopped.")
        fail_run(builder, failure, outcome="interrupted")
        return
    if run.agent is not None:
        recover_agent(builder, run.agent)
    elif draft is not None and run.continues is None:
        is_wanted = wish == "continue" or (wish == "auto" and can_continue)
        # Calls and reasoning cannot be sent to the model as the beginning of its answer, so the model would repeat
        # them.
        goes_on = is_wanted and not draft.message.tool_calls and bool(draft.content or not draft.reasoning)
        if not goes_on:
            builder.say(MessageRemoved(draft.message.message_id))
            builder.note(RoundStarted(round=run.round - 1, summarizing=run.summarizing))
    for call, gate, tool in _started_once(builder.state, run, table):
        _settle_started(builder, run, call, gate, tool, table)


def has_single_effect(state: OwnerState, table: ChatTools) -> bool:
    """Return whether a tool or step that may not run twice has begun and has no result. `recover` would settle this
    tool or step."""
    run = state.private.run
    if run is None:
        return False
    if run.commit is not None:
        return has_begun_commit(run, run.commit, table)
    return bool(_started_once(state, run, table)) or (run.agent is not None and bool(steps_begun_once(run.agent)))


def _started_once(state: OwnerState, run: Run, table: ChatTools) -> list[tuple[ToolCall, Gate, Tool]]:
    """Return the started and unanswered calls of tools that may not run twice."""
    at_clients = {call.tool_call_id for call in state.runtime.ide_calls}  # clients run these calls without a worker
    found: list[tuple[ToolCall, Gate, Tool]] = []
    for call in open_calls(state):
        gate, tool = run.gates.get(call.id), table.get(call.function.name)
        if gate is None or gate.status != "started" or call.id in at_clients:
            continue
        if tool is not None and tool.retry not in ("safe", "idempotent"):
            found.append((call, gate, tool))
    return found


def _settle_started(builder: EntryBuilder, run: Run, call: ToolCall, gate: Gate, tool: Tool, table: ChatTools) -> None:
    arguments = gate.edited_input or arguments_of(builder.state, call, tool, table.profile.params)
    if arguments is not None:
        builder.note(OutcomeUnknown(input_hash=effect_hash(call.function.name, arguments)))
    text = (
        "The outcome of this call is unknown: the server stopped while it ran, and it may or may not have had its "
        "effect. Calling it again with the same arguments needs a person's approval."
    )
    answer_call(builder, call, text, status="outcome_unknown")
