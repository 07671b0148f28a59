"""The interface with which tools run child chats, waiting for the answer or in the background (PROTOCOL §12).

`actor/children.py` implements it. All methods belong to one tool call. Chats that the call started with `run` are
stopped when the call is answered; chats that it started with `start` continue.
"""

from typing import Protocol, TypedDict, Unpack

import msgspec

from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["NO_CHATS", "AgentView", "ChatsPort", "ChildResult", "ChildWish"]


class ChildResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a child chat. `outcome`: complete, error, aborted, limit or interrupted; `text` is the child chat's
    last answer (at most 64,000 characters) or the error; `message_id` is the answer's id in `chat_id`."""

    chat_id: str
    outcome: str
    text: str
    message_id: str | None


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """A background agent: `status` is running, completed, error or aborted; `summary` is the beginning of the agent's
    answer."""

    agent_id: str
    title: str
    status: str
    summary: str


class ChildWish(TypedDict, total=False):
    """Options of a child chat. An empty `mode` means the profile of this chat, with its model and scope. `params` are
    thread parameters (PROTOCOL §16). If `context` is None, the child gets the context of this run. `name` (default "0")
    distinguishes several children of one call: the same name gives the same chat, even after a crash."""

    mode: str
    params: JsonObject | None
    context: JsonObject | None
    title: str
    name: str


class ChatsPort(Protocol):
    async def run(self, prompt: str, **wish: Unpack[ChildWish]) -> ChildResult:
        """Run a child chat with `prompt` and wait until it ends.

        Raises:
            ToolFailed: there are too many chats, child chats are nested too deep, the mode is unknown, or the prompt or
                a parameter is invalid.
        """

    async def start(self, prompt: str, *, wake: bool = False, **wish: Unpack[ChildWish]) -> str:
        """Start a child chat with `prompt` in the background; returns the agent's id at once. The end of the child chat
        is an event of this chat, which the model reads in its next round; with `wake` the end starts a run. Aborting
        the run that started the agent does not end the agent. Raises ToolFailed, as `run`."""

    async def stop(self, agent_id: str) -> None:
        """Ask a background agent of this chat to end. Raises ToolFailed when no such agent runs."""

    def agents(self) -> list[AgentView]:
        """Return the background agents of this chat. The agent with the newest report comes last."""


class _NoChats:
    """The implementation for tools that run outside a chat, for instance in their own tests."""

    async def run(self, prompt: str, **wish: Unpack[ChildWish]) -> ChildResult:
        raise ToolFailed("There are no chats here.")

    async def start(self, prompt: str, *, wake: bool = False, **wish: Unpack[ChildWish]) -> str:
        raise ToolFailed("There are no chats here.")

    async def stop(self, agent_id: str) -> None:
        raise ToolFailed("There are no chats here.")

    def agents(self) -> list[AgentView]:
        return []


NO_CHATS: ChatsPort = _NoChats()
