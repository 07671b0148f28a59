"""`ask`: sends a message, reports its progress, asks a person if the run waits, and returns the answer.

The answer is a stream of JSON-RPC messages, of which the last is the result. Up to revision 2025-11-25 the server sends
each question as a request on that stream, and the client posts the answer. Any process may receive this answer, so the
id of the request identifies the question. From 2026-07-28 on a pause ends the stream with `input_required`, and the
client repeats its call with the answers and with `requestState`.
"""

from collections.abc import AsyncIterator, Callable, Collection
from itertools import takewhile

import anyio
import msgspec
from starlette.types import Receive, Scope, Send

from threadcast.api.errors import answer
from threadcast.api.opening import goodbye
from threadcast.api.run_watch import RunWatch
from threadcast.compat.base import OutFrame, Projection, RunSlice, appended_text, json_frame
from threadcast.compat.mcp.decisions import decision_of, elicitation_of, is_question, pending_of
from threadcast.compat.mcp.messages import Envelope, RequestId, notification, reply, tool_failure
from threadcast.compat.run_answer import RunAnswer
from threadcast_protocol.fold.reducer import reduce
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.commands import Decision
from threadcast_protocol.wire.errors import Refused
from threadcast_protocol.wire.events import Ack, Event, PauseReason, RuntimeUpdated, StreamDelta
from threadcast_protocol.wire.messages import JsonObject, text_of

__all__ = ["AskAnswer", "AskRun", "AskStream", "Asked", "asked_in", "decisions_of", "request_state", "state_in"]


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """The question that a request of this server to the client asks. The JSON of this struct is the id of that
    request."""

    chat_id: str
    tool_call_id: str
    input_hash: str


class _RequestState(msgspec.Struct, frozen=True, array_like=True):
    chat_id: str
    request_id: str


def asked_in(request_id: object) -> Asked | None:
    """Return the question that a client's message answers; None if the id was not made by this server."""
    try:
        return msgspec.json.decode(request_id, type=Asked) if isinstance(request_id, str) else None
    except msgspec.MsgspecError:
        return None


def request_state(chat_id: str, request_id: str) -> str:
    return msgspec.json.encode(_RequestState(chat_id, request_id)).decode()


def state_in(text: object) -> tuple[str, str] | None:
    """Return the chat and the command of a repeated call; None if the text is not a valid `requestState`. The text
    comes from the client, so the chat and the command are checked like any other input."""
    try:
        found = msgspec.json.decode(text, type=_RequestState) if isinstance(text, str) else None
    except msgspec.MsgspecError:
        return None
    return None if found is None else (found.chat_id, found.request_id)


def decisions_of(state: ChatState, answers: object) -> list[Decision]:
    """Return the decisions in `inputResponses`, by the ids of the calls that the chat still waits for."""
    given = answers if isinstance(answers, dict) else {}
    found = []
    for reason in state.runtime.pause_reasons:
        told = given.get(_key_of(reason))
        decision = decision_of(reason, told) if isinstance(told, dict) else None
        if decision is not None:
            found.append(decision)
    return found


def _key_of(reason: PauseReason) -> str:
    """Return the key of a question in `inputRequests`. The key contains the hash of the shown arguments, so that an old
    answer is not mistaken for an answer to a new question."""
    return f"{reason.tool_call_id}.{reason.input_hash}"


class AskRun(RunSlice):
    """Finds the run of a message, and keeps the chat's state after each event. The answers to the commands `decisions`
    are also events of the run."""

    state: ChatState

    def __init__(self, request_id: str, decisions: Collection[str] = ()) -> None:
        super().__init__(request_id)
        self._decisions = frozenset(decisions)

    def take(self, event: Event) -> bool:
        self.state = reduce(self.state, self.state.position + 1, event)
        return super().take(event) or (isinstance(event, Ack) and event.client_request_id in self._decisions)


