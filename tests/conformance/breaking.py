"""Small tools of which the mutations are made: changes of JSON answers, of headers, and of the events of a stream."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.conformance.proxy import Answer, Request, UnitChange

__all__ = [
    "EventChange",
    "Json",
    "answers",
    "changed",
    "event_unit",
    "events",
    "header",
    "is_chats",
    "is_feed",
    "json_answers",
    "lost",
    "query",
    "replacing",
    "twice",
    "units",
    "without_query",
]

Json: TypeAlias = dict[str, Any]  # Any: JSON that mutations look into

EventChange: TypeAlias = Callable[[Json, str | None], Iterable[tuple[Json, str | None]]]
"""An event's JSON and id to what is passed on in its place."""

_EVENT = re.compile(rb"data: (\{.*\})\n(?:id: (.*)\n)?\n")


def is_chats(request: Request) -> bool:
    """A stream of chats, as PROTOCOL §4 has it."""
    return request.path == "/v1/chats/subscribe"


def is_feed(request: Request) -> bool:
    return request.path == "/v1/chats/feed"


def answers(path: str, change: Callable[[Request, Answer], None]) -> Callable[[Request, Answer], None]:
    """Changes the answers to requests whose `METHOD /path` matches, streams left alone."""
    wanted = re.compile(path)

    def of(request: Request, answer: Answer) -> None:
        if answer.body is not None and wanted.fullmatch(f"{request.method} {request.path}"):
            change(request, answer)

    return of


def json_answers(path: str, change: Callable[[Request, Json], Json | None]) -> Callable[[Request, Answer], None]:
    """Changes the JSON objects of good answers. `change` may change its argument or give another."""

    def of(request: Request, answer: Answer) -> None:
        if answer.status == 200 and answer.body:
            body = json.loads(answer.body)
            if isinstance(body, dict):
                changed = change(request, body)
                answer.body = json.dumps(changed or body, ensure_ascii=False, separators=(",", ":")).encode()

    return answers(path, of)


def header(name: str, value: str | None, *, streams: bool = True) -> Callable[[Request, Answer], None]:
    """Sets a header of event streams, or of everything else; None takes it away."""

    def of(request: Request, answer: Answer) -> None:
        if (answer.body is None) is streams and name in answer.headers:
            del answer.headers[name]
            if value is not None:
                answer.headers[name] = value

    return of


def units(wanted: Callable[[Request], bool], make: Callable[[], UnitChange]) -> Callable[[Request], UnitChange | None]:
    """Changes the units of streams whose request is wanted; `make` is called for each."""
    return lambda request: make() if wanted(request) else None


def events(
    wanted: Callable[[Request], bool], make: Callable[[Request], EventChange]
) -> Callable[[Request], UnitChange | None]:
    """Changes the events of native streams, parsed; other units pass."""

    def of(request: Request) -> UnitChange | None:
        if not wanted(request):
            return None
        change = make(request)

        def unit(data: bytes) -> Iterable[bytes]:
            found = _EVENT.fullmatch(data)
            if found is None:
                yield data
                return
            before = (json.loads(found[1]), None if found[2] is None else found[2].decode())
            untouched = json.dumps(before[0])
            for event, event_id in change(*before):
                is_same = (event_id, json.dumps(event)) == (before[1], untouched)
                yield data if is_same else event_unit(event, event_id)

        return unit

    return of


def changed(kind: str, **words: object) -> EventChange:
    """Sets fields of every event of a type; None takes them away."""

    def change(event: Json, event_id: str | None) -> Iterable[tuple[Json, str | None]]:
        if event["type"] == kind:
            for key, value in words.items():
                event.pop(key, None)
                if value is not None:
                    event[key] = value
        yield event, event_id

    return change


def lost(kind: str) -> EventChange:
    """Loses events of a type and numbers the rest so that `seq` has no gap. Ids stay as they are."""
    lost: dict[object, int] = {}

    def change(event: Json, event_id: str | None) -> Iterable[tuple[Json, str | None]]:
        chat_id = event.get("chat_id")
        if event["type"] == "snapshot":
            lost[chat_id] = 0
        if event["type"] == kind:
            lost[chat_id] = lost.get(chat_id, 0) + 1
            return
        if "seq" in event and lost.get(chat_id):
            event["seq"] = str(int(event["seq"]) - lost[chat_id])
        yield event, event_id

    return change


def twice(kind: str, *, renumbered: bool = False) -> EventChange:
    """Tells events of a type a second time. `renumbered`: under a number of its own, so that `seq` has no gap."""
    more: dict[object, int] = {}

    def change(event: Json, event_id: str | None) -> Iterable[tuple[Json, str | None]]:
        chat_id = event.get("chat_id")
        if event["type"] == "snapshot":
            more[chat_id] = 0
        elif renumbered and "seq" in event:
            event["seq"] = str(int(event["seq"]) + more.get(chat_id, 0))
        yield event, event_id
        if event["type"] == kind:
            more[chat_id] = more.get(chat_id, 0) + 1
            yield {**event, "seq": str(int(event["seq"]) + 1)} if renumbered else dict(event), event_id

    return change


def replacing(pattern: bytes, by: bytes) -> UnitChange:
    """Replaces what matches in every unit."""

    def unit(data: bytes) -> Iterable[bytes]:
        yield re.sub(pattern, by, data)

    return unit


def event_unit(event: Json, event_id: str | None) -> bytes:
    """An event as our server writes it."""
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return f"data: {data}\n{'' if event_id is None else f'id: {event_id}{chr(10)}'}\n".encode()


def query(request: Request, **values: str) -> None:
    """Sets parameters of the query that are there already."""
    address = urlsplit(request.target)
    pairs = [(key, values.get(key, value)) for key, value in parse_qsl(address.query, keep_blank_values=True)]
    request.target = f"{address.path}?{urlencode(pairs)}"


def without_query(request: Request, *names: str) -> None:
    """Takes parameters out of the query."""
    address = urlsplit(request.target)
    pairs = [pair for pair in parse_qsl(address.query, keep_blank_values=True) if pair[0] not in names]
    request.target = f"{address.path}?{urlencode(pairs)}" if pairs else address.path
