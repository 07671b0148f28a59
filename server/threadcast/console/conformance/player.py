"""Plays one transcript against a server, in new chats, and reports the differences.

The player carries out the steps in order. Then, for each chat with a `final`, it makes the checks that every chat must
pass (`ending.py`). Meanwhile it checks the framing of every stream (`framing.py`) and the rules for its events
(`law.py`). Every wait has a deadline. The chats are deleted afterwards if the transcript passed.
"""

import base64
import contextlib
import json
import re
import secrets
import time
from collections import Counter
from typing import Literal, TypeAlias
from urllib.parse import parse_qs, quote, urlsplit

import anyio
import httpx2
import msgspec

from threadcast.console.conformance.asking import check, compare, fields_of, json_of, post, rules_of
from threadcast.console.conformance.ending import Ending, fresh_wire
from threadcast.console.conformance.expecting import Failed, Hung
from threadcast.console.conformance.opened import Opened
from threadcast.console.conformance.patterns import BadPattern, Names, fill, mismatch
from threadcast.console.conformance.stream import Stream, as_snapshot
from threadcast.console.conformance.target import Target
from threadcast.console.conformance.transcripts import Answer, Step, Transcript
from threadcast.console.conformance.wire import Wire
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["WAIT_SECONDS", "Result", "play"]

WAIT_SECONDS = 5.0
"""Seconds to wait for each event that a transcript expects. The models of the transcripts answer at once, but the
machine may be busy."""

GREETING_SECONDS = 2.0
"""Seconds to wait for the heartbeat after the first snapshot; our server sends this heartbeat within a millisecond."""

SILENCE_SECONDS = 19.0
"""Seconds to wait for a heartbeat on a silent stream; the protocol requires it after 15 s (PROTOCOL §4)."""

PAGES_MAX = 100
"""Maximum number of pages of a list that are read. A page covers 2,000 chats (PROTOCOL §18), so no tested server has
more."""

SET_UP_ID = "conformance-set-up"

CLEAN_UP_SECONDS = 3.0

Outcome: TypeAlias = Literal["passed", "failed", "skipped"]


class Result(msgspec.Struct, frozen=True):
    """The result of one transcript.

    `reasons`: why the transcript failed or was skipped, one sentence each. `rules`: maps the name of each general rule
    that was broken to a sentence. Many transcripts may break the same rule.
    """

    name: str
    outcome: Outcome
    duration_ms: int
    reasons: list[str] = []
    rules: dict[str, str] = {}


async def play(target: Target, transcript: Transcript, wait_seconds: float = WAIT_SECONDS) -> Result:
    """Play a transcript once. Errors of the server are not raised; they become reasons of the result.

    Call `target.look` before.
    """
    if lacking := target.lacks(transcript.requires):
        return Result(transcript.name, "skipped", 0, [target.why_lacking(lacking)])
    began = time.monotonic()
    player = _Player(target, transcript, wait_seconds)
    try:
        reasons = await player.play()
    except httpx2.TransportError as wrong:
        reasons = [_trouble(wrong)]
    await player.clean_up(keep=bool(reasons or player.rules))
    duration_ms = round((time.monotonic() - began) * 1000)
    reasons += player.rules.values()
    return Result(transcript.name, "failed" if reasons else "passed", duration_ms, reasons, player.rules)


