"""What a run does next, as a function of the log alone: ask the model, run a tool, wait for somebody, or end.

`advance` writes the next step's announcement into a ledger and says which work must be done outside. A worker that
takes a chat over calls the same function on the same state and so goes on where the dead one stopped, once
`recovery.py` has settled what was broken. Nothing here waits, and nothing is remembered but in the log.
"""

from collections.abc import Callable

from protocol.commands import Abort, Command, InternalCommand, StopSubchat
from protocol.events import ErrorHappened, StreamStarted, ThreadUpdated
from protocol.facts import RoundStarted, SetAside
from protocol.failures import Failure
from protocol.ledger import Ledger
from protocol.messages import Message, text_of
from protocol.queue import interrupts, is_steered
from protocol.runs import blame, end_run, open_calls, say_error
from protocol.runtime import say_runtime
from protocol.state import Aside, ChatState, Run
from server.agent.answer import empty
from server.agent.answer.guard import RETRY_STATUS
from server.agent.calls.gates import ToolTable, ask_about_limit, next_call, tools_offered
from server.agent.calls.previews import next_commit
from server.agent.history.summaries import begin_summary
from server.agent.history.view import compaction_of
from server.agent.recovery import recover
from server.agent.steps import CallModel, Step, Wait

__all__ = [
    "advance",
    "carry_out",
    "go_on",
    "is_parked",
    "is_worked_on",
    "may_go_on",
    "next_deadline_ms",
    "stops",
    "wanted_model",
]


def is_parked(state: ChatState) -> bool:
    """A run is open and only a person or a client can let it go on; no worker is held (DESIGN §4.4)."""
    return state.runtime.state in ("paused", "waiting_ide")


def is_worked_on(state: ChatState) -> bool:
    """A run is open and a worker is busy with it outside."""
    return state.private.run is not None and not is_parked(state)


def next_deadline_ms(state: ChatState) -> int | None:
    """When somebody must look at this chat although nothing comes in: the first deadline of a client's call, in Unix
    milliseconds."""
    return min((call.deadline_at for call in state.runtime.ide_calls if call.deadline_at is not None), default=None)


def stops(command: Command | InternalCommand | None, state: ChatState) -> bool:
    """Must the work that goes on outside be ended before this command is carried out?"""
    run = state.private.run
    if run is None or not is_worked_on(state):
        return False
    if isinstance(command, Abort):
        return command.run_id in (None, run.run_id)
    return isinstance(command, StopSubchat) or interrupts(command, state)


def carry_out(ledger: Ledger, table: ToolTable, effect: Callable[[Ledger], None], *, is_stopped: bool) -> Step:
    """The effect of one command, and what follows from it. `is_stopped`: the work outside was ended for it.

    While a run is worked on, whoever works announces the next step, so a command only leaves its mark.
    """
    is_held = is_worked_on(ledger.state) and not is_stopped
    effect(ledger)
    return Wait() if is_held else go_on(ledger, table, is_stopped=is_stopped)


def go_on(ledger: Ledger, table: ToolTable, *, is_stopped: bool) -> Step:
    """The next step; first what an ended work left open is settled, should the run not have ended with it."""
    if is_stopped and is_worked_on(ledger.state):
        recover(ledger, table, can_continue=False)
    return advance(ledger, table)


def advance(ledger: Ledger, table: ToolTable) -> Step:
    """Announce the next step and return it. A run that ends here may be followed by the next one in the queue."""
    while True:
        state = ledger.state
        run = state.private.run
        if run is None or state.runtime.pause_reasons:
            return Wait()
        if run.commit is not None:
            commit_step = next_commit(ledger, run, run.commit, table)
            if commit_step is not None:
                return commit_step
            continue
        if state.draft is not None:
            message_id = state.draft.message.message_id
            with_tools = tools_offered(ledger, run)
            return CallModel(run.run_id, message_id, wanted_model(ledger, table), with_tools, continuing=True)
        step = next_call(ledger, run, table) if open_calls(state) else _next_round(ledger, run, table)
        if step is not None:
            return step


def wanted_model(ledger: Ledger, table: ToolTable) -> str:
    """Command before thread before profile before the server's own (SET-1)."""
    return ledger.param("model") or table.default_model


