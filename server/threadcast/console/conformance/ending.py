"""Checks after a transcript that every way to read a chat shows the same state.

The snapshot of a new subscriber, `GET /v1/chats/ID`, the tree, and the chat at earlier positions must equal the fold of
the live stream. A stream that is resumed in the middle must send exactly the remaining events. If the server does not
answer a request in time, the check is recorded in `target.cannot`, so that no other transcript waits for such an
answer.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import httpx2

from threadcast.console.conformance.asking import json_of
from threadcast.console.conformance.expecting import Failed, Hung
from threadcast.console.conformance.patterns import shown, value_at
from threadcast.console.conformance.stream import Stream, as_snapshot, difference
from threadcast.console.conformance.target import Target
from threadcast.console.conformance.wire import Wire, broken_headers
from threadcast_protocol.wire.ids import Position
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Ending", "fresh_wire"]

RESUMES_COUNT = 3
"""The number of positions from which each chat is resumed: enough for the beginning, middle and end of a run."""

HISTORY_COUNT = 2
"""The number of earlier positions at which each chat is read."""

SETTLE_SECONDS = 3.0
"""Seconds in which a chat at rest may still send events, such as a change of its `last_active`."""


class Ending:
    """The last checks of one chat.

    `had_log`: the chat existed before it was watched, so its stream can be resumed from its first id.
    """

    def __init__(self, target: Target, wire: Wire, stream: Stream, wait_seconds: float, *, had_log: bool) -> None:
        self.rules: dict[str, str] = {}
        self._target = target
        self._wire = wire
        self._stream = stream
        self._path = f"/v1/chats/{stream.chat_id}"
        self._wait_seconds = wait_seconds
        self._had_log = had_log

    async def check(self) -> None:
        """Run all checks. Raises Failed."""
        for capability, look in (
            ("snapshot", self._newcomer),
            ("read", self._read),
            ("tree", self._tree),
            ("at", self._history),
            ("resume", self._resume),
        ):
            if capability in self._target.cannot:
                continue
            try:
                await look()
            except (Hung, httpx2.TimeoutException) as wrong:
                sentence = str(wrong) or f"nothing came within {self._wait_seconds:g} s"
                self._target.cannot.setdefault(capability, sentence)
                raise Hung(f"{capability}: {sentence}") from None

    async def _settled(self, look: Callable[[], Awaitable[str | None]]) -> None:
        """Repeat a check after each new event of the chat until it succeeds. Raises Failed after a deadline."""
        deadline = time.monotonic() + min(SETTLE_SECONDS, self._wait_seconds)
        while True:
            have = len(self._stream.frames)
            wrong = await look()
            if wrong is None:
                return
            if time.monotonic() > deadline:
                raise Failed(wrong)
            await self._wire.until(lambda: len(self._stream.frames) > have, 0.3)  # noqa: B023 - awaited at once

    async def _newcomer(self) -> None:
        async def look() -> str | None:
            fresh = await fresh_wire(self._target, self._stream.chat_id, 1, self._wait_seconds, self.rules)
            theirs = as_snapshot(fresh.state)
            return self._differs("a fresh snapshot", as_snapshot(self._stream.state), theirs)

        await self._settled(look)

    async def _read(self) -> None:
        await self._settled(lambda: self._looks_as("", self._stream.state.position, as_snapshot(self._stream.state)))

    async def _history(self) -> None:
        """Read the chat at some earlier positions, alternately by number and by event id, and compare it."""
        for number, index in enumerate(self._indices(HISTORY_COUNT, first=0)):
            stream_position = Position.parse(self._stream.ids[index])
            if stream_position is None:
                return  # `Law` has reported the id
            at = str(stream_position.position) if number % 2 == 0 else str(stream_position)
            then = as_snapshot(self._stream.state_after(index))
            if (wrong := await self._looks_as(f"?at={at}", stream_position.position, then)) is not None:
                raise Failed(wrong)

    async def _looks_as(self, query: str, position: int, mine: JsonObject) -> str | None:
        """Read the chat with `query` and compare it with the snapshot `mine`. Returns a sentence about the difference,
        or None if they are equal."""
        body = await self._get(query)
        if query and body.get("code") == "gone":
            first = body.get("first")
            return None if isinstance(first, int) and first > position else f"GET {self._path}{query}: {shown(body)}"
        theirs = {key: value for key, value in body.items() if key not in ("chat_id", "position", "id")}
        stream_position = Position.parse(str(body.get("id")))
        head = (body.get("chat_id"), body.get("position"), stream_position and stream_position.position)
        if head != (self._stream.chat_id, position, position):
            named = {key: body.get(key) for key in ("chat_id", "position", "id")}
            return f"GET {self._path}{query} should be of position {position}, has {shown(named)}"
        return self._differs(f"GET {self._path}{query}", mine, theirs)

    async def _tree(self) -> None:
        async def look() -> str | None:
            state = self._stream.state
            body = await self._get("?view=tree")
            wrong = _wrong_in_tree(body, as_snapshot(state)["messages"])
            if wrong is None and (body.get("type"), body.get("position")) != ("tree", state.position):
                named = {key: body.get(key) for key in ("type", "position")}
                wrong = f"it should be a tree at position {state.position}, has {shown(named)}"
            return wrong and f"GET {self._path}?view=tree: {wrong}"

        await self._settled(look)

    async def _resume(self) -> None:
        """Resume from some positions after the last snapshot, and expect the same events, numbers and ids again."""
        stream = self._stream
        count = len(stream.frames)
        for number, index in enumerate(self._indices(RESUMES_COUNT, first=0 if self._had_log else 1)):
            event_id = stream.ids[index]
            again = await fresh_wire(
                self._target,
                stream.chat_id,
                count - index - 1,
                self._wait_seconds,
                self.rules,
                last_event_id=event_id,
                in_query=number % 2 == 1,
            )
            for mine, theirs in zip(stream.frames[index + 1 : count], again.frames, strict=False):
                if mine != theirs:
                    raise Failed(f"the stream resumed after {event_id} should send {shown(mine)}, sent {shown(theirs)}")
            if again.ids[: count - index - 1] != stream.ids[index + 1 : count]:
                raise Failed(f"the stream resumed after {event_id} has other ids than the first one")

    def _indices(self, wanted_count: int, *, first: int) -> list[int]:
        """Return up to `wanted_count` indexes of frames, from the last snapshot to the last frame but one.

        `first`: with 1, the very first snapshot is left out, because a chat has no log before its first command
        (PROTOCOL §4).
        """
        frames = self._stream.frames
        snapshot = max(i for i, frame in enumerate(frames) if frame.get("type") == "snapshot")
        middle = range(snapshot + (first if snapshot == 0 else 0), len(frames) - 1)
        return sorted({middle[len(middle) * i // wanted_count] for i in range(wanted_count)}) if middle else []

    async def _get(self, query: str) -> dict[str, Any]:  # Any: JSON from the server
        response = await self._target.request("GET", self._path + query, wait_seconds=self._wait_seconds)
        body = json_of(response, f"GET {self._path}{query}: ")
        if response.status_code not in (200, 410) or not isinstance(body, dict):
            raise Failed(f"GET {self._path}{query} was answered {response.status_code} {response.text[:200]}")
        return body

    def _differs(self, what: str, mine: object, theirs: object) -> str | None:
        found = difference(mine, theirs)
        if found is None:
            return None
        return (
            f"{what} differs from the fold of the live stream at {found}: "
            f"the fold has {shown(value_at(mine, found))}, the answer {shown(value_at(theirs, found))}"
        )


def _wrong_in_tree(body: dict[str, Any], path: list[JsonObject]) -> str | None:  # Any: as above
    """Check that the body is a tree and that its path to the leaf is the active path. Returns the reason if the check
    fails, else None."""
    seen: dict[str, JsonObject] = {}
    for message in body.get("messages", []):
        parent_id, message_id = message.get("parent_id"), str(message.get("message_id"))
        if parent_id is not None and parent_id not in seen:
            return f"message {message_id} is before its parent {parent_id}; parents must come first"
        seen[message_id] = message
    for message_id, message in seen.items():
        siblings = [key for key, each in seen.items() if each.get("parent_id") == message.get("parent_id")]
        if sorted(message.get("sibling_ids", [message_id])) != sorted(siblings):
            return f"message {message_id} should name the siblings {siblings}, names {message.get('sibling_ids')}"
    found: list[JsonObject] = []
    at = body.get("leaf_id")
    while at is not None:
        if at not in seen:
            return f"the leaf or a parent {at} is not in the tree"
        found.insert(0, seen[at])
        at = seen[at].get("parent_id")
    differs = difference(path, found)
    return differs and f"the path to leaf_id differs from the active path at {differs}"


async def fresh_wire(
    target: Target,
    chat_id: str,
    count: int,
    wait_seconds: float,
    rules: dict[str, str],
    *,
    last_event_id: str | None = None,
    in_query: bool = False,
) -> Stream:
    """Subscribe to a chat and return the stream after its first `count` frames.

    Rules that the framing or the headers of the stream break are added to `rules`. `last_event_id`: resume after this
    id, which is sent in the query if `in_query`, else in a header.

    Raises:
        Failed: the subscription is refused, or ends too early.
        Hung: the frames do not arrive in time.
    """
    wire = Wire.of_chat(chat_id, is_resumed=last_event_id is not None)
    stream = wire.chat(chat_id)
    async with target.subscribe(chat_id, last_event_id=last_event_id, in_query=in_query) as response:
        if response.status_code != 200:
            raise Failed(f"the subscription was answered {response.status_code}")
        rules.update(broken_headers(response))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wire.read, response)
            came = await wire.until(lambda: len(stream.frames) >= count, wait_seconds)
            tasks.cancel_scope.cancel()
    rules.update(wire.broken)
    if not came:
        after = f" resumed after {last_event_id}" if last_event_id else ""
        why = wire.ended or f"no more came within {wait_seconds:g} s"
        raise (Failed if wire.ended else Hung)(
            f"a subscription{after} sent {len(stream.frames)} of {count} events: {why}"
        )
    return stream
