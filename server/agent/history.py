"""What the model sees of a chat: the active path, without what is not meant for it, shortened where that is asked for
(HIST-1..6).

Pass-through roles (`event`, `diff`, `plan`, …) never reach a model. An answer that was cut off is shown with what it
has; one that has nothing is left out. A call without its result (an imported chat, a foreign client) is left out, and
so is a result without its call. Nothing is ever deleted: only this view shrinks.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from protocol.messages import JsonObject, Message, text_of
from protocol.params import effective
from protocol.state import ChatState

__all__ = ["compaction_of", "model_view", "shorten"]

MODEL_ROLES = frozenset({"user", "assistant", "system", "tool"})

CHARACTERS_PER_TOKEN = 4
"""What English prose takes in the tokenizers of today; used only to bound a history, never to bill one."""


def model_view(state: ChatState, defaults: JsonObject) -> list[Message]:
    """The messages of the active path for the next model call; the open draft is not among them. `defaults` are the
    parameters of the chat's profile."""
    messages, runs_from = _whole_view(state, defaults)
    return _with_asides(state, messages[_cut(state, defaults, messages, runs_from) :])


def compaction_of(state: ChatState, defaults: JsonObject) -> JsonObject | None:
    """What `thread_updated` says about a shortened view (HIST-6); None when it is whole."""
    messages, runs_from = _whole_view(state, defaults)
    covered = _cut(state, defaults, messages, runs_from)
    if not covered:
        return None
    before = len(messages)
    return {"strategy": "truncate", "before": before, "after": before - covered, "covered": covered, "elapsed_ms": 0}


def _whole_view(state: ChatState, defaults: JsonObject) -> tuple[list[Message], int]:
    """All that a model may see, and the index in it of the first message of the open run with its question."""
    drafted = state.draft.message.message_id if state.draft is not None else None
    path = [state.nodes[key] for key in state.path if key != drafted]
    question = _question_index(state)
    earlier = set(state.path[:question])
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
            view.append(replace(message, tool_calls=calls))
        elif message.role != "tool" or message.tool_call_id in called:
            view.append(message)
        else:
            continue
        runs_from += is_earlier
    return view, runs_from


def _with_asides(state: ChatState, kept: list[Message]) -> list[Message]:
    """What only the model reads, in its places: the withheld text of results, messages set aside. One of these never
    comes between a call and its results; one whose place is not in the view is left out with it."""
    private = state.private
    if not private.asides and not private.withheld:
        return kept
    shown = {message.message_id for message in kept}
    place: str | None = None
    asides: dict[str | None, list[Message]] = {}
    for key in (None, *state.path):
        place = key if key in shown else place
        asides.setdefault(place, []).extend(aside.message for aside in private.asides if aside.after == key)
    view: list[Message] = []
    waiting: list[Message] = asides.get(None, []) if state.path and kept and state.path[0] in shown else []
    for message in kept:
        if message.role != "tool":
            view += waiting
            waiting = []
        text = private.withheld.get(message.message_id)
        view.append(message if text is None else replace(message, content=text))
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


def _cut(state: ChatState, defaults: JsonObject, messages: Sequence[Message], keep_from: int) -> int:
    most = effective(state, "max_history_messages", defaults).value or 0
    at = shorten(messages, most, keep_from=keep_from) if most else 0
    tokens = effective(state, "max_history_tokens", defaults).value
    while tokens and at < keep_from and sum(map(_tokens, messages[at:])) > tokens:
        at = shorten(messages, len(messages) - at - 1, keep_from=keep_from)
    return at


def shorten(messages: Sequence[Message], most: int, *, keep_from: int | None = None) -> int:
    """How many of the oldest messages a view of about `most` leaves out (HIST-3, HIST-5).

    It begins with a user message where there is one late enough, and never between a call and its result; what
    stands at `keep_from` and after it is never left out.
    """
    spare = len(messages) - most
    if spare <= 0:
        return 0
    latest = len(messages) if keep_from is None else keep_from
    at = next((i for i in range(spare, len(messages)) if messages[i].role == "user"), None)
    if at is None:
        at = spare
        while at < len(messages) and messages[at].role == "tool":
            at += 1
    return min(at, latest)


def _tokens(message: Message) -> int:
    characters = len(text_of(message.content)) + sum(len(call.function.arguments) for call in message.tool_calls)
    return characters // CHARACTERS_PER_TOKEN + 1
