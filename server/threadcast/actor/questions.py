"""Questions that a running tool call asks people, through the log of its chat (PROTOCOL §11).

A question is added to the open pause reasons, while the state of the run remains `executing_tools`. The decision is
stored in the log, so the call waits until the folded state changes.
"""

from collections.abc import Sequence
from typing import Any

import anyio
import structlog

from threadcast.actor.processes import NOTE_SECONDS, CommitPort
from threadcast.actor.run_slots import RunSlot
from threadcast.actor.writer import Writer
from threadcast.base.boundary import pass_on
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.owner_state import Gate
from threadcast.chat.questions import ask_people, check_question, question_reason, withdraw_questions
from threadcast.tools.questions import NotAnswered
from threadcast_protocol.wire.events import Question
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["OPEN_QUESTIONS_MAX", "CallQuestions"]

_log = structlog.get_logger()

OPEN_QUESTIONS_MAX = 5
"""The maximum number of open questions of one call. A person reads them one after the other."""


class CallQuestions:
    """The `AskPort` of one call of the tool `tool_name`. `run_task` is the task that carries out the call, with the
    `slot` of its chat. A question is withdrawn after `seconds`."""

    def __init__(self, run_task: CommitPort, slot: RunSlot, writer: Writer, tool_name: str, seconds: float) -> None:
        self._run_task = run_task
        self._slot = slot
        self._writer = writer
        self._tool_name = tool_name
        self._seconds = seconds
        self._open_count = 0

    async def __call__(
        self, text: str, options: Sequence[str] = (), *, schema: JsonObject | None = None
    ) -> Any:  # Any: see `AskPort`
        if self._open_count >= OPEN_QUESTIONS_MAX:
            raise NotAnswered(f"A call has at most {OPEN_QUESTIONS_MAX} questions open at once.", "refused")
        question = Question(text=text, options=list(options), schema=schema)
        self._open_count += 1
        try:
            try:
                # The check runs in a thread, since importing the library of schemas takes 0.1 s.
                await anyio.to_thread.run_sync(check_question, question)
            except (TypeError, ValueError) as wrong:
                raise NotAnswered(f"The question cannot be asked: {wrong}.", "refused") from None
            gate = await self._ask(question)
        finally:
            self._open_count -= 1
        if gate.status == "rejected":
            note = f" Note: {gate.note}" if gate.note else ""
            raise NotAnswered(f"The user did not answer the question.{note}", "rejected")
        if gate.status != "accepted" or gate.edited_input is None:
            raise NotAnswered(f"Nobody answered the question within {self._seconds:g} s.", "late")
        return gate.edited_input["answer"]

    async def _ask(self, question: Question) -> Gate:
        """Publish `question`, wait until a person has decided or the time is over, and return the question's gate."""
        question_id = await self._run_task.commit(lambda builder: _publish(builder, question, self._tool_name))
        try:
            async with self._slot.suspended():  # so that questions of one caller do not stop its other runs
                with anyio.move_on_after(self._seconds):
                    while self._gate(question_id).status == "asked":
                        await self._writer.changed()
            return self._gate(question_id)
        finally:
            if self._gate(question_id).status == "asked":
                await self._withdraw(question_id)

    def _gate(self, question_id: str) -> Gate:
        run = self._writer.state.private.run
        return (run.gates.get(question_id) if run is not None else None) or Gate(status="gone")

    async def _withdraw(self, question_id: str) -> None:
        """Remove the question, also while the call is cancelled. An abort has already removed the question."""
        try:
            with anyio.move_on_after(NOTE_SECONDS, shield=True):
                await self._run_task.commit(lambda builder: withdraw_questions(builder, [question_id]))
        except BaseException as wrong:  # the run or the ownership has ended, which also ended the question
            pass_on(wrong)
            _log.info("question.not_withdrawn", chat_id=self._run_task.state.chat_id, error=type(wrong).__name__)


def _publish(builder: EntryBuilder, question: Question, tool_name: str) -> str:
    run = builder.state.private.run
    question_id = builder.new_id("ask")
    if run is not None:  # the question is open as long as the run's task may commit
        reason = question_reason(builder.state.chat_id, run.run_id, question_id, question, tool_name=tool_name)
        ask_people(builder, [reason])
    return question_id