class _Player:
    def __init__(self, target: Target, transcript: Transcript, wait_seconds: float) -> None:
        self.rules: dict[str, str] = {}
        self._target = target
        self._transcript = transcript
        self._wait_seconds = wait_seconds
        named = [*transcript.chats, *transcript.unwatched]
        self._names: Names = {name: f"conformance-{secrets.token_hex(16)}" for name in named}
        self._opened = Opened(target, self._names, wait_seconds, self.rules)
        self._accepted: dict[str, set[str]] = {name: set() for name in named}
        self._refused: dict[str, Counter[str]] = {name: Counter() for name in named}

    async def play(self) -> list[str]:
        """Play the transcript. Returns the reasons why the transcript failed. Broken rules are not among the reasons,
        but in `rules`."""
        reasons: list[str] = []
        async with anyio.create_task_group() as tasks:
            self._opened.tasks = tasks
            try:
                await self._set_up()
                for name in self._transcript.chats:
                    await self._watch(name)
                await self._steps()
                for name, pattern in self._transcript.final.items():
                    await self._final(name, pattern)
                await self._greetings()
            except (Failed, BadPattern, httpx2.TransportError) as wrong:
                if isinstance(wrong, Hung | httpx2.TimeoutException):
                    self._target.hung.set()
                reasons.append(_trouble(wrong) if isinstance(wrong, httpx2.TransportError) else str(wrong))
            tasks.cancel_scope.cancel()
        for name, wire in self._opened.wires.items():
            self._add_rules(wire.broken)
            reasons += [f"stream {name}: {each}" for stream in wire.chats.values() for each in stream.law.broken]
        return reasons

    async def clean_up(self, *, keep: bool) -> None:
        """Delete the chats. With `keep`, end the runs of the chats and keep the chats for inspection."""
        with anyio.move_on_after(CLEAN_UP_SECONDS, shield=True), contextlib.suppress(httpx2.TransportError):
            for name in (*self._transcript.chats, *self._transcript.unwatched):
                path = f"/v1/chats/{self._names[name]}"
                if keep:
                    body = {"type": "abort", "client_request_id": "conformance-end", "clear_queue": True}
                    await self._target.request("POST", f"{path}/commands", body=json.dumps(body).encode())
                else:
                    await self._target.request("DELETE", path)

    async def _set_up(self) -> None:
        transcript = self._transcript
        if not transcript.model:
            return
        patch = {"model": transcript.model, **transcript.params}
        command: JsonObject = {"type": "set_params", "client_request_id": SET_UP_ID, "patch": patch}
        await post(self._target, str(self._names[transcript.chats[0]]), command, headers={"Prefer": "wait=10"})

    async def _watch(self, name: str) -> None:
        """Begin to read one chat's live stream, and wait for its first snapshot."""
        chat_id = str(self._names[name])
        wire = Wire.of_chat(chat_id)
        await self._opened.open(name, wire, f"/v1/chats/subscribe?chat_id={chat_id}")
        stream = wire.chat(chat_id)
        if not await wire.until(lambda: stream.frames, self._wait_seconds):
            raise Hung(f"no snapshot of {name} came: {wire.ended or f'none within {self._wait_seconds:g} s'}")
        self._opened.cursor(name, name, begins_at=1)

    async def _steps(self) -> None:
        for number, step in enumerate(self._transcript.steps, 1):
            try:
                await self._step(step)
            except (Failed, BadPattern) as wrong:
                raise type(wrong)(f"step {number}: {wrong}") from None

    async def _step(self, step: Step) -> None:
        if step.post is not None:
            await self._post(step, step.post)
        elif step.request is not None:
            await self._request(step, step.request)
        elif step.pages is not None:
            await self._pages(step, step.pages)
        elif step.open is not None:
            await self._open_stream(step, step.open)
        elif step.close is not None:
            self._opened.close(step.close)
        elif step.expect is not None:
            patterns = [self._target.translate(pattern) for pattern in step.expect]
            await self._opened.cursor(step.of or step.chat, step.chat).expect(patterns)
        elif step.frames is not None:
            patterns = [self._target.translate(pattern) for pattern in step.frames]
            await self._opened.block_cursor(step.of or step.chat).expect(patterns)
        elif step.state is not None:
            await self._state(step.of or step.chat, step.chat, step.state)
        elif step.heartbeats is not None:
            wire, count = self._opened.wires[step.of or step.chat], step.heartbeats
            if not await wire.until(lambda: wire.heartbeats_count >= count, SILENCE_SECONDS):
                came = f"{wire.heartbeats_count} of {count} heartbeats came within {SILENCE_SECONDS:g} s"
                raise Hung(f"{came}; the server must send a heartbeat after 15 s of silence")
        elif step.join is not None:
            last_id = self._headers(step).get("Last-Event-ID")
            chat_id = str(self._names[step.chat])
            fresh = await fresh_wire(self._target, chat_id, 1, self._wait_seconds, self.rules, last_event_id=last_id)
            compare(self._target, self._names, step.join, fresh.frames[0], "a new subscriber: ")

    def _outgoing(self, value: object) -> object:
        return self._target.outgoing(fill(value, self._names))

    def _headers(self, step: Step) -> dict[str, str]:
        return {key: str(fill(value, self._names)) for key, value in step.headers.items()}

    def _add_rules(self, broken: dict[str, str]) -> None:
        """Add broken rules. A rule that was broken before keeps the sentence about its first violation."""
        self.rules.update(broken | self.rules)

    async def _post(self, step: Step, command: JsonObject | str) -> None:
        path = f"/v1/chats/{self._names[step.chat]}/commands"
        body = command if isinstance(command, str) else json.dumps(self._outgoing(command), ensure_ascii=False)
        response = await self._target.request("POST", path, body=body.encode(), headers=self._headers(step))
        self._add_rules(rules_of(response))
        request_id = str(fields_of(body).get("client_request_id", ""))
        if response.status_code >= 400:
            self._refused[step.chat][request_id] += 1
        elif fields_of(response.content).get("status") != "duplicate":
            self._accepted[step.chat].add(request_id)
        kind = command.get("type") if isinstance(command, dict) else None
        check(self._target, self._names, step.answer or _promised(kind), response)

    async def _request(self, step: Step, request: str) -> None:
        method, _, path = str(fill(request, self._names)).partition(" ")
        body, headers = self._body_of(step), self._headers(step)
        deadline = time.monotonic() + self._wait_seconds
        while True:
            response = await self._target.request(method, path, body=body, headers=headers)
            self._add_rules(rules_of(response))
            try:
                check(self._target, self._names, step.answer or Answer(), response)
            except Failed:
                if not step.eventually or time.monotonic() > deadline:
                    raise
                await anyio.sleep(0.05)
            else:
                return

    def _body_of(self, step: Step) -> bytes | None:
        if step.base64 is not None:
            return base64.b64decode(step.base64)
        if step.text is not None:
            return str(fill(step.text, self._names)).encode()
        return None if step.body is None else json.dumps(self._outgoing(step.body), ensure_ascii=False).encode()

    async def _pages(self, step: Step, request: str) -> None:
        """Fetch all items of a list, page by page with `next_cursor`, and compare them with the step's pattern."""
        method, _, path = str(fill(request, self._names)).partition(" ")
        items: list[object] = []
        cursor: object = None
        for _ in range(PAGES_MAX):
            address = path if cursor is None else f"{path}&cursor={quote(str(cursor), safe='')}"
            response = await self._target.request(method, address)
            self._add_rules(rules_of(response))
            page = json_of(response, f"{method} {address}: ")
            match page:
                case {"items": list() as found, "has_more": bool() as has_more, "next_cursor": cursor} if (
                    isinstance(cursor, str) == has_more
                ):
                    items += found
                case _:
                    raise Failed(f"{method} {address} was not answered with a page of a list: {response.text[:300]}")
            if not has_more:
                compare(self._target, self._names, step.items, items, f"the pages of {path}: ")
                return
        raise Failed(f"{method} {path} has more than {PAGES_MAX} pages")

    async def _open_stream(self, step: Step, request: str) -> None:
        method, _, path = str(fill(request, self._names)).partition(" ")
        query = parse_qs(urlsplit(path).query)
        headers = self._headers(step)
        is_named = "stream_id" in query
        chat_ids = query.get("chat_id", [])
        wire = Wire(
            chat_ids,
            is_native=method == "GET",
            has_plain_ids=len(chat_ids) == 1 and not is_named,
            is_open_to_all=is_named,
            is_resumed="from" in query or "Last-Event-ID" in headers,
        )
        await self._opened.open(step.name, wire, path, method=method, body=self._body_of(step), headers=headers)

    async def _state(self, wire_name: str, name: str, pattern: JsonObject) -> None:
        wire = self._opened.wires[wire_name]
        chat_id = str(self._names[name])
        wanted = self._target.translate(pattern)

        def differs() -> str | None:
            return mismatch(wanted, as_snapshot(wire.chat(chat_id).state), self._names)

        if not await wire.until(lambda: differs() is None, self._wait_seconds):
            raise Hung(f"chat {name} did not reach the expected state in {self._wait_seconds:g} s: {differs()}")

    async def _final(self, name: str, pattern: JsonObject) -> None:
        wire = self._opened.wires[name]
        stream: Stream = wire.chat(str(self._names[name]))
        if not await wire.until(
            lambda: stream.state.is_at_rest and not stream.state.runtime.queue_size, self._wait_seconds
        ):
            raise Hung(f"chat {name} does not come to rest; its state is {stream.state.runtime.state}")
        had_log = bool(self._transcript.model) and name == self._transcript.chats[0]
        ending = Ending(self._target, wire, stream, self._wait_seconds, had_log=had_log)
        try:
            await self._state(name, name, pattern)
            await ending.check()
        except Failed as wrong:
            raise type(wrong)(f"at the end of {name}: {wrong}") from None
        finally:
            self.rules.update(ending.rules)
            stream.law.at_end(self._accepted[name], self._refused[name])

    async def _greetings(self) -> None:
        """Check that each stream sent a heartbeat after its first snapshot."""
        if "heartbeat" in self._target.cannot:
            return
        for name, wire in self._opened.wires.items():
            if wire.is_native and not wire.is_resumed and wire.ended is None:
                came = await wire.until(lambda: wire.heartbeats_count, GREETING_SECONDS)  # noqa: B023 - awaited at once
                if not came and wire.ended is None:
                    late = f"no heartbeat followed the first snapshot of stream {name} within {GREETING_SECONDS:g} s"
                    self._add_rules({"heartbeat": late})


_EARLY_STATUS = {"abort": "aborted", "set_params": "applied"}
"""Maps types of commands to the `status` of the answer 200 that follows their effect. If no effect follows within 2 s,
such a command is answered 202 (PROTOCOL §3)."""


def _promised(kind: object) -> Answer:
    """Return the answer that PROTOCOL §3 promises for an accepted command of this type."""
    early = _EARLY_STATUS.get(str(kind))
    if early is None:
        return Answer(202, {"status": "accepted"})
    return Answer({"$one_of": [200, 202]}, {"status": {"$one_of": [early, "accepted"]}})


def _trouble(wrong: httpx2.TransportError) -> str:
    request = re.sub(r"https?://[^/]+", "", f"{wrong.request.method} {wrong.request.url}")
    if isinstance(wrong, httpx2.TimeoutException):
        return f"{request} was not answered in time"
    return f"the connection of {request} failed: {str(wrong) or type(wrong).__name__}"
