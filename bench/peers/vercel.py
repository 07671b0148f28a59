"""resumable-stream (npm, Vercel): a library over Redis pub/sub, used with node's HTTP server as its README shows.

The stream is in the process that creates it; Redis only carries it to other readers. A reader that reconnects sends the
number of characters that it has received.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.peer import APPS, INSTALLED, Cannot, Frame, Peer, Request, json_request

__all__ = ["ResumableStream"]


class ResumableStream(Peer):
    name = "resumable-stream"
    version = "2.2.13, node"
    begins_by_reading = True
    needs_store = True

    def command(self) -> Sequence[str | Path]:
        if not (INSTALLED / "node" / "node_modules" / "resumable-stream").exists():
            raise Cannot("not installed: bench/peers/install")
        return ["node", APPS / "vercel.mjs"]

    def environment(self) -> Mapping[str, str]:
        store = f"redis://127.0.0.1:{self.store_port}"
        return {**super().environment(), "REDIS_URL": store, "PACKAGES": str(INSTALLED / "node")}

    def begin(self, chat: str, prompt: str) -> Request:
        return json_request("POST", f"/stream/{chat}", {"prompt": prompt})

    def watch(self, chat: str, after: Frame | None, shown: str) -> Request:
        # The number of characters on the wire for each token: one event of `data: "..."` and two line ends.
        characters = len(shown) + shown.count("~") * len('data: ""\n\n')
        return Request("GET", f"/stream/{chat}" + (f"?resumeAt={characters}" if characters else ""))

    def fold(self, shown: str, frame: Frame) -> str:
        return shown + (json.loads(frame.data) if frame.data else "")
