"""Plays one transcript against a server, in chats of its own, and says what differed.

First the steps in order; then, for each chat with a `final`, what must hold of every chat (`ending.py`); all the while
the framing of every stream (`framing.py`) and the law of its events (`law.py`). Every wait has a deadline. Chats are
deleted afterwards, unless something went wrong.
"""

import base64
import contextlib
import json
import re
import secrets
import time
from collections import Counter
from typing import Literal
from urllib.parse import parse_qs, quote, urlsplit

import anyio
import httpx2
import msgspec

from protocol.messages import JsonObject
from server.console.conformance.asking import check, compare, json_of, rules_of
from server.console.conformance.ending import Ending, fresh_wire
from server.console.conformance.expecting import Failed, Hung
from server.console.conformance.opened import Opened
from server.console.conformance.patterns import BadPattern, Names, fill, mismatch
from server.console.conformance.stream import Stream, as_snapshot
from server.console.conformance.target import Target
from server.console.conformance.transcripts import Answer, Step, Transcript
from server.console.conformance.wire import Wire

__all__ = ["WAIT_SECONDS", "Result", "play"]

WAIT_SECONDS = 5.0
"""For any one thing that a transcript waits for: models of the transcripts answer at once, machines may be busy."""

GREETING_SECONDS = 2.0
"""For the heartbeat after the first snapshot, which our server sends within a millisecond."""

SILENCE_SECONDS = 19.0
"""For a heartbeat on a silent stream, which comes after 15 s (PROTOCOL §4)."""

PAGES_MAX = 100
"""Of a list: with 2,000 chats looked at for a page (PROTOCOL §18), more than any server under test has."""

SET_UP_ID = "conformance-set-up"

CLEAN_UP_SECONDS = 3.0


class Result(msgspec.Struct, frozen=True):
    """The result of one transcript. `reasons`: why it failed or was skipped, one sentence each. `rules`: sentences
    about general rules that were broken, by the rule's name; many transcripts may break the same rule."""

    name: str
    outcome: Literal["passed", "failed", "skipped"]
    duration_ms: int
    reasons: list[str] = []
    rules: dict[str, str] = {}


async def play(target: Target, transcript: Transcript, wait_seconds: float = WAIT_SECONDS) -> Result:
    """Play it once. Never raises for what a server does; `target.look` was called before."""
    if lacking := target.lacks(transcript.requires):
        wants = ", ".join(each.replace(":", " ") for each in lacking)
        why = f"not played without {wants}" if target.cannot else f"the server does not offer: {wants}"
        return Result(transcript.name, "skipped", 0, [why])
    began = time.monotonic()
    player = _Player(target, transcript, wait_seconds)
    try:
        reasons = await player.play()
    except httpx2.TransportError as wrong:
        reasons = [_trouble(wrong)]
    await player.clean_up(keep=bool(reasons or player.rules))
    duration_ms = round((time.monotonic() - began) * 1000)
    reasons += player.rules.values()
    outcome: Literal["passed", "failed"] = "failed" if reasons else "passed"
    return Result(transcript.name, outcome, duration_ms, reasons, player.rules)


