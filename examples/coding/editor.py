"""The plugin of an editor, in small: it watches a chat, and carries out what the assistant wants done in the editor.

    python examples/coding/editor.py http://127.0.0.1:8000 CHAT DIRECTORY

It claims each call before it does it, so that of two editors only one does. What it prints is what a panel would show.
"""

import secrets
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio

from server.client import Client, RequestRefused

Json = dict[str, Any]


class Editor:
    def __init__(self, client: Client, chat_id: str, directory: Path) -> None:
        self._client = client
        self._chat_id = chat_id
        self._directory = directory.resolve()
        self._name = f"editor-{secrets.token_hex(4)}"
        self._claims: dict[str, Json] = {}
        self._tools: dict[str, Callable[..., tuple[str, list[str]]]] = {
            "open_file": self.open_file,
            "apply_edit": self.apply_edit,
        }

    async def watch(self) -> None:
        async with aclosing(self._client.subscribe(self._chat_id)) as events:
            async for event, _ in events:
                await self._see(event)

    async def _see(self, event: Json) -> None:
        match event["type"]:
            case "snapshot":  # also after a lost connection: what is still waiting
                show("watching")
                for call in event["runtime"].get("ide_calls", ()):
                    await self._claim(call)
            case "ide_tool_required":
                await self._claim(event)
            case "ack" if call := self._claims.pop(event["client_request_id"], None):
                if event["accepted"]:
                    await self._carry_out(call)
            case "pause_required":
                for reason in event["reasons"]:
                    show(f"may I? {reason['tool_call_id']}: {reason['command']}")
            case "tool_status" if event["status"] == "denied":
                show(f"{event['name']} denied")
            case "subchat_update":
                show(f"chat below: {event['subchat_id']}")
            case "process_completed":
                show(f"{event['short_description']}: {event['status']}")
            case "background_agent_updated":
                show(f"{event['agent']['title']}: {event['agent']['status']}")
            case "message_added" if event["message"]["role"] == "assistant" and (said := event["message"]["content"]):
                show(f"> {said}")

    async def _claim(self, call: Json) -> None:
        if call["tool_name"] in self._tools:
            request_id = f"claim-{self._name}-{call['tool_call_id']}"
            self._claims[request_id] = call
            await self._post("ide_tool_claim", call, client_request_id=request_id, claimer=self._name)

    async def _carry_out(self, call: Json) -> None:
        try:
            content, changed = self._tools[call["tool_name"]](**call["args"])
        except (OSError, ValueError, TypeError) as wrong:  # the model reads why
            await self._post("ide_tool_result", call, content=str(wrong), tool_failed=True)
            return
        show(f"{call['tool_name']} {call['args']['path']}")
        await self._post("ide_tool_result", call, content=content, files_changed=changed)

    async def _post(self, kind: str, call: Json, **fields: object) -> None:
        await self._client.post(self._chat_id, {"type": kind, "tool_call_id": call["tool_call_id"], **fields})

    # What it can do.

    def open_file(self, path: str) -> tuple[str, list[str]]:
        return self._inside(path).read_text("utf-8"), []

    def apply_edit(self, path: str, old: str, new: str) -> tuple[str, list[str]]:
        file = self._inside(path)
        text = file.read_text("utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{old!r} occurs {text.count(old)} times in {path}; it must be once.")
        file.write_text(text.replace(old, new), "utf-8")
        return f"{path} is changed.", [path]

    def _inside(self, path: str) -> Path:
        file = (self._directory / path).resolve()
        if not file.is_relative_to(self._directory):
            raise ValueError(f"{path} is not in the project.")
        return file


def show(line: str) -> None:
    print(line, flush=True)


async def main(url: str, chat_id: str, directory: str) -> None:
    async with Client(url) as client:
        try:
            await Editor(client, chat_id, Path(directory)).watch()
        except RequestRefused as wrong:
            sys.exit(str(wrong))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:4])
