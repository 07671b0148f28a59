"""Selects the messages of a chat that a model sees: the messages of the active path, without private messages, and
shortened if the chat's parameters require it (HIST-1..6).

Messages with pass-through roles (`event`, `diff`, `plan`, …) are never sent to a model. The existing text of an
interrupted answer is shown, and an empty answer is left out. A call without a result, which an imported chat may have,
is left out. A result without a call is left out, too. A summary replaces the messages that it covers. Nothing is
deleted from the chat.
"""

import msgspec

from threadcast.agent_loop.history.compaction import cut_point, is_bounded
from threadcast.agent_loop.history.kept_view import KeptView, shown_messages
from threadcast.chat.owner_state import OwnerState, Summary
from threadcast.chat.params import effective
from threadcast.providers.unchanged import Unchanged
from threadcast_protocol.wire.messages import JsonObject, Message

__all__ = ["View", "compaction_of", "messages_of", "model_view", "view_of", "with_asides"]


class View(msgspec.Struct, frozen=True):
    """The messages that a model may see, before they are shortened. `summary` comes before `messages`. `runs_from` is
    the index in `messages` of the question that the open run answers. `cut` is the number of oldest messages to leave
    out (HIST-2). `unchanged` says which of the messages that the model reads are the same in each model call. It is
    None if no such messages are known."""

    summary: Summary | None
    messages: list[Message]
    runs_from: int
    cut: int
    unchanged: Unchanged | None = None

    @property
    def size(self) -> int:
        return len(self.messages) + (self.summary is not None)


def model_view(state: OwnerState, defaults: JsonObject) -> list[Message]:
    """Return the messages of the active path for the next model call, without the open draft. `defaults` are the
    parameters of the chat's profile."""
    return messages_of(state, view_of(state, defaults))


def messages_of(state: OwnerState, view: View) -> list[Message]:
    """Return the messages of `view` that the model reads, beginning with the summary if there is one."""
    messages = with_asides(state, view.messages[view.cut :])
    return [view.summary.message, *messages] if view.summary is not None else messages


def compaction_of(state: OwnerState, defaults: JsonObject) -> JsonObject | None:
    """Return the field `compaction` of the event `thread_updated` if the view leaves messages out (HIST-6), or None if
    the view has all messages."""
    if not is_bounded(state, defaults):
        return None  # avoids making the view of a long path twice in every round
    view = view_of(state, defaults)
    if not view.cut:
        return None
    after = view.size - view.cut
    return {"strategy": "truncate", "before": view.size, "after": after, "covered": view.cut, "elapsed_ms": 0}


def view_of(state: OwnerState, defaults: JsonObject, kept: KeptView | None = None) -> View:
    """Return the messages of the path that a model may see, and where they must be cut. `kept` is a cache of the view
    of earlier messages."""
    drafted = state.draft.message.message_id if state.draft is not None else None
    question = _question_index(state)
    summary, begin = _summary_on(state, question)
    without_tools = effective(state, "history_tools", defaults).value == "none"
    earlier = list(map(state.nodes.__getitem__, state.path[begin:question]))
    later = [state.nodes[key] for key in state.path[question:] if key != drafted]
    if drafted is not None and len(later) == len(state.path) - question:
        earlier = [message for message in earlier if message.message_id != drafted]
    found = kept.view_of(state, earlier, later, without_tools=without_tools) if kept and summary is None else None
    view, runs_from, unchanged = found or (*shown_messages(state, earlier, later, without_tools=without_tools), None)
    cut = cut_point(state, defaults, view, runs_from)
    is_whole = summary is None and not cut and not state.private.asides
    return View(summary, view, runs_from, cut, unchanged if is_whole else None)


def _summary_on(state: OwnerState, question: int) -> tuple[Summary | None, int]:
    """Return the summary that covers the most messages of the path before the index `question`, and the index after the
    last message that this summary covers. Returns None and 0 if there is no such summary. A summary whose last message
    is on another branch is ignored. A summary whose last message is on the path covers all messages of the path before
    that message, because the parent of a message never changes."""
    found, begin = None, 0
    for summary in state.private.summaries:
        if summary.last in state.path[begin:question]:
            found, begin = summary, state.path.index(summary.last, begin) + 1
    return found, begin


def with_asides(state: OwnerState, kept: list[Message]) -> list[Message]:
    """Insert the messages that only the model sees, the asides, at their places, but never between a call and its
    results. An aside whose place is before the beginning of the view is left out."""
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
