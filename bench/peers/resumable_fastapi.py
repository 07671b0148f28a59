"""fastapi-resumable-stream (PyPI): one process under uvicorn. Chunks are in a Redis list, and a pub/sub channel
announces them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.peer import APPS, INSTALLED, Cannot, Frame, Peer, Request, json_request

__all__ = ["ResumableFastapi"]


class ResumableFastapi(Peer):
    name = "fastapi-resumable-stream"
    version = "0.2.1"
    begins_by_reading = True
    needs_store = True
    health = "/docs"

    def command(self) -> Sequence[str | Path]:
        program = INSTALLED / "resumable" / "bin" / "uvicorn"
        if not program.exists():
            raise Cannot("not installed: bench/peers/install")
        flags = ["--port", str(self.port), "--log-level", "warning", "--no-access-log"]
        return [program, "--app-dir", APPS, "resumable_fastapi:app", *flags]

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), "STORE_URL": f"redis://127.0.0.1:{self.store_port}"}

    def begin(self, chat: str, prompt: str) -> Request:
        return json_request("POST", f"/chat/{chat}/stream", {"prompt": prompt})

    def watch(self, chat: str, after: Frame | None, shown: str) -> Request:
        # Clients of fastapi-resumable-stream count chunks; here each chunk is one token.
        return Request("GET", f"/chat/{chat}/stream?after={shown.count('~')}")

    def fold(self, shown: str, frame: Frame) -> str:
        return shown + (json.loads(frame.data) if frame.data else "")

    def abort(self, chat: str) -> Request:
        return Request("POST", f"/chat/{chat}/stop")
