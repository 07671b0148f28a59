"""What a tool may do with chats of its own: run one and wait for its answer, or start one and go on (PROTOCOL §12).

The seam only; `server/actor/children.py` implements it. All methods belong to the call that the context was made for:
what it runs is stopped when the call is answered, what it started goes on.
"""

from typing import Protocol, TypedDict, Unpack

import msgspec

from protocol.errors import ToolFailed
from protocol.messages import JsonObject

__all__ = ["NO_CHATS", "AgentView", "ChatsPort", "ChildResult", "ChildWish"]


class ChildResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a chat ended. `outcome`: complete, error, aborted, limit or interrupted; `text` is its last answer (at most
    64,000 characters), or what went wrong; `message_id` that answer's, in `chat_id`."""

    chat_id: str
    outcome: str
    text: str
    message_id: str | None


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """A background agent: `status` is running, completed, error or aborted, `summary` the beginning of its answer."""

    agent_id: str
    title: str
    status: str
    summary: str


class ChildWish(TypedDict, total=False):
    """What a chat below this one may be told. `mode` '' is the profile of this chat, with its model and scope; `params`
    are thread parameters (PROTOCOL §16); `context` None is the context of this run; `name` ("0") tells several of one
    call apart: the same name gives the same chat, also after a crash."""

    mode: str
    params: JsonObject | None
    context: JsonObject | None
    title: str
    name: str


class ChatsPort(Protocol):
    async def run(self, prompt: str, **wish: Unpack[ChildWish]) -> ChildResult:
        """Let a chat of its own answer `prompt`; wait until it rests.

        Raises:
            ToolFailed: too many, too deep, no such mode, or a prompt or parameter that cannot be.
        """

    async def start(self, prompt: str, *, wake: bool = False, **wish: Unpack[ChildWish]) -> str:
        """Let a chat of its own work on `prompt` in the background; returns its agent's id at once. Its end is an event
        here, and the model is told in its next round; `wake` starts a run for that. An abort of the run that started it
        does not end it. Raises ToolFailed, as `run`."""

    async def stop(self, agent_id: str) -> None:
        """Ask a background agent of this chat to end. Raises ToolFailed: no such agent runs."""

    def agents(self) -> list[AgentView]:
        """The background agents of this chat, the one told of last at the end."""


class _NoChats:
    """Where a tool runs outside any chat, in its own tests for instance."""

    async def run(self, prompt: str, **wish: Unpack[ChildWish]) -> ChildResult:
        raise ToolFailed("There are no chats here.")

    async def start(self, prompt: str, *, wake: bool = False, **wish: Unpack[ChildWish]) -> str:
        raise ToolFailed("There are no chats here.")

    async def stop(self, agent_id: str) -> None:
        raise ToolFailed("There are no chats here.")

    def agents(self) -> list[AgentView]:
        return []


NO_CHATS: ChatsPort = _NoChats()
