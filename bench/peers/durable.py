"""@durable-streams/server (npm, ElectricSQL), the reference server with files, and a producer in a second process.

The server keeps and serves streams. The producer asks the model and appends tokens with the official client. So readers
can connect before the answer begins, but an answer whose producer has died is never finished.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.ports import free_port

from bench.peers.peer import APPS, INSTALLED, Cannot, Frame, Peer, Program, Request, json_request

__all__ = ["DurableStreams"]

_OFFSET = re.compile(r'"streamNextOffset": ?"([^"]+)"')


class DurableStreams(Peer):
    name = "durable-streams"
    version = "server 0.3.7, client 0.2.7, node"

    def __init__(self, directory: Path, model_url: str) -> None:
        super().__init__(directory, model_url)
        self.producer_port = free_port()
        self._producer: Program | None = None

    def command(self) -> Sequence[str | Path]:
        if not (INSTALLED / "node" / "node_modules" / "@durable-streams").exists():
            raise Cannot("not installed: bench/peers/install")
        return ["node", APPS / "durable.mjs", "server"]

    def environment(self) -> Mapping[str, str]:
        more = {"PACKAGES": str(INSTALLED / "node"), "DATA": str(self.directory / "data")}
        return {**super().environment(), **more, "PRODUCER_PORT": str(self.producer_port)}

    async def start(self) -> None:
        await super().start()
        command: list[str | Path] = ["node", APPS / "durable.mjs", "producer"]
        self._producer = Program(command, self.directory / "producer", self.environment())
        await self._producer.answers(f"http://127.0.0.1:{self.producer_port}/")

    def kill(self) -> None:
        super().kill()
        if self._producer is not None:
            self._producer.kill()

    def close(self) -> None:
        super().close()
        if self._producer is not None:
            self._producer.close()

    def programs(self) -> list[Program | None]:
        return [*super().programs(), self._producer]

    def begin(self, chat: str, prompt: str) -> Request:
        return json_request("POST", f"/ask/{chat}", {"prompt": prompt})

    def begin_url(self) -> str:
        return f"http://127.0.0.1:{self.producer_port}"

    def watch(self, chat: str, after: Frame | None, shown: str) -> Request:
        return Request("GET", f"/{chat}?live=sse&offset={after.id if after and after.id else '-1'}")

    def placed(self, frame: Frame) -> Frame:
        found = _OFFSET.search(frame.data) if frame.event == "control" else None
        return Frame(frame.data, frame.event, found[1]) if found else frame

    def settled(self, frame: Frame) -> bool:
        return frame.event == "control"

    def fold(self, shown: str, frame: Frame) -> str:
        return shown + frame.data if frame.event == "data" else shown
