"""The plugin of an editor, in small: it watches a chat, and carries out what the assistant wants done in the editor.

    python examples/coding/editor.py http://127.0.0.1:8000 CHAT DIRECTORY

It claims each call before it does it, so that of two editors only one does. What it prints is what a panel would show.
"""

import sys
from pathlib import Path

import anyio

from protocol.events import (
    BackgroundAgentUpdated,
    MessageAdded,
    PauseRequired,
    ProcessCompleted,
    Snapshot,
    SubchatUpdate,
    ToolStatus,
)
from threadcast import Chat, Client, Refused, ToolAnswer


class Editor:
    def __init__(self, chat: Chat, directory: Path) -> None:
        self._chat = chat
        self._directory = directory.resolve()
        chat.on_tool_call("open_file", self.open_file)
        chat.on_tool_call("apply_edit", self.apply_edit)

    async def watch(self) -> None:
        async for event in self._chat.events():
            match event:
                case Snapshot():
                    show("watching")
                case PauseRequired(reasons=reasons):
                    for reason in reasons:
                        show(f"may I? {reason.tool_call_id}: {reason.command}")
                case ToolStatus(name=name, status="denied"):
                    show(f"{name} denied")
                case SubchatUpdate(subchat_id=below):
                    show(f"chat below: {below}")
                case ProcessCompleted(short_description=what, status=status):
                    show(f"{what}: {status}")
                case BackgroundAgentUpdated(agent=agent):
                    show(f"{agent['title']}: {agent['status']}")
                case MessageAdded(message=message) if message.role == "assistant" and message.content:
                    show(f"> {message.content}")

    # What it can do.

    def open_file(self, path: str) -> ToolAnswer:
        content = self._inside(path).read_text("utf-8")
        show(f"open_file {path}")
        return ToolAnswer(content=content)

    def apply_edit(self, path: str, old: str, new: str) -> ToolAnswer:
        file = self._inside(path)
        text = file.read_text("utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{old!r} occurs {text.count(old)} times in {path}; it must be once.")
        file.write_text(text.replace(old, new), "utf-8")
        show(f"apply_edit {path}")
        return ToolAnswer(content=f"{path} is changed.", files_changed=[path])

    def _inside(self, path: str) -> Path:
        file = (self._directory / path).resolve()
        if not file.is_relative_to(self._directory):
            raise ValueError(f"{path} is not in the project.")
        return file


def show(line: str) -> None:
    print(line, flush=True)


async def main(url: str, chat_id: str, directory: str) -> None:
    try:
        async with Client(url) as client, client.chat(chat_id) as chat:
            await Editor(chat, Path(directory)).watch()
    except Refused as wrong:
        sys.exit(str(wrong))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:4])
