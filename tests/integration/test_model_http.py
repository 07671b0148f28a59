"""Every command, in any order and state, over real HTTP, beside a model of what a chat must be.

After each step the stream must come to what the model says: the words, roles, order and siblings of the messages, the
queue, what is asked, every ack. Then a fresh snapshot must equal what was folded by a reader that never left, by one
that leaves and comes back by its last id, and by one on whose stream two other chats speak too.
"""

import itertools
import json
import uuid
from collections.abc import Iterator

import anyio
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from protocol.events import RuntimeUpdated
from protocol.messages import JsonObject
from protocol.snapshot import snapshot_of
from protocol.state import ChatState
from tests.integration.chat_model import Asked, ChatModel, Decided
from tests.integration.harness import start
from tests.integration.tabs import Tab, TabOfMany, Tabs, open_tabs
from tests.integration.tree_model import ECHO, HANG, HANG_AT_ONCE, TOOLS

CONFIG = """
[models]
default = "demo/echo?rate=0"

[tools.open_file]
policy = "client"
description = "Opens a file in the editor."
"""

SETTLE_SECONDS = 5.0
"""Steps take milliseconds; only a mistake takes longer."""

UNKNOWN = "no-such-thing"
MODELS = st.sampled_from(["", "", ECHO, TOOLS, HANG, HANG_AT_ONCE])
PICKS = st.integers(0, 40)
SOMETIMES = st.integers(0, 4).map(lambda n: n == 0)
DECISIONS = st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans(), SOMETIMES), min_size=1, max_size=2)
TEXTS = st.sampled_from(["words", "words", "note", "open", "both"])


@pytest.fixture(scope="module")
def tabs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabs]:
    base = tmp_path_factory.mktemp("model")
    config = base / "threadcast.toml"
    config.write_text(CONFIG)
    arguments = ["serve", "--port", "0", "--data-dir", str(base / "data"), "--config", str(config)]
    with start(*arguments, log=base / "log") as process:
        anyio.run(process.ready)
        with open_tabs(process.url) as opened:
            yield opened


