"""Threadcast itself, as `threadcast serve` runs it: web and worker in one process, a private Valkey as its child.

It is measured like the others. kill -9 also ends the store, which is the server's child.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.peers.peer import ROOT, Frame, Peer, Request, json_request

__all__ = ["Threadcast"]


class _Op(msgspec.Struct):
    op: str
    text: str = ""


class _Message(msgspec.Struct):
    role: str = ""
    content: str = ""


class _Event(msgspec.Struct):
    type: str = ""
    ops: list[_Op] = []
    messages: list[_Message] = []
    message: _Message | None = None


class Threadcast(Peer):
    name = "threadcast"
    version = "this tree"
    opens_first = True
    health = "/readyz"

    def command(self) -> Sequence[str | Path]:
        return [sys.executable, "-m", "threadcast.cli", "serve", "--port", str(self.port), "--data-dir", self.directory]

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), "OPENAI_MODEL": "scripted", "PYTHONPATH": str(ROOT)}

    def begin(self, chat: str, prompt: str) -> Request:
        body = {"type": "user_message", "client_request_id": chat, "content": prompt}
        return json_request("POST", f"/v1/chats/{chat}/commands", body)

    def watch(self, chat: str, after: Frame | None, shown: str) -> Request:
        return Request("GET", f"/v1/chats/subscribe?chat_id={chat}", {"Last-Event-ID": after.id} if after else {})

    def fold(self, shown: str, frame: Frame) -> str:
        if not frame.data:
            return shown
        event = msgspec.json.decode(frame.data, type=_Event)
        if event.type == "snapshot":
            return "".join(each.content for each in event.messages if each.role == "assistant")
        if event.type == "stream_started":  # a model call restarted after a crash retracts its text
            return ""
        return shown + "".join(op.text for op in event.ops if op.op == "append_content")

    def abort(self, chat: str) -> Request:
        return json_request("POST", f"/v1/chats/{chat}/commands", {"type": "abort", "client_request_id": "stop"})
