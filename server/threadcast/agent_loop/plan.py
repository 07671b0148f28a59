"""Decides the next step of a run from the chat's state: call the model, run a tool, wait for a decision, or end.

`advance` adds the announcement of the next step to the entry and returns the step. All state is in the log. When a
worker takes over a chat, `recovery.py` first settles the interrupted step. The worker then calls `advance` with the
same state, and so continues where the dead worker stopped.
"""

from msgspec.structs import replace

from threadcast.agent_loop.answer import empty
from threadcast.agent_loop.calls.gates import ask_about_limit, next_call, tools_offered
from threadcast.agent_loop.calls.previews import next_commit
from threadcast.agent_loop.durable.plan import begin_agent, durable_agent_of, go_on
from threadcast.agent_loop.history.summaries import begin_summary
from threadcast.agent_loop.history.view import compaction_of
from threadcast.agent_loop.steps import CallModel, Step, Wait
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import RoundStarted, SetAside
from threadcast.chat.internal_commands import InternalCommand, StopSubchat
from threadcast.chat.owner_state import Aside, OwnerState, Run
from threadcast.chat.questions import withdraw_questions
from threadcast.chat.queue import interrupts, is_steered
from threadcast.chat.runs import blame, end_run, open_calls, say_error
from threadcast.chat.runtime import say_runtime
from threadcast.chat.taint import note_what_is_read
from threadcast.profiles.profile import ChatTools
from threadcast.profiles.reply_guard import INSTRUCTION, RETRY_STATUS, refuses
from threadcast.providers.base import AGENTS
from threadcast_protocol.wire.commands import Abort, Command
from threadcast_protocol.wire.events import ErrorHappened, MessageUpdated, StreamStarted, ThreadUpdated
from threadcast_protocol.wire.failures import Failure
from threadcast_protocol.wire.messages import Message, text_of

__all__ = [
    "advance",
    "is_parked",
    "is_worked_on",
    "may_go_on",
    "next_deadline_ms",
    "stops",
    "wanted_model",
]


def is_parked(state: OwnerState) -> bool:
    """Return whether a run is open that waits for a person, a client or a slot, or whose durable agent is suspended.
    Such a chat needs no worker (DESIGN §4.4)."""
    if state.runtime.waits_for is not None:
        return True
    run = state.private.run
    if run is not None and run.agent is not None:
        return bool(run.agent.waits)
    return state.runtime.state in ("paused", "waiting_ide")


def is_worked_on(state: OwnerState) -> bool:
    """Return whether a run is open that a worker must carry out now."""
    return state.private.run is not None and not is_parked(state)


def next_deadline_ms(state: OwnerState) -> int | None:
    """Return the time in Unix milliseconds at which an owner must check this chat even without a command: the earliest
    deadline of a client's call, or the earliest end of a durable agent's sleep. Return None if there is no such time,
    or if the run must first wait for a slot."""
    run = state.private.run
    if state.runtime.waits_for is not None:
        return None
    times = [call.deadline_at for call in state.runtime.ide_calls]
    times += [wait.until_ms for wait in run.agent.waits] if run is not None and run.agent is not None else []
    return min((time for time in times if time is not None), default=None)


def stops(command: Command | InternalCommand | None, state: OwnerState) -> bool:
    """Return whether the run's task must be stopped before `command` is carried out."""
    run = state.private.run
    if run is None or not is_worked_on(state):
        return False
    if isinstance(command, Abort):
        return command.run_id in (None, run.run_id)
    return isinstance(command, StopSubchat) or interrupts(command, state)


def advance(builder: EntryBuilder, table: ChatTools) -> Step:
    """Announce the next step and return this step. If the run ends, the next command of the queue may begin another
    run."""
    while True:
        state = builder.state
        run, leaf = state.private.run, state.leaf
        if run is not None and run.agent is not None:
            return go_on(builder, run, run.agent, table)
        if run is None or _is_asked(builder):
            return Wait()
        if run.round < 0 and run.commit is None and (name := durable_agent_of(builder)):
            return begin_agent(builder, name)
        step: Step | None = None
        if run.commit is not None:
            step = next_commit(builder, run, run.commit, table)
        elif state.draft is not None:
            message_id = state.draft.message.message_id
            with_tools = tools_offered(builder, run)
            return CallModel(run.run_id, message_id, wanted_model(builder, table), with_tools, continuing=True)
        elif open_calls(state):
            step = next_call(builder, run, table)
        elif leaf is not None and empty.is_asked_after(state, run, leaf) and may_go_on(builder, run):
            step = _start_round(builder, run, table, status_text="asking again: the answer was empty")
        elif leaf is not None and _is_answered(state, run) and _is_refused(builder, run, leaf, table):
            step = _start_round(builder, run, table, status_text=RETRY_STATUS)
        elif (outcome := _outcome(builder, run)) is not None:
            end_run(builder, outcome)
        elif run.round + 1 < _rounds_allowed(builder, run):
            step = _start_round(builder, run, table)
        else:
            step = _at_limit(builder, run, table)
        if step is not None:
            return step


def _is_asked(builder: EntryBuilder) -> bool:
    """Return whether people must decide before the next step. If the run is not paused, its open questions belong to
    tools whose calls ended before they could withdraw the questions. Such questions are withdrawn here."""
    reasons = builder.state.runtime.pause_reasons
    if reasons and builder.state.runtime.state != "paused":
        withdraw_questions(builder, [reason.tool_call_id for reason in reasons if reason.tool_name])
    return bool(builder.state.runtime.pause_reasons)


