"""A second implementation of a chat, as simple as possible: a dict of nodes, a path, a queue.

The model is written from PROTOCOL alone. The model shares no code with `protocol/`, so that it does not repeat a
mistake of that package; only the demo models' texts come from the product. The model has neither times nor the server's
ids: messages are numbers in the order of their creation, and the test that drives a real server beside it maps ids to
numbers.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.integration.tree_model import ECHO, HANG, HANG_AT_ONCE, Call, Node, TreeModel
from tests.integration.wishes import Asked, Decided

__all__ = ["ChatModel"]


@dataclass
class Run:
    model: str
    continues: int | None = None
    draft: int | None = None
    before: str | None = None
    rounds: int = 0
    open: list[Call] = field(default_factory=list)
    published: list[Call] = field(default_factory=list)
    asking: list[Call] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)


class _No(Exception):
    """A refusal, with its code."""


class ChatModel(TreeModel):
    """One chat. `acks` maps each request to its ack on the stream, which is True or the code of the refusal."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: list[Asked] = []
        self.run: Run | None = None
        self.model = ECHO
        self.keeps_partial = True
        self.allowed = False
        self.resting_state = "idle"
        self.outcome: str | None = None
        self.runs_ended = 0
        self.exists = False
        self.acks: dict[str, list[bool | str]] = {}

    # The requests to the model.

    def ask(self, asked: Asked) -> None:
        """Add a command to the queue: commands with priority come before all others, the rest in the order of arrival.
        A command that interrupts ends the run and comes next."""
        self._ack(asked.request_id, True)
        if asked.interrupt:
            self.queue.insert(0, replace(asked, priority=True))
            self._stop()
        else:
            first = sum(1 for item in self.queue if item.priority)
            self.queue.insert(first if asked.priority else len(self.queue), asked)
        self._go_on()

    def refuse(self, request_id: str, code: str) -> None:
        """Record a command that was refused before it reached the queue."""
        self._ack(request_id, code)

    def set_params(self, request_id: str, *, model: str | None, keeps_partial: bool | None) -> None:
        self.model = self.model if model is None else model
        self.keeps_partial = self.keeps_partial if keeps_partial is None else keeps_partial
        self._ack(request_id, True)

    def abort(self, request_id: str, *, is_other_run: bool, clear: bool) -> None:
        if not is_other_run and clear:
            for item in self.queue:
                self._ack(item.request_id, "cancelled")
            self.queue = []
        if not is_other_run:
            self._stop()
        self._ack(request_id, True)
        self._go_on()

    def decide(self, request_id: str, decisions: Sequence[Decided]) -> None:
        run = self.run
        known = [d for d in decisions if run is not None and d.call in run.asking]
        if run is None or not known:
            self._ack(request_id, "no_pending_decision")
            return
        run.decided += known
        run.asking = [call for call in run.asking if all(d.call is not call for d in known)]
        self.allowed = self.allowed or any(d.accepted and d.remember for d in known)
        self._ack(request_id, True)
        self._go_on()

    def take_result(self, request_id: str, call: Call | None, text: str, *, failed: bool) -> None:
        run = self.run
        if run is None or call is None or call not in run.open or call not in run.published:
            self._ack(request_id, "no_pending_decision")
            return
        self._answer(run, call, text, failed=failed)
        self._ack(request_id, True)
        self._go_on()

    def select(self, request_id: str, target: int | None) -> None:
        if self.run is not None:
            self._ack(request_id, "conflict")
        elif target is None:
            self._ack(request_id, "not_found")
        else:
            self.path = self._down_from(target)
            self._ack(request_id, True)

    def edit_queued(
        self, request_id: str, target: str, text: str | None, position: int | None, *, interrupt: bool
    ) -> None:
        at = next((i for i, item in enumerate(self.queue) if item.request_id == target), None)
        if at is None:
            self._ack(request_id, "not_found")
            return
        item = self.queue[at]
        if text is not None and item.kind not in ("say", "retry", "update"):
            self._ack(request_id, "bad_request")
            return
        item = item if text is None else replace(item, text=text)
        del self.queue[at]
        if interrupt:
            item, at = replace(item, priority=True), 0
        elif position is not None:
            first = sum(1 for other in self.queue if other.priority)
            low, high = (0, first) if item.priority else (first, len(self.queue))
            at = min(max(position, low), high)
        self.queue.insert(at, item)
        self._ack(request_id, True)
        if interrupt:
            self._stop()
            self._go_on()

    def cancel(self, target: str) -> bool:
        waits = any(item.request_id == target for item in self.queue)
        if waits:
            self.queue = [item for item in self.queue if item.request_id != target]
            self._ack(target, "cancelled")
        return waits

    def restore(self, request_id: str, messages: Sequence[tuple[str, str]]) -> None:
        if self.nodes or self.run is not None or self.queue:
            self._ack(request_id, "conflict")
            return
        for role, text in messages:
            self._append(Node(role, text, self._leaf))
        self._ack(request_id, True)

    def fork(self, request_id: str, target: int | None) -> "ChatModel":
        """Return the fork that a `branch_from_chat` makes of this chat."""
        new = ChatModel()
        new.exists = True
        if target is None:
            new._ack(request_id, "not_found")
            return new
        new.model, new.keeps_partial = self.model, self.keeps_partial
        for key in self._way_to(target):
            new._append(replace(self.nodes[key], parent=new._leaf))
        new._ack(request_id, True)
        return new

    # The visible state of the model.

    @property
    def state(self) -> str:
        if self.run is None:
            return self.resting_state
        if self.run.draft is not None:
            return "generating"
        return "paused" if self.run.asking else "waiting_ide"

    @property
    def shown_outcome(self) -> str | None:
        return self.outcome if self.run is None else None

    @property
    def waiting_calls(self) -> list[Call]:
        """Return the calls that a client must carry out."""
        return [] if self.run is None else [call for call in self.run.published if call in self.run.open]

    # These methods take the head of the queue when the chat rests.

    def _go_on(self) -> None:
        while True:
            if self.run is None:
                if not self.queue:
                    return
                self._take_up()
            elif not self._step(self.run):
                return

    def _take_up(self) -> None:
        first = self.queue[0]
        batch = [first]
        if first.is_plain:
            batch += itertools.takewhile(lambda item: item.is_plain, self.queue[1:])
        self.queue = self.queue[len(batch) :]
        try:
            match first.kind:
                case "say":
                    for item in batch:
                        self._append(Node("user", item.text, self._leaf))
                    self._open(batch[-1].model)
                case "retry":
                    self._retry(first)
                case "regenerate":
                    self.path = self.path[: self._regenerate_from(self.path, first)]
                    self._open(first.model)
                case "update":
                    self._update(first)
                case "remove":
                    self._remove(first)
                case "continue":
                    self._continue(first)
        except _No as refusal:
            self._ack(first.request_id, str(refusal))

    def _retry(self, asked: Asked) -> None:
        if asked.index > len(self.path):
            raise _No("not_found")
        cut = self.path[asked.index :]
        if cut and asked.prune:
            self._drop(cut[0])
        self.path = self.path[: asked.index]
        self._append(Node("user", asked.text, self._leaf))
        self._open("")

    def _regenerate_from(self, path: list[int], asked: Asked) -> int:
        """Return the number of messages that remain on the path."""
        roles = [self.nodes[key].role for key in path]
        if not path:
            raise _No("not_found")
        if asked.is_named:
            if asked.target not in path:
                raise _No("not_found")
            at = path.index(asked.target)
            stays = at if roles[at] == "assistant" else at + 1
        elif roles[-1] == "assistant":
            after_user = max((i + 1 for i, role in enumerate(roles) if role == "user"), default=0)
            stays = next(i for i in range(after_user, len(roles)) if roles[i] == "assistant")
        else:
            stays = len(path)
        if "user" not in roles[:stays]:
            raise _No("bad_request")
        return stays

    def _update(self, asked: Asked) -> None:
        target = asked.target
        if target is None or target not in self.nodes:
            raise _No("not_found")
        if (asked.branch or asked.regenerate) and target not in self.path:
            raise _No("not_found")
        if asked.branch:
            at = self.path.index(target)
            self.path = self.path[:at]
            old = self.nodes[target]
            self._append(Node(old.role, asked.text, self._leaf, [], old.answers, old.failed))
        else:
            self.nodes[target].text = asked.text
            if asked.regenerate:
                self.path = self.path[: self._end_of_exchange(self.path.index(target))]
        if asked.regenerate:
            self._open("")

    def _remove(self, asked: Asked) -> None:
        target = asked.target
        if target is None or target not in self.nodes:
            raise _No("not_found")
        nodes, path = dict(self.nodes), list(self.path)
        parent = self.nodes[target].parent
        was_on_path = target in self.path
        self._drop(target)
        left = self.children(parent)
        if was_on_path and left:
            self.path = self._down_from(left[-1])
        if asked.regenerate:
            try:
                stays = self._regenerate_from(self.path, Asked("", "regenerate"))
            except _No:
                self.nodes, self.path = nodes, path  # refused as a whole
                raise
            self.path = self.path[:stays]
            self._open("")

    def _continue(self, asked: Asked) -> None:
        if asked.target not in self.path:
            raise _No("not_found")
        at = self.path.index(asked.target)
        node = self.nodes[asked.target]
        if node.role != "assistant":
            raise _No("bad_request")
        end = self._end_of_exchange(at)
        if end < len(self.path):
            raise _No("conflict")
        if not node.calls:
            self._open("")
            assert self.run is not None
            self.run.continues = asked.target
        elif end - at - 1 == len(node.calls):
            self._open("")
        else:
            if not any(self.nodes[key].role == "user" for key in self.path[:at]):
                raise _No("bad_request")
            self.path = self.path[:at]
            self._open("")

    # A run.

    def _open(self, model: str) -> None:
        self.run = Run(model)
        self.resting_state = "idle"

    def _stop(self) -> None:
        """End the open run as an abort does."""
        run = self.run
        if run is None:
            return
        if run.draft is not None:
            self._close_draft(run, run.draft)
        for call in list(run.open):
            self._answer(run, call, "Aborted by the user before it finished.", failed=True)
        self._end("aborted")

    def _end(self, outcome: str) -> None:
        self.run = None
        self.outcome = outcome
        self.runs_ended += 1
        self.resting_state = "error" if outcome == "error" else "idle"

    def _step(self, run: Run) -> bool:
        """Continue the run; return False if only a command can continue it."""
        if run.draft is not None or run.asking:
            return False
        if run.rounds and self._is_steered():
            for call in list(run.open):
                self._answer(run, call, "Interrupted by a new message before it was run.", failed=True)
            self._end("interrupted")
            return True
        if not run.open:
            self._ask_model(run)
            return True
        run.published += [c for c in run.open if c.name == "open_file" and c not in run.published]
        undecided = [c for c in run.open if c.name == "write_note" and all(d.call is not c for d in run.decided)]
        if undecided and not self.allowed:
            run.asking = undecided
            return False
        for call in [c for c in run.open if c.name == "write_note"]:
            decision = next((d for d in run.decided if d.call is call), Decided(call, accepted=True))
            if decision.accepted:
                note = decision.edited or call.arguments
                self._answer(run, call, f"Wrote {note['name']} ({len(note['text'].encode())} bytes).", failed=False)
            else:
                self._answer(run, call, "The call was denied by user.", failed=True)
        return not run.open

    def _is_steered(self) -> bool:
        if not self.queue or not self.queue[0].priority:
            return False
        return self.queue[0].kind not in ("update", "remove") or self.queue[0].regenerate

    def _ask_model(self, run: Run) -> None:
        """Write one answer. The answer is complete at once, or hangs, or fails because the demo model cannot continue
        this history."""
        model = run.model or self.model
        goes_on = run.continues if run.rounds == 0 else None
        run.rounds += 1
        text, calls = self.words_of_model(model, [key for key in self.path if key != goes_on])
        if goes_on is not None and not text.startswith(self.nodes[goes_on].text):
            self._end("error")
            return
        if goes_on is None:
            self._append(Node("assistant", "", self._leaf))
            goes_on = self.path[-1]
        elif model in (HANG, HANG_AT_ONCE):
            run.before = self.nodes[goes_on].text
        self.nodes[goes_on].text = text
        self.nodes[goes_on].calls = calls
        run.open = list(calls)
        if model in (HANG, HANG_AT_ONCE):
            run.draft = goes_on
        elif not calls:
            self._end("complete")

    def _close_draft(self, run: Run, draft: int) -> None:
        node = self.nodes[draft]
        if run.before is not None:
            node.text = node.text if self.keeps_partial else run.before
        elif not (self.keeps_partial and node.text):
            self._drop(draft)

    def _answer(self, run: Run, call: Call, text: str, *, failed: bool) -> None:
        self._append(Node("tool", text, self._leaf, answers=call, failed=failed))
        run.open.remove(call)

    def _ack(self, request_id: str, word: bool | str) -> None:
        self.acks.setdefault(request_id, []).append(word)
