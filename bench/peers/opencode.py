"""opencode's server (npm): sessions of a coding agent, one stream of all events for all readers, and requests for
messages.

Its tools and its title agent are switched off, so that it asks the model once for each answer. `/event` sends only new
events and has no ids, so a client that reconnects must fetch the session's messages. This is not measured here.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx2
import msgspec

from bench.peers.peer import INSTALLED, Cannot, Frame, Peer, Request, json_request

__all__ = ["Opencode"]


class _Properties(msgspec.Struct):
    field: str = ""
    delta: str = ""


class _Event(msgspec.Struct):
    type: str = ""
    properties: _Properties = msgspec.field(default_factory=_Properties)


class _Session(msgspec.Struct):
    id: str


class Opencode(Peer):
    name = "opencode"
    version = "1.18.33"
    opens_first = True
    health = "/session"

    def __init__(self, directory: Path, model_url: str) -> None:
        super().__init__(directory, model_url)
        self._sessions: dict[str, str] = {}

    def command(self) -> Sequence[str | Path]:
        program = INSTALLED / "node" / "node_modules" / ".bin" / "opencode"
        if not program.exists():
            raise Cannot("not installed: bench/peers/install")
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "opencode.json").write_text(json.dumps(_config(f"{self.model_url}/v1")))
        return [program, "serve", "--port", str(self.port)]

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), "HOME": str(self.directory), "OPENCODE_DISABLE_MODELS_FETCH": "1"}

    async def prepare(self, client: httpx2.AsyncClient, chat: str) -> None:
        answer = await client.post(f"{self.url}/session", json={"title": chat})
        self._sessions[chat] = msgspec.json.decode(answer.content, type=_Session).id

    def begin(self, chat: str, prompt: str) -> Request:
        body = {"parts": [{"type": "text", "text": prompt}]}
        return json_request("POST", f"/session/{self._sessions[chat]}/prompt_async", body)

    def watch(self, chat: str, after: Frame | None, shown: str) -> Request:
        return Request("GET", "/event")

    def fold(self, shown: str, frame: Frame) -> str:
        event = msgspec.json.decode(frame.data, type=_Event)
        is_text = event.type == "message.part.delta" and event.properties.field == "text"
        return shown + event.properties.delta if is_text else shown

    def abort(self, chat: str) -> Request:
        return Request("POST", f"/session/{self._sessions[chat]}/abort")


def _config(base_url: str) -> dict[str, object]:
    scripted = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": base_url, "apiKey": "none"},
        "models": {"scripted": {"name": "scripted"}},
    }
    return {
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "autoupdate": False,
        "share": "disabled",
        "provider": {"scripted": scripted},
        "agent": {"title": {"disable": True}},
        "tools": {"*": False},
    }