class AskStream(Projection):
    """Makes the messages that answer one call of `ask`.

    `decided` are the keys of questions that this call has answered. `may_approve` is true if the caller's token may
    approve calls; any caller may answer questions.
    """

    def __init__(
        self,
        chat_id: str,
        call_id: RequestId,
        envelope: Envelope,
        run: AskRun,
        request_id: str,
        *,
        may_approve: bool,
        decided: frozenset[str] = frozenset(),
        is_left_open: bool = False,
    ) -> None:
        super().__init__(chat_id)
        self._call_id = call_id
        self._envelope = envelope
        self._run = run
        self._request_id = request_id
        self._may_approve = may_approve
        self._decided = decided
        self._is_left_open = is_left_open
        self._told: set[str] = set()
        self._characters = 0

    def body(self) -> JsonObject:
        """Return {}, because the answer is always a stream."""
        return {}

    def join(self, state: ChatState) -> list[OutFrame]:
        self._run.state = state
        message = self._message()
        if message is None:
            return []  # the call has just been posted
        is_last = message == next((key for key in reversed(state.path) if state.nodes[key].role == "user"), None)
        if state.is_at_rest or not is_last:  # a later message has another run
            self.is_done = True
            return self._last((is_last and state.runtime.outcome) or "complete")
        self._run.run_id = state.runtime.run_id
        return self._at_pause() if state.runtime.pause_reasons else []

    def _message(self) -> str | None:
        """Return the id of the call's own message in the chat."""
        nodes = self._run.state.nodes.values()
        return next((each.message_id for each in nodes if each.client_request_id == self._request_id), None)

    def _pause(self, event: Event) -> list[OutFrame]:
        # An approval pauses its run, and this pause is the next event; the question of a tool does not pause the run.
        reasons = self._run.state.runtime.pause_reasons
        is_told = isinstance(event, RuntimeUpdated) or any(is_question(reason) for reason in reasons)
        return self._at_pause() if is_told else []

    def _at_pause(self) -> list[OutFrame]:
        reasons = self._run.state.runtime.pause_reasons
        if any(_key_of(reason) in self._decided for reason in reasons):
            return []  # the decisions of this call have not taken effect yet
        asked = [reason for reason in reasons if self._may_approve or is_question(reason)]
        if not self._envelope.can_elicit or self._is_left_open or not asked:
            return self._paused()
        if self._envelope.is_alone:
            requests = {
                _key_of(reason): {"method": "elicitation/create", "params": {"mode": "form", **elicitation_of(reason)}}
                for reason in asked
            }
            self.is_done = True
            state = request_state(self.chat_id, self._request_id)
            return [self._frame({"resultType": "input_required", "inputRequests": requests, "requestState": state})]
        frames = []
        for reason in asked:
            if (key := _key_of(reason)) not in self._told:
                self._told.add(key)
                own = msgspec.json.encode(Asked(self.chat_id, reason.tool_call_id, reason.input_hash or "")).decode()
                request = {
                    "jsonrpc": "2.0",
                    "id": own,
                    "method": "elicitation/create",
                    "params": elicitation_of(reason),
                }
                frames.append(json_frame("message", request))
        return frames

    def leave(self) -> list[OutFrame]:
        """Return the last message after a person has left a question undecided."""
        return [] if self.is_done else self._paused()

    def _paused(self) -> list[OutFrame]:
        self.is_done = True
        return self._last("paused")

    def _show(self, event: Event) -> list[OutFrame]:
        # a decision was refused, because it was too late or the caller may not decide
        if isinstance(event, Ack) and not event.accepted:
            self._decided = frozenset()
            return self._paused() if self._run.state.runtime.pause_reasons else []
        if self._envelope.progress_token is None or not isinstance(event, StreamDelta):
            return []
        text = appended_text(event)
        if not text:
            return []
        self._characters += len(text)
        told = {"progressToken": self._envelope.progress_token, "progress": self._characters, "message": text}
        return [json_frame("message", notification("notifications/progress", told))]

    def _last(self, outcome: str) -> list[OutFrame]:
        return [self._frame(self._result(outcome))]

    def _frame(self, result: JsonObject) -> OutFrame:
        return json_frame("message", reply(self._call_id, result))

    def _result(self, outcome: str) -> JsonObject:
        """Return the result of the call. Answers of several rounds are separated by an empty line."""
        state = self._run.state
        path = list(state.path)
        own = self._message()
        after = (state.nodes[key] for key in path[path.index(own) + 1 :]) if own in path else iter(())
        turn = takewhile(lambda node: node.role != "user", after)
        answers = [node for node in turn if node.role == "assistant"]
        text = "\n\n".join(filter(None, (text_of(each.content) for each in answers)))
        told: JsonObject = {
            "chat_id": self.chat_id,
            "message_id": answers[-1].message_id if answers else "",
            "text": text,
            "state": outcome,
            "pending": pending_of(state.runtime.pause_reasons) if outcome == "paused" else [],
        }
        shown = text
        if outcome == "paused":
            waits = "; ".join(each["message"] for each in told["pending"]) or "something"
            shown = f"{text}\n\nThe run waits for: {waits}. The chat's id is {self.chat_id}.".strip()
        elif self.failure is not None:
            shown = f"{text}\n\n{self.failure.message} ({self.failure.code})".strip()
        return {
            "content": [{"type": "text", "text": shown}],
            "structuredContent": told,
            "isError": outcome not in ("complete", "paused"),
            **({"resultType": "complete"} if self._envelope.is_alone else {}),
        }


class AskAnswer(RunAnswer):
    """The answer to a call of `ask`. If the message cannot be posted, the call's result contains the reason. `forget`
    is called when the answer ends."""

    def prepare(self, call_id: RequestId, chat_id: str) -> None:
        """Set the call's ids. Call this method before the answer begins, in the task that serves the request."""
        self.chat_id = chat_id
        self.forget: Callable[[], object] = lambda: None
        self._call_id = call_id
        self._cancelled = anyio.Event()
        self._is_left_open = False

    def cancel(self) -> None:
        """Abort the run and end the stream, as `notifications/cancelled` requests."""
        self._cancelled.set()

    def leave_open(self) -> None:
        """End the stream at the next check, because the person has left a question undecided."""
        self._is_left_open = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
            if self._cancelled.is_set():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except Refused as refusal:  # raised by `post`, when nothing has been sent yet
            await answer(200, reply(self._call_id, tool_failure(refusal)))(scope, receive, send)
        finally:
            self.forget()

    async def _listen(self, receive: Receive, telling: anyio.CancelScope) -> None:
        async def await_goodbye() -> None:
            await goodbye(receive)
            self._is_left = True
            telling.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(await_goodbye)
            await self._cancelled.wait()
            self._is_left, self._detaches = True, False
            telling.cancel()

    async def _frames(self, state: ChatState | None, watch: RunWatch) -> AsyncIterator[list[OutFrame]]:
        stream = self._projection
        assert isinstance(stream, AskStream)
        async for frames in super()._frames(state, watch):
            yield [*frames, *(stream.leave() if self._is_left_open else ())]
