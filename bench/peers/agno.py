"""Agno's AgentOS (PyPI): background runs that stream, resumed by the index of their last event.

It runs with its durable queue, which keeps runs in a database and events in Redis, under uvicorn in one process. A run
is started by a stream, which is closed at its first event; all readers then use `/resume`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from bench.peers.peer import APPS, INSTALLED, Cannot, Frame, Peer, Request

__all__ = ["Agno"]

_RUN_ID = re.compile(rb'"run_id": ?"([^"]+)"')


class _Event(msgspec.Struct):
    event: str = ""
    content: msgspec.Raw = msgspec.Raw()
    event_index: int | None = None


class Agno(Peer):
    name = "agno"
    version = "3.1.10"
    needs_store = True
    health = "/health"

    def __init__(self, directory: Path, model_url: str) -> None:
        super().__init__(directory, model_url)
        self._runs: dict[str, str] = {}

    def command(self) -> Sequence[str | Path]:
        program = INSTALLED / "agno" / "bin" / "uvicorn"
        if not program.exists():
            raise Cannot("not installed: bench/peers/install")
        flags = ["--port", str(self.port), "--log-level", "warning", "--no-access-log"]
        return [program, "--app-dir", APPS, "agno_os:app", *flags]

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), "STORE_URL": f"redis://127.0.0.1:{self.store_port}"}

    def begin(self, chat: str, prompt: str) -> Request:
        form = {"message": prompt, "stream": "true", "background": "true", "session_id": chat}
        return _form("/agents/chat/runs", form)

    def begun(self, chat: str, answer: bytes) -> bool:
        if found := _RUN_ID.search(answer):
            self._runs[chat] = found[1].decode()
        return found is not None

    def watch(self, chat: str, after: Frame | None, shown: str) -> Request:
        form = {"session_id": chat}
        if after is not None and after.id:
            form["last_event_index"] = after.id
        return _form(f"/agents/chat/runs/{self._runs[chat]}/resume", form)

    def fold(self, shown: str, frame: Frame) -> str:
        if not frame.data.startswith("{"):
            return shown
        event = msgspec.json.decode(frame.data, type=_Event)
        if event.event == "RunStarted":  # a second attempt is included, which begins the answer again
            return ""
        return shown + msgspec.json.decode(event.content, type=str) if event.event == "RunContent" else shown

    def placed(self, frame: Frame) -> Frame:
        index = msgspec.json.decode(frame.data, type=_Event).event_index if frame.data.startswith("{") else None
        return frame if index is None else Frame(frame.data, frame.event, str(index))

    def abort(self, chat: str) -> Request:
        return _form(f"/agents/chat/runs/{self._runs[chat]}/cancel", {})


def _form(path: str, form: dict[str, str]) -> Request:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return Request("POST", path, headers, urlencode(form).encode() or b"-=")
