"""What holds on every stream whatever was said on it: the rules of PROTOCOL §4 and §5 that no transcript repeats.

A `Law` watches one stream, event by event, beside the state that the events fold to. It never raises: what is broken
becomes a sentence in `broken`, and the player fails the transcript with it. Pure.
"""

from collections import Counter

from protocol.events import AT_REST, FINAL_TOOL_STATUSES
from protocol.ids import Position
from protocol.messages import JsonObject
from protocol.state import ChatState

__all__ = ["Law"]

MANY_ID_MAX_CHARACTERS = 2_560
"""Of an id on a stream of several chats: PROTOCOL §4 says 2.5 kB."""


class Law:
    """`see` each frame after it was folded; `at_end` when the chat rests."""

    def __init__(self, chat_id: str, *, has_plain_ids: bool, is_resumed: bool) -> None:
        self.broken: list[str] = []
        self._chat_id = chat_id
        self._has_plain_ids = has_plain_ids
        self._place: Position | None = None
        """What the last id of a stream of one chat told."""
        self._next_seq: int | None = None if is_resumed else 0
        """None: the first frame of a resumed stream says where it goes on."""
        self._has_begun = is_resumed
        self._streaming: str | None = None
        self._awaits_word: str | None = None
        """An answer whose stream is finished, and whose final form or removal must follow."""
        self._runs: dict[str, bool] = {}
        """Run id to whether it has ended."""
        self._acks: dict[str, list[bool]] = {}
        self._told: set[str] = set()
        """Commands whose outcome a snapshot held: its reader missed the ack itself."""
        self._calls: Counter[str] = Counter()
        """Tool calls of finished answers to how often they were answered."""
        self._finished_tools: set[str] = set()

    def see(self, frame: JsonObject, event_id: str, state: ChatState | None) -> None:
        """`state` is the one after this frame; None when the frame has not the shape of its type."""
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
        """Nothing may be left open. `accepted`: ids of commands that must have an ack; `refused`: ids to how often
        their POST was refused, each of which may have told so."""
        if self._streaming or self._awaits_word:
            self._break(f"the stream of {self._streaming or self._awaits_word} was never closed")
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
        """On a stream of one chat an id is `<epoch>-<position>-<base>`, and `seq` is position less base."""
        if not self._has_plain_ids:
            if len(event_id) > MANY_ID_MAX_CHARACTERS:
                self._break(f"an id has {len(event_id)} characters, more than {MANY_ID_MAX_CHARACTERS}")
            return
        before, self._place = self._place, Position.parse(event_id)
        if self._place is None:
            self._break(f"the id {event_id!r} of {kind} is not <epoch>-<position>-<base>")
            return
        place = self._place
        if seq is not None and place.position - place.base != seq:
            self._break(f"the id {event_id!r} of {kind} does not go with seq {seq}: seq is position less base")
        if (
            before is not None
            and kind != "snapshot"
            and (place.position, place.base) != (before.position + 1, before.base)
        ):
            self._break(f"the id {event_id!r} of {kind} does not follow on {before}")

    def _see_snapshot(self, frame: JsonObject, state: ChatState) -> None:
        self._told.update(ack.client_request_id for ack in state.recent_acks)
        self._awaits_word = None
        self._streaming = state.draft.message.message_id if state.draft is not None else None
        self._runs = dict.fromkeys(self._runs, True)  # what ended in between, nobody told
        if (run_id := state.runtime.run_id) is not None:
            self._runs[run_id] = state.is_at_rest
        self._calls = Counter({key: count for key, count in self._calls.items() if count})

    def _see_ack(self, frame: JsonObject, state: ChatState) -> None:
        words = self._acks.setdefault(str(frame.get("client_request_id")), [])
        words.append(frame.get("accepted") is True)

    def _see_stream_started(self, frame: JsonObject, state: ChatState) -> None:
        message_id = str(frame.get("message_id"))
        if self._streaming or self._awaits_word:
            self._break(f"the stream of {message_id} starts before {self._streaming or self._awaits_word} is closed")
        self._streaming, self._awaits_word = message_id, None
        self._see_run(frame.get("run_id"), "stream_started")

    def _see_stream_delta(self, frame: JsonObject, state: ChatState) -> None:
        if frame.get("message_id") != self._streaming:
            self._break(f"a delta for {frame.get('message_id')}, which is not being written")
        for op in frame.get("ops", ()):
            if op.get("op") in ("append_content", "append_reasoning") and not op.get("text"):
                self._break("a delta appends an empty text")

    def _see_stream_finished(self, frame: JsonObject, state: ChatState) -> None:
        message_id = str(frame.get("message_id"))
        if message_id != self._streaming:
            self._break(f"stream_finished for {message_id}, which is not being written")
        self._streaming, self._awaits_word = None, message_id

    def _see_message_added(self, frame: JsonObject, state: ChatState) -> None:
        message = frame.get("message", {})
        message_id, index = message.get("message_id"), frame.get("index")
        if not isinstance(index, int) or state.path[index : index + 1] != (message_id,):
            self._break(f"message {message_id} was added at index {index}, and does not stand there")
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
        if self._streaming or self._awaits_word:
            self._break(f"the chat rests while {self._streaming or self._awaits_word} is not closed")
        if isinstance(run_id, str) and frame.get("outcome") is not None:
            if self._runs.get(run_id):
                self._break(f"run {run_id} ends a second time")
            self._runs[run_id] = True

    def _see_run(self, run_id: object, kind: str) -> None:
        if not isinstance(run_id, str):
            return
        if self._runs.setdefault(run_id, False):
            self._break(f"{kind} of run {run_id}, which had ended")

    def _see_tool_status(self, frame: JsonObject, state: ChatState) -> None:
        call_id = str(frame.get("tool_call_id"))
        if call_id in self._finished_tools:
            self._break(f"tool_status {frame.get('status')} for {call_id}, which had ended")
        if frame.get("status") in FINAL_TOOL_STATUSES:
            self._finished_tools.add(call_id)
