"""The rules of PROTOCOL §4 and §5 that the events of every stream must keep; the transcripts do not repeat them.

A `Law` takes the events of one chat, each with the folded state after it. A `Law` raises no errors: each violation
becomes a sentence in `broken`, and with this sentence the player fails the transcript. The module is pure.
"""

from collections import Counter

from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.events import AT_REST, FINAL_TOOL_STATUSES
from threadcast_protocol.wire.ids import Position
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Law"]

MANY_ID_MAX_CHARACTERS = 2_560
"""Maximum length of an id on a stream of several chats: 2.5 kB (PROTOCOL §4)."""


class Law:
    """Checks the events of one chat on one stream. Call `see` for each frame, and `at_end` when the chat rests.

    `has_plain_ids`: ids have the form `<epoch>-<position>-<base>`. `is_resumed`: the stream may begin without a
    snapshot.
    """

    def __init__(self, chat_id: str, *, has_plain_ids: bool, is_resumed: bool) -> None:
        self.broken: list[str] = []
        self._chat_id = chat_id
        self._has_plain_ids = has_plain_ids
        self._stream_position: Position | None = None
        """The position in the last id, on a stream of one chat."""
        self._next_seq: int | None = None if is_resumed else 0
        """The `seq` of the next frame; None before the first frame of a resumed stream."""
        self._has_begun = is_resumed
        self._streaming: str | None = None
        self._awaits_word: str | None = None
        """The id of an answer whose stream is finished, but whose final form or removal has not arrived yet."""
        self._runs: dict[str, bool] = {}
        """Maps the id of each run to whether the run has ended."""
        self._acks: dict[str, list[bool]] = {}
        self._told: set[str] = set()
        """Request ids of commands whose ack was in a snapshot."""
        self._calls: Counter[str] = Counter()
        """Maps each tool call of a finished answer to the number of its results."""
        self._finished_tools: set[str] = set()

    @property
    def _open_answer(self) -> str | None:
        return self._streaming or self._awaits_word

    def see(self, frame: JsonObject, event_id: str, state: ChatState | None) -> None:
        """Check a frame. `state`: the state after the frame, None if the frame could not be decoded."""
        kind = frame.get("type")
        seq = frame.get("seq")
        if not self._has_begun and kind != "snapshot":
            self._break(f"the stream begins with {kind}, not with a snapshot")
        number = int(seq) if isinstance(seq, str) and seq.isdecimal() else None
        expected = 0 if kind == "snapshot" else number if self._next_seq is None else self._next_seq
        if seq != str(expected):
            self._break(f"{kind} has seq {seq!r} where {str(expected)!r} must follow")
        self._next_seq = (number if number is not None else expected or 0) + 1
        self._has_begun = True
        if not event_id:
            self._break(f"{kind} with seq {seq} has no id to resume from")
        else:
            self._see_id(event_id, kind, number)
        see = getattr(self, f"_see_{kind}", None)
        if see is not None and state is not None:
            see(frame, state)

    def at_end(self, accepted: set[str], refused: Counter[str]) -> None:
        """Check that no answer, run or tool call is open.

        `accepted`: request ids of commands that must have an ack. `refused`: maps request ids to the number of refused
        POSTs, each of which may have caused an ack.
        """
        if self._open_answer:
            self._break(f"the stream of {self._open_answer} was never closed")
        for run_id, has_ended in self._runs.items():
            if not has_ended:
                self._break(f"run {run_id} has no runtime_updated at rest with an outcome")
        for call_id, count in self._calls.items():
            if count != 1:
                self._break(f"tool call {call_id} was answered {count} times")
        for request_id in sorted(accepted - self._acks.keys() - self._told):
            self._break(f"the accepted command {request_id!r} has no ack")
        for request_id, words in self._acks.items():
            if words.count(True) > 1 or words.count(False) > 1 + refused[request_id]:
                self._break(f"the command {request_id!r} has the acks {words}")

    def _break(self, sentence: str) -> None:
        self.broken.append(sentence)

    def _see_id(self, event_id: str, kind: object, seq: int | None) -> None:
        """Check an id. On a stream of one chat it has the form `<epoch>-<position>-<base>`, and `seq` equals position
        minus base."""
        if not self._has_plain_ids:
            if len(event_id) > MANY_ID_MAX_CHARACTERS:
                self._break(f"an id has {len(event_id)} characters, more than {MANY_ID_MAX_CHARACTERS}")
            return
        before, self._stream_position = self._stream_position, Position.parse(event_id)
        if self._stream_position is None:
            self._break(f"the id {event_id!r} of {kind} is not <epoch>-<position>-<base>")
            return
        stream_position = self._stream_position
        if seq is not None and stream_position.position - stream_position.base != seq:
            self._break(f"the id {event_id!r} of {kind} does not fit seq {seq}: seq is position minus base")
        if (
            before is not None
            and kind != "snapshot"
            and (stream_position.position, stream_position.base) != (before.position + 1, before.base)
        ):
            self._break(f"the id {event_id!r} of {kind} does not follow {before}")

    def _see_snapshot(self, frame: JsonObject, state: ChatState) -> None:
        self._told.update(ack.client_request_id for ack in state.recent_acks)
        self._awaits_word = None
        self._streaming = state.draft.message.message_id if state.draft is not None else None
        self._runs = dict.fromkeys(self._runs, True)  # runs may have ended between the last event and the snapshot
        if (run_id := state.runtime.run_id) is not None:
            self._runs[run_id] = state.is_at_rest
        self._calls = Counter({key: count for key, count in self._calls.items() if count})

    def _see_ack(self, frame: JsonObject, state: ChatState) -> None:
        words = self._acks.setdefault(str(frame.get("client_request_id")), [])
        words.append(frame.get("accepted") is True)

    def _see_stream_started(self, frame: JsonObject, state: ChatState) -> None:
        message_id = str(frame.get("message_id"))
        if self._open_answer:
            self._break(f"the stream of {message_id} starts before {self._open_answer} is closed")
        self._streaming, self._awaits_word = message_id, None
        self._see_run(frame.get("run_id"), "stream_started")

    def _see_stream_delta(self, frame: JsonObject, state: ChatState) -> None:
        if frame.get("message_id") != self._streaming:
            self._break(f"a delta is for {frame.get('message_id')}, which is not being written")
        for op in frame.get("ops", ()):
            if op.get("op") in ("append_content", "append_reasoning") and not op.get("text"):
                self._break("a delta appends an empty text")

    def _see_stream_finished(self, frame: JsonObject, state: ChatState) -> None:
        message_id = str(frame.get("message_id"))
        if message_id != self._streaming:
            self._break(f"stream_finished is for {message_id}, which is not being written")
        self._streaming, self._awaits_word = None, message_id

    def _see_message_added(self, frame: JsonObject, state: ChatState) -> None:
        message = frame.get("message", {})
        message_id, index = message.get("message_id"), frame.get("index")
        if not isinstance(index, int) or state.path[index : index + 1] != (message_id,):
            self._break(f"message {message_id} was added at index {index}, but is not there")
        if message_id == self._streaming:
            self._break(f"the final form of {message_id} came before stream_finished")
        if message_id == self._awaits_word:
            self._awaits_word = None
            for call in message.get("tool_calls", ()):
                self._calls.setdefault(call.get("id"), 0)
        if message.get("role") == "tool" and message.get("tool_call_id") in self._calls:
            self._calls[message["tool_call_id"]] += 1

    def _see_message_removed(self, frame: JsonObject, state: ChatState) -> None:
        if frame.get("message_id") == self._streaming:
            self._streaming = None
        if frame.get("message_id") == self._awaits_word:
            self._awaits_word = None

    def _see_runtime_updated(self, frame: JsonObject, state: ChatState) -> None:
        run_id = frame.get("run_id")
        if frame.get("state") not in AT_REST:
            self._see_run(run_id, "runtime_updated")
            return
        if self._open_answer:
            self._break(f"the chat rests while {self._open_answer} is not closed")
        if isinstance(run_id, str) and frame.get("outcome") is not None:
            if self._runs.get(run_id):
                self._break(f"run {run_id} ends a second time")
            self._runs[run_id] = True

    def _see_run(self, run_id: object, kind: str) -> None:
        if not isinstance(run_id, str):
            return
        if self._runs.setdefault(run_id, False):
            self._break(f"{kind} is of run {run_id}, which has ended already")

    def _see_tool_status(self, frame: JsonObject, state: ChatState) -> None:
        call_id = str(frame.get("tool_call_id"))
        if call_id in self._finished_tools:
            self._break(f"tool_status {frame.get('status')} is for {call_id}, which has ended already")
        if frame.get("status") in FINAL_TOOL_STATUSES:
            self._finished_tools.add(call_id)
