"""An AG-UI server: pydantic-ai's `AGUIAdapter` (PyPI `pydantic-ai-slim[ag-ui]`, on `ag-ui-protocol`) under uvicorn.

The answer to a run's request is its only stream: AG-UI has no request that joins a run, and a client stops a run by
closing its request.
"""

from collections.abc import Sequence
from pathlib import Path

from bench.peers.peer import APPS, INSTALLED, Cannot, Frame, Peer, Request, json_request

__all__ = ["AgUi"]


class AgUi(Peer):
    name = "ag-ui"
    version = "pydantic-ai 2.68.0, ag-ui-protocol 1.0.0"
    begins_by_reading = True
    most_readers = 1

    def command(self) -> Sequence[str | Path]:
        python = INSTALLED / "ag-ui" / "bin" / "python"
        if not python.exists():
            raise Cannot("not installed: bench/peers/install")
        flags = ["--port", str(self.port), "--log-level", "warning", "--no-access-log"]
        return [python, "-m", "uvicorn", "--app-dir", APPS, "pydantic_ag_ui:app", *flags]

    def begin(self, chat: str, prompt: str) -> Request:
        run = {"threadId": chat, "runId": f"{chat}-1", "state": {}, "tools": [], "context": [], "forwardedProps": {}}
        return json_request("POST", "/", {**run, "messages": [{"id": "1", "role": "user", "content": prompt}]})

    def watch(self, chat: str, after: Frame | None, shown: str) -> Request:
        raise Cannot("a run's stream is the answer to its request")

    def fold(self, shown: str, frame: Frame) -> str:
        event = frame.json()
        return shown + str(event["delta"]) if event.get("type") == "TEXT_MESSAGE_CONTENT" else shown

    def abort(self, chat: str) -> Request:
        raise Cannot("a client stops a run by leaving")
