"""Ends the run of a durable function that is complete, has failed, or must restart. Pure."""

from collections.abc import Mapping

import structlog

from threadcast.agent_loop.durable.branches import Ended
from threadcast.agent_loop.plan import advance
from threadcast.agent_loop.steps import Step
from threadcast.base.boundary import name_of
from threadcast.chat.agent_steps import record
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.journal import AgentRestarted, Operation
from threadcast.chat.runs import end_run, fail_run
from threadcast.custom_agents.agent import Agent
from threadcast.custom_agents.errors import StepFailed
from threadcast.custom_agents.seam import AttemptCut
from threadcast.profiles.profile import ChatTools
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.events import PauseCleared
from threadcast_protocol.wire.failures import Failure

__all__ = ["Halt", "Restart", "end_function"]

_log = structlog.get_logger()


class Halt(Exception):
    """The reason why the server ends a run. `code` is `nondeterminism` or `limit`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Restart(Exception):
    """Ends an execution because the function must begin again with `state`, which is JSON text."""

    def __init__(self, state: str) -> None:
        super().__init__("restart")
        self.state = state


def end_function(
    builder: EntryBuilder,
    table: ChatTools,
    *,
    agent: Agent,
    why: Halt | Restart | None,
    ended: Ended,
    pending: Mapping[str, Operation],
) -> Step:
    """End the run, or restart the function, and return the next step. `why` is the server's reason, or None. Without
    such a reason, `ended` decides how the run ends; `ended` has the function's result and error. `pending` are records
    that have not been part of an append yet."""
    result, wrong = ended
    if result is not None:
        _log.warning("agent.result_ignored", agent=agent.name, hint="only ctx.answer writes into the chat")
    if builder.state.private.run is None:
        return advance(builder, table)
    if isinstance(why, Restart):
        builder.note(AgentRestarted(state=why.state))
    elif isinstance(why, Halt):
        outcome = "limit" if why.code == "limit" else "error"
        fail_run(builder, Failure(code=why.code, message=why.message), outcome=outcome)
    elif isinstance(wrong, AttemptCut):
        fail_run(builder, Failure(code="interrupted", message=str(wrong)), outcome="interrupted")
    elif wrong is not None:
        failure = _failure(agent, wrong)
        fail_run(builder, failure, outcome="limit" if failure.code == "limit" else "error")
    else:
        for key, operation in pending.items():
            record(builder, key, operation)
        if builder.state.runtime.pause_reasons:  # questions of a branch that lost a `first`
            builder.say(PauseCleared())
        end_run(builder, "complete")
    return advance(builder, table)


def _failure(agent: Agent, wrong: BaseException) -> Failure:
    """Return the failure of a run whose function raised `wrong`."""
    if isinstance(wrong, ModelFailed):  # an agent may report its failure itself
        return Failure(code=wrong.code, message=wrong.message)
    name = name_of(wrong)
    _log.warning("agent.failed", agent=agent.name, error=name, exc_info=wrong)
    what = f"its step {wrong.step!r} raised {wrong.kind}" if isinstance(wrong, StepFailed) else name
    return Failure(code="llm_error", message=f"The agent {agent.name!r} failed ({what}).")
