"""Every command, in any order and state, over real HTTP, compared with a model of the chat.

After each step the stream must reach the state of the model: the text, role, order and siblings of each message, the
queue, the open questions and every ack. Then a fresh snapshot must equal the folded states of three readers: one that
stays connected, one that disconnects and resumes with its last id, and one whose stream also carries two other chats.
"""

import uuid
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.integration.chat_machine import SETTLE_SECONDS, UNKNOWN, ChatMachine
from tests.integration.chat_model import ChatModel
from tests.integration.tabs import Tabs, open_tabs
from tests.integration.tree_model import ECHO, HANG, HANG_AT_ONCE, TOOLS
from tests.integration.wishes import Asked, Decided
from tests.support.server import started_server
from threadcast_protocol.wire.messages import JsonObject

CONFIG = """
[models]
default = "demo/echo?rate=0"

[limits]
stream_openings_per_second = 1000

[tools.open_file]
policy = "client"
description = "Opens a file in the editor."
"""

MODELS = st.sampled_from(["", "", ECHO, TOOLS, HANG, HANG_AT_ONCE])
PICKS = st.integers(0, 40)
SOMETIMES = st.integers(0, 4).map(lambda n: n == 0)
DECISIONS = st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans(), SOMETIMES), min_size=1, max_size=2)
TEXTS = st.sampled_from(["words", "words", "note", "open", "both"])


@pytest.fixture(scope="module")
def tabs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabs]:
    base = tmp_path_factory.mktemp("model")
    with started_server(base, is_durable=True, config=CONFIG) as process, open_tabs(process.wait_ready().url) as opened:
        yield opened


class Commands(ChatMachine):
    # Commands that wait in the queue.

    @rule(kind=TEXTS, model=MODELS, priority=SOMETIMES, interrupt=SOMETIMES)
    def say(self, kind: str, model: str, priority: bool, interrupt: bool) -> None:
        model = TOOLS if kind != "words" and not model else model
        text = self.words(kind)
        asked = Asked(self.name(), "say", text, priority, model, interrupt=interrupt)
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

    # Commands that take effect at once.

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
    @rule(pick=PICKS, edits=st.booleans(), position=st.sampled_from([None, 0, 1, 5]), interrupt=SOMETIMES)
    def edit_queued(self, pick: int, edits: bool, position: int | None, interrupt: bool) -> None:
        target = self.waiting(pick)
        text = self.words("words") if edits else None
        fields: JsonObject = {} if text is None else {"content": text}
        if position is not None:
            fields["position"] = position
        if interrupt:
            fields["interrupt"] = True
        request_id = self.act("edit_queued", target_request_id=target, **fields)
        assert request_id is not None
        self.model.edit_queued(request_id, target, text, position, interrupt=interrupt)
        self.settle()

    @precondition(lambda self: self.model.run is not None)
    @rule(pick=PICKS)
    def cancel(self, pick: int) -> None:
        target = self.waiting(pick)
        answer = self.tabs.request("DELETE", f"/v1/chats/{self.chat_id}/queue/{target}")
        self.tell(f"cancel {target} -> {answer.status_code}")
        assert answer.status_code == (200 if self.model.cancel(target) else 404)
        self.settle()

    # Requests that are not new commands.

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
        self.model.exists = True  # its refusal is sent to the chat's readers
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
        """Look at another chat; then stay there if `stays`, else return."""
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
        """On the stream of many chats, another chat sends an event in between."""
        body: JsonObject = {"type": "user_message", "client_request_id": self.name(), "content": "beside"}
        self.tabs.request("POST", f"/v1/chats/{self.neighbours[is_left]}/commands", body)
        self.tell("a neighbour speaks")


@pytest.mark.row("EVT-2")
def test_whatever_is_commanded_the_chat_is_what_the_model_says_for_every_reader(tabs: Tabs) -> None:
    class Machine(Commands):
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
            phases=(Phase.explicit, Phase.generate),  # without shrinking, which takes too long
            suppress_health_check=list(HealthCheck),
        ),
    )