class _Player:
    def __init__(self, target: Target, transcript: Transcript, wait_seconds: float) -> None:
        self.rules: dict[str, str] = {}
        self._target = target
        self._transcript = transcript
        self._wait_seconds = wait_seconds
        named = [*transcript.chats, *transcript.unwatched]
        self._names: Names = {name: f"conformance-{secrets.token_hex(6)}" for name in named}
        self._opened = Opened(target, self._names, wait_seconds, self.rules)
        self._accepted: dict[str, set[str]] = {name: set() for name in named}
        self._refused: dict[str, Counter[str]] = {name: Counter() for name in named}

    async def play(self) -> list[str]:
        """Play the transcript and return the reasons why it failed; without reasons it passed, unless `rules` has
        entries."""
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
            except (Failed, BadPattern) as wrong:
                if isinstance(wrong, Hung):
                    self._target.hung.set()
                reasons.append(str(wrong))
            except httpx2.TransportError as wrong:
                if isinstance(wrong, httpx2.TimeoutException):
                    self._target.hung.set()
                reasons.append(_trouble(wrong))
            tasks.cancel_scope.cancel()
        for name, wire in self._opened.wires.items():
            for rule, sentence in wire.broken.items():
                self.rules.setdefault(rule, sentence)
            reasons += [f"stream {name}: {each}" for stream in wire.chats.values() for each in stream.law.broken]
        return reasons

    async def clean_up(self, *, keep: bool) -> None:
        """Leave nothing behind but what somebody will want to look at; that too at rest."""
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
        patch = self._target.translate({"model": transcript.model, **transcript.params})
        body = {"type": "set_params", "client_request_id": SET_UP_ID, "patch": patch}
        path = f"/v1/chats/{self._names[transcript.chats[0]]}/commands"
        waits = {"Prefer": "wait=10"}
        response = await self._target.request("POST", path, body=json.dumps(body).encode(), headers=waits)
        if response.status_code not in (200, 202):
            raise Failed(f"set_params of the model was answered {response.status_code}: {response.text[:200]}")

    async def _watch(self, name: str) -> None:
        """Read one chat's live stream while the transcript is played."""
        chat_id = str(self._names[name])
        wire = Wire.of_chat(chat_id)
        await self._opened.open(name, wire, f"/v1/chats/subscribe?chat_id={chat_id}")
        stream = wire.chat(chat_id)
        if not await wire.until(lambda: stream.frames, self._wait_seconds):
            raise Hung(f"no snapshot of {name}: {wire.ended or f'none in {self._wait_seconds:g} s'}")
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
            patterns = self._target.translate(step.expect)
            assert isinstance(patterns, list)
            await self._opened.cursor(step.of or step.chat, step.chat).expect(patterns)
        elif step.frames is not None:
            patterns = self._target.translate(step.frames)
            assert isinstance(patterns, list)
            await self._opened.block_cursor(step.of or step.chat).expect(patterns)
        elif step.state is not None:
            await self._state(step.of or step.chat, step.chat, step.state)
        elif step.heartbeats is not None:
            wire, count = self._opened.wires[step.of or step.chat], step.heartbeats
            if not await wire.until(lambda: wire.heartbeats_count >= count, SILENCE_SECONDS):
                came = f"{wire.heartbeats_count} of {count} heartbeats came within {SILENCE_SECONDS:g} s"
                raise Hung(f"{came}; after 15 s of silence there must be one")
        elif step.join is not None:
            last_id = self._headers(step).get("Last-Event-ID")
            chat_id = str(self._names[step.chat])
            fresh = await fresh_wire(self._target, chat_id, 1, self._wait_seconds, self.rules, last_event_id=last_id)
            self._compare(step.join, fresh.frames[0], "a subscriber who joins: ")

    def _outgoing(self, value: object) -> object:
        return self._target.translate(fill(value, self._names))

    def _headers(self, step: Step) -> dict[str, str]:
        return {key: str(fill(value, self._names)) for key, value in step.headers.items()}

    def _compare(self, pattern: object, value: object, where: str = "") -> None:
        compare(self._target, self._names, pattern, value, where)

    async def _post(self, step: Step, command: JsonObject | str) -> None:
        path = f"/v1/chats/{self._names[step.chat]}/commands"
        body = command if isinstance(command, str) else json.dumps(self._outgoing(command), ensure_ascii=False)
        response = await self._target.request("POST", path, body=body.encode(), headers=self._headers(step))
        self._look_at(response)
        request_id = _request_id(body)
        if response.status_code >= 400:
            self._refused[step.chat][request_id] += 1
        elif _status_word(response) != "duplicate":
            self._accepted[step.chat].add(request_id)
        kind = command.get("type") if isinstance(command, dict) else None
        check(self._target, self._names, step.answer or _promised(kind), response)

    async def _request(self, step: Step, request: str) -> None:
        method, _, path = str(fill(request, self._names)).partition(" ")
        body, headers = self._body_of(step), self._headers(step)
        deadline = time.monotonic() + self._wait_seconds
        while True:
            response = await self._target.request(method, path, body=body, headers=headers)
            self._look_at(response)
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

    def _look_at(self, response: httpx2.Response) -> None:
        for rule, sentence in rules_of(response).items():
            self.rules.setdefault(rule, sentence)

    async def _pages(self, step: Step, request: str) -> None:
        """Return all items of a list, fetched page by page with `next_cursor`."""
        method, _, path = str(fill(request, self._names)).partition(" ")
        items: list[object] = []
        cursor: object = None
        for _ in range(PAGES_MAX):
            address = path if cursor is None else f"{path}&cursor={quote(str(cursor), safe='')}"
            response = await self._target.request(method, address)
            self._look_at(response)
            page = json_of(response, f"{method} {address}: ")
            match page:
                case {"items": list() as found, "has_more": bool() as has_more, "next_cursor": cursor} if (
                    isinstance(cursor, str) == has_more
                ):
                    items += found
                case _:
                    raise Failed(f"{method} {address} is no page of a list: {response.text[:300]}")
            if not has_more:
                self._compare(step.items, items, f"the pages of {path}: ")
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
        body = None if step.body is None else json.dumps(self._outgoing(step.body), ensure_ascii=False).encode()
        await self._opened.open(step.name, wire, path, method=method, body=body, headers=headers)

    async def _state(self, wire_name: str, name: str, pattern: JsonObject) -> None:
        wire = self._opened.wires[wire_name]
        chat_id = str(self._names[name])
        wanted = self._target.translate(pattern)

        def differs() -> str | None:
            return mismatch(wanted, as_snapshot(wire.chat(chat_id).state), dict(self._names))

        if not await wire.until(lambda: differs() is None, self._wait_seconds):
            raise Hung(f"chat {name} did not come to that state in {self._wait_seconds:g} s: {differs()}")
        mismatch(wanted, as_snapshot(wire.chat(chat_id).state), self._names)

    async def _final(self, name: str, pattern: JsonObject) -> None:
        wire = self._opened.wires[name]
        stream: Stream = wire.chat(str(self._names[name]))
        if not await wire.until(
            lambda: stream.state.is_at_rest and not stream.state.runtime.queue_size, self._wait_seconds
        ):
            raise Hung(f"chat {name} does not come to rest; it is {stream.state.runtime.state}")
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
                    sentence = (
                        f"no heartbeat followed the first snapshot of stream {name} within {GREETING_SECONDS:g} s"
                    )
                    self.rules.setdefault("heartbeat", sentence)


def _promised(kind: object) -> Answer:
    """PROTOCOL §3; `abort` and `set_params` answer 202 when their effect takes more than 2 s."""
    match kind:
        case "abort":
            return Answer({"$one_of": [200, 202]}, {"status": {"$one_of": ["aborted", "accepted"]}})
        case "set_params":
            return Answer({"$one_of": [200, 202]}, {"status": {"$one_of": ["applied", "accepted"]}})
        case _:
            return Answer(202, {"status": "accepted"})


def _request_id(body: str) -> str:
    try:
        command = json.loads(body)
    except ValueError:
        return ""
    return str(command.get("client_request_id")) if isinstance(command, dict) else ""


def _status_word(response: httpx2.Response) -> object:
    try:
        body = json.loads(response.content)
    except ValueError:
        return None
    return body.get("status") if isinstance(body, dict) else None


def _trouble(wrong: httpx2.TransportError) -> str:
    request = re.sub(r"https?://[^/]+", "", f"{wrong.request.method} {wrong.request.url}")
    if isinstance(wrong, httpx2.TimeoutException):
        return f"{request} is not answered in time"
    return f"the connection of {request} failed: {str(wrong) or type(wrong).__name__}"
