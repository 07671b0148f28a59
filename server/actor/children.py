"""The chats of one tool call: opened in the parent's log, awaited through it (PROTOCOL §12).

A `ChatsPort` for a tool. It posts nothing and follows no other chat: it notes what is wanted, the postman delivers,
and the child's end comes back as a letter that the parent's log takes up. So what a call waits for is always a fact in
its own chat, and a call that runs again after a crash finds it there. Stopping children is nobody's duty here: an
answered call stops its own (`protocol/outbox.py`).
"""

from typing import Unpack

from msgspec.structs import replace

from protocol.errors import Refused, ToolFailed
from protocol.ledger import Ledger
from protocol.subchats import Wanted, find_child, open_child, stop_agent
from server.actor.processes import CommitPort
from server.actor.writer import Writer
from server.agent.place.profile import Profiles
from server.tools.chats import AgentView, ChildResult, ChildWish

__all__ = ["ChildChats"]


class ChildChats:
    """For the call `tool_call_id` of the run that `turn` works on."""

    def __init__(self, turn: CommitPort, writer: Writer, profiles: Profiles, tool_call_id: str) -> None:
        self._turn = turn
        self._writer = writer
        self._profiles = profiles
        self._tool_call_id = tool_call_id

    async def run(self, prompt: str, **wish: Unpack[ChildWish]) -> ChildResult:
        wanted = self._wanted(prompt, wish)
        chat_id = await self._open(wanted)
        while True:
            child = find_child(self._writer.state, self._tool_call_id, wanted.name)
            if child is None:  # cannot be while this call is open
                raise ToolFailed(f"The chat {chat_id} is no longer known.")
            if child.outcome is not None:
                return ChildResult(chat_id=chat_id, outcome=child.outcome, text=child.text, message_id=child.message_id)
            await self._writer.changed()

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
        )

    async def stop(self, agent_id: str) -> None:
        def write(ledger: Ledger) -> Refused | None:
            try:
                stop_agent(ledger, agent_id)
            except Refused as refusal:
                return refusal
            return None

        refusal = await self._turn.commit(write)
        if refusal is not None:
            raise ToolFailed(f"{refusal.message}.")

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
        """The child's chat id. Raises ToolFailed."""
        params = dict(wanted.params)
        mode = params.pop("mode", None) or wanted.mode  # one place that is checked against `delegate_to`
        wanted = replace(wanted, mode=self._checked_mode(str(mode)), params=params)

        def write(ledger: Ledger) -> str | Refused:
            try:
                return open_child(ledger, wanted).chat_id
            except Refused as refusal:
                return refusal  # raised in here it would take along what others had offered

        opened = await self._turn.commit(write)
        if isinstance(opened, Refused):
            raise ToolFailed(f"{opened.message}.")
        return opened

    def _checked_mode(self, mode: str) -> str:
        """Return the name of the profile that `mode` means. '' stays '' and means the profile of this chat, which
        `delegate_to` must allow like any other. Raises ToolFailed."""
        own = self._profiles.of(self._writer.state)
        meant = self._profiles.get(mode) if mode else None
        mode = mode if meant is None else meant.name
        allowed = own.delegate_to
        if allowed is None:
            known = [profile.name for profile in self._profiles.all]
            if mode and meant is None:
                raise ToolFailed(f"There is no mode {mode!r}; there are {', '.join(known)}.")
        elif (mode or own.name) not in allowed:
            choice = f"Say one of these as mode: {', '.join(allowed)}" if allowed else "None may"
            raise ToolFailed(f"A chat below this one cannot have the mode {mode or own.name!r}. {choice}.")
        return mode