def _is_answered(state: OwnerState, run: Run) -> bool:
    """Return whether the last message is an answer of this run, and not the message that the run must continue."""
    leaf = state.leaf
    begins_with_leaf = run.continues is not None and run.round < 0
    return leaf is None or (leaf.role == "assistant" and len(state.path) > run.first_index and not begins_with_leaf)


def _outcome(builder: EntryBuilder, run: Run) -> str | None:
    """Return the outcome with which the run ends now. Return None if the run continues, or has used all its rounds."""
    if _is_answered(builder.state, run):
        return "limit" if run.summarizing else "complete"
    if run.end_state is not None:
        return "complete"
    if builder.param("on_deny") == "stop" and any(
        gate.status == "rejected" and not gate.is_question for gate in run.gates.values()
    ):
        return "aborted"
    if run.round >= 0 and is_steered(builder.state):
        return "interrupted"
    return "limit" if run.summarizing and run.round + 1 >= _rounds_allowed(builder, run) else None


def wanted_model(builder: EntryBuilder, table: ChatTools) -> str:
    """Return the model for the next round. A model in the command overrides the models of the thread, the profile and
    the server (SET-1). If the profile's model is an operator's agent, this agent always answers, even if the command or
    the thread has another model."""
    of_profile: str = builder.profile_params.get("model", "")
    if of_profile.startswith(AGENTS):
        return of_profile
    return builder.param("model") or table.default_model


def may_go_on(builder: EntryBuilder, run: Run) -> bool:
    """Return whether another round may follow for the same question. Return False after the last round, and if a new
    message waits in the queue."""
    return not run.summarizing and not is_steered(builder.state) and run.round + 1 < _rounds_allowed(builder, run)


def _rounds_allowed(builder: EntryBuilder, run: Run) -> int:
    return run.rounds_allowed if run.rounds_allowed is not None else int(builder.param("max_rounds"))


def _is_refused(builder: EntryBuilder, run: Run, answer: Message, table: ChatTools) -> bool:
    """Return whether the reply guard refuses this answer and another round is allowed (LOOP-10). The refused answer
    stays in the chat and is marked as refused. The message that informs the model of the refusal is recorded only once,
    even if a worker dies in the round."""
    guard, state = table.profile.reply_guard, builder.state
    if not may_go_on(builder, run):
        return False
    of_run = set(state.path[run.first_index :])
    notes = [each.after for each in state.private.asides if each.message.kind == "guard" and each.after in of_run]
    if answer.message_id not in notes:
        if len(notes) >= guard.max_retries or not refuses(guard, text_of(answer.content)):
            return False
        told = Message(
            role="user",
            content=guard.instruction or INSTRUCTION,
            message_id=builder.new_id("msg"),
            hidden=True,
            kind="guard",
            created_at=builder.now_ms,
        )
        builder.note(SetAside(aside=Aside(told, answer.message_id)))
        builder.say(MessageUpdated(answer.message_id, replace(answer, kind="refused")))
    return True


def _at_limit(builder: EntryBuilder, run: Run, table: ChatTools) -> Step | None:
    """Report that the limit of rounds is reached, then proceed as `on_limit` requires."""
    if builder.param("on_limit") == "summarize" and (summary := begin_summary(builder, run, table.profile.summarizer)):
        return summary
    allowed = _rounds_allowed(builder, run)
    sentence = f"The run used all its {allowed} rounds of tools."
    failure = Failure(code="max_tool_rounds", message=sentence)
    say_error(builder, failure, fatal=False)
    match builder.param("on_limit"):
        case "summarize":
            return _start_round(builder, run, table, summarizing=True)
        case "ask":
            return ask_about_limit(builder, run, allowed)
        case _:
            blame(builder, failure)
            end_run(builder, "limit")
            return None


def _say_unknown_mode(builder: EntryBuilder, run: Run, mode: str) -> None:
    """Report an unknown mode once for each run. A chat has an unknown mode if the chat was imported from another
    server, or if its profile was removed."""
    sentence = "The mode of this chat is not one of this server; the default profile answers. Choose another mode."
    details = {"mode": mode}
    builder.say(ErrorHappened(code="unknown_mode", message=sentence, fatal=False, run_id=run.run_id, details=details))


def _start_round(
    builder: EntryBuilder, run: Run, table: ChatTools, *, summarizing: bool = False, status_text: str | None = None
) -> Step:
    note_what_is_read(builder, table.rules)
    if (summary := begin_summary(builder, run, table.profile.summarizer)) is not None:
        return summary  # the plan returns here after the summary
    number = run.round + 1
    if number == 0 and table.unknown_mode:
        _say_unknown_mode(builder, run, table.unknown_mode)
    model = wanted_model(builder, table)
    goes_on = run.continues if run.round < 0 else None
    message_id = goes_on.message_id if goes_on is not None else builder.new_id("msg")
    path = builder.state.path
    builder.note(RoundStarted(round=number, summarizing=summarizing, window_tokens=table.window_tokens(model)))
    say_runtime(builder, "generating", round=number, status_text=status_text)
    compaction = compaction_of(builder.state, builder.profile_params)
    if compaction is not None and compaction != builder.state.thread.compaction:
        builder.say(ThreadUpdated(compaction=compaction))
    builder.say(
        StreamStarted(
            message_id=message_id,
            run_id=run.run_id,
            round=number,
            model=model,
            append=goes_on is not None,
            parent_id=goes_on.parent_id if goes_on is not None else (path[-1] if path else None),
            created_at=builder.now_ms,
        )
    )
    with_tools = not summarizing and builder.param("tool_use") != "none"
    return CallModel(run.run_id, message_id, model, with_tools, continuing=goes_on is not None)
