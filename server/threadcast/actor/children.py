"""Opens chats for a tool call, and awaits their ends, through the log of the calling chat (PROTOCOL §12).

`ChildChats` records the request for a chat in the parent's log. The outbox sender delivers the request, and the child's
end arrives as a message that the parent's actor writes into the log. The events that a call waits for are therefore
recorded in the log of the call's own chat, and a call that runs again after a crash finds them there. This module does
not stop children: when a call is answered, `chat/outbound.py` stops the children that the call has opened.
"""

from typing import Unpack

from msgspec.structs import replace

from threadcast.actor.processes import CommitPort, commit_or_fail
from threadcast.actor.run_slots import RunSlot
from threadcast.actor.writer import Writer
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.relations import Child
from threadcast.chat.runs import call_name
from threadcast.chat.subchats import Wanted, find_child, open_child, stop_agent
from threadcast.profiles.profile import Profiles
from threadcast.tools.chats import AgentView, ChildResult, ChildWish
from threadcast_protocol.wire.errors import ToolFailed

__all__ = ["ChildChats", "checked_mode"]


class ChildChats:
    """The `ChatsPort` of the call `tool_call_id`. `run_task` is the task that carries out the call, with the `slot` of
    its chat."""

    def __init__(
        self, run_task: CommitPort, slot: RunSlot, writer: Writer, profiles: Profiles, tool_call_id: str
    ) -> None:
        self._run_task = run_task
        self._slot = slot
        self._writer = writer
        self._profiles = profiles
        self._tool_call_id = tool_call_id

    async def run(self, prompt: str, **wish: Unpack[ChildWish]) -> ChildResult:
        wanted = self._wanted(prompt, wish)
        chat_id = await self._open(wanted)
        if self._find(chat_id, wanted.name).outcome is None:
            async with self._slot.suspended():  # so that a tree of chats cannot block itself
                while self._find(chat_id, wanted.name).outcome is None:
                    await self._writer.changed()
        child = self._find(chat_id, wanted.name)
        return ChildResult(chat_id=chat_id, outcome=child.outcome or "", text=child.text, message_id=child.message_id)

    def _find(self, chat_id: str, name: str) -> Child:
        child = find_child(self._writer.state, self._tool_call_id, name)
        if child is None:  # this is impossible while the call is open
            raise ToolFailed(f"The chat {chat_id} is no longer known.")
        return child

    async def start(self, prompt: str, *, wake: bool = False, **wish: Unpack[ChildWish]) -> str:
        return await self._open(replace(self._wanted(prompt, wish), is_background=True, wakes=wake))

    def _wanted(self, prompt: str, wish: ChildWish) -> Wanted:
        return Wanted(
            self._tool_call_id,
            prompt,
            name=wish.get("name", "0"),
            mode=wish.get("mode", ""),
            params=wish.get("params") or {},
            context=wish.get("context"),
            title=wish.get("title", ""),
            is_untrusted=self._profiles.rules.is_untrusted(call_name(self._writer.state, self._tool_call_id)),
        )

    async def stop(self, agent_id: str) -> None:
        await commit_or_fail(self._run_task, lambda builder: stop_agent(builder, agent_id))

    def agents(self) -> list[AgentView]:
        return [
            AgentView(
                agent_id=str(agent.get("id")),
                title=str(agent.get("title", "")),
                status=str(agent.get("status")),
                summary=str(agent.get("summary", "")),
            )
            for agent in self._writer.state.background_agents
        ]

    async def _open(self, wanted: Wanted) -> str:
        """Open the chat and return its id. Raises ToolFailed."""
        params = dict(wanted.params)
        mode = params.pop("mode", None) or wanted.mode  # so that `delegate_to` is checked in one place
        wanted = replace(wanted, mode=checked_mode(self._profiles, self._writer.state, str(mode)), params=params)
        child = await commit_or_fail(self._run_task, lambda builder: open_child(builder, wanted))
        return child.chat_id


def checked_mode(profiles: Profiles, state: OwnerState, mode: str) -> str:
    """Return the name of the profile that `mode` names, if a sub-chat may have this profile. For '' the result is '',
    which means the profile of this chat, which `delegate_to` must allow like any other. Raises ToolFailed."""
    own = profiles.of(state)
    meant = profiles.get(mode) if mode else None
    mode = mode if meant is None else meant.name
    allowed = own.delegate_to
    if allowed is None:
        known = [profile.name for profile in profiles.all]
        if mode and meant is None:
            raise ToolFailed(f"There is no mode {mode!r}; the modes are: {', '.join(known)}.")
    elif (mode or own.name) not in allowed:
        choice = f"Allowed modes: {', '.join(allowed)}" if allowed else "No mode is allowed"
        raise ToolFailed(f"A sub-chat of this chat cannot have the mode {mode or own.name!r}. {choice}.")
    return mode
