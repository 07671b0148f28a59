"""The context of a state machine: a chat of a real server, three readers of the chat, and a model that predicts the
chat's state.

The context posts a command, waits until the stream has reached the predicted state, and compares both states. The rules
in `test_model_http.py` choose the commands.
"""

import itertools
import json
import uuid

from hypothesis.stateful import RuleBasedStateMachine, initialize

from tests.integration.chat_model import ChatModel
from tests.integration.tabs import Tab, TabOfMany, Tabs
from tests.integration.wishes import Asked
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.events import RuntimeUpdated
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["SETTLE_SECONDS", "UNKNOWN", "ChatMachine"]

SETTLE_SECONDS = 30.0
"""Seconds that one step may take: steps take milliseconds, and only an error takes longer."""

UNKNOWN = "no-such-thing"


class ChatMachine(RuleBasedStateMachine):
    """A chat of a real server, its readers and its model. `test_model_http.py` has the actions on the chat."""

    tabs: Tabs

    def __init__(self) -> None:
        super().__init__()
        self.names = itertools.count(1)
        self.readers: list[Tab] = []
        self.history: list[str] = []

    def tell(self, line: str) -> None:
        self.history.append(line)

    # Where we are.

    @initialize()
    def begin(self) -> None:
        self.neighbours = [f"{name}-{uuid.uuid4().hex[:12]}" for name in ("left", "right")]
        self.move_to(f"m-{uuid.uuid4().hex[:12]}", ChatModel())

    def move_to(self, chat_id: str, model: ChatModel) -> None:
        """Use this chat, with its readers, from now on."""
        self.end()
        self.chat_id, self.model = chat_id, model
        self.ids: dict[int, str] = {}
        self.call_ids: dict[int, str] = {}
        self.posted: dict[str, JsonObject] = {}
        self.refused: list[JsonObject] = []
        self.stayed, self.comes_and_goes = Tab(self.tabs, chat_id), Tab(self.tabs, chat_id)
        self.readers = [self.stayed, self.comes_and_goes, TabOfMany(self.tabs, chat_id, self.neighbours)]
        for reader in self.readers:
            reader.come()
        self.tell(f"chat {chat_id}")

    def end(self) -> None:
        for reader in self.readers:
            reader.leave()
        self.readers = []

    def teardown(self) -> None:
        if self.readers:
            body: JsonObject = {"type": "abort", "client_request_id": "the-end", "clear_queue": True}
            self.tabs.request("POST", f"/v1/chats/{self.chat_id}/commands", body)
        self.end()

    # Posts to the server.

    def name(self) -> str:
        return f"r{next(self.names)}"

    def send(self, body: JsonObject, *statuses: int, chat_id: str = "") -> str:
        """Post a command; the answer must have one of these statuses, or 404 if the chat does not exist."""
        answer = self.tabs.request("POST", f"/v1/chats/{chat_id or self.chat_id}/commands", body)
        said = answer.json()
        self.tell(f"{body} -> {answer.status_code} {said}")
        assert answer.status_code in statuses, (body, answer.status_code, said)
        if answer.status_code in (200, 202) and not chat_id:
            self.posted[str(body["client_request_id"])] = body
        return str(said.get("status", said.get("code")))

    def queue(self, asked: Asked, **fields: object) -> None:
        """Send a command that may wait in the queue."""
        kinds = {"say": "user_message", "retry": "retry_from_index", "continue": "continue_message"}
        kind = kinds.get(asked.kind, f"{asked.kind}_message" if asked.kind != "regenerate" else asked.kind)
        body: JsonObject = {"type": kind, "client_request_id": asked.request_id, **fields}
        if asked.priority:
            body["priority"] = True
        if asked.interrupt:
            body["interrupt"] = True
        self.model.exists = self.model.exists or asked.kind in ("say", "retry")
        if not self.model.exists:
            assert self.send(body, 404) == "not_found"
            self.posted.pop(asked.request_id, None)
            return
        assert self.send(body, 202) == "accepted"
        self.model.ask(asked)
        self.settle()

    def act(self, kind: str, **fields: object) -> str | None:
        """Send a command that takes effect at once; returns None if the chat does not exist. The caller must apply the
        command to the model afterwards."""
        request_id = self.name()
        body: JsonObject = {"type": kind, "client_request_id": request_id, **fields}
        if self.model.exists:
            self.send(body, 200, 202)
            return request_id
        assert self.send(body, 404) == "not_found"
        return None

    def target(self, pick: int) -> tuple[int | None, str]:
        """Return the id of a message that the stream has shown, on the active path or off it; sometimes return an id
        that does not exist."""
        known = [key for key in self.model.nodes if key in self.ids]
        if pick % 8 == 7 or not known:
            return None, UNKNOWN
        key = known[pick % len(known)]
        return key, self.ids[key]

    def words(self, kind: str) -> str:
        number = next(self.names)
        # The text has letters instead of digits, because the demo model would answer digits as arithmetic.
        letters = "".join("abcdefghij"[int(digit)] for digit in str(number))
        note_line = f'call write_note {{"name":"n{number}.md","text":"{"x" * (number % 7)}"}}'
        open_line = f'call open_file {{"path":"f{number}"}}'
        match kind:
            case "note":
                return note_line
            case "open":
                return open_line
            case "both":
                return f"{note_line}\n{open_line}"
            case _:
                return f"alpha {letters}"

    # The checks that must hold.

    def settle(self) -> None:
        """Compare server, model and readers; a failure reports all commands of the chat."""
        try:
            self.compare_with_model()
            self.compare_readers()
        except AssertionError as wrong:
            told = "\n".join(self.history)
            raise AssertionError(f"{wrong}\n{told}") from wrong

    def compare_with_model(self) -> None:
        """Wait until the stream has reached the state that the model predicts."""
        came = self.tabs.call(
            lambda: self.stayed.until(lambda w: w.state and self.seen(w.state) == self.expected(), 5.0)
        )
        state = self.stayed.watcher.state
        assert state is not None
        assert came, f"the model says {self.expected()}\nthe stream   {self.seen(state)}"
        self.learn_ids(state)

    def expected(self) -> JsonObject:
        model = self.model
        return {
            "messages": [(model.nodes[key].role, model.nodes[key].text, model.nodes[key].failed) for key in model.path],
            "runs": model.runs_ended,
            "state": model.state,
            "outcome": model.shown_outcome,
            "queue": [item.request_id for item in model.queue],
            "asking": [call.name for call in model.run.asking] if model.run else [],
            "waiting_calls": [call.name for call in model.waiting_calls],
            "acks": model.acks,
        }

    def seen(self, state: ChatState) -> JsonObject:
        messages = snapshot_of(state).messages
        runtime = state.runtime
        acks: dict[str, list[bool | str]] = {}
        for ack in state.recent_acks:
            word = True if ack.accepted else str(ack.result["code"])
            acks.setdefault(ack.client_request_id, []).append(word)
        return {
            "messages": [(m.role, m.content, bool(m.tool_failed)) for m in messages],
            "runs": sum(1 for e in self.stayed.watcher.events if isinstance(e, RuntimeUpdated) and e.outcome),
            "state": runtime.state,
            "outcome": runtime.outcome,
            "queue": [item.client_request_id for item in runtime.queued_items],
            "asking": [reason.tool_name for reason in runtime.pause_reasons],
            "waiting_calls": [call.tool_name for call in runtime.ide_calls],
            "acks": acks,
        }

    def learn_ids(self, state: ChatState) -> None:
        """Map each new message of the model to an id by its place in the tree; siblings are in the order of their
        creation."""
        drafted = state.draft.message.message_id if state.draft is not None else None
        for key, message in zip(self.model.path, snapshot_of(state).messages, strict=True):
            node = self.model.nodes[key]
            siblings = self.model.children(node.parent)
            shown = [message.message_id] if message.message_id == drafted else message.sibling_ids
            if message.message_id != drafted:
                assert len(shown) == len(siblings), (message, siblings)
                assert message.sibling_index == siblings.index(key)
                for sibling, message_id in zip(siblings, shown, strict=True):
                    assert self.ids.setdefault(sibling, message_id) == message_id
            assert self.ids.setdefault(key, message.message_id) == message.message_id
            assert [call.name for call in node.calls] == [call.function.name for call in message.tool_calls]
            for mine, call in zip(node.calls, message.tool_calls, strict=True):
                assert self.call_ids.setdefault(id(mine), call.id) == call.id
            if node.answers is not None:
                assert self.call_ids[id(node.answers)] == message.tool_call_id
        assert len(set(self.ids.values())) == len(self.ids)

    def compare_readers(self) -> None:
        fresh = Tab(self.tabs, self.chat_id)
        fresh.come()
        try:
            assert self.tabs.call(lambda: fresh.until(lambda w: w.state, SETTLE_SECONDS))
            for reader in self.readers:
                if reader.is_here:
                    self.compare(reader, fresh)
        finally:
            fresh.leave()

    def compare(self, one: Tab, other: Tab) -> None:
        def position(tab: Tab) -> int:
            return -1 if tab.watcher.state is None else tab.watcher.state.position

        async def level() -> list[JsonObject] | None:
            behind = one if position(one) < position(other) else other
            if not await behind.until(lambda _: position(one) == position(other) >= 0, SETTLE_SECONDS):
                return None
            return [json.loads(tab.watcher.snapshot) for tab in (one, other)]  # no await, so neither state changes

        shown = self.tabs.call(level)
        assert shown is not None, f"one reader stands at {position(one)}, a fresh one at {position(other)}"
        differing = {key: [side.get(key) for side in shown] for key in shown[0] if shown[0][key] != shown[1].get(key)}
        last = [frame["type"] for frame in one.watcher.frames[-12:]]
        assert not differing, f"folded and fresh differ at {position(one)} after {last}: {differing}"
