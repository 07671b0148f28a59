"""What the model sees of a chat: the active path, without what is not meant for it, shortened where that is asked for
(HIST-1..6).

Pass-through roles (`event`, `diff`, `plan`, …) never reach a model. An answer that was cut off is shown with what it
has; one that has nothing is left out. A call without its result (an imported chat, a foreign client) is left out, and
so is a result without its call. A summary stands for what it covers. Nothing is ever deleted: only this view shrinks.
"""

import msgspec
from msgspec.structs import replace

from protocol.messages import JsonObject, Message
from protocol.params import effective
from protocol.state import ChatState, Summary
from server.agent.calls.hiding import true_call
from server.agent.history.compaction import cut_point, is_bounded

__all__ = ["View", "compaction_of", "model_view", "view_of"]

MODEL_ROLES = frozenset({"user", "assistant", "system", "tool"})


class View(msgspec.Struct, frozen=True):
    """All that a model may see, before it is shortened. `summary` stands before `messages`; `runs_from` is the index in
    them of the question that the open run answers; `cut` is how many of them are too many (HIST-2)."""

    summary: Summary | None
    messages: list[Message]
    runs_from: int
    cut: int

    @property
    def size(self) -> int:
        return len(self.messages) + (self.summary is not None)


def model_view(state: ChatState, defaults: JsonObject) -> list[Message]:
    """The messages of the active path for the next model call; the open draft is not among them. `defaults` are the
    parameters of the chat's profile."""
    view = view_of(state, defaults)
    messages = with_asides(state, view.messages[view.cut :])
    return [view.summary.message, *messages] if view.summary is not None else messages


def compaction_of(state: ChatState, defaults: JsonObject) -> JsonObject | None:
    """What `thread_updated` says about a view that left something out (HIST-6); None when it did not."""
    if not is_bounded(state, defaults):
        return None  # without making a view of a long path, twice for every round
    view = view_of(state, defaults)
    if not view.cut:
        return None
    after = view.size - view.cut
    return {"strategy": "truncate", "before": view.size, "after": after, "covered": view.cut, "elapsed_ms": 0}


def view_of(state: ChatState, defaults: JsonObject) -> View:
    """The path as a model may see it, and where it would have to be cut."""
    drafted = state.draft.message.message_id if state.draft is not None else None
    question = _question_index(state)
    earlier = {key: index for index, key in enumerate(state.path[:question])}
    summary = _summary_on(state, earlier)
    begin = earlier[summary.last] + 1 if summary is not None else 0
    path = [state.nodes[key] for key in state.path[begin:] if key != drafted]
    without_tools = effective(state, "history_tools", defaults).value == "none"
    answered = {message.tool_call_id for message in path if message.role == "tool"}
    called: set[str] = set()
    view: list[Message] = []
    runs_from = 0
    for message in path:
        is_earlier = message.message_id in earlier
        if message.role not in MODEL_ROLES or (without_tools and is_earlier and message.role == "tool"):
            continue
        if message.role == "assistant":
            calls = [] if without_tools and is_earlier else [c for c in message.tool_calls if c.id in answered]
            called.update(call.id for call in calls)
            if not calls and not message.content:
                continue
            if message.tool_calls:
                message = replace(message, tool_calls=[true_call(state, call) for call in calls])
            view.append(message)
        elif message.role != "tool" or message.tool_call_id in called:
            withheld = state.private.withheld.get(message.message_id)
            view.append(message if withheld is None else replace(message, content=withheld))
        else:
            continue
        runs_from += is_earlier
    if called:
        view = _results_in_call_order(view)
    return View(summary, view, runs_from, cut_point(state, defaults, view, runs_from))


def _results_in_call_order(view: list[Message]) -> list[Message]:
    """Results stand in the log as they came, and several editors answer in any order; a model reads them in the order
    of its calls (LOOP-3)."""
    place = 0
    rank: dict[str | None, int] = {}
    keyed: list[tuple[int, int, Message]] = []
    for message in view:
        if message.role != "tool":
            place += 1
            rank = {call.id: index for index, call in enumerate(message.tool_calls)}
        keyed.append((place, rank.get(message.tool_call_id, -1) if message.role == "tool" else -1, message))
    return [message for _, _, message in sorted(keyed, key=lambda each: each[:2])]


def _summary_on(state: ChatState, earlier: dict[str, int]) -> Summary | None:
    """The summary that covers most of this path. One whose last message lies on another branch says nothing here; on
    this path, all before that message is what it covers, since a message has one parent for ever."""
    held = [summary for summary in state.private.summaries if summary.last in earlier]
    return max(held, key=lambda summary: earlier[summary.last], default=None)


def with_asides(state: ChatState, kept: list[Message]) -> list[Message]:
    """The messages set aside for the model, in their places: never between a call and its results. One whose place is
    not in the view is left out with it."""
    if not state.private.asides:
        return kept
    shown = {message.message_id for message in kept}
    set_aside: dict[str | None, list[Message]] = {}
    for aside in state.private.asides:
        set_aside.setdefault(aside.after, []).append(aside.message)
    place: str | None = None
    asides: dict[str | None, list[Message]] = {}
    for key in (None, *state.path):
        place = key if key in shown else place
        asides.setdefault(place, []).extend(set_aside.get(key, []))
    view: list[Message] = []
    waiting: list[Message] = asides.get(None, []) if state.path and kept and state.path[0] in shown else []
    for message in kept:
        if message.role != "tool":
            view += waiting
            waiting = []
        view.append(message)
        waiting = waiting + asides.get(message.message_id, [])
    return view + waiting


def _question_index(state: ChatState) -> int:
    """Where on the path the user messages begin that the open run answers."""
    run = state.private.run
    index = min(run.first_index, len(state.path)) if run is not None else len(state.path)
    if index < len(state.path) and state.nodes[state.path[index]].role == "user":
        return index
    while index > 0 and state.nodes[state.path[index - 1]].role != "user":
        index -= 1
    return max(0, index - 1)
