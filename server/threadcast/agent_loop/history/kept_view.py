"""Caches the beginning of a chat's view between model calls, so that a model call of a long chat does not process every
message again.

A `KeptView` belongs to the folded state of one chat and is dropped together with that state. The cache compares the
messages that it has seen with the messages of the state. If they differ, for example on another branch, the cache
starts again. The view is therefore the same with and without the cache (`tests/unit/test_kept_view.py`).
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from threadcast.agent_loop.calls.hiding import true_call
from threadcast.chat.owner_state import OwnerState
from threadcast.providers.unchanged import Unchanged
from threadcast_protocol.wire.messages import Message

__all__ = ["KeptView", "shown_messages"]

MODEL_ROLES = frozenset({"user", "assistant", "system", "tool"})

KEPT_MIN_COUNT = 256
"""The minimum number of messages before a question for which a view is cached. Making the view of fewer messages takes
0.2 ms, and a chat at rest must not take more memory to save this time."""

PLACE_BYTES, ID_BYTES, CHANGED_BYTES = 18, 48, 430
"""The memory that Python uses for a cached message: its places in two lists, the id of a call or of a result in a set,
and a copy of a message whose arguments or text differ from the chat's message. The sizes were measured with tracemalloc
(`tests/unit/test_kept_view.py`)."""


class KeptView:
    """Caches the messages of a chat before the open question, as the model reads them. `min_count` is the minimum
    number of messages that is cached."""

    def __init__(self, min_count: int = KEPT_MIN_COUNT) -> None:
        self._min_count = min_count
        self._begin()

    def _begin(self) -> None:
        self._seen: list[Message] = []
        self._view: list[Message] = []
        self._result_ids: set[str] = set()
        self._call_ids: set[str] = set()
        self._changed_count = 0
        self._without_tools = False
        self._withheld: Mapping[str, str] = {}
        self._hidden: Mapping[str, str] = {}
        self._unchanged = Unchanged(0, {})

    @property
    def size_bytes(self) -> int:
        """The memory that this view takes in addition to the state's messages."""
        ids_count = len(self._call_ids) + len(self._result_ids)
        own_bytes = PLACE_BYTES * len(self._seen) + ID_BYTES * ids_count + CHANGED_BYTES * self._changed_count
        return own_bytes + self._unchanged.size_bytes

    def view_of(
        self, state: OwnerState, earlier: list[Message], later: list[Message], *, without_tools: bool
    ) -> tuple[list[Message], int, Unchanged] | None:
        """Return the result of `shown_messages`, and which of the shown messages are unchanged. Returns None if there
        are fewer than `min_count` messages in `earlier`, if `earlier` and `later` contain the id of the same call, or
        if the first message of `later` is not a user's message."""
        if len(earlier) < self._min_count or not later or later[0].role != "user":
            return None
        known = len(self._seen)
        added = earlier[known:]
        if not (
            earlier[:known] == self._seen
            and self._without_tools == without_tools
            and _are_same(self._withheld, state.private.withheld, self._result_ids)
            and _are_same(self._hidden, state.private.hidden_arguments, self._call_ids)
            and self._call_ids.isdisjoint(_call_ids(added))
        ):
            self._begin()
            self._without_tools, added = without_tools, earlier
        self._withheld, self._hidden = state.private.withheld, state.private.hidden_arguments
        if added:
            self._seen += added
            shown, _ = shown_messages(state, added, (), without_tools=without_tools)
            self._view += shown
            self._changed_count += len({*map(id, shown)}.difference(map(id, added)))
            self._call_ids.update(_call_ids(added))
            self._result_ids.update(message.message_id for message in added if message.role == "tool")
            self._unchanged = Unchanged(len(self._view), self._unchanged.made)
        if not self._call_ids.isdisjoint(_call_ids(later)):
            return None
        shown, _ = shown_messages(state, (), later, without_tools=without_tools)
        return [*self._view, *shown], len(self._view), self._unchanged


def shown_messages(
    state: OwnerState, earlier: Sequence[Message], later: Sequence[Message], *, without_tools: bool
) -> tuple[list[Message], int]:
    """Return the messages that a model may see, and how many of these messages precede the open question. `earlier` are
    the messages before the open question. With `without_tools`, the calls and results in `earlier` are left out."""
    answered = {message.tool_call_id for part in (earlier, later) for message in part if message.role == "tool"}
    called: set[str] = set()
    view: list[Message] = []
    earlier_count = 0
    for part in (earlier, later):
        leaves_tools_out = without_tools and part is earlier
        for message in part:
            if message.role not in MODEL_ROLES or (leaves_tools_out and message.role == "tool"):
                continue
            if message.role == "assistant":
                if message.tool_calls:
                    calls = [] if leaves_tools_out else [c for c in message.tool_calls if c.id in answered]
                    called.update(call.id for call in calls)
                    if not calls and not message.content:
                        continue
                    calls = [true_call(state, call) for call in calls]
                    view.append(message if calls == message.tool_calls else replace(message, tool_calls=calls))
                elif message.content:
                    view.append(message)
            elif message.role != "tool":
                view.append(message)
            elif message.tool_call_id in called:
                withheld = state.private.withheld.get(message.message_id)
                view.append(message if withheld is None else replace(message, content=withheld))
        if part is earlier:
            earlier_count = len(view)
    return (_results_behind_their_calls(view) if called else view), earlier_count


def _results_behind_their_calls(view: list[Message]) -> list[Message]:
    """Move the results of a message's calls directly after that message, in the order of the calls (LOOP-3), because
    providers require this order. The log has the results in the order of their arrival, for example from several
    editors or from the branches of a durable agent."""
    at = {call.id: (number, rank) for number, each in enumerate(view) for rank, call in enumerate(each.tool_calls)}
    number_of = {id(each): number for number, each in enumerate(view)}

    def where(message: Message) -> tuple[int, int]:
        if message.role == "tool" and message.tool_call_id in at:
            return at[message.tool_call_id]
        return number_of[id(message)], -1

    return sorted(view, key=where)


def _call_ids(messages: Iterable[Message]) -> set[str]:
    """Return the ids of all calls and results in the messages."""
    ids = {call.id for message in messages for call in message.tool_calls}
    ids.update(message.tool_call_id for message in messages if message.tool_call_id is not None)
    return ids


def _are_same(then: Mapping[str, str], now: Mapping[str, str], keys: set[str]) -> bool:
    """Return whether `then` and `now` have the same values for `keys`."""
    return now is then or {k: v for k, v in then.items() if k in keys} == {k: v for k, v in now.items() if k in keys}
