"""The answer to one message: its text, or its pieces as the model writes them.

The answer follows the chat's events with its own reader, from the message to the end of its run (PROTOCOL §5), through
lost connections and restarted workers. `text` equals the server's text. Pieces that were returned cannot be taken back,
so `restarts` counts how often the answer began again after a crash.
"""

from collections.abc import AsyncGenerator, Generator
from typing import Any

from threadcast_client.errors import AnswerFailed
from threadcast_client.listeners import ChatItem, Events
from threadcast_client.sent import Sent
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.events import (
    AT_REST,
    Ack,
    ErrorHappened,
    MessageAdded,
    MessageRemoved,
    MessageUpdated,
    RuntimeUpdated,
    Snapshot,
    StreamDelta,
    StreamStarted,
)
from threadcast_protocol.wire.failures import Failure, failure_of
from threadcast_protocol.wire.messages import Message, text_of

__all__ = ["Answer"]


class Answer:
    """The answer to one message. Use either `await answer` for the whole text or `async for piece in answer`, once.

    `sent` is the handle of the message. `run_id` is set when the run has begun, `outcome` when the run has ended.
    `restarts` counts how often the server took back text that was returned already.
    """

    def __init__(self, sent: Sent, events: Events) -> None:
        self.sent = sent
        self.run_id: str | None = None
        self.outcome: str | None = None
        self.restarts = 0
        self._events = events
        self._run_now: str | None = None
        self._texts: dict[str, str] = {}
        self._shown: dict[str, str] = {}
        self._failure: Failure | None = None
        self._pieces: AsyncGenerator[str, None] | None = None

    @property
    def text(self) -> str:
        """The last answer of the run so far. Answers of earlier rounds are in `texts`."""
        return next((text for text in reversed(self._texts.values()) if text), "")

    @property
    def texts(self) -> list[str]:
        """The text of each round, without rounds in which the model only called tools."""
        return [text for text in self._texts.values() if text]

    def __aiter__(self) -> AsyncGenerator[str, None]:
        """Yield the pieces of the text. A blank line separates two answers of one run.

        Raises:
            AnswerFailed: the run did not end with a complete answer.
            Refused: the message was refused.
        """
        if self._pieces is None:
            self._pieces = self._follow()
        return self._pieces

    def __await__(self) -> Generator[Any, Any, str]:  # Any: values that only the event loop sends and receives
        return self._to_the_end().__await__()

    async def _to_the_end(self) -> str:
        async for _ in self:
            pass
        return self.text

    async def _follow(self) -> AsyncGenerator[str, None]:
        async for item in self._events:
            self._take(item)
            for piece in self._unshown():
                yield piece
            if self.outcome is not None:
                break
        if self.outcome != "complete":
            why = self._failure or Failure(code="", message=f"the run ended: {self.outcome}")
            raise AnswerFailed(
                why.message, outcome=self.outcome or "", text=self.text, code=why.code, reason=why.reason
            )

    def _take(self, item: ChatItem) -> None:
        match item:
            case Snapshot():
                self._take_snapshot(item)
            case RuntimeUpdated():
                self._run_now = item.run_id
                if self.run_id is not None and item.state in AT_REST and item.outcome is not None:
                    self.outcome = item.outcome
            case MessageAdded(message=message) if message.client_request_id == self.sent.request_id:
                self.run_id = self._run_now
            case Ack(client_request_id=self.sent.request_id, accepted=False):
                assert self.sent.refused is not None  # the chat passes an ack to `sent` before its readers get it
                raise self.sent.refused
            case _ if self.run_id is not None:
                self._take_of_run(item)
            case _:
                if self.sent.refused is not None:  # the answer to the POST has refused the message, without an event
                    raise self.sent.refused

    def _take_of_run(self, item: ChatItem) -> None:
        match item:
            case StreamStarted(message_id=message_id, run_id=self.run_id) if not item.append:
                self._texts[message_id] = ""
            case StreamDelta(message_id=message_id, ops=ops) if message_id in self._texts:
                grown = [op.text for op in ops if isinstance(op, AppendContent)]
                self._texts[message_id] += "".join(grown)
            case MessageAdded(message=message) if message.role == "assistant" and not message.hidden:
                self._texts[message.message_id] = text_of(message.content)
            case MessageUpdated(message_id=message_id, message=message) if message_id in self._texts:
                self._texts[message_id] = text_of(message.content)
            case MessageRemoved(message_id=message_id):
                if self._texts.pop(message_id, "") and self._shown.pop(message_id, ""):
                    self.restarts += 1
            case ErrorHappened(run_id=self.run_id):
                reason = (item.details or {}).get("reason")
                self._failure = Failure(code=item.code, message=item.message, reason=str(reason or ""))

    def _take_snapshot(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot after events were missed."""
        runtime = snapshot.runtime
        self._run_now = runtime.run_id
        own = [at for at, each in enumerate(snapshot.messages) if each.client_request_id == self.sent.request_id]
        if not own:
            if self.run_id is not None:
                self.outcome = "lost"
            elif self.sent.refused is not None:
                raise self.sent.refused
            return
        answers = _answers_after(snapshot.messages, own[-1])
        is_last = own[-1] + 1 + len(answers) == len(snapshot.messages)
        if self.run_id is None:
            self.run_id = runtime.run_id if is_last else ""
        before, self._texts = self._texts, {}
        for message in answers:
            if message.role == "assistant" and not message.hidden:
                self._texts[message.message_id] = text_of(message.content)
        for message_id in before.keys() - self._texts.keys():
            if self._shown.pop(message_id, ""):
                self.restarts += 1
        if not is_last or runtime.run_id != self.run_id:
            self.outcome = "complete"  # another run has begun since, and the snapshot does not tell how this run ended
        elif runtime.state in AT_REST and runtime.outcome is not None:
            self.outcome = runtime.outcome
            self._failure = failure_of(snapshot.messages[-1])

    def _unshown(self) -> list[str]:
        """Return the pieces that were not returned yet."""
        pieces: list[str] = []
        for message_id, text in self._texts.items():
            shown = self._shown.get(message_id, "")
            if text == shown or not text:
                continue
            if not shown and any(self._shown.values()):
                pieces.append("\n\n")
            if text.startswith(shown):
                pieces.append(text[len(shown) :])
            elif not shown.startswith(text):  # a text that was only shortened (PROTOCOL §5) is not a restart
                self.restarts += 1
                pieces.append(text)
            self._shown[message_id] = text
        return pieces


def _answers_after(messages: list[Message], at: int) -> list[Message]:
    """Return the messages from a user message to the next user message. Consecutive user messages belong to the same
    turn."""
    rest = messages[at + 1 :]
    while rest and rest[0].role == "user":
        rest = rest[1:]
    end = next((index for index, message in enumerate(rest) if message.role == "user"), len(rest))
    return rest[:end]