def _next_round(ledger: Ledger, run: Run, table: ToolTable) -> Step | None:
    state = ledger.state
    leaf = state.leaf
    begins_with_leaf = run.continues is not None and run.round < 0
    if leaf is not None and empty.is_asked_after(state, run, leaf) and may_go_on(ledger, run):
        return _start_round(ledger, run, table, status_text="asking again: the answer was empty")
    if leaf is None or (leaf.role == "assistant" and len(state.path) > run.first_index and not begins_with_leaf):
        again = _ask_again(ledger, run, leaf, table) if leaf is not None else None
        if again is not None:
            return again
        end_run(ledger, "limit" if run.summarizing else "complete")
        return None
    if run.end_state is not None:
        end_run(ledger, "complete")
        return None
    if ledger.param("on_deny") == "stop" and any(gate.status == "rejected" for gate in run.gates.values()):
        end_run(ledger, "aborted")
        return None
    if run.round >= 0 and is_steered(state):
        end_run(ledger, "interrupted")
        return None
    if run.round + 1 < _rounds_allowed(ledger, run):
        return _start_round(ledger, run, table)
    if run.summarizing:
        end_run(ledger, "limit")
        return None
    return _at_limit(ledger, run, table)


def may_go_on(ledger: Ledger, run: Run) -> bool:
    """Return whether another round may follow for the same question: not after the last round, and not when a new
    message waits."""
    return not run.summarizing and not is_steered(ledger.state) and run.round + 1 < _rounds_allowed(ledger, run)


def _rounds_allowed(ledger: Ledger, run: Run) -> int:
    return run.rounds_allowed if run.rounds_allowed is not None else int(ledger.param("max_rounds"))


def _ask_again(ledger: Ledger, run: Run, answer: Message, table: ToolTable) -> Step | None:
    """One more round, should the reply guard refuse this answer and a round be left (LOOP-10). The refused answer
    stays; what the model is told of it is noted once, even when the round breaks with its worker."""
    guard, state = table.reply_guard, ledger.state
    if guard is None or not may_go_on(ledger, run):
        return None
    of_run = set(state.path[run.first_index :])
    notes = [each.after for each in state.private.asides if each.message.kind == "guard" and each.after in of_run]
    if answer.message_id not in notes:
        if len(notes) >= guard.max_retries or not guard.refuses(text_of(answer.content)):
            return None
        told = Message(
            role="user",
            content=guard.instruction,
            message_id=ledger.new_id("msg"),
            hidden=True,
            kind="guard",
            created_at=ledger.now_ms,
        )
        ledger.note(SetAside(aside=Aside(told, answer.message_id)))
    return _start_round(ledger, run, table, status_text=RETRY_STATUS)


def _at_limit(ledger: Ledger, run: Run, table: ToolTable) -> Step | None:
    """Say that the limit is reached, then follow `on_limit`."""
    if ledger.param("on_limit") == "summarize" and (summary := begin_summary(ledger, run, table.summarizer)):
        return summary
    allowed = _rounds_allowed(ledger, run)
    sentence = f"The run used all its {allowed} rounds of tools."
    failure = Failure(code="max_tool_rounds", message=sentence)
    say_error(ledger, failure, fatal=False)
    match ledger.param("on_limit"):
        case "summarize":
            return _start_round(ledger, run, table, summarizing=True)
        case "ask":
            return ask_about_limit(ledger, run, allowed)
        case _:
            blame(ledger, failure)
            end_run(ledger, "limit")
            return None


def _say_unknown_mode(ledger: Ledger, run: Run, mode: str) -> None:
    """Report an unknown mode once for each run. A chat has one when it was imported from elsewhere, or its profile was
    removed."""
    sentence = "The mode of this chat is not one of this server; the default profile answers. Choose another mode."
    details = {"mode": mode}
    ledger.say(ErrorHappened(code="unknown_mode", message=sentence, fatal=False, run_id=run.run_id, details=details))


def _start_round(
    ledger: Ledger, run: Run, table: ToolTable, *, summarizing: bool = False, status_text: str | None = None
) -> Step:
    if (summary := begin_summary(ledger, run, table.summarizer)) is not None:
        return summary  # and the plan comes back here when there is one
    number = run.round + 1
    if number == 0 and table.unknown_mode:
        _say_unknown_mode(ledger, run, table.unknown_mode)
    model = wanted_model(ledger, table)
    goes_on = run.continues if run.round < 0 else None
    message_id = goes_on.message_id if goes_on is not None else ledger.new_id("msg")
    path = ledger.state.path
    ledger.note(RoundStarted(round=number, summarizing=summarizing, window_tokens=table.window_tokens(model)))
    say_runtime(ledger, "generating", round=number, status_text=status_text)
    compaction = compaction_of(ledger.state, ledger.profile_params)
    if compaction is not None and compaction != ledger.state.thread.compaction:
        ledger.say(ThreadUpdated(compaction=compaction))
    ledger.say(
        StreamStarted(
            message_id=message_id,
            run_id=run.run_id,
            round=number,
            model=model,
            append=goes_on is not None,
            parent_id=goes_on.parent_id if goes_on is not None else (path[-1] if path else None),
            created_at=ledger.now_ms,
        )
    )
    with_tools = not summarizing and ledger.param("tool_use") != "none"
    return CallModel(run.run_id, message_id, model, with_tools, continuing=goes_on is not None)
