"""The state of a chat: the result of folding its events.

A client that started from a snapshot has only the nodes of the active path. The server's state extends this struct with
private fields; `reducer.py` folds both. States are immutable: each change returns a new state, which shares its
unchanged parts with the old state.
"""

import msgspec

from threadcast_protocol.fold.growing_text import GrowingText
from threadcast_protocol.wire.events import AT_REST, Ack, PayloadAdded, Runtime
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.thread import Thread

__all__ = ["ChatState", "Draft", "empty_state"]

RECENT_ACKS_KEPT = 64
AGENTS_KEPT = 64
"""The maximum number of background agents in a snapshot. The agents with the most recent events are kept."""

AGENT_STEPS_KEPT = 100
"""The maximum number of steps of a durable agent's run in a snapshot: about 20 kB. The newest steps are kept."""


class Draft(msgspec.Struct, frozen=True):
    """The answer that a model is writing. `message` has all fields of the answer except the two growing texts."""

    message: Message
    content: GrowingText
    reasoning: GrowingText


class ChatState(msgspec.Struct, frozen=True, kw_only=True):
    """The public state of a chat after the event at `position`, in the epoch `epoch` of its log.

    `path` is the active path, root first. `nodes` is the tree by message id. While a model writes an answer, `draft`
    has the newest version of that node.
    """

    chat_id: str
    thread: Thread
    runtime: Runtime
    epoch: int = 0
    position: int = 0
    nodes: dict[str, Message] = {}
    path: tuple[str, ...] = ()
    draft: Draft | None = None
    background_agents: tuple[JsonObject, ...] = ()
    payloads: tuple[PayloadAdded, ...] = ()
    recent_acks: tuple[Ack, ...] = ()

    @property
    def is_at_rest(self) -> bool:
        """Whether no run is open."""
        return self.runtime.state in AT_REST

    @property
    def leaf(self) -> Message | None:
        """The last message of the active path, without the texts of the draft."""
        return self.nodes[self.path[-1]] if self.path else None


def empty_state(chat_id: str) -> ChatState:
    """Return the state of a chat before its first event."""
    return ChatState(
        chat_id=chat_id,
        thread=Thread(id=chat_id),
        runtime=Runtime(
            state="idle",
            paused=False,
            error=None,
            queue_size=0,
            queued_items=[],
            pause_reasons=[],
            is_compressing=False,
        ),
    )
