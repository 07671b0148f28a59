"""The commands of a live chat that have a method of their own, and the questions that they answer.

`Chat` inherits these methods. Each method builds one command of PROTOCOL §2 and passes it to `Chat.send`.
"""

from abc import ABC, abstractmethod
from typing import Literal

import msgspec

from threadcast_client.errors import Unreachable, Unreadable
from threadcast_client.ids import new_request_id
from threadcast_client.sent import Sent
from threadcast_client.wire import Busy, Wire, path_of
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.commands import Abort, Command, Regenerate, SetParams, ToolDecision
from threadcast_protocol.wire.events import PauseReason
from threadcast_protocol.wire.http import Questions
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["ChatCommands"]


class ChatCommands(ABC):
    """The base class of `Chat`, with the methods that send commands. A subclass sets the attributes and sends the
    commands."""

    id: str
    state: ChatState
    _wire: Wire

    @abstractmethod
    def send(self, what: str | list[JsonObject] | Command | JsonObject, **fields: object) -> Sent:
        """Send a message or a command (see `Chat.send`)."""

    @property
    def questions(self) -> list[PauseReason]:
        """The questions that a person must decide before the run continues (see `decide`), and the questions of running
        tools (type `question`)."""
        runtime = self.state.runtime
        return [reason for reason in runtime.pause_reasons if runtime.paused or reason.type == "question"]

    def abort(self, *, run_id: str | None = None, clear_queue: bool = False) -> Sent:
        """End the open run. Raises the errors of `send`."""
        return self.send(Abort(client_request_id=new_request_id(), run_id=run_id, clear_queue=clear_queue))

    async def read_questions(self) -> list[PauseReason]:
        """Fetch the open questions with all arguments, also those that the stream hides (`hides_input`).

        Raises:
            Refused: the server has refused the request; the code is `forbidden` for a caller who may not approve.
            Unreachable: the server did not answer, or asks to try again later.
            Unreadable: the answer is no list of questions.
        """
        try:
            reply = await self._wire.ask("GET", path_of("chats", self.id, "questions"))
            return msgspec.json.decode(reply.content, type=Questions).questions
        except Busy as busy:
            raise Unreachable(str(busy)) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Unreadable("the answer of the server is no list of questions") from None

    def decide(
        self,
        call_id: str,
        *,
        accepted: bool,
        remember: Literal["call", "tool", "server"] | None = None,
        edited_input: JsonObject | None = None,
        note: str | None = None,
    ) -> Sent:
        """Decide a paused call (PROTOCOL §11), for the arguments that this client has seen.

        Only the first decision takes effect; awaiting a later decision raises `NoPendingDecision`. Raises the errors of
        `send`.
        """
        shown = next((reason.input_hash for reason in self.questions if reason.tool_call_id == call_id), "")
        return self.send(
            ToolDecision(
                client_request_id=new_request_id(),
                tool_call_id=call_id,
                accepted=accepted,
                remember=remember,
                edited_input=edited_input,
                input_hash=shown or None,
                note=note,
            )
        )

    def answer(self, question_id: str, value: object) -> Sent:
        """Answer a question of an agent or a tool (PROTOCOL §11) with `value`, which must be JSON: one of the options,
        a value that fits the schema, or a text. To refuse an answer, use `decide` with `accepted=False`.

        Awaiting the command raises `Refused` with the code `bad_request` if the value does not fit; the question then
        stays open. Raises the errors of `send`.
        """
        return self.decide(question_id, accepted=True, edited_input={"answer": value})

    def decide_preview(self, payload_id: str, *, accepted: bool, note: str | None = None) -> Sent:
        """Decide a preview (PROTOCOL §11), for the data that this client has seen. Raises the errors of `send`."""
        shown = next((payload.input_hash for payload in self.state.payloads if payload.payload_id == payload_id), None)
        return self.send(
            ToolDecision(
                client_request_id=new_request_id(),
                payload_id=payload_id,
                accepted=accepted,
                input_hash=shown,
                note=note,
            )
        )

    def set_params(self, **patch: object) -> Sent:
        """Change parameters of the thread (PROTOCOL §16); None clears a parameter. Raises the errors of `send`."""
        return self.send(SetParams(client_request_id=new_request_id(), patch=patch))

    def regenerate(self, message_id: str | None = None, *, model: str | None = None) -> Sent:
        """Let the model write the last answer again. Raises the errors of `send`."""
        return self.send(Regenerate(client_request_id=new_request_id(), message_id=message_id, model=model))
