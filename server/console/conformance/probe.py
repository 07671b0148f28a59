"""Finds out before the transcripts what a server cannot do, so that no transcript waits for it.

Each failed look is one result with one sentence, and a word in `target.cannot`; transcripts that need it are skipped,
and what holds of every chat is checked without it.
"""

import json
import secrets
import time

import anyio
import httpx2

from protocol.messages import JsonObject
from server.console.conformance.ending import fresh_wire
from server.console.conformance.expecting import Failed
from server.console.conformance.player import GREETING_SECONDS, Result
from server.console.conformance.target import Target
from server.console.conformance.wire import Wire

__all__ = ["MUST", "probe"]

PROBE_SECONDS = 5.0
"""For anything that the probe waits for, all of which takes milliseconds on a healthy server."""

MUST = ("stream", "command")
"""Without these nothing can be played."""


async def probe(target: Target, wait_seconds: float) -> list[Result]:
    """Return one failed result for each missing ability; [] for a healthy server. Nothing that a server does makes it
    raise."""
    probing = _Probe(target, min(wait_seconds, PROBE_SECONDS))
    chat_id = f"conformance-{secrets.token_hex(6)}"
    wire = Wire.of_chat(chat_id)
    results: list[Result] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probing.watch, wire, chat_id)
        looks = {"stream": probing.stream, "command": probing.command, "resume": probing.resume}
        looks |= {"heartbeat": probing.heartbeat, "run": probing.run}
        for name, look in looks.items():
            began = time.monotonic()
            try:
                await look(wire, chat_id)
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
        await probing.forget(chat_id)
    return results


class _Probe:
    def __init__(self, target: Target, wait_seconds: float) -> None:
        self._target = target
        self._wait_seconds = wait_seconds

    async def watch(self, wire: Wire, chat_id: str) -> None:
        try:
            async with self._target.subscribe(chat_id) as response:
                if response.status_code == 200:
                    await wire.read(response)
                wire.end(f"subscribing was answered {response.status_code}")
        except httpx2.TransportError as wrong:
            wire.end(f"subscribing failed: {str(wrong) or type(wrong).__name__}")

    async def stream(self, wire: Wire, chat_id: str) -> None:
        stream = wire.chat(chat_id)
        if not await wire.until(lambda: stream.frames, self._wait_seconds):
            why = wire.ended or f"nothing came within {self._wait_seconds:g} s"
            raise Failed(f"a new stream of a chat must begin with a snapshot: {why}")

    async def command(self, wire: Wire, chat_id: str) -> None:
        """Post two commands, so that there is something to resume."""
        stream = wire.chat(chat_id)
        for number in (1, 2):
            await self._post(
                chat_id,
                {"type": "set_params", "client_request_id": f"probe-{number}", "patch": {"title": f"Probe {number}"}},
            )
            wanted = f"probe-{number}"
            if not await wire.until(
                lambda: any(frame.get("client_request_id") == wanted for frame in stream.frames),  # noqa: B023 - at once
                self._wait_seconds,
            ):
                why = wire.ended or f"nothing more within {self._wait_seconds:g} s"
                raise Failed(f"a command was accepted, but its ack did not come on the stream: {why}")

    async def resume(self, wire: Wire, chat_id: str) -> None:
        stream = wire.chat(chat_id)
        place, count = 1, len(stream.frames)
        wanted = stream.frames[place + 1 : count]
        again = await fresh_wire(self._target, chat_id, 1, self._wait_seconds, {}, last_event_id=stream.ids[place])
        if again.frames[0].get("type") == "snapshot":
            raise Failed("the server cannot resume: a stream opened with the last id began with a snapshot")
        if again.frames[0] != wanted[0]:
            raise Failed("the server cannot resume: a stream opened with the last id went on with another event")

    async def heartbeat(self, wire: Wire, chat_id: str) -> None:
        if not await wire.until(lambda: wire.heartbeats_count, GREETING_SECONDS):
            raise Failed(
                f"no heartbeat `: hb <unix seconds>` followed the first snapshot within {GREETING_SECONDS:g} s"
            )

    async def run(self, wire: Wire, chat_id: str) -> None:
        if self._target.lacks(["model:demo/echo"]):
            return
        model = self._target.model("demo/echo")
        patch = {"type": "set_params", "client_request_id": "probe-model", "patch": {"model": model}}
        await self._post(chat_id, patch)
        await self._post(chat_id, {"type": "user_message", "client_request_id": "probe-run", "content": "hello"})
        stream = wire.chat(chat_id)
        if not await wire.until(lambda: any(frame.get("outcome") for frame in stream.frames), self._wait_seconds):
            why = wire.ended or f"within {self._wait_seconds:g} s"
            raise Failed(f"the run of a plain message did not end: {why}")

    async def forget(self, chat_id: str) -> None:
        try:
            await self._target.request("DELETE", f"/v1/chats/{chat_id}")
        except httpx2.TransportError:
            return  # the transcripts will say what is wrong

    async def _post(self, chat_id: str, command: JsonObject) -> None:
        body = json.dumps(command).encode()
        response = await self._target.request(
            "POST", f"/v1/chats/{chat_id}/commands", body=body, wait_seconds=self._wait_seconds
        )
        if response.status_code not in (200, 202):
            raise Failed(f"a {command['type']} was answered {response.status_code}: {response.text[:200]}")
