"""Building blocks of the mutations: changes of requests, JSON answers, headers, and events of a stream."""

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
    "bodies",
    "changed",
    "event_unit",
    "events",
    "header",
    "is_chats",
    "is_feed",
    "json_answers",
    "json_requests",
    "lost",
    "mapped",
    "query",
    "replacing",
    "twice",
    "units",
    "without_query",
]

Json: TypeAlias = dict[str, Any]  # Any: JSON of which mutations read parts

EventChange: TypeAlias = Callable[[Json, str | None], Iterable[tuple[Json, str | None]]]
"""Maps an event's JSON and id to the events that are passed on instead."""

_EVENT = re.compile(rb"data: (\{.*\})\n(?:id: (.*)\n)?\n")


def is_chats(request: Request) -> bool:
    """Return whether a request opens a stream of chats (PROTOCOL §4)."""
    return request.path == "/v1/chats/subscribe"


def is_feed(request: Request) -> bool:
    return request.path == "/v1/chats/feed"


def answers(path: str, change: Callable[[Request, Answer], None]) -> Callable[[Request, Answer], None]:
    """Change the answers to requests whose `METHOD /path` matches, except streams."""
    wanted = re.compile(path)

    def of(request: Request, answer: Answer) -> None:
        if answer.body is not None and wanted.fullmatch(f"{request.method} {request.path}"):
            change(request, answer)

    return of


def bodies(path: str, change: Callable[[bytes], bytes]) -> Callable[[Request, Answer], None]:
    """Changes the bodies of answers with status 200."""

    def of(request: Request, answer: Answer) -> None:
        if answer.status == 200 and answer.body:
            answer.body = change(answer.body)

    return answers(path, of)


def json_requests(part: bytes, change: Callable[[Json], Json]) -> Callable[[Request], None]:
    """Changes the JSON bodies of requests that contain `part`."""

    def of(request: Request) -> None:
        if part in request.body:
            request.body = json.dumps(change(json.loads(request.body))).encode()

    return of


def json_answers(path: str, change: Callable[[Request, Json], Json | None]) -> Callable[[Request, Answer], None]:
    """Changes the JSON objects of answers with status 200. `change` changes its argument or returns another object."""

    def of(request: Request, answer: Answer) -> None:
        if answer.status == 200 and answer.body:
            body = json.loads(answer.body)
            if isinstance(body, dict):
                changed = change(request, body)
                answer.body = json.dumps(changed or body, ensure_ascii=False, separators=(",", ":")).encode()

    return answers(path, of)


def header(name: str, value: str | None, *, streams: bool = True) -> Callable[[Request, Answer], None]:
    """Sets a header of event streams, or of all other answers. The value None removes the header."""

    def of(request: Request, answer: Answer) -> None:
        if (answer.body is None) is streams and name in answer.headers:
            del answer.headers[name]
            if value is not None:
                answer.headers[name] = value

    return of


def units(wanted: Callable[[Request], bool], make: Callable[[], UnitChange]) -> Callable[[Request], UnitChange | None]:
    """Changes the units of streams whose request satisfies a condition. `make` is called for each stream."""
    return lambda request: make() if wanted(request) else None


def events(
    wanted: Callable[[Request], bool], make: Callable[[Request], EventChange]
) -> Callable[[Request], UnitChange | None]:
    """Changes the parsed events of native streams. Other units are passed on unchanged."""

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


def mapped(change: Callable[[Json], object]) -> EventChange:
    """Changes each event in place."""

    def of(event: Json, event_id: str | None) -> Iterable[tuple[Json, str | None]]:
        change(event)
        yield event, event_id

    return of


def changed(kind: str, **words: object) -> EventChange:
    """Sets fields of every event of a type. The value None removes a field."""

    def change(event: Json) -> None:
        if event["type"] == kind:
            event.update(words)
            for key in [key for key, value in words.items() if value is None]:
                del event[key]

    return mapped(change)


def lost(kind: str) -> EventChange:
    """Drops events of a type and renumbers the others so that `seq` has no gap. Ids are not changed."""
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
    """Sends events of a type twice. If `renumbered`, the second copy and all later events get the next numbers, so that
    `seq` stays correct."""
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
    """Replaces every match of a pattern in every unit."""

    def unit(data: bytes) -> Iterable[bytes]:
        yield re.sub(pattern, by, data)

    return unit


def event_unit(event: Json, event_id: str | None) -> bytes:
    """Return an event as Threadcast writes it."""
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return f"data: {data}\n{'' if event_id is None else f'id: {event_id}{chr(10)}'}\n".encode()


def query(request: Request, **values: str) -> None:
    """Set existing parameters of the query."""
    address = urlsplit(request.target)
    pairs = [(key, values.get(key, value)) for key, value in parse_qsl(address.query, keep_blank_values=True)]
    request.target = f"{address.path}?{urlencode(pairs)}"


def without_query(request: Request, *names: str) -> None:
    """Remove parameters of the query."""
    address = urlsplit(request.target)
    pairs = [pair for pair in parse_qsl(address.query, keep_blank_values=True) if pair[0] not in names]
    request.target = f"{address.path}?{urlencode(pairs)}" if pairs else address.path
