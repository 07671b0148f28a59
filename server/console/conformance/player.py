"""Plays one transcript against a server, in chats of its own, and says what differed.

First the steps in order; then, for each chat with a `final`, what must hold of every chat: it rests, a fresh snapshot
equals the fold of the live stream, a stream resumed in the middle brings exactly the rest, and the law of the stream
was kept. Every wait has a deadline. Chats are deleted afterwards, unless something went wrong.
"""

import contextlib
import json
import secrets
import time
from collections import Counter
from typing import Literal

import anyio
import httpx2
import msgspec

from protocol.messages import JsonObject
from server.console.conformance.expecting import Cursor, Failed
from server.console.conformance.patterns import BadPattern, Names, fill, mismatch, shown
from server.console.conformance.stream import Stream, as_snapshot, difference
from server.console.conformance.target import Target
from server.console.conformance.transcripts import Answer, Step, Transcript

__all__ = ["WAIT_SECONDS", "Result", "play"]

WAIT_SECONDS = 15.0
"""For any one thing that a transcript waits for: models of the transcripts answer at once, machines may be busy."""

RESUMES_COUNT = 4
"""Positions from which each chat is resumed: enough to meet beginning, middle and end of a run."""

SET_UP_ID = "conformance-set-up"

CLEAN_UP_SECONDS = 5.0


class Result(msgspec.Struct, frozen=True):
    """What came of one transcript. `reasons`: why it failed or was skipped, one sentence each."""

    name: str
    outcome: Literal["passed", "failed", "skipped"]
    duration_ms: int
    reasons: list[str] = []


async def play(target: Target, transcript: Transcript, wait_seconds: float = WAIT_SECONDS) -> Result:
    """Play it once. Never raises for what a server does; `target.look` was called before."""
    if lacking := target.lacks(transcript.requires):
        wants = ", ".join(each.replace(":", " ") for each in lacking)
        return Result(transcript.name, "skipped", 0, [f"the server does not offer: {wants}"])
    began = time.monotonic()
    player = _Player(target, transcript, wait_seconds)
    try:
        reasons = await player.play()
    except httpx2.TransportError as wrong:
        reasons = [f"the connection failed: {str(wrong) or type(wrong).__name__}"]
    await player.clean_up(keep=bool(reasons))
    duration_ms = round((time.monotonic() - began) * 1000)
    return Result(transcript.name, "failed" if reasons else "passed", duration_ms, reasons)