class ChatMachine(RuleBasedStateMachine):
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
        """This chat from now on, with its readers."""
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

    # Saying something to the server.

    def name(self) -> str:
        return f"r{next(self.names)}"

    def send(self, body: JsonObject, *statuses: int, chat_id: str = "") -> str:
        """POST; the answer must have one of these statuses, or 404 where no such chat is."""
        answer = self.tabs.request("POST", f"/v1/chats/{chat_id or self.chat_id}/commands", body)
        said = answer.json()
        self.tell(f"{body} -> {answer.status_code} {said}")
        assert answer.status_code in statuses, (body, answer.status_code, said)
        if answer.status_code in (200, 202) and not chat_id:
            self.posted[str(body["client_request_id"])] = body
        return str(said.get("status", said.get("code")))

    def queue(self, asked: Asked, **fields: object) -> None:
        """A command that may wait for its turn."""
        kinds = {"say": "user_message", "retry": "retry_from_index", "continue": "continue_message"}
        kind = kinds.get(asked.kind, f"{asked.kind}_message" if asked.kind != "regenerate" else asked.kind)
        body: JsonObject = {"type": kind, "client_request_id": asked.request_id, **fields}
        if asked.priority:
            body["priority"] = True
        self.model.exists = self.model.exists or asked.kind in ("say", "retry")
        if not self.model.exists:
            assert self.send(body, 404) == "not_found"
            self.posted.pop(asked.request_id, None)
            return
        assert self.send(body, 202) == "accepted"
        self.model.ask(asked)
        self.settle()

    def act(self, kind: str, **fields: object) -> str | None:
        """A command that acts at once; None where there is no such chat. The model must be told after it."""
        request_id = self.name()
        body: JsonObject = {"type": kind, "client_request_id": request_id, **fields}
        if self.model.exists:
            self.send(body, 200, 202)
            return request_id
        assert self.send(body, 404) == "not_found"
        return None

    def target(self, pick: int) -> tuple[int | None, str]:
        """A message that the stream has shown, on the path or aside; now and then one that is not there."""
        known = [key for key in self.model.nodes if key in self.ids]
        if pick % 8 == 7 or not known:
            return None, UNKNOWN
        key = known[pick % len(known)]
        return key, self.ids[key]

    def words(self, kind: str) -> str:
        number = next(self.names)
        letters = "".join("abcdefghij"[int(digit)] for digit in str(number))  # no sum for the demo model to work out
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

    # Commands that wait for their turn.

    @rule(kind=TEXTS, model=MODELS, priority=SOMETIMES)
    def say(self, kind: str, model: str, priority: bool) -> None:
        model = TOOLS if kind != "words" and not model else model
        text = self.words(kind)
        asked = Asked(self.name(), "say", text, priority, model)
        self.queue(asked, content=text, **({"params": {"model": model}} if model else {}))

    @rule(pick=PICKS, is_named=st.booleans(), model=MODELS, priority=SOMETIMES)
    def regenerate(self, pick: int, is_named: bool, model: str, priority: bool) -> None:
        key, message_id = self.target(pick)
        asked = Asked(self.name(), "regenerate", "", priority, model, key, is_named)
        named = {"message_id": message_id} if is_named else {}
        self.queue(asked, **named, **({"model": model} if model else {}))

    @rule(pick=PICKS)
    def continue_message(self, pick: int) -> None:
        leaf = self.model.path[-1:] if pick % 2 else []
        key, message_id = (leaf[0], self.ids[leaf[0]]) if leaf and leaf[0] in self.ids else self.target(pick)
        self.queue(Asked(self.name(), "continue", target=key), message_id=message_id)

    @rule(pick=PICKS, kind=TEXTS, branch=st.booleans(), regenerate=st.booleans(), priority=SOMETIMES)
    def update_message(self, pick: int, kind: str, branch: bool, regenerate: bool, priority: bool) -> None:
        key, message_id = self.target(pick)
        text = self.words(kind)
        asked = Asked(self.name(), "update", text, priority, target=key, regenerate=regenerate, branch=branch)
        mode = {"mode": "branch"} if branch else {"mode": "in_place"} if pick % 2 else {}
        self.queue(asked, message_id=message_id, content=text, regenerate=regenerate, **mode)

    @rule(pick=PICKS, regenerate=st.booleans())
    def remove_message(self, pick: int, regenerate: bool) -> None:
        key, message_id = self.target(pick)
        asked = Asked(self.name(), "remove", target=key, regenerate=regenerate)
        self.queue(asked, message_id=message_id, regenerate=regenerate)

    @rule(pick=PICKS, kind=TEXTS, prune=st.booleans())
    def retry_from_index(self, pick: int, kind: str, prune: bool) -> None:
        index = pick % (len(self.model.path) + 2)
        text = self.words(kind)
        asked = Asked(self.name(), "retry", text, index=index, prune=prune)
        self.queue(asked, index=index, content=text, prune=prune)

    # Commands that act at once.

    @rule(is_other_run=SOMETIMES, clear=st.booleans())
    def abort(self, is_other_run: bool, clear: bool) -> None:
        request_id = self.name()
        body: JsonObject = {"type": "abort", "client_request_id": request_id, "clear_queue": clear}
        if is_other_run:
            body["run_id"] = UNKNOWN
        self.send(body, 200, 202)
        if self.model.exists:
            self.model.abort(request_id, is_other_run=is_other_run, clear=clear)
            self.settle()
        else:
            del self.posted[request_id]

    @rule(model=MODELS, keeps=st.sampled_from([None, True, False]))
    def set_params(self, model: str, keeps: bool | None) -> None:
        patch: JsonObject = {"model": model} if model else {}
        if keeps is not None:
            patch["on_abort"] = "keep" if keeps else "discard"
        self.model.exists = True
        request_id = self.act("set_params", patch=patch)
        assert request_id is not None
        self.model.set_params(request_id, model=model or None, keeps_partial=keeps)
        self.settle()

    @rule(pick=PICKS)
    def select_branch(self, pick: int) -> None:
        key, message_id = self.target(pick)
        request_id = self.act("select_branch", message_id=message_id)
        if request_id is not None:
            self.model.select(request_id, key)
            self.settle()

    @precondition(lambda self: self.model.run is not None and self.model.run.asking)
    @rule(picks=DECISIONS, as_list=st.booleans())
    def decide(self, picks: list[tuple[int, bool, bool, bool]], as_list: bool) -> None:
        assert self.model.run is not None
        asking = self.model.run.asking
        decisions: list[Decided] = []
        bodies: list[JsonObject] = []
        for pick, accepted, edits, remember in picks:
            call = asking[pick] if pick < len(asking) else None if pick == 3 else asking[0]
            if any(d.call is call for d in decisions):
                continue
            edited = {"name": "edited.md", "text": "edited"} if edits else None
            decisions.append(Decided(call, accepted, edited, remember))
            tool_call_id = UNKNOWN if call is None else self.call_ids[id(call)]
            body: JsonObject = {"tool_call_id": tool_call_id, "accepted": accepted}
            if edited:
                body["edited_input"] = edited
            if remember:
                body["remember"] = "tool"
            bodies.append(body)
        if as_list:
            request_id = self.act("tool_decisions", decisions=bodies)
        else:
            del decisions[1:]
            request_id = self.act("tool_decision", **bodies[0])
        assert request_id is not None
        self.model.decide(request_id, decisions)
        self.settle()

    @rule(is_result=st.booleans())
    def answer_what_nobody_asked(self, is_result: bool) -> None:
        if is_result:
            request_id = self.act("ide_tool_result", tool_call_id=UNKNOWN, content="late")
        else:
            request_id = self.act("tool_decision", tool_call_id=UNKNOWN, accepted=True)
        if request_id is not None:
            if is_result:
                self.model.take_result(request_id, None, "late", failed=False)
            else:
                self.model.decide(request_id, [Decided(None, accepted=True)])
            self.settle()

    @precondition(lambda self: self.model.waiting_calls)
    @rule(failed=st.booleans())
    def ide_tool_result(self, failed: bool) -> None:
        call = self.model.waiting_calls[0]
        text = self.words("words")
        request_id = self.act("ide_tool_result", tool_call_id=self.call_ids[id(call)], content=text, tool_failed=failed)
        assert request_id is not None
        self.model.take_result(request_id, call, text, failed=failed)
        self.settle()

    # The queue.

    def waiting(self, pick: int) -> str:
        names = [item.request_id for item in self.model.queue]
        return names[pick % len(names)] if names and pick % 8 != 7 else UNKNOWN

    @precondition(lambda self: self.model.run is not None)
    @rule(pick=PICKS, edits=st.booleans(), position=st.sampled_from([None, 0, 1, 5]))
    def edit_queued(self, pick: int, edits: bool, position: int | None) -> None:
        target = self.waiting(pick)
        text = self.words("words") if edits else None
        fields: JsonObject = {} if text is None else {"content": text}
        if position is not None:
            fields["position"] = position
        request_id = self.act("edit_queued", target_request_id=target, **fields)
        assert request_id is not None
        self.model.edit_queued(request_id, target, text, position)
        self.settle()

    @precondition(lambda self: self.model.run is not None)
    @rule(pick=PICKS)
    def cancel(self, pick: int) -> None:
        target = self.waiting(pick)
        answer = self.tabs.request("DELETE", f"/v1/chats/{self.chat_id}/queue/{target}")
        self.tell(f"cancel {target} -> {answer.status_code}")
        assert answer.status_code == (200 if self.model.cancel(target) else 404)
        self.settle()

    # What is no new command.

    @precondition(lambda self: self.posted)
    @rule(pick=PICKS, other_body=st.booleans())
    def post_an_id_again(self, pick: int, other_body: bool) -> None:
        body = list(self.posted.values())[pick % len(self.posted)]
        if other_body:
            again: JsonObject = {
                "type": "user_message",
                "client_request_id": body["client_request_id"],
                "content": "other",
            }
            assert self.send(again, 409) == "idempotency_mismatch"
        else:
            assert self.send(body, 200) == "duplicate"
        self.settle()

    @rule(
        content=st.sampled_from(["", "  ", [], 7, [{"type": "nothing"}], [{"type": "text"}]]),
        kind=st.sampled_from(["user_message", "retry_from_index"]),
        then_good=st.booleans(),
    )
    def post_bad_content(self, content: object, kind: str, then_good: bool) -> None:
        request_id = self.name()
        fields: JsonObject = {"index": 0} if kind == "retry_from_index" else {}
        body: JsonObject = {"type": kind, "client_request_id": request_id, "content": content, **fields}
        assert self.send(body, 400) == "invalid_content"
        self.model.exists = True  # its refusal is told to those who watch
        self.model.refuse(request_id, "invalid_content")
        self.settle()
        if then_good:
            self.queue(Asked(request_id, "say", "better"), content="better")

    # Other chats.

    @rule(pick=PICKS, goes_there=st.booleans())
    def branch_from_chat(self, pick: int, goes_there: bool) -> None:
        key, message_id = self.target(pick)
        request_id, new_id = self.name(), f"f-{uuid.uuid4().hex[:12]}"
        fields: JsonObject = {"source_chat_id": self.chat_id, "up_to_message_id": message_id}
        self.send({"type": "branch_from_chat", "client_request_id": request_id, **fields}, 202, chat_id=new_id)
        self.visit(new_id, self.model.fork(request_id, key), goes_there)

    @rule(roles=st.lists(st.sampled_from(["user", "assistant"]), max_size=4), goes_there=st.booleans())
    def restore_messages(self, roles: list[str], goes_there: bool) -> None:
        request_id, new_id = self.name(), f"n-{uuid.uuid4().hex[:12]}"
        told = [(role, self.words("words")) for role in roles]
        messages = [{"role": role, "content": text} for role, text in told]
        body: JsonObject = {"type": "restore_messages", "client_request_id": request_id, "messages": messages}
        self.send(body, 202, chat_id=new_id)
        new = ChatModel()
        new.exists = True
        new.restore(request_id, told)
        self.visit(new_id, new, goes_there)

    @precondition(lambda self: self.model.nodes)
    @rule(is_fork=st.booleans())
    def fill_a_chat_that_is_full(self, is_fork: bool) -> None:
        if is_fork:
            request_id = self.act("branch_from_chat", source_chat_id=self.chat_id, up_to_message_id=UNKNOWN)
        else:
            request_id = self.act("restore_messages", messages=[])
        assert request_id is not None
        self.model.refuse(request_id, "conflict")
        self.settle()

    def visit(self, chat_id: str, model: ChatModel, stays: bool) -> None:
        """Look at another chat; then `stays` there, or come back."""
        before = (self.chat_id, self.model, self.ids, self.call_ids, self.posted, self.stayed, self.comes_and_goes)
        readers, self.readers = self.readers, []
        self.move_to(chat_id, model)
        self.settle()
        if stays:
            for reader in readers:
                reader.leave()
        else:
            self.end()
            self.chat_id, self.model, self.ids, self.call_ids, self.posted, self.stayed, self.comes_and_goes = before
            self.readers = readers
            self.settle()

    @precondition(lambda self: self.model.exists)
    @rule()
    def delete(self) -> None:
        answer = self.tabs.request("DELETE", f"/v1/chats/{self.chat_id}")
        self.tell(f"delete -> {answer.status_code}")
        assert answer.status_code == 200
        assert self.send({"type": "user_message", "client_request_id": "again", "content": "x"}, 404) == "not_found"
        assert self.tabs.request("GET", f"/v1/chats/{self.chat_id}").status_code == 404
        for reader in (self.stayed, self.comes_and_goes):
            over = self.tabs.call(lambda: reader.until(lambda w: w.has_ended, SETTLE_SECONDS))  # noqa: B023 - at once
            assert over or not reader.is_here, "the stream of a chat that is deleted ends"
        self.begin()

    # Readers.

    @rule()
    def a_reader_leaves_or_comes_back(self) -> None:
        self.tell("a reader leaves" if self.comes_and_goes.is_here else "a reader comes back")
        if self.comes_and_goes.is_here:
            self.comes_and_goes.leave()
        else:
            self.comes_and_goes.come()
            self.settle()

    @rule(is_left=st.booleans())
    def a_neighbour_speaks(self, is_left: bool) -> None:
        """On the stream of many something else comes in between."""
        body: JsonObject = {"type": "user_message", "client_request_id": self.name(), "content": "beside"}
        self.tabs.request("POST", f"/v1/chats/{self.neighbours[is_left]}/commands", body)
        self.tell("a neighbour speaks")

    # What must be so.

    def settle(self) -> None:
        """Hold server, model and readers to each other; a failure tells all that was done to the chat."""
        try:
            self.compare_with_model()
            self.compare_readers()
        except AssertionError as wrong:
            told = "\n".join(self.history)
            raise AssertionError(f"{wrong}\n{told}") from wrong

    def compare_with_model(self) -> None:
        """Wait until the stream has come to what the model says."""
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
        """Which message is which: by its place, and the same one for ever; siblings in the order of their making."""
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
            return [json.loads(tab.watcher.snapshot) for tab in (one, other)]  # in one breath: neither moves meanwhile

        shown = self.tabs.call(level)
        assert shown is not None, f"one reader stands at {position(one)}, a fresh one at {position(other)}"
        differing = {key: [side.get(key) for side in shown] for key in shown[0] if shown[0][key] != shown[1].get(key)}
        last = [frame["type"] for frame in one.watcher.frames[-12:]]
        assert not differing, f"folded and fresh differ at {position(one)} after {last}: {differing}"


@pytest.mark.row("EVT-2")
def test_whatever_is_commanded_the_chat_is_what_the_model_says_for_every_reader(tabs: Tabs) -> None:
    class Machine(ChatMachine):
        pass

    Machine.tabs = tabs
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=20,
            deadline=None,
            print_blob=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),  # a failing example is read as it is: shrinking waits too long
            suppress_health_check=list(HealthCheck),
        ),
    )
