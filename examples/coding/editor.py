"""A small editor plugin: it watches a chat and carries out the tool calls that the assistant makes in the editor.

    python examples/coding/editor.py http://127.0.0.1:8000 CHAT DIRECTORY

It claims each call before it carries out the call, so that only one of two editors carries out the call. Its output is
what a panel would show. The example's server runs such an editor for all chats that begin while it runs (`watch_all`,
called in tools.py).
"""

import sys
from collections.abc import Callable
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio

from threadcast_client import Chat, Client, Refused, ThreadcastError, ToolAnswer
from threadcast_client.feed import ChatListed, FeedEvent, FeedSnapshot
from threadcast_protocol.wire.events import (
    BackgroundAgentUpdated,
    MessageAdded,
    PauseRequired,
    ProcessCompleted,
    Snapshot,
    SubchatUpdate,
    ToolStatus,
)
from threadcast_protocol.wire.messages import Message

Show: TypeAlias = Callable[[str], None]

CHATS_MAX = 32
"""The number of chats that one editor watches at the same time. A new chat replaces the chat that it has watched
longest."""


class Editor:
    def __init__(self, chat: Chat, directory: Path, show: Show) -> None:
        self._chat = chat
        self._directory = directory.resolve()
        self._show = show
        chat.on_tool_call("open_file", self.open_file)
        chat.on_tool_call("apply_edit", self.apply_edit)

    async def watch(self) -> None:
        async for event in self._chat.events():
            match event:
                case Snapshot(messages=messages):
                    for message in messages:
                        self._say(message)
                case PauseRequired(reasons=reasons):
                    for reason in reasons:
                        self._show(f"may I? {reason.tool_call_id}: {reason.command}")
                case ToolStatus(name=name, status="denied"):
                    self._show(f"{name} denied")
                case SubchatUpdate(subchat_id=below):
                    self._show(f"chat below: {below}")
                case ProcessCompleted(short_description=what, status=status):
                    self._show(f"{what}: {status}")
                case BackgroundAgentUpdated(agent=agent):
                    self._show(f"{agent['title']}: {agent['status']}")
                case MessageAdded(message=message):
                    self._say(message)

    def _say(self, message: Message) -> None:
        is_whole = message.finish_reason is not None  # a snapshot may have an unfinished answer
        if message.role == "assistant" and message.content and is_whole:
            self._show(f"> {message.content}")

    # The tools of the editor.

    def open_file(self, path: str) -> ToolAnswer:
        content = self._inside(path).read_text("utf-8")
        self._show(f"open_file {path}")
        return ToolAnswer(content=content)

    def apply_edit(self, path: str, old: str, new: str) -> ToolAnswer:
        file = self._inside(path)
        text = file.read_text("utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{old!r} occurs {text.count(old)} times in {path}; it must be once.")
        file.write_text(text.replace(old, new), "utf-8")
        self._show(f"apply_edit {path}")
        return ToolAnswer(content=f"{path} is changed.", files_changed=[path])

    def _inside(self, path: str) -> Path:
        file = (self._directory / path).resolve()
        if not file.is_relative_to(self._directory):
            raise ValueError(f"{path} is not in the project.")
        return file


async def watch_all(url: str, directory: Path, show: Show) -> None:
    """Watch the newest chats, and every chat that begins or continues. Chats that tools begin are not watched."""
    async with (
        Client(url) as client,
        client.chats() as chats,
        aclosing(client.feed()) as feed,
        anyio.create_task_group() as tasks,
    ):
        async for event in feed:
            for chat_id in _named(event):
                if chat_id in chats:
                    continue
                try:
                    if len(chats) == CHATS_MAX:
                        await chats.remove(next(iter(chats)))
                    chat = await chats.add(chat_id)
                except ThreadcastError:  # deleted meanwhile
                    continue
                show(f"watching {chat.id}")
                tasks.start_soon(_watch, Editor(chat, directory, show))


def _named(event: FeedEvent) -> list[str]:
    """Return the chats to watch after an event, the newest last."""
    if isinstance(event, FeedSnapshot):
        return [chat.id for chat in reversed(event.chats[:CHATS_MAX])]
    return [event.chat.id] if isinstance(event, ChatListed) else []


async def _watch(editor: Editor) -> None:
    with suppress(ThreadcastError):  # the chat was deleted, or another chat has replaced it
        await editor.watch()


async def main(url: str, chat_id: str, directory: str) -> None:
    try:
        async with Client(url) as client, client.chat(chat_id) as chat:
            show = partial(print, flush=True)
            show("watching")
            await Editor(chat, Path(directory), show).watch()
    except Refused as wrong:
        sys.exit(str(wrong))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:4])