class _Player:
    def __init__(self, target: Target, transcript: Transcript, wait_seconds: float) -> None:
        self._target = target
        self._transcript = transcript
        self._wait_seconds = wait_seconds
        self._names: Names = {name: f"conformance-{secrets.token_hex(6)}" for name in transcript.chats}
        self._cursors: dict[str, Cursor] = {}
        self._accepted: dict[str, set[str]] = {name: set() for name in transcript.chats}
        self._refused: dict[str, Counter[str]] = {name: Counter() for name in transcript.chats}

    async def play(self) -> list[str]:
        """The reasons why it failed; none: it passed."""
        reasons: list[str] = []
        async with anyio.create_task_group() as tasks:
            try:
                await self._set_up()
                for name in self._transcript.chats:
                    stream = Stream(self._chat_id(name))
                    self._cursors[name] = Cursor(stream, self._names, self._wait_seconds)
                    tasks.start_soon(self._watch, stream)
                    if not await stream.until(lambda: stream.frames, self._wait_seconds):  # noqa: B023 - at once
                        raise Failed(f"no snapshot of {name}: {stream.ended or f'none in {self._wait_seconds:g} s'}")
                await self._steps()
                for name, pattern in self._transcript.final.items():
                    await self._final(name, pattern)
            except (Failed, BadPattern) as wrong:
                reasons.append(str(wrong))
            except httpx2.TransportError as wrong:
                reasons.append(f"the connection failed: {str(wrong) or type(wrong).__name__}")
            tasks.cancel_scope.cancel()
        for name, cursor in self._cursors.items():
            reasons += [f"chat {name}: {each}" for each in cursor.stream.law.broken]
        return reasons

    async def _watch(self, stream: Stream) -> None:
        """One chat's live stream, for as long as the transcript is played."""
        try:
            async with self._target.subscribe(stream.chat_id) as response:
                _must_be_a_stream(response)
                await stream.read(response)
        except (Failed, httpx2.TransportError) as wrong:
            stream.end(str(wrong) or type(wrong).__name__)

    async def clean_up(self, *, keep: bool) -> None:
        """Leave nothing behind but what somebody will want to look at; that too at rest."""
        with anyio.move_on_after(CLEAN_UP_SECONDS, shield=True), contextlib.suppress(httpx2.TransportError):
            for name in self._transcript.chats:
                path = f"/v1/chats/{self._chat_id(name)}"
                if keep:
                    body = {"type": "abort", "client_request_id": "conformance-end", "clear_queue": True}
                    await self._target.request("POST", f"{path}/commands", body=json.dumps(body).encode())
                else:
                    await self._target.request("DELETE", path)

    def _chat_id(self, name: str) -> str:
        return str(self._names[name])

    def _stream(self, name: str) -> Stream:
        return self._cursors[name].stream

    async def _set_up(self) -> None:
        transcript = self._transcript
        if not transcript.model:
            return
        patch = self._target.translate({"model": transcript.model, **transcript.params})
        body = {"type": "set_params", "client_request_id": SET_UP_ID, "patch": patch}
        path = f"/v1/chats/{self._chat_id(transcript.chats[0])}/commands"
        waits = {"Prefer": "wait=10"}
        response = await self._target.request("POST", path, body=json.dumps(body).encode(), headers=waits)
        if response.status_code not in (200, 202):
            raise Failed(f"set_params of the model was answered {response.status_code}: {response.text[:200]}")

    async def _steps(self) -> None:
        for number, step in enumerate(self._transcript.steps, 1):
            try:
                await self._step(step)
            except (Failed, BadPattern) as wrong:
                raise Failed(f"step {number}: {wrong}") from None

    async def _step(self, step: Step) -> None:
        if step.post is not None:
            await self._post(step, step.post)
        elif step.request is not None:
            method, _, path = str(fill(step.request, self._names)).partition(" ")
            body = None if step.body is None else json.dumps(self._outgoing(step.body)).encode()
            headers = self._headers(step)
            response = await self._target.request(method, path, body=body, headers=headers)
            self._check(step.answer or Answer(), response)
        elif step.expect is not None:
            patterns = self._target.translate(step.expect)
            assert isinstance(patterns, list)
            await self._cursors[step.chat].expect(patterns)
        elif step.state is not None:
            await self._state(step.chat, step.state)
        elif step.join is not None:
            fresh = await self._fresh(step.chat, 1, last_event_id=self._headers(step).get("Last-Event-ID"))
            self._compare(step.join, fresh.frames[0], "a subscriber who joins: ")

    def _outgoing(self, value: object) -> object:
        return self._target.translate(fill(value, self._names))

    def _headers(self, step: Step) -> dict[str, str]:
        return {key: str(fill(value, self._names)) for key, value in step.headers.items()}

    def _compare(self, pattern: object, value: object, where: str = "") -> None:
        names = dict(self._names)
        if (wrong := mismatch(self._target.translate(pattern), value, names)) is not None:
            raise Failed(f"{where}{wrong}")
        self._names.update(names)

    async def _post(self, step: Step, command: JsonObject | str) -> None:
        path = f"/v1/chats/{self._chat_id(step.chat)}/commands"
        body = command if isinstance(command, str) else json.dumps(self._outgoing(command))
        response = await self._target.request("POST", path, body=body.encode(), headers=self._headers(step))
        request_id = str(command.get("client_request_id")) if isinstance(command, dict) else ""
        if response.status_code >= 400:
            self._refused[step.chat][request_id] += 1
        elif _status_word(response) != "duplicate":
            self._accepted[step.chat].add(request_id)
        kind = command.get("type") if isinstance(command, dict) else None
        self._check(step.answer or _promised(kind), response)

    def _check(self, answer: Answer, response: httpx2.Response) -> None:
        came = f"was answered {response.status_code} {response.text[:200]}: "
        self._compare(answer.status, response.status_code, f"{came}the status ")
        self._compare(answer.headers, {key.lower(): value for key, value in response.headers.items()}, f"{came}headers")
        if answer.text is not None:
            self._compare(answer.text, response.text, came)
        if answer.body is not None:
            try:
                body = json.loads(response.content)
            except ValueError:
                raise Failed(f"{came}the body is not JSON") from None
            self._compare(answer.body, body, came)

    async def _state(self, name: str, pattern: JsonObject) -> None:
        stream = self._stream(name)
        wanted = self._target.translate(pattern)

        def differs() -> str | None:
            return mismatch(wanted, as_snapshot(stream.state), dict(self._names))

        if not await stream.until(lambda: differs() is None, self._wait_seconds):
            raise Failed(f"chat {name} did not come to that state in {self._wait_seconds:g} s: {differs()}")
        mismatch(wanted, as_snapshot(stream.state), self._names)

    async def _final(self, name: str, pattern: JsonObject) -> None:
        stream = self._stream(name)
        if not await stream.until(
            lambda: stream.state.is_at_rest and not stream.state.runtime.queue_size, self._wait_seconds
        ):
            raise Failed(f"chat {name} does not come to rest; it is {stream.state.runtime.state}")
        try:
            await self._state(name, pattern)
            await self._compare_fresh(name)
            await self._resume(name)
        except Failed as wrong:
            raise Failed(f"at the end: {wrong}") from None
        finally:
            stream.law.at_end(self._accepted[name], self._refused[name])

    async def _compare_fresh(self, name: str) -> None:
        """What a newcomer is given is what the live reader has folded. Events may still be on their way to either."""
        stream = self._stream(name)
        found: str | None = None
        deadline = time.monotonic() + self._wait_seconds
        while time.monotonic() < deadline:
            fresh = await self._fresh(name, 1)
            mine, theirs = as_snapshot(stream.state), as_snapshot(fresh.state)
            found = difference(mine, theirs)
            if found is None:
                return
            have = len(stream.frames)
            await stream.until(lambda: len(stream.frames) > have, 0.5)  # noqa: B023 - awaited at once
        raise Failed(
            f"a fresh snapshot of {name} differs from the fold of the live stream at {found}: "
            f"{shown(_at(mine, found))} live, {shown(_at(theirs, found))} fresh"
        )

    async def _resume(self, name: str) -> None:
        """From some positions after the last snapshot: the same events again, with the same numbers and ids."""
        stream = self._stream(name)
        last_snapshot = max(i for i, frame in enumerate(stream.frames) if frame.get("type") == "snapshot")
        count = len(stream.frames)
        # Before its first command a chat has no log, so there is nothing yet to resume from (PROTOCOL §4).
        had_log = last_snapshot > 0 or (bool(self._transcript.model) and name == self._transcript.chats[0])
        middle = range(last_snapshot if had_log else last_snapshot + 1, count - 1)
        places = sorted({middle[len(middle) * i // RESUMES_COUNT] for i in range(RESUMES_COUNT)}) if middle else []
        for turn, place in enumerate(places):
            event_id = stream.ids[place]
            again = await self._fresh(name, count - place - 1, last_event_id=event_id, in_query=turn % 2 == 1)
            for mine, theirs in zip(stream.frames[place + 1 : count], again.frames, strict=False):
                if mine != theirs:
                    raise Failed(f"resumed after {event_id}, expected {shown(mine)}, came {shown(theirs)}")
            if again.ids[: count - place - 1] != stream.ids[place + 1 : count]:
                raise Failed(f"resumed after {event_id}, events have other ids")

    async def _fresh(
        self, name: str, count: int, *, last_event_id: str | None = None, in_query: bool = False
    ) -> Stream:
        """The first `count` frames of a subscription of its own."""
        fresh = Stream(self._chat_id(name))
        subscription = self._target.subscribe(fresh.chat_id, last_event_id=last_event_id, in_query=in_query)
        async with subscription as response:
            _must_be_a_stream(response)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fresh.read, response)
                came = await fresh.until(lambda: len(fresh.frames) >= count, self._wait_seconds)
                tasks.cancel_scope.cancel()
        if not came:
            after = f" resumed after {last_event_id}" if last_event_id else ""
            why = fresh.ended or f"in {self._wait_seconds:g} s"
            raise Failed(f"a subscription{after} gave {len(fresh.frames)} of {count} events: {why}")
        return fresh


def _must_be_a_stream(response: httpx2.Response) -> None:
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    if response.status_code != 200 or kind != "text/event-stream":
        raise Failed(f"subscribing was answered {response.status_code} {kind or 'without a content type'}")


def _promised(kind: object) -> Answer:
    """PROTOCOL §3; `abort` and `set_params` answer 202 when their effect takes more than 2 s."""
    match kind:
        case "abort":
            return Answer({"$one_of": [200, 202]}, {"status": {"$one_of": ["aborted", "accepted"]}})
        case "set_params":
            return Answer({"$one_of": [200, 202]}, {"status": {"$one_of": ["applied", "accepted"]}})
        case _:
            return Answer(202, {"status": "accepted"})


def _status_word(response: httpx2.Response) -> object:
    try:
        body = json.loads(response.content)
    except ValueError:
        return None
    return body.get("status") if isinstance(body, dict) else None


def _at(value: object, path: str | None) -> object:
    """The value at a path that `difference` gave."""
    for key in (path or "").split("/")[1:]:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
    return value
