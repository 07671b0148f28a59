"""Finds the abilities that a server lacks before the transcripts are played, so that no transcript waits for them.

Each missing ability is one failed result with one sentence, and an entry in `target.cannot`. Transcripts that need the
ability are skipped, and the checks of every chat omit it.
"""

import secrets
import time
from collections.abc import Callable

import anyio
import httpx2

from threadcast.console.conformance.asking import post
from threadcast.console.conformance.ending import fresh_wire
from threadcast.console.conformance.expecting import Failed
from threadcast.console.conformance.player import GREETING_SECONDS, Result
from threadcast.console.conformance.target import Target
from threadcast.console.conformance.wire import Wire
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["MUST", "probe"]

PROBE_SECONDS = 5.0
"""Seconds to wait for each event that the probe expects. On a healthy server each event takes milliseconds."""

MUST = ("stream", "command")
"""Abilities without which no transcript can be played."""


async def probe(target: Target, wait_seconds: float) -> list[Result]:
    """Return one failed result for each missing ability; [] for a healthy server. No error of the server is raised."""
    probing = _Probe(target, min(wait_seconds, PROBE_SECONDS))
    results: list[Result] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probing.watch)
        for name in ("stream", "command", "resume", "heartbeat", "run"):
            began = time.monotonic()
            try:
                await getattr(probing, name)()
            except (Failed, httpx2.TransportError) as wrong:
                sentence = str(wrong) or f"the server did not answer ({type(wrong).__name__})"
                target.cannot[name] = sentence
                target.hung.set()
                duration_ms = round((time.monotonic() - began) * 1000)
                results.append(Result(f"probe: {name}", "failed", duration_ms, [sentence]))
                if name in MUST:
                    break
        tasks.cancel_scope.cancel()
    with anyio.move_on_after(1.0):
        await probing.forget()
    return results


class _Probe:
    """The checks, in a chat that the probe watches. Each check has the name of its ability. Each raises Failed."""

    def __init__(self, target: Target, wait_seconds: float) -> None:
        self._target = target
        self._wait_seconds = wait_seconds
        self._chat_id = f"conformance-{secrets.token_hex(16)}"
        self._wire = Wire.of_chat(self._chat_id)
        self._stream = self._wire.chat(self._chat_id)

    async def watch(self) -> None:
        """Read the chat's stream until it ends."""
        try:
            async with self._target.subscribe(self._chat_id) as response:
                if response.status_code == 200:
                    await self._wire.read(response)
                self._wire.end(f"the subscription was answered {response.status_code}")
        except httpx2.TransportError as wrong:
            self._wire.end(f"the subscription failed: {str(wrong) or type(wrong).__name__}")

    async def stream(self) -> None:
        """Check that a new stream begins."""
        await self._until(lambda: self._stream.frames, "a new stream of a chat must begin with a snapshot")

    async def command(self) -> None:
        """Check that commands get their acks. Posts two commands, so that the stream can be resumed between them."""
        for request_id in ("probe-1", "probe-2"):
            await self._post({"type": "set_params", "client_request_id": request_id, "patch": {"title": request_id}})
            await self._until(
                lambda: any(frame.get("client_request_id") == request_id for frame in self._stream.frames),  # noqa: B023
                "a command was accepted, but its ack did not come on the stream",
            )

    async def resume(self) -> None:
        """Check that a stream resumed after the second event sends the third."""
        last_id, wanted = self._stream.ids[1], self._stream.frames[2]
        again = await fresh_wire(self._target, self._chat_id, 1, self._wait_seconds, {}, last_event_id=last_id)
        if again.frames[0].get("type") == "snapshot":
            raise Failed("the server cannot resume: a stream opened with the last id began with a snapshot")
        if again.frames[0] != wanted:
            raise Failed("the server cannot resume: a stream opened with the last id went on with another event")

    async def heartbeat(self) -> None:
        """Check that a heartbeat follows the first snapshot."""
        if not await self._wire.until(lambda: self._wire.heartbeats_count, GREETING_SECONDS):
            raise Failed(
                f"no heartbeat `: hb <unix seconds>` followed the first snapshot within {GREETING_SECONDS:g} s"
            )

    async def run(self) -> None:
        """Check that the run of a message ends, if the server offers the model."""
        if self._target.lacks(["model:demo/echo"]):
            return
        patch = {"model": "demo/echo"}
        await self._post({"type": "set_params", "client_request_id": "probe-model", "patch": patch})
        await self._post({"type": "user_message", "client_request_id": "probe-run", "content": "hello"})
        await self._until(
            lambda: any(frame.get("outcome") for frame in self._stream.frames),
            "the run of a plain message did not end",
        )

    async def forget(self) -> None:
        """Delete the chat."""
        try:
            await self._target.request("DELETE", f"/v1/chats/{self._chat_id}")
        except httpx2.TransportError:
            return  # the transcripts will report the error

    async def _until(self, wanted: Callable[[], object], missing: str) -> None:
        if not await self._wire.until(wanted, self._wait_seconds):
            raise Failed(f"{missing} ({self._wire.ended or f'waited {self._wait_seconds:g} s'})")

    async def _post(self, command: JsonObject) -> None:
        await post(self._target, self._chat_id, command, wait_seconds=self._wait_seconds)
