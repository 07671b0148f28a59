"""The AI SDK (npm `ai`) with `resumable-stream` on Redis, as the chapter "Chatbot Resume Streams" of its documentation
shows it.

A page that is loaded again asks for the chat's active stream and receives it from its start. The request cannot name a
position, so a client replaces its text when the event `start` arrives.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.peer import APPS, INSTALLED, Cannot, Frame, Peer, Request, json_request

__all__ = ["AiSdk"]


class AiSdk(Peer):
    name = "ai-sdk"
    version = "ai 6.0.326, resumable-stream 2.2.13, node"
    begins_by_reading = True
    needs_store = True

    def command(self) -> Sequence[str | Path]:
        if not (INSTALLED / "node" / "node_modules" / "ai").exists():
            raise Cannot("not installed: bench/peers/install")
        return ["node", APPS / "ai_sdk.mjs"]

    def environment(self) -> Mapping[str, str]:
        store = f"redis://127.0.0.1:{self.store_port}"
        return {**super().environment(), "REDIS_URL": store, "PACKAGES": str(INSTALLED / "node")}

    def begin(self, chat: str, prompt: str) -> Request:
        message = {"id": f"{chat}-1", "role": "user", "parts": [{"type": "text", "text": prompt}]}
        return json_request("POST", "/api/chat", {"id": chat, "trigger": "submit-message", "messages": [message]})

    def watch(self, chat: str, after: Frame | None, shown: str) -> Request:
        return Request("GET", f"/api/chat/{chat}/stream")

    def fold(self, shown: str, frame: Frame) -> str:
        part = frame.json()
        if part.get("type") == "start":
            return ""
        return shown + str(part.get("delta", "")) if part.get("type") == "text-delta" else shown

    def abort(self, chat: str) -> Request:
        raise Cannot("its documentation: abort is not compatible with resumable streams")
