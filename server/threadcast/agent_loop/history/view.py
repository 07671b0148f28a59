"""Selects the messages of a chat that a model sees: the active path, without private messages, shortened if the chat
asks for that (HIST-1..6).

Pass-through roles (`event`, `diff`, `plan`, …) never reach a model. An answer that was cut off is shown as far as it
goes; an empty answer is left out. A call without its result, as in an imported chat, is left out, and so is a result
without its call. A summary replaces the messages that it covers. Nothing is deleted from the chat.
"""

import msgspec
from msgspec.structs import replace

from threadcast.agent_loop.calls.hiding import true_call
from threadcast.agent_loop.history.compaction import cut_point, is_bounded
from threadcast.chat.owner_state import OwnerState, Summary
from threadcast.chat.params import effective
from threadcast_protocol.wire.messages import JsonObject, Message

__all__ = ["View", "compaction_of", "model_view", "view_of"]

MODEL_ROLES = frozenset({"user", "assistant", "system", "tool"})


class View(msgspec.Struct, frozen=True):
    """The messages that a model may see, before they are shortened. `summary` comes before `messages`. `runs_from` is
    the index in `messages` of the question that the open run answers. `cut` is the number of oldest messages to leave
    out (HIST-2)."""

    summary: Summary | None
    messages: list[Message]
    runs_from: int
    cut: int

    @property
    def size(self) -> int:
        return len(self.messages) + (self.summary is not None)


def model_view(state: OwnerState, defaults: JsonObject) -> list[Message]:
    """Return the messages of the active path for the next model call, without the open draft. `defaults` are the
    parameters of the chat's profile."""
    view = view_of(state, defaults)
    messages = with_asides(state, view.messages[view.cut :])
    return [view.summary.message, *messages] if view.summary is not None else messages


def compaction_of(state: OwnerState, defaults: JsonObject) -> JsonObject | None:
    """Return the `compaction` of `thread_updated` for a view that leaves messages out (HIST-6); None if the view has
    all messages."""
    if not is_bounded(state, defaults):
        return None  # saves making a view of a long path, twice for every round
    view = view_of(state, defaults)
    if not view.cut:
        return None
    after = view.size - view.cut
    return {"strategy": "truncate", "before": view.size, "after": after, "covered": view.cut, "elapsed_ms": 0}


def view_of(state: OwnerState, defaults: JsonObject) -> View:
    """Return the path as a model may see it, and where it must be cut."""
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
        view = _results_behind_their_calls(view)
    return View(summary, view, runs_from, cut_point(state, defaults, view, runs_from))


def _results_behind_their_calls(view: list[Message]) -> list[Message]:
    """Move the results of each message behind it, in the order of its calls (LOOP-3), as providers require. In the log
    they have the order in which they came, for example from several editors, or from the branches of a durable
    agent."""
    at = {call.id: (number, rank) for number, each in enumerate(view) for rank, call in enumerate(each.tool_calls)}
    number_of = {id(each): number for number, each in enumerate(view)}

    def where(message: Message) -> tuple[int, int]:
        if message.role == "tool" and message.tool_call_id in at:
            return at[message.tool_call_id]
        return number_of[id(message)], -1

    return sorted(view, key=where)


def _summary_on(state: OwnerState, earlier: dict[str, int]) -> Summary | None:
    """Return the summary that covers most of this path. A summary whose last message is on another branch does not
    count. On this path a summary covers everything before its last message, because the parent of a message never
    changes."""
    held = [summary for summary in state.private.summaries if summary.last in earlier]
    return max(held, key=lambda summary: earlier[summary.last], default=None)


def with_asides(state: OwnerState, kept: list[Message]) -> list[Message]:
    """Insert the messages that only the model sees at their places, but never between a call and its results. A message
    whose place is not in the view is left out."""
    if not state.private.asides:
        return kept
    shown = {message.message_id for message in kept}
    set_aside: dict[str | None, list[Message]] = {}
    for aside in state.private.asides:
        set_aside.setdefault(aside.after, []).append(aside.message)
    anchor: str | None = None
    asides: dict[str | None, list[Message]] = {}
    for key in (None, *state.path):
        anchor = key if key in shown else anchor
        asides.setdefault(anchor, []).extend(set_aside.get(key, []))
    view: list[Message] = []
    waiting: list[Message] = asides.get(None, []) if state.path and kept and state.path[0] in shown else []
    for message in kept:
        if message.role != "tool":
            view += waiting
            waiting = []
        view.append(message)
        waiting = waiting + asides.get(message.message_id, [])
    return view + waiting


def _question_index(state: OwnerState) -> int:
    """Return the index on the path of the first user message that the open run answers."""
    run = state.private.run
    index = min(run.first_index, len(state.path)) if run is not None else len(state.path)
    if index < len(state.path) and state.nodes[state.path[index]].role == "user":
        return index
    while index > 0 and state.nodes[state.path[index - 1]].role != "user":
        index -= 1
    return max(0, index - 1)
