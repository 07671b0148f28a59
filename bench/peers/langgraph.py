"""LangGraph's server as `langgraph dev` runs it: the server in its registry package, in memory, with one process.

Its production server is a container image that needs a licence and is not in a registry; the documentation says that
`dev` is for development. Runs are started in the background as resumable, and any number of readers can join them.
"""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path

import httpx2
import msgspec

from bench.peers.peer import APPS, INSTALLED, Cannot, Frame, Peer, Request, json_request

__all__ = ["LangGraph"]


class _Run(msgspec.Struct):
    run_id: str


class _Message(msgspec.Struct):
    content: str = ""
    type: str = ""


class LangGraph(Peer):
    name = "langgraph-dev"
    version = "langgraph-cli 0.4.40, langgraph-api 0.16.7"
    health = "/ok"

    def __init__(self, directory: Path, model_url: str) -> None:
        super().__init__(directory, model_url)
        self._runs: dict[str, str] = {}

    def command(self) -> Sequence[str | Path]:
        program = INSTALLED / "langgraph" / "bin" / "langgraph"
        if not program.exists():
            raise Cannot("not installed: bench/peers/install")
        self.directory.mkdir(parents=True, exist_ok=True)
        graphs = {name: f"{APPS}/langgraph_graph.py:{variable}" for name, variable in _GRAPHS.items()}
        (self.directory / "langgraph.json").write_text(json.dumps({"dependencies": ["."], "graphs": graphs}))
        flags = ["--port", str(self.port), "--no-browser", "--no-reload", "--n-jobs-per-worker", "20"]
        return [program, "dev", *flags]

    def environment(self) -> dict[str, str]:
        quiet = {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "LOG_LEVEL": "warning"}
        return {**super().environment(), **quiet}

    async def prepare(self, client: httpx2.AsyncClient, chat: str) -> None:
        body = {"thread_id": _thread(chat), "if_exists": "do_nothing"}
        answer = await client.post(f"{self.url}/threads", json=body)
        if answer.status_code >= 300:
            raise Cannot(f"no thread: {answer.text[:200]}")

    def begin(self, chat: str, prompt: str) -> Request:
        body = {
            "assistant_id": "chat",
            "input": {"messages": [{"role": "user", "content": prompt}]},
            "stream_mode": ["messages-tuple"],
            "stream_resumable": True,
            "on_disconnect": "continue",
        }
        return json_request("POST", f"/threads/{_thread(chat)}/runs", body)

    def begun(self, chat: str, answer: bytes) -> bool:
        self._runs[chat] = msgspec.json.decode(answer, type=_Run).run_id
        return True

    def watch(self, chat: str, after: Frame | None, shown: str) -> Request:
        # A join without an id gets only later events; the id "-1" asks for all kept events.
        path = f"/threads/{_thread(chat)}/runs/{self._runs[chat]}/stream?stream_mode=messages-tuple"
        return Request("GET", path, {"Last-Event-ID": after.id if after else "-1"})

    def fold(self, shown: str, frame: Frame) -> str:
        if frame.event != "messages":
            return shown
        message = msgspec.json.decode(frame.data, type=list[msgspec.Raw])[0]
        chunk = msgspec.json.decode(message, type=_Message)
        return shown + chunk.content if chunk.type == "AIMessageChunk" else shown

    def abort(self, chat: str) -> Request:
        return Request("POST", f"/threads/{_thread(chat)}/runs/{self._runs[chat]}/cancel")


_GRAPHS = {"chat": "graph", "approval": "approval"}


def _thread(chat: str) -> str:
    """Return the id of a chat's thread, which must be a UUID."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, chat))
