"""Asks the people in a chat the questions of its durable agent."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from threadcast.agent_loop.durable.branches import Branch
from threadcast.agent_loop.durable.execution import Execution
from threadcast.chat.agent_steps import NAME_MAX_CHARACTERS, record
from threadcast.chat.digests import digest
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.journal import Operation, OperationError, Wait
from threadcast.chat.questions import ask_people, check_question, question_reason, withdraw_questions
from threadcast.custom_agents.errors import Rejected
from threadcast.custom_agents.values import decoded, encoded
from threadcast_protocol.wire.events import Question
from threadcast_protocol.wire.mending import mend_text
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["ask_question", "question_of"]


def question_of(text: str, options: Sequence[str], schema: JsonObject | None) -> Question:
    """Return a question. Raises ValueError: the question cannot be asked."""
    question = Question(text=mend_text(text), options=list(options), schema=schema)
    check_question(question)
    return question


async def ask_question(
    execution: Execution, branch: Branch, key: str, found: Operation | None, question: Question
) -> Any:  # Any: JSON that fits the question
    """Ask people `question` and return their answer, or return the recorded answer. Raises Rejected: the person
    declined to answer."""
    if found is None:
        run, durable = execution.run_open, execution.durable
        value = encoded(question)
        found = Operation(
            kind="ask",
            name=question.text[:NAME_MAX_CHARACTERS],
            status="begun",
            digest=digest([value]),
            value=value,
            ref=_ref(run.run_id, durable.restarts, key),
            at_ms=execution.chat.now_ms(),
        )
        begun = found
        await execution.commit(branch, lambda builder: _begin(execution, builder, key, begun, question))
    if found.status == "begun":
        try:
            await execution.wait_for(branch, Wait(key=key, on="decision", ref=found.ref))
        finally:
            if execution.stays and not execution.is_over:
                ref = found.ref
                await execution.commit(branch, lambda builder: withdraw_questions(builder, [ref]))
        gate = execution.run_open.gates[found.ref]
        if gate.status == "rejected":
            found = replace(found, status="failed", error=OperationError("Rejected", gate.note or ""))
        else:
            answer = (gate.edited_input or {}).get("answer")
            found = replace(found, status="done", value=encoded(answer))
        await execution.record(branch, key, found)
    if found.error is not None:
        raise Rejected(found.error.message)
    return decoded(found.value or "null", Any)


def _ref(run_id: str, restarts: int, key: str) -> str:
    """Return the id of a question. The id contains the key of the operation, or a digest of a key that a framework has
    chosen."""
    named = digest([key])[:32] if key.startswith("@") else key.replace(".", "-")
    return f"ask-{run_id}-{restarts}-{named}"


def _begin(execution: Execution, builder: EntryBuilder, key: str, begun: Operation, question: Question) -> None:
    record(builder, key, begun)
    run = builder.state.private.run
    if execution.stays and run is not None:  # otherwise the question is asked when the function is suspended
        ask_people(builder, [question_reason(builder.state.chat_id, run.run_id, begun.ref, question)])
